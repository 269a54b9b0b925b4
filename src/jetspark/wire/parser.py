"""The pull parser: bytes in, events out, no I/O.

`feed` takes the bytes of one read, returns the complete events and keeps the rest for the next
call. The events do not depend on how the bytes were split. After a protocol error, `error` is set,
the events before it are returned, and further bytes are ignored.
"""

from __future__ import annotations

from jetspark.errors import ProtocolError
from jetspark.wire.events import Event
from jetspark.wire.kernel import split_frames
from jetspark.wire.receive_buffer import ReceiveBuffer

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
        """The events that `chunk` completes. Never raises; see `error`."""
        if self.error is not None:
            return []
        data = self._buffer.add(chunk)
        if data is None:
            return []
        events: list[Event] = []
        try:
            end, need = split_frames(data, events)
        except ProtocolError as error:
            self.error = error
            return events
        self._buffer.consumed(end, need)
        return events

    @property
    def pending(self) -> int:
        """Buffered bytes of an incomplete frame."""
        return self._buffer.pending
