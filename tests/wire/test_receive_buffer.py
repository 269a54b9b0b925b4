"""What is left of one read waits for the next, wherever the bytes come from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import Sent, streams

from jetspark.wire.kernel import MAX_CONTROL_LINE, Event, MessageFrame, split_frames
from jetspark.wire.parser import Frame, ReceiveBuffer, one_by_one


def read(buffer: ReceiveBuffer, data: bytes | None) -> list[Frame]:
    events: list[Event] = []
    if data is not None:
        buffer.consumed(*split_frames(data, events))
    return list(one_by_one(events))


def receive(buffer: ReceiveBuffer, sent: bytes, most: int) -> list[Frame]:
    """As a socket does: into the room, so many bytes at a time."""
    frames: list[Frame] = []
    at = 0
    while at < len(sent):
        room = buffer.room()
        count = min(most, len(room), len(sent) - at)
        assert count > 0
        room[:count] = sent[at : at + count]
        at += count
        frames += read(buffer, buffer.received(count))
    return frames


def message(payload: bytes) -> bytes:
    return b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)


@given(streams, st.integers(1, 4096), st.integers(1, 300), st.data())
def test_received_and_added_in_any_pieces_gives_what_was_sent(
    sent: list[Sent], size: int, most: int, data: st.DataObject
) -> None:
    whole = b"".join(wire for wire, _ in sent)
    expected = [event for _, event in sent]
    buffer = ReceiveBuffer(size)
    assert receive(buffer, whole, most) == expected
    assert buffer.pending == 0
    frames: list[Frame] = []
    while whole:
        count = data.draw(st.integers(1, len(whole)))
        frames += read(buffer, buffer.add(whole[:count]))
        whole = whole[count:]
    assert frames == expected


@pytest.mark.parametrize("most", [1000, 65536, 10_000_000])
def test_large_frame_grows_memory_which_shrinks_afterwards(most: int) -> None:
    buffer = ReceiveBuffer(4096)
    large = bytes(9 << 20)
    frames = receive(buffer, message(b"before") + message(large) + message(b"behind"), most)
    assert [frame.payload for frame in frames if isinstance(frame, MessageFrame)] == [
        b"before",
        large,
        b"behind",
    ]
    receive(buffer, message(b"again"), most)
    assert len(buffer.room()) == 4096


def test_a_message_that_is_only_announced_takes_no_memory() -> None:
    buffer = ReceiveBuffer(4096)
    line = b"MSG a 1 %d\r\n" % (128 << 20)
    assert receive(buffer, line, len(line)) == []
    assert len(buffer.room()) < 4 << 20


def test_there_is_room_until_a_control_line_is_too_long() -> None:
    buffer = ReceiveBuffer(10)
    left = MAX_CONTROL_LINE
    while left:
        count = min(left, len(buffer.room()), 1000)
        buffer.room()[:count] = b"x" * count
        assert buffer.received(count) is None
        left -= count
    buffer.room()[:1] = b"x"
    data = buffer.received(1)
    assert data is not None
    assert bytes(data) == b"x" * (MAX_CONTROL_LINE + 1)


def test_received_gives_nothing_before_frame_may_be_complete() -> None:
    buffer = ReceiveBuffer(4096)
    whole = message(bytes(1000))
    assert read(buffer, buffer.add(whole[:500])) == []
    assert buffer.add(whole[500:-1]) is None
    assert buffer.pending == len(whole) - 1
    assert len(read(buffer, buffer.add(whole[-1:]))) == 1
