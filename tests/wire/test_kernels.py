"""The C kernel and its plain-Python twin: equal results for any bytes.

Without the C kernel only the twin is tested.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz.streams import stream
from tests.wire.strategies import Sent, header_blocks, payloads, streams, subjects

from jetspark.errors import NotJetStreamMessageError, ProtocolError
from jetspark.wire import _python_kernel, kernel
from jetspark.wire.kernel import OTHER_FRAME, Event
from jetspark.wire.parser import one_by_one
from jetspark.wire.reply_subject import parse_reply_subject

try:
    from jetspark.wire import _kernel  # type: ignore[attr-defined]
except ImportError:
    _kernel = None

KERNELS = [_python_kernel] if _kernel is None else [_python_kernel, _kernel]
every_kernel = pytest.mark.parametrize("one", KERNELS, ids=lambda each: each.__name__[15:])
both = pytest.mark.skipif(_kernel is None, reason="the C kernel was not built")

numbers = st.integers(1, 2**63 - 1)  # times are signed on the server


@st.composite
def deliveries(draw: st.DrawFn) -> bytes:
    domain = draw(st.sampled_from([b"", b"hub.ACCHASH.", b"_.ACCHASH.", b"S-1.c_1."]))
    tail = draw(st.sampled_from([b"", b".rnd7"])) if domain else b""
    counts = b".".join(b"%d" % draw(numbers) for _ in range(5))
    reply = b"$JS.ACK.%bS-1.c_1.%b%b" % (domain, counts, tail)
    subject, payload, block = draw(subjects), draw(payloads), draw(st.none() | header_blocks)
    if block is None:
        return b"MSG %b 4 %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    total = len(block) + len(payload)
    line = b"HMSG %b 4 %b %d %d\r\n" % (subject, reply, len(block), total)
    return line + block + payload + b"\r\n"


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Frames with a few bytes changed, and cut off somewhere."""
    parts = draw(st.lists(st.one_of(deliveries(), streams.map(joined)), max_size=4))
    data = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from(
                [b"", b" ", b"\t", b"\r", b"\r\n", b"0", b"9", b"x", b".", b"-", b"1_0"]
            )
        )
    return bytes(data[: draw(st.integers(0, len(data)))])


def joined(sent: list[Sent]) -> bytes:
    return b"".join(data for data, _ in sent)


# -- frames ----------------------------------------------------------------------------------------


def split(kernel: Any, data: bytes, /, **options: Any) -> tuple[list[Event], Any]:
    events: list[Event] = []
    try:
        return events, kernel.split_frames(data, events, **options)
    except ProtocolError as error:
        return events, str(error)


def as_tuple(event: Any) -> Any:
    """The fields of a message: each kernel has a class of its own for them."""
    if not hasattr(event, "sid"):
        return event
    return event.sid, event.subject, event.reply, event.headers, event.payload


def plain(events: list[Event]) -> list[Any]:
    return [
        (event[0], [as_tuple(frame) for frame in event[1]], event[2])
        if isinstance(event, tuple)
        else event
        for event in events
    ]


def plain_split(of: Any, data: bytes, /, **options: Any) -> tuple[list[Any], Any]:
    events, end = split(of, data, **options)
    return plain(events), end


@both
@given(st.one_of(spoiled(), st.randoms(use_true_random=False).map(stream)))
def test_kernels_split_any_bytes_into_same_frames_and_errors(data: bytes) -> None:
    assert plain_split(_kernel, data) == plain_split(_python_kernel, data)
    assert plain_split(_kernel, data, one=True) == plain_split(_python_kernel, data, one=True)


@both
@given(st.binary(max_size=9), st.integers(0, 2**63), st.binary(max_size=9), st.binary(max_size=200))
def test_kernels_write_same_numbered_publish(
    head: bytes, number: int, tail: bytes, payload: bytes
) -> None:
    frame = _kernel.numbered_publish(head, number, tail, payload)
    assert frame == _python_kernel.numbered_publish(head, number, tail, payload)
    assert frame == b"PUB %b%d%b %d\r\n%b\r\n" % (head, number, tail, len(payload), payload)


_ACK = b'{"stream":"S","seq":'
_subjects = st.sampled_from(
    [b"in.7", b"in.", b"in", b"in.x", b"in.0012", b"in.1_0", b"in." + b"9" * 18, b"in." + b"9" * 19]
)
_ack_payloads = st.one_of(
    st.integers(0, 10**25).map(lambda seq: _ACK + b"%d}" % seq),
    st.sampled_from([b"", _ACK, _ACK + b"}", _ACK + b"1", _ACK + b'1,"duplicate":true}', b"{}"]),
)


