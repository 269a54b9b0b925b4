"""Bytes between a socket and the kernel: what is left of one read waits here for the next.

Whatever the size of the reads, a byte is copied a few times at most, and none is when a read ends
where a frame does. What is kept is bounded: by the size that a frame announces, or for a control
line by MAX_CONTROL_LINE.
"""

from __future__ import annotations

from jetspark.wire.kernel import MAX_CONTROL_LINE, look

_LARGEST_KEPT = 4 << 20
"""Bytes of memory above which what a large frame needed is not kept for the next one."""


class ReceiveBuffer:
    """Receive into `room()` and say `received`, or `add` what came elsewhere.

    Both give what may hold whole frames, which is valid until `consumed` is told how much of it was
    used; None when only a part of a frame is there.
    """

    __slots__ = ("_data", "_memory", "_need", "_pending", "_size", "_view")

    def __init__(self, size: int) -> None:
        """`size`: bytes to begin with."""
        self._size = size
        self._need = 0
        self._pending = 0
        self._data = b""
        self._make(size)

    def _make(self, size: int) -> None:
        self._memory = bytearray(size)
        self._view = memoryview(self._memory)

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._pending

    def room(self) -> memoryview:
        """Where to receive into; never empty."""
        if self._pending == len(self._memory):
            self._grow(self._pending + 1, self._memory)
        return self._view[self._pending :]

    def received(self, count: int) -> bytes | None:
        """So many bytes came into the room."""
        before, self._pending = self._pending, self._pending + count
        if self._need:
            waiting = self._pending < self._need
        else:
            # Only the new bytes are looked at: the ones before hold no end of a line.
            found = self._memory.find(b"\r\n", max(0, before - 1), self._pending)
            waiting = found < 0 and self._pending <= MAX_CONTROL_LINE
        if waiting:
            return None
        self._data = look(self._view[: self._pending])
        return self._data

    def add(self, chunk: bytes | memoryview) -> bytes | None:
        """Bytes that came elsewhere. They may be looked at where they are, until `consumed`."""
        if not self._pending:
            self._data = look(chunk)
            return self._data
        end = self._pending + len(chunk)
        if end > len(self._memory):
            self._grow(end, self._view[: self._pending])
        self._view[self._pending : end] = chunk
        return self.received(len(chunk))

    def consumed(self, end: int, need: int) -> None:
        """All before `end` was used; from there a frame of `need` bytes begins (0: not known)."""
        data, self._data = self._data, b""
        rest = len(data) - end
        if max(need, rest) > len(self._memory):
            self._grow(max(need, rest), data[end:])
        elif rest and (end or not self._pending):  # else it stands where it should
            self._view[:rest] = data[end:]
        elif not rest and len(self._memory) > _LARGEST_KEPT:
            self._make(self._size)
        self._pending, self._need = rest, need

    def _grow(self, wanted: int, kept: bytes | bytearray | memoryview) -> None:
        self._make(max(wanted, 2 * len(self._memory)))
        self._view[: len(kept)] = kept
