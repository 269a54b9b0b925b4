"""The pull parser: bytes in, events out, no I/O.

`feed` takes whatever the socket gave and returns the events that are complete; what is left over
waits for more. Events are the same wherever the bytes were split. After bytes that are not the
protocol `error` is set, the events before them were returned, and nothing more is accepted.
"""

from __future__ import annotations

from jetspark.errors import ProtocolError
from jetspark.wire.events import Event
from jetspark.wire.kernel import split_frames


class Assembler:
    """Joins chunks until an announced frame is whole, so that a large one is copied once."""

    __slots__ = ("_chunks", "_have", "_need")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
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
        self._chunks.append(bytes(chunk))
        self._have += len(chunk)
        if self._have < self._need:
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
