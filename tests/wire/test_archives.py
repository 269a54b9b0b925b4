"""The C kernel's decoders of archives: right by other encoders, typed errors for any bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.archives import spoiled, unpacked
from tests.support import archives, s2
from tests.support.archives import Message
from tests.wire.strategies import header_blocks, payloads, subjects
from tests.wire.test_kernels import rows_of

from jetspark.backup.archive_content import ArchiveContent
from jetspark.backup.folder import BackupWriter
from jetspark.backup.message_list import parse_entry
from jetspark.errors import BackupError, ConfigError
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.wire import _kernel  # type: ignore[attr-defined]
from jetspark.wire.kernel import OTHER_FRAME

KEY = bytes(range(32))


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """(block, content): literals, and copies of every form, S2's repeats among them."""
    out, block, offset = bytearray(), bytearray(), 0
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["literal", "near", "far", "repeat"])) if out else "literal"
        if kind == "literal":
            text = draw(st.binary(min_size=1, max_size=80))
            size = len(text) - 1
            block += bytes([size << 2]) if size < 60 else bytes([60 << 2, size])
            block += text
            out += text
            continue
        length = draw(st.integers(1, 64))
        if kind == "repeat" and offset:
            length = draw(st.sampled_from([4, 5, 8, 9, 200, 300, 70_000]))
            block += _repeat(length)
        elif kind == "near":
            offset, length = draw(st.integers(1, min(len(out), 2047))), draw(st.integers(4, 8))
            block += bytes([offset >> 8 << 5 | (length - 4) << 2 | 1, offset & 0xFF])
        else:
            offset = draw(st.integers(1, len(out)))
            wide = draw(st.booleans()) or offset > 0xFFFF
            block += bytes([length - 1 << 2 | (3 if wide else 2)])
            block += offset.to_bytes(4 if wide else 2, "little")
        for _ in range(length):
            out.append(out[-offset])
    return bytes(block), bytes(out)


def _repeat(length: int) -> bytes:
    rest = length - 4
    if rest < 5:
        return bytes([rest << 2 | 1, 0])
    for code, width, more in ((7, 3, 1 << 16), (6, 2, 1 << 8), (5, 1, 4)):
        if rest >= more:
            return bytes([code << 2 | 1, 0]) + (rest - more).to_bytes(width, "little")
    raise AssertionError


# -- frames and blocks -----------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_what_another_encoder_packed_comes_back(parts: list[bytes], step: int) -> None:
    content = b"".join(parts * 3)
    assert unpacked(_kernel, bytes(cramjam.snappy.compress(content)), step) == (content, None)


@given(st.lists(blocks(), max_size=3))
def test_every_form_of_copy_is_unpacked(made: list[tuple[bytes, bytes]]) -> None:
    data = archives.IDENTIFIER + b"".join(archives.block_frame(*block) for block in made)
    content = b"".join(content for _, content in made)
    assert s2.decompress(data) == content
    assert unpacked(_kernel, data, 1000) == (content, None)


@given(st.lists(blocks(), max_size=3), st.data())
def test_any_bytes_are_unpacked_alike_whole_and_in_pieces(
    made: list[tuple[bytes, bytes]], data: Any
) -> None:
    sent = archives.IDENTIFIER + b"".join(archives.block_frame(*block) for block in made)
    sent = spoiled(sent, data.draw(st.randoms(use_true_random=False)))
    content, error = unpacked(_kernel, sent, 64)
    assert (content, error) == unpacked(_kernel, sent, len(sent) or 1)
    assert error is None or error.startswith("The archive is damaged")


