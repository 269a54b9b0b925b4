"""The pull parser: bytes in, events out, no I/O.

`feed` takes whatever the socket gave and returns the events that are complete; what is left over
waits for more. Events are the same wherever the bytes were split. After bytes that are not the
protocol `error` is set, the events before them were returned, and nothing more is accepted.
"""

from __future__ import annotations

from jetspark.errors import ProtocolError
from jetspark.wire.events import Event
from jetspark.wire.kernel import MAX_CONTROL_LINE, split_frames

_SMALL = 4096
"""Bytes below which a chunk is gathered into one buffer: a list of tiny ones costs more than
what is in them."""


class Assembler:
    """Joins chunks until an announced frame, or a control line, may be whole.

    Whatever the size of the chunks, a byte is copied a few times at most, and what is kept is
    bounded: by the size announced, or for a control line by MAX_CONTROL_LINE.
    """

    __slots__ = ("_chunks", "_have", "_need")

    def __init__(self) -> None:
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = 0

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._have

    def add(self, chunk: bytes | memoryview) -> bytes | None:
        """All bytes so far when they may hold a whole frame, else None."""
        if not self._chunks:
            return bytes(chunk)
        if not chunk:
            return None
        last = self._chunks[-1]
        ends_line = last.endswith(b"\r") and chunk[:1] == b"\n"
        self._have += len(chunk)
        if len(chunk) >= _SMALL:
            last = bytes(chunk)
            self._chunks.append(last)
        elif isinstance(last, bytearray):
            last += chunk
        else:
            last = bytearray(chunk)
            self._chunks.append(last)
        if self._need:
            waiting = self._have < self._need
        else:
            # Only the new bytes are looked at: the ones before hold no end of a line.
            start = max(0, len(last) - len(chunk) - 1)
            whole = ends_line or last.find(b"\r\n", start) >= 0
            waiting = not whole and self._have <= MAX_CONTROL_LINE
        if waiting:
            return None
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._have = self._need = 0
        return data

    def keep(self, rest: bytes, need: int) -> None:
        """Hold back `rest`, the beginning of a frame of `need` bytes (0: not known yet)."""
        if rest:
            self._chunks.append(rest)
            self._have = len(rest)
            self._need = need


class Parser:
    """Turns the server's bytes into events."""

    __slots__ = ("_assembler", "error")

    def __init__(self) -> None:
        self._assembler = Assembler()
        self.error: ProtocolError | None = None
        """Set by the first bytes that are not the protocol; final."""

    def feed(self, chunk: bytes | memoryview) -> list[Event]:
        """The events completed by `chunk`. Never raises: see `error`."""
        if self.error is not None:
            return []
        data = self._assembler.add(chunk)
        if data is None:
            return []
        events: list[Event] = []
        try:
            end, need = split_frames(data, events)
        except ProtocolError as error:
            self.error = error
            return events
        self._assembler.keep(data[end:] if end else data, need)
        return events
