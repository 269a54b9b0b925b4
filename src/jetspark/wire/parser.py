"""The pull parser: bytes in, events out, no I/O.

`feed` takes whatever the socket gave and returns the events that are complete; what is left over
waits for more. Events are the same wherever the bytes were split. After bytes that are not the
protocol `error` is set, the events before them were returned, and nothing more is accepted.
"""

from __future__ import annotations

from jetspark.errors import ProtocolError
from jetspark.wire.events import Event
from jetspark.wire.kernel import split_frames
from jetspark.wire.receive_buffer import ReceiveBuffer

_SIZE = 4096
"""Bytes of memory to begin with: enough for the beginnings of most frames."""


class Parser:
    """Turns the server's bytes into events."""

    __slots__ = ("_buffer", "error")

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer(_SIZE)
        self.error: ProtocolError | None = None
        """Set by the first bytes that are not the protocol; final."""

    def feed(self, chunk: bytes | memoryview) -> list[Event]:
        """The events completed by `chunk`. Never raises: see `error`."""
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
        """Bytes that wait for the rest of their frame."""
        return self._buffer.pending
