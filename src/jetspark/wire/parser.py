"""The pull parser: bytes in, events out, no I/O.

`feed` takes the bytes of one read, returns the complete events and keeps the rest for the next
call. The events do not depend on how the bytes were split. After a protocol error, `error` is set,
the events before it are returned, and further bytes are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from jetspark.errors import ProtocolError
from jetspark.wire.control import ControlEvent
from jetspark.wire.kernel import MAX_CONTROL_LINE, Event, MessageFrame, kernel_view, split_frames

Frame: TypeAlias = MessageFrame | ControlEvent


def one_by_one(events: Iterable[Event]) -> Iterator[Frame]:
    """Events with each message by itself, where speed does not matter."""
    for event in events:
        if isinstance(event, tuple):
            _, messages, _ = event
            yield from messages
        else:
            yield event


_SIZE = 4096
"""Initial size of the buffer, bytes: enough for the start of most frames."""


class Parser:
    """Turns a server's bytes into events."""

    __slots__ = ("_buffer", "error")

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer(_SIZE)
        self.error: ProtocolError | None = None
        """The first protocol error; None before one."""

    def feed(self, chunk: bytes | memoryview) -> list[Event]:
        """The events that `chunk` completes. Never raises: see `error`."""
        events: list[Event] = []
        if self.error is not None:
            return events
        buffer = self._buffer
        fresh = not buffer.pending
        data = kernel_view(chunk) if fresh else buffer.add(chunk)
        if data is None:
            return events
        try:
            end, need = split_frames(data, events)
        except ProtocolError as error:
            self.error = error
            return events
        if fresh:
            if end == len(data):
                return events  # as most reads: nothing to keep
            buffer.add(chunk)
        buffer.consumed(end, need)
        return events

    @property
    def pending(self) -> int:
        """Buffered bytes of an incomplete frame."""
        return self._buffer.pending


# -------------------------------------------------------------------------------------------------
# The receive buffer in front of the kernel keeps an incomplete frame for the next read.
#
# A byte is copied a few times at most, and not at all when a read ends with a complete frame.
# Beyond _AT_ONCE, its size is at most twice the bytes received, whatever the control line
# announces; the line itself is limited by MAX_CONTROL_LINE.


_AT_ONCE = 2 << 20
"""Bytes reserved at once for an announced frame: servers' usual max_payload is 1 MB."""

_MAX_IDLE_BYTES = 4 << 20
"""Bytes. A buffer that grew beyond this for a large frame is replaced by a small one."""


class ReceiveBuffer:
    """Receive into `room()` and call `received`, or call `add` with bytes received elsewhere.

    Both return the bytes to split, or None while there is only a part of a frame. The bytes are
    valid until `consumed` is called.
    """

    __slots__ = ("_data", "_memory", "_need", "_size", "_view", "pending")

    def __init__(self, size: int) -> None:
        """`size`: initial size in bytes."""
        self._size = size
        self._need = 0
        self.pending = 0
        """Buffered bytes of an incomplete frame."""
        self._data = b""
        self._make(size)

    def _make(self, size: int) -> None:
        self._memory = bytearray(size)
        self._view = memoryview(self._memory)

    def room(self) -> memoryview:
        """The free part of the buffer, never empty."""
        if self.pending == len(self._memory):
            self._grow(self.pending + 1, self._memory)
        return self._view[self.pending :]

    def received(self, count: int) -> bytes | None:
        """`room()` received `count` bytes."""
        before, self.pending = self.pending, self.pending + count
        if self._need:
            waiting = self.pending < self._need
        else:
            # Only the new bytes: the earlier ones have no CRLF.
            line_end = self._memory.find(b"\r\n", max(0, before - 1), self.pending)
            waiting = line_end < 0 and self.pending <= MAX_CONTROL_LINE
        if waiting:
            return None
        self._data = kernel_view(self._view[: self.pending])
        return self._data

    def add(self, chunk: bytes | memoryview) -> bytes | None:
        """Bytes received elsewhere. They may be read in place until `consumed`."""
        if not self.pending:
            self._data = kernel_view(chunk)
            return self._data
        end = self.pending + len(chunk)
        if end > len(self._memory):
            self._grow(end, self._view[: self.pending])
        self._view[self.pending : end] = chunk
        return self.received(len(chunk))

    def consumed(self, end: int, need: int) -> None:
        """The bytes before `end` were used; `need`: size of the frame there (0: unknown)."""
        data, self._data = self._data, b""
        rest, self._need = len(data) - end, need
        if max(need, rest) > len(self._memory):
            self._grow(rest, data[end:])
        elif rest and (end or not self.pending):  # otherwise it is in place
            self._view[:rest] = data[end:]
        elif not rest and len(self._memory) > _MAX_IDLE_BYTES:
            self._make(self._size)
        self.pending = rest

    def _grow(self, min_size: int, unread: bytes | bytearray | memoryview) -> None:
        next_size = max(2 * len(self._memory), min(self._need, _AT_ONCE))
        self._make(max(min_size, min(self._need, next_size) if self._need else next_size))
        self._view[: len(unread)] = unread
