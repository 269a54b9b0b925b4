"""The straight-to-columns decoder gives what the general parser and reply subjects give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import header_blocks, payloads, subjects

from jetspark.wire.events import Event
from jetspark.wire.kernel import OTHER_FRAME, Deliveries, DeliveryDecoder, split_frames
from jetspark.wire.reply_subject import parse_reply_subject

numbers = st.integers(1, 2**63 - 1)  # times are signed on the server


@st.composite
def deliveries(draw: st.DrawFn) -> bytes:
    domain = draw(st.sampled_from([b"", b"hub.ACCHASH.", b"_.ACCHASH."]))
    tail = draw(st.sampled_from([b"", b".rnd7"])) if domain else b""
    counts = b".".join(b"%d" % draw(numbers) for _ in range(5))
    reply = b"$JS.ACK.%bS-1.c_1.%b%b" % (domain, counts, tail)
    subject, payload, block = draw(subjects), draw(payloads), draw(st.none() | header_blocks)
    if block is None:
        return b"MSG %b 4 %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    total = len(block) + len(payload)
    line = b"HMSG %b 4 %b %d %d\r\n" % (subject, reply, len(block), total)
    return line + block + payload + b"\r\n"


@given(st.lists(deliveries(), max_size=6), st.integers(0, 400))
def test_columns_equal_the_frames(sent: list[bytes], cut: int) -> None:
    data = b"".join(sent)[: -cut or None]
    columns = Deliveries()
    decoder = DeliveryDecoder("S-1", "c_1")
    end, need = decoder.decode(data, 0, columns)
    frames: list[Event] = []
    frames_end, frames_need = split_frames(data, frames)
    assert end == frames_end
    assert need in (OTHER_FRAME, frames_need)
    rows = list(
        zip(
            columns.subjects,
            columns.sequences,
            columns.times,
            columns.headers,
            columns.data,
            strict=True,
        )
    )
    expected = []
    for frame in frames:
        assert isinstance(frame, tuple)
        meta = parse_reply_subject(frame[2])
        assert (meta.stream, meta.consumer) == ("S-1", "c_1")
        sequence, time = str(meta.stream_seq).encode(), str(meta.timestamp_ns).encode()
        expected.append((frame[1], sequence, time, frame[3], frame[4]))
        last = meta
    assert rows == expected
    if rows:
        assert (decoder.consumer_sequence, decoder.pending) == (last.consumer_seq, last.pending)
        assert columns.size == end


@given(deliveries())
def test_another_consumer_is_not_decoded(sent: bytes) -> None:
    columns = Deliveries()
    assert DeliveryDecoder("S-1", "c_2").decode(sent, 0, columns) == (0, OTHER_FRAME)
    assert DeliveryDecoder("S.1", "c_1").decode(sent, 0, columns) == (0, OTHER_FRAME)
    assert len(columns) == 0