@both
@given(
    st.lists(st.tuples(_subjects, _ack_payloads), max_size=6),
    st.integers(0, 7),
    st.sampled_from([_ACK, b"", b"{}"]),
    st.integers(0, 5),
)
def test_kernels_read_same_numbers_of_acks(
    acks: list[tuple[bytes, bytes]], first: int, head: bytes, tail_at: int
) -> None:
    numbers = [
        each.numbered_acks(
            [each.MessageFrame(1, subject, None, None, ack) for subject, ack in acks],
            first,
            head,
            tail_at,
        )
        for each in (_kernel, _python_kernel)
    ]
    assert numbers[0] == numbers[1]


@both
def test_kernels_stop_at_first_reply_that_is_no_plain_ack() -> None:
    for one in (_kernel, _python_kernel):
        frames = [
            one.MessageFrame(1, b"in.%d" % number, None, None, ack)
            for number, ack in enumerate([_ACK + b"5}", _ACK + b"6}", b"", _ACK + b"7}"], 1)
        ]
        assert one.numbered_acks(frames, 0, _ACK, 3) == [1, 2]
        assert one.numbered_acks(frames, 2, _ACK, 3) == []
        assert one.numbered_acks(frames, 3, _ACK, 3) == [4]


@both
@pytest.mark.parametrize(
    "data",
    [
        b" MSG a 1 1\r\nx\r\n",
        b"MSG a 1 0000000000000000000000003\r\nabc\r\n",
        b"MSG a 0000000000000000001 1\r\nx\r\n",
        b"MSG a 999999999999999999 1\r\nx\r\n",
        b"MSG a 9999999999999999999 1\r\nx\r\n",
        b"MSG a 1 %d\r\n" % (128 << 20),
        b"MSG a 1 %d\r\n" % ((128 << 20) + 1),
        b"MSG a 1 " + b"9" * 5000 + b"\r\n",
        b"MSGa 1 1\r\nx\r\n",
        b"MSG\ta\x0b1\x0c1\r\nx\r\n",
        b"MSG a\r1 1\r\nx\r\n",
        b"msg a 1 1\r\nx\r\n",
        b"HMSG a 1 r 0 0\r\n\r\n",
        b"x" * ((1 << 20) + 1),
        b"PING\r",
        b"\r\n",
        b"",
    ],
    ids=range(17),
)
def test_kernels_split_odd_bytes_alike(data: bytes) -> None:
    assert plain_split(_kernel, data) == plain_split(_python_kernel, data)


@every_kernel
@given(streams)
def test_runs_have_one_sid_and_all_or_no_reply_subjects(one: Any, sent: list[Sent]) -> None:
    events, end = split(one, joined(sent))
    assert end == (len(joined(sent)), 0)
    assert [as_tuple(event) for event in one_by_one(events)] == [
        as_tuple(event) for _, event in sent
    ]
    for event in events:
        if isinstance(event, tuple):
            sid, frames, size = event
            assert {frame.sid for frame in frames} == {sid}
            assert len({frame.reply is None for frame in frames}) == 1
            assert size == sum(len(frame.payload) for frame in frames)
    keys = [
        (event[0], event[1][0].reply is None) if isinstance(event, tuple) else None
        for event in events
    ]
    assert not any(a == b is not None for a, b in pairwise(keys))


@every_kernel
def test_split_frames_begins_at_pos_and_stops_after_one(one: Any) -> None:
    data = b"PING\r\nMSG a 1 1\r\nx\r\nMSG a 1 1\r\ny\r\n"
    events: list[Event] = []
    assert one.split_frames(data, events, 6, one=True) == (20, 0)
    assert plain(events) == [(1, [(1, b"a", None, None, b"x")], 1)]
    with pytest.raises((TypeError, AttributeError)):
        one.split_frames("text", events)


# -- deliveries ------------------------------------------------------------------------------------


def texts(offsets: Any, data: Any) -> list[bytes]:
    edges = memoryview(offsets).cast("B").cast("i").tolist()
    whole = bytes(data)
    assert edges[0] == 0
    assert edges[-1] == len(whole)
    return [whole[a:b] for a, b in pairwise(edges)]