def test_unpacking_stops_after_a_megabyte_whatever_the_frames_say() -> None:
    # 4 MiB in each frame: one zero, then repeats of it.
    size = 4 << 20
    block = b"\x00\x00" + b"\x01\x01" + _repeat(size - 5)
    sent = archives.IDENTIFIER + archives.block_frame(block, bytes(size)) * 20
    into = bytearray()
    end, need = _kernel.S2Decoder().decode(sent, 0, into)
    assert need == 0
    assert len(into) == size
    assert end < len(sent) // 10


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x00\x00x",
        b"\xff\x06\x00\x00snappy",
        b"\xff\xff\xff\xff",
        archives.IDENTIFIER + b"\x02\x01\x00\x00x",
        archives.IDENTIFIER + b"\x00\x03\x00\x00xxx",
        archives.IDENTIFIER + b"\x01\xff\xff\xff",
        archives.IDENTIFIER + archives.frame(0, b"crc." + b"\xff" * 12),
        archives.IDENTIFIER + archives.frame(1, b"crc.content"),
    ],
    ids=range(8),
)
def test_other_bytes_are_refused_before_more_is_wanted(sent: bytes) -> None:
    decoder = _kernel.S2Decoder()
    with pytest.raises(BackupError):
        decoder.decode(sent, 0, bytearray())


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_checksums_are_equal_with_and_without_the_processors_help(data: bytes, key: bytes) -> None:
    assert _kernel.crc32c(data) == _kernel.crc32c(data, True)
    assert _kernel.highway(key, data) == _kernel.highway(key, data, True)


def test_checksums_are_the_published_ones() -> None:
    assert _kernel.crc32c(b"123456789") == 0xE3069283
    found = [_kernel.highway(KEY, bytes(range(size))) for size in range(4)]
    assert found == [
        0x907A56DE22C26E53, 0x7EAB43AAC7CDDD78, 0xB8D0569AB0B53D62, 0x5C6BEFAB8A463D80
    ]  # fmt: skip


# -- messages ------------------------------------------------------------------------------------


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    rows = st.tuples(subjects, st.integers(-5, 2**63 - 1), st.just(b"") | header_blocks, payloads)
    found = []
    sequence = 0
    for subject, ns, block, payload in draw(st.lists(rows, max_size=6)):
        sequence += draw(st.integers(1, 1000))
        found.append((subject, sequence, ns, block, payload))
    return found


@given(messages(), st.integers(0, 1500), st.integers(0, 3000), st.integers(0, 60))
def test_entries_become_rows(sent: list[Message], start: int, count: int, cut: int) -> None:
    data = b"".join(map(archives.entry, sent))
    data = data[: len(data) - cut] if cut else data
    decoder, rows = _kernel.EntryDecoder(start, start + count), _kernel.Deliveries()
    end, need = decoder.decode(data, 0, rows)
    whole = [archives.entry(message) for message in sent]
    complete = 0
    while complete < len(whole) and sum(map(len, whole[: complete + 1])) <= len(data):
        complete += 1
    assert (end, need) == (sum(map(len, whole[:complete])), 0)
    assert decoder.last_sequence == (sent[complete - 1][1] if complete else 0)
    wanted = [one for one in sent[:complete] if start <= one[1] < start + count]
    assert rows_of(rows.take()) == wanted


def test_an_entry_that_is_no_message_is_left_to_the_caller() -> None:
    data = archives.message_list([(b"s", 7, 1, b"", b"x")])
    decoder, rows = _kernel.EntryDecoder(1, 100), _kernel.Deliveries()
    at, other = decoder.decode(data, 8, rows)
    assert (at, other, len(rows)) == (8, OTHER_FRAME, 0)


@given(messages(), st.data())
def test_records_become_rows_without_what_was_erased(sent: list[Message], data: Any) -> None:
    parts, wanted = [], []
    for message in sent:
        kind = data.draw(st.sampled_from(["live", "erased", "tombstone", "twice"]))
        marks = {"erased": 1 << 63, "tombstone": 1 << 62}.get(kind, 0)
        parts += [archives.record(message, KEY, marks)] * (2 if kind == "twice" else 1)
        if kind in ("live", "twice"):
            wanted.append(message)
    decoder, rows = _kernel.RecordDecoder(KEY, 0, 2**62), _kernel.Deliveries()
    assert decoder.decode(b"".join(parts), 0, rows) == sum(map(len, parts))
    assert rows_of(rows.take()) == wanted


