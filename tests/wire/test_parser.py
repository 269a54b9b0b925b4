"""The parser gives the same events wherever the bytes are cut, and nothing but ProtocolError."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wire.strategies import Sent, messages, streams

from jetspark.errors import ProtocolError
from jetspark.wire.control import PING, Err, Info
from jetspark.wire.kernel import MAX_CONTROL_LINE, MAX_MESSAGE, MessageFrame
from jetspark.wire.parser import Frame, Parser, one_by_one


def feed(parser: Parser, chunk: bytes | memoryview) -> list[Frame]:
    return list(one_by_one(parser.feed(chunk)))


def parse(*chunks: bytes) -> list[Frame]:
    parser = Parser()
    events = [event for chunk in chunks for event in feed(parser, chunk)]
    if parser.error is not None:
        raise parser.error
    return events


@given(streams, st.lists(st.integers(0, 2000)))
def test_stream_in_any_chunks_gives_same_events(sent: list[Sent], cuts: list[int]) -> None:
    data = b"".join(data for data, _ in sent)
    events = [event for _, event in sent]
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert parse(*(data[a:b] for a, b in itertools.pairwise(edges))) == events
    assert parse(*(data[i : i + 1] for i in range(len(data)))) == events
    for cut in range(len(data) + 1):
        assert parse(data[:cut], data[cut:]) == events


@given(messages())
def test_events_do_not_alias_the_receive_buffer(sent: Sent) -> None:
    data, event = sent
    buffer = bytearray(data)
    parser = Parser()
    events = feed(parser, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert events == [event]


@given(st.binary(max_size=200), st.integers(1, 50))
@example(b"MSG a 1 99999999999999999999\r\n", 7)
@example(b"MSG a 1 -1\r\n\r\n", 3)
@example(b"MSG a x 1\r\nz\r\n", 3)
@example(b"MSG a 1 " + b"9" * 5000 + b"\r\n", 100)
@example(b"HMSG a 1 20 10\r\n0123456789\r\n", 3)
@example(b"MSG a 1 2\r\nabcd\r\n", 3)
@example(b"\r\n", 1)
def test_any_bytes_set_an_error_at_most(data: bytes, step: int) -> None:
    parser = Parser()
    for i in range(0, len(data), step):
        parser.feed(data[i : i + step])
    assert parser.error is None or isinstance(parser.error, ProtocolError)


@pytest.mark.parametrize(
    "bad",
    [
        b"HELLO\r\n",
        b"\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 +2\r\nab\r\n",
        b"MSG a 1 r r 2\r\nab\r\n",
        b"MSG a 1 2\r\nabc\r\n",
        b"HMSG a 1 5\r\n",
        b"HMSG a 1 20 10\r\n0123456789\r\n",
        b"MSG a 1 %d\r\n" % (MAX_MESSAGE + 1),
        b"HTTP/1.1 400 Bad Request\r\n",
    ],
)
def test_bad_bytes_set_the_error_and_keep_the_events_before(bad: bytes) -> None:
    parser = Parser()
    events = feed(parser, b"PING\r\nMSG a 1 1\r\nx\r\n" + bad)
    assert events == [PING, MessageFrame(1, b"a", None, None, b"x")]
    assert isinstance(parser.error, ProtocolError)
    assert parser.feed(b"PING\r\n") == []


def test_bytes_after_an_error_are_not_kept() -> None:
    parser = Parser()
    parser.feed(b"MSG a ")
    parser.feed(b"one 1\r\n")
    assert isinstance(parser.error, ProtocolError)
    kept = parser.pending
    parser.feed(b"x" * 100_000)
    assert parser.pending == kept


@pytest.mark.parametrize("step", [100, 65536])
def test_an_endless_control_line_is_refused(step: int) -> None:
    parser = Parser()
    for _ in range(MAX_CONTROL_LINE // step + 2):
        parser.feed(b"x" * step)
    assert isinstance(parser.error, ProtocolError)


def test_a_long_info_is_no_error() -> None:
    text = b'{"x":"%b"}' % (b"y" * 300_000)
    data = b"INFO %b\r\n" % text
    assert parse(data[:100_000], data[100_000:]) == [Info(text)]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"ping\r\n", PING),
        (b"PING \r\n", PING),
        (b"-ERR 'it''s'\r\n", Err("it''s")),
        (b"-ERR Unquoted\r\n", Err("Unquoted")),
        (b"MSG  a\t1  0 \r\n\r\n", MessageFrame(1, b"a", None, None, b"")),
    ],
)
def test_lower_case_white_space_and_bare_errors_are_parsed(line: bytes, event: Frame) -> None:
    assert parse(line) == [event]


def test_a_large_message_is_put_together_once() -> None:
    payload = bytes(range(256)) * 40_000
    data = b"MSG big 1 %d\r\n%b\r\n" % (len(payload), payload)
    chunks = [data[i : i + 65_536] for i in range(0, len(data), 65_536)]
    assert parse(*chunks) == [MessageFrame(1, b"big", None, None, payload)]


def seconds_byte_by_byte(data: bytes) -> float:
    """CPU time, the best of three."""
    best = float("inf")
    for _ in range(3):
        parser = Parser()
        start = time.process_time()
        for i in range(len(data)):
            parser.feed(data[i : i + 1])
        assert parser.error is None
        best = min(best, time.process_time() - start)
    return best


def test_a_control_line_in_single_bytes_takes_time_in_proportion() -> None:
    # Quadratic, the long one would take 64 times as long as the short one, not 8 times.
    short, long = (b"INFO %b\r\n" % (b"\ry\n" * size) for size in (10_000, 80_000))
    assert seconds_byte_by_byte(long) < 24 * max(seconds_byte_by_byte(short), 0.001)


@pytest.mark.full
@pytest.mark.parametrize("step", [7, 5000])
def test_pending_bytes_of_incomplete_frame_are_bounded(step: int) -> None:
    parser = Parser()
    data = b"MSG a 1 400000\r\n" + b"x" * 300_000
    tracemalloc.start()
    for i in range(0, len(data), step):
        parser.feed(data[i : i + step])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 2 * len(data)


@pytest.mark.parametrize("step", [1, 3, 4095, 4096, 5000])
def test_long_lines_in_pieces_of_any_size(step: int) -> None:
    sent = [Info(b"x" * 20_000), Err("y" * 9000), PING]
    data = b"INFO %b\r\n-ERR '%b'\r\nPING\r\n" % (b"x" * 20_000, b"y" * 9000)
    assert parse(*(data[i : i + step] for i in range(0, len(data), step))) == sent