def rows_of(columns: _python_kernel.Columns) -> list[tuple[bytes, int, int, bytes, bytes]]:
    numbers = (
        memoryview(column).cast("B").cast("q").tolist()
        for column in (columns.sequences, columns.times)
    )
    rows = list(
        zip(
            texts(columns.subject_offsets, columns.subjects),
            *numbers,
            texts(columns.header_offsets, columns.headers),
            texts(columns.data_offsets, columns.data),
            strict=True,
        )
    )
    assert len(rows) == columns.rows
    return rows


@every_kernel
@given(st.lists(deliveries(), max_size=6), st.integers(0, 400))
def test_columns_equal_the_frames(one: Any, sent: list[bytes], cut: int) -> None:
    data = b"".join(sent)[: -cut or None]
    columns, decoder = one.Deliveries(), one.DeliveryDecoder("S-1", "c_1")
    end, need = decoder.decode(data, 0, columns)
    events, (frames_end, frames_need) = split(_python_kernel, data)
    assert end == frames_end
    assert need in (OTHER_FRAME, frames_need)
    expected = []
    for frame in one_by_one(events):
        assert isinstance(frame, _python_kernel.MessageFrame)
        meta = parse_reply_subject(frame.reply)
        assert (meta.stream, meta.consumer) == ("S-1", "c_1")
        expected.append(
            (frame.subject, meta.stream_seq, meta.timestamp_ns, frame.headers or b"", frame.payload)
        )
        last = meta
    if expected:
        assert (decoder.consumer_sequence, decoder.pending) == (last.consumer_seq, last.pending)
        assert columns.last_sequence == last.stream_seq
        assert columns.size == end
    assert columns.sequences() == [row[1] for row in expected]
    assert columns.subjects() == [row[0] for row in expected]
    assert rows_of(columns.take()) == expected
    assert (len(columns), columns.size, columns.last_sequence) == (0, 0, 0)


@both
@given(spoiled())
@example(b"HMSG s 4 $JS.ACK._.A.S-1.c_1.1.00.1.1.1.1 12 12\r\nNATS/1.0\r\n\r\n\r\n")
def test_kernels_decode_any_bytes_alike(data: bytes) -> None:
    seen = []
    for one in KERNELS:
        columns, decoder = one.Deliveries(), one.DeliveryDecoder("S-1", "c_1")
        end = decoder.decode(data, 0, columns)
        seen.append((end, decoder.consumer_sequence, decoder.pending, rows_of(columns.take())))
    assert seen[0] == seen[1]


@every_kernel
def test_numbers_of_more_than_63_bits_are_not_decoded(one: Any) -> None:
    for number, taken in ((2**63 - 1, True), (2**63, False), (9 * 10**18, True), (10**19, False)):
        for at in range(5):
            numbers = ["7" if other != at else str(number) for other in range(5)]
            line = f"MSG a 1 $JS.ACK.S-1.c_1.{'.'.join(numbers)} 0\r\n\r\n".encode()
            rows = one.Deliveries()
            end, _ = one.DeliveryDecoder("S-1", "c_1").decode(line, 0, rows)
            assert (end == len(line)) is taken
            assert len(rows) == taken


@every_kernel
@given(deliveries())
def test_another_consumer_is_not_decoded(one: Any, sent: bytes) -> None:
    columns = one.Deliveries()
    assert one.DeliveryDecoder("S-1", "c_2").decode(sent, 0, columns) == (0, OTHER_FRAME)
    assert one.DeliveryDecoder("S.1", "c_1").decode(sent, 0, columns) == (0, OTHER_FRAME)
    assert len(columns) == 0


Row = tuple[bytes, int, int, bytes | None, bytes]
rows = st.lists(
    st.tuples(subjects, numbers, numbers, st.none() | header_blocks, payloads), max_size=8
)


@every_kernel
@given(rows, st.integers(0, 9), st.data())
def test_rows_can_be_appended_cut_off_and_picked(
    one: Any, given_rows: list[Row], first: int, data: st.DataObject
) -> None:
    columns = one.Deliveries()
    for row in given_rows:
        columns.append(*row)
    expected = [(*row[:3], row[3] or b"", row[4]) for row in given_rows][:first]
    columns.truncate(first)
    kept = [row for row in range(len(expected)) if data.draw(st.booleans())]
    columns.keep(kept)
    columns.append(b"s", 7, 8, None, b"p")
    assert columns.sequences(len(kept)) == [7]
    assert columns.sequences(len(kept) + 5) == []
    assert columns.times() == [*(expected[row][2] for row in kept), 8]
    assert rows_of(columns.take()) == [*(expected[row] for row in kept), (b"s", 7, 8, b"", b"p")]