def joined(message: Message) -> tuple[int, int, bytes]:
    subject, sequence, ns, block, payload = message
    return sequence, ns, subject + block + payload


@given(messages(), st.data())
def test_any_entries_and_records_are_rows_or_a_typed_error(sent: list[Message], data: Any) -> None:
    rng = data.draw(st.randoms(use_true_random=False))
    entries = b"".join(map(archives.entry, sent))
    records = b"".join(archives.record(message, KEY) for message in sent)
    for decoder, content in (
        (_kernel.EntryDecoder(0, 2**62), entries),
        (_kernel.RecordDecoder(KEY, 0, 2**62), records),
    ):
        rows = _kernel.Deliveries()
        with suppress(BackupError):
            decoder.decode(spoiled(content, rng), 0, rows)
        if content is records:  # the server's checksum does not cover where the parts end
            assert {*map(joined, rows_of(rows.take()))} <= {*map(joined, sent)}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (b"\xff" * 9 + b"\x02", "an entry in it has no valid sizes"),
        (b"\xff\xff\xff\x7f\0\1\0\0", "an entry in it has no valid sizes"),
        (archives.entry((b"s", 2, 1, b"", b"")), "message 2 comes after message 2"),
    ],
)
def test_an_error_says_what_is_wrong_with_an_entry(entry: bytes, says: str) -> None:
    decoder, rows = _kernel.EntryDecoder(0, 10), _kernel.Deliveries()
    decoder.decode(archives.entry((b"s", 2, 1, b"", b"x")), 0, rows)
    with pytest.raises(BackupError, match=says):
        decoder.decode(entry, 0, rows)


def test_an_error_says_what_is_wrong_with_a_record() -> None:
    good = archives.record((b"s", 1, 1, b"", b"x"), KEY)
    for wrong, says in (
        (good[:-1] + bytes([good[-1] ^ 1]), "the checksum of a message does not match"),
        (b"\0\0\0\0" + good[4:], "a record in it has no valid sizes"),
    ):
        with pytest.raises(BackupError, match=says):
            _kernel.RecordDecoder(KEY, 0, 9).decode(wrong, 0, _kernel.Deliveries())


def test_an_entry_beside_messages_is_read_when_it_is_whole() -> None:
    state = archives.entry((b"state.json", 0, 1, b"h", b"{}"))
    assert parse_entry(b"x" + state + b"y", 1) == (b"state.json", 0, b"{}", 1 + len(state))
    for cut in range(len(state)):
        assert parse_entry(state[:cut], 0) is None
    for wrong in (b"\x80" * 10, b"\xff\xff\xff\x7f\0\0\0\0"):
        with pytest.raises(BackupError, match="no valid sizes"):
            parse_entry(wrong, 0)


def test_without_the_c_kernel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetspark.wire.kernel.IMPLEMENTATION", "python")
    for attempt in (
        lambda: ArchiveContent(bytes),
        lambda: BackupWriter("nowhere", "S"),
        lambda: SequenceRange("S", 1, 2, "", snapshot=True),
    ):
        with pytest.raises(ConfigError, match=r"C kernel, .*C compiler"):
            attempt()


def test_c_decoders_refuse_wrong_arguments() -> None:
    into = bytearray()
    with pytest.raises(ValueError, match="pos"):
        _kernel.S2Decoder().decode(b"", 1, into)
    with pytest.raises(TypeError):
        _kernel.S2Decoder().decode(b"", 0, b"")
    with memoryview(into), pytest.raises(BufferError):
        _kernel.S2Decoder().decode(archives.stream_of(b"x"), 0, into)
    with pytest.raises(ValueError, match="32 bytes"):
        _kernel.RecordDecoder(b"short", 1, 2)
    with pytest.raises(TypeError):
        _kernel.EntryDecoder(1, 2).decode(b"", 0, [])