@every_kernel
def test_taken_columns_stay_when_more_rows_are_decoded(one: Any) -> None:
    columns = one.Deliveries()
    columns.append(b"a", 1, 2, None, b"x" * 5000)
    taken = columns.take()
    columns.append(b"b", 3, 4, None, b"y" * 5000)
    assert rows_of(taken) == [(b"a", 1, 2, b"", b"x" * 5000)]


@both
def test_threads_share_columns_of_the_c_kernel() -> None:
    """Each row is decoded, and taken, once."""
    frame = b"MSG a 1 $JS.ACK.S-1.c_1.1.%d.1.1.1 9\r\nsome data\r\n"
    columns, taken = _kernel.Deliveries(), []

    def decode(first: int) -> None:
        decoder = _kernel.DeliveryDecoder("S-1", "c_1")
        for number in range(first, first + 500):
            decoder.decode(frame % number, 0, columns)
            if number % 50 == 0:
                taken.append(columns.take())

    threads = [Thread(target=decode, args=(1 + 500 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for part in (*taken, columns.take()) for row in rows_of(part)]
    assert sorted(row[1] for row in rows) == [*range(1, 2001)]
    assert {(row[0], row[4]) for row in rows} == {(b"a", b"some data")}


@both
def test_c_kernel_refuses_wrong_arguments() -> None:
    columns = _kernel.Deliveries()
    mistakes: list[Callable[[], object]] = [
        lambda: _kernel.Deliveries(1),
        lambda: _kernel.DeliveryDecoder("S"),
        lambda: _kernel.DeliveryDecoder("S", "c").decode(b"", 0, object()),
        lambda: _kernel.DeliveryDecoder("S", "c").decode(b"", 1, columns),
        lambda: _kernel.split_frames(b"", [], 1),
        lambda: _kernel.split_frames(b"", (), 0),
        lambda: columns.append(b"s", 1, 2, None),
        lambda: columns.append("s", 1, 2, None, b""),
        lambda: columns.append(b"s", 2**63, 2, None, b""),
        lambda: columns.truncate(-1),
        lambda: columns.truncate("1"),
        lambda: columns.keep([0]),
        lambda: columns.keep((0,)),
        lambda: columns.sequences(-1),
        lambda: _kernel.header_pairs(b"\0\0\0\0\1\0\0\0", b""),
        lambda: _kernel.header_pairs(1, b""),
    ]
    for mistake in mistakes:
        with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
            mistake()
    assert len(columns) == 0


# -- headers ---------------------------------------------------------------------------------------

lines = st.lists(
    st.sampled_from(
        [b"a: b", b"a:b ", b"k:", b":v", b"no colon", b"", b"k:\tv\t", b"a:b:c", b"\r"]
    ),
    max_size=5,
)


@every_kernel
@given(st.lists(st.tuples(st.sampled_from([b"NATS/1.0", b"NATS/1.0 503 x", b"HTTP"]), lines)))
def test_headers_become_pairs(one: Any, given_blocks: list[tuple[bytes, list[bytes]]]) -> None:
    columns = one.Deliveries()
    expected = []
    for version, each in given_blocks:
        block = b"\r\n".join([version, *each, b"", b""])
        columns.append(b"s", 1, 2, block, b"")
        pairs = [line.partition(b":") for line in each if line.find(b":") > 0]
        good = version != b"HTTP"
        expected.append([(key, value.strip(b" \t")) for key, _, value in pairs] if good else [])
    taken = columns.take()
    found = one.header_pairs(taken.header_offsets, taken.headers)
    keys, values = texts(found.key_offsets, found.keys), texts(found.value_offsets, found.values)
    assert len(keys) == len(values) == found.pairs
    edges = memoryview(found.list_offsets).cast("B").cast("i").tolist()
    together = list(zip(keys, values, strict=True))
    assert [together[a:b] for a, b in pairwise(edges)] == expected


@both
@given(st.lists(st.one_of(header_blocks, spoiled(), st.binary(max_size=30))), st.binary(max_size=3))
def test_kernels_split_any_header_blocks_alike(blocks: list[bytes], tail: bytes) -> None:
    seen = []
    for one in KERNELS:
        columns = one.Deliveries()
        for block in blocks:
            columns.append(b"s", 1, 2, b"NATS/1.0" + block + tail, b"")
        taken = columns.take()
        found = one.header_pairs(taken.header_offsets, taken.headers)
        seen.append([found[0], *map(bytes, found[1:])])
    assert seen[0] == seen[1]


# -- reply subjects --------------------------------------------------------------------------------

READ = ["reply_fields", "stream_sequence", "stream_position"]


@every_kernel
@given(st.sampled_from([(b"", b""), (b"hub", b"ACC"), (b"_", b"ACC")]), st.data())
def test_reply_fields_of_jetstream_reply_subject(
    one: Any, domain: tuple[bytes, bytes], data: st.DataObject
) -> None:
    counts = st.integers(0, 2**64 - 1)
    found = [data.draw(numbers if at == 3 else counts) for at in range(5)]
    tail = b".rnd" if domain[1] and data.draw(st.booleans()) else b""
    before = b"%b.%b." % domain if domain[1] else b""
    reply = b"$JS.ACK.%bS\xc3\xa9.c.%b%b" % (before, b".".join(b"%d" % n for n in found), tail)
    name, account = domain[0].decode().strip("_"), domain[1].decode()
    assert one.reply_fields(reply) == ("Sé", "c", *found, name, account)
    assert one.stream_sequence(reply) == found[1]
    assert one.stream_position(reply) == (found[1], found[3], found[4])


@every_kernel
@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize(
    "reply",
    [
        *(None, b"", b"$JS.ACK.", b"_INBOX.a.b", b"$JS.ACK.S.c.1.x.3.4.5"),
        *(b"$JS.ACK.S.c.1.+2.3.4.5", b"$JS.ACK.S.c.1..3.4.5", b"$JS.ACK.S.c.1.2.3.4"),
        *(b"$JS.ACK.d.S.c.1.2.3.4.5", b"$JS.ACK.S.c.1.18446744073709551616.3.4.5"),
        b"$JS.ACK.S.c.1.018446744073709551615.3.4.5",
        b"$JS.ACK.S.c.1.99999999999999999999.3.4.5",
    ],
)
def test_other_replies_raise_not_jetstream(one: Any, read: str, reply: bytes | None) -> None:
    with pytest.raises(NotJetStreamMessageError):
        getattr(one, read)(reply)


@both
@given(
    st.lists(
        st.sampled_from([b"$JS", b"ACK", b"S", b"\xff", b"_", b"", b"1", b"23", b"%d" % 2**63]),
        max_size=13,
    )
)
def test_kernels_read_odd_reply_subjects_alike(tokens: list[bytes]) -> None:
    reply = b"$JS.ACK." + b".".join(tokens)
    for read in READ:
        said = []
        for one in KERNELS:
            try:
                said.append(getattr(one, read)(reply))
            except NotJetStreamMessageError as error:
                said.append(str(error))
        assert said[0] == said[1]


# -- which one -------------------------------------------------------------------------------------


FIELDS = (4, b"orders.eu", b"$JS.ACK.S-1.c_1.1.42.7.1700000000000000000.3", None, b"payload")


@every_kernel
def test_message_frame_fields_are_read_by_name_and_read_only(one: Any) -> None:
    frame = one.MessageFrame(*FIELDS)
    assert as_tuple(frame) == FIELDS
    assert frame == one.MessageFrame(*FIELDS)
    assert frame != one.MessageFrame(*FIELDS[:-1], b"other")
    assert repr(frame) == (
        "MessageFrame(sid=4, subject=b'orders.eu', "
        "reply=b'$JS.ACK.S-1.c_1.1.42.7.1700000000000000000.3', headers=None, payload=b'payload')"
    )
    with pytest.raises(AttributeError):
        frame.payload = b"x"
    assert not gc.is_tracked(frame)


@every_kernel
def test_message_holds_frame_and_client(one: Any) -> None:
    frame = one.MessageFrame(*FIELDS)

    class Message(one.Delivered):  # type: ignore[misc]
        __slots__ = ("more",)

    client = object()
    for message in (
        Message(client, frame),
        Message(frame=frame, client=client),
        *one.deliver(Message, client, [frame]),
    ):
        assert type(message) is Message
        assert message._client is client
        assert message._frame is frame
        assert message.data is FIELDS[4]
        assert message.seq == 42
        message.more = 1
        assert not hasattr(message, "__dict__")
    assert one.deliver(Message, client, []) == []
    with pytest.raises(NotJetStreamMessageError):
        _ = Message(client, one.MessageFrame(1, b"s", None, None, b"")).seq
    with pytest.raises(TypeError):
        Message(client)


@every_kernel
def test_a_message_in_a_cycle_with_its_client_is_collected(one: Any) -> None:
    class Message(one.Delivered):  # type: ignore[misc]
        __slots__ = ()

    class Client:
        last: list[Any]

    client = Client()
    client.last = one.deliver(Message, client, [one.MessageFrame(*FIELDS)] * 3)
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None


@every_kernel
def test_deliver_leaks_no_references(one: Any) -> None:
    class Message(one.Delivered):  # type: ignore[misc]
        __slots__ = ("more",)

    frame = one.MessageFrame(4, b"s", None, None, b"x" * 100)
    before = sys.getrefcount(frame), sys.getrefcount(Message)
    for _ in range(10):
        del one.deliver(Message, None, [frame] * 100)[50:]
    assert (sys.getrefcount(frame), sys.getrefcount(Message)) == before


@both
def test_kernel_refuses_what_is_no_frame_or_message_class() -> None:
    frame = _kernel.MessageFrame(*FIELDS)
    for fields in (
        (),
        FIELDS[:4],
        ("4", *FIELDS[1:]),
        (*FIELDS[:2], "r", None, b""),
        (*FIELDS[:4], ""),
    ):
        with pytest.raises(TypeError):
            _kernel.MessageFrame(*fields)
    with pytest.raises(TypeError):
        _kernel.Delivered(None, FIELDS)
    with pytest.raises(TypeError):
        _kernel.deliver(_kernel.Delivered, None, [frame, b"no frame"])
    with pytest.raises(TypeError):
        _kernel.deliver(int, None, [frame])
    with pytest.raises(AttributeError):
        _kernel.Delivered(None, frame)._frame = None


def imported(wanted: str) -> subprocess.CompletedProcess[str]:
    program = "import jetspark.wire.kernel as k; print(k.IMPLEMENTATION)"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JETSPARK_KERNEL": wanted},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_jetspark_kernel_variable_chooses_kernel() -> None:
    assert imported("python").stdout == "python\n"
    assert imported("").stdout == ("python\n" if _kernel is None else "c\n")
    assert 'it may be "c", "python" or absent' in imported("rust").stderr
    if _kernel is None:
        assert imported("c").returncode == 1
    else:
        assert imported("c").stdout == "c\n"
    assert isinstance(kernel.Deliveries().take(), _python_kernel.Columns)


@both
@pytest.mark.parametrize(
    "older",
    [
        "from jetspark.wire import _kernel; del _kernel.numbered_acks",
        "from jetspark.wire import _python_kernel; del _python_kernel.stream_position",
    ],
    ids=["without a name", "with a name that is no more"],
)
@pytest.mark.parametrize("wanted", ["", "c"])
def test_c_kernel_of_older_sources_is_told_in_a_sentence(older: str, wanted: str) -> None:
    program = f"""
from jetspark.errors import ConfigError
{older}
try:
    import jetspark.wire.kernel
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JETSPARK_KERNEL": wanted},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "rebuild it with pip install -e ." in done.stdout, done.stderr


@both
def test_c_kernel_serves_one_interpreter_of_a_process() -> None:
    """It can be imported again there; another interpreter gets the twin."""
    program = """
import importlib, sys
interpreters = importlib.import_module(
    "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
)
from jetspark.wire import _kernel, kernel
frame = _kernel.MessageFrame(1, b"a", None, None, b"")
del sys.modules["jetspark.wire._kernel"]
again = importlib.import_module("jetspark.wire._kernel")
assert again is not _kernel and again.MessageFrame is _kernel.MessageFrame
arguments = {} if sys.version_info >= (3, 13) else {"isolated": False}
interpreters.run_string(
    interpreters.create(*["legacy"] * (not arguments), **arguments),
    "import os; from jetspark.wire import kernel; os.write(1, kernel.IMPLEMENTATION.encode())",
)
print(kernel.IMPLEMENTATION)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "JETSPARK_KERNEL": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "pythonc\n", done.stderr
