"""Unpacks an archive, an S2 stream, through a window that moves forward.

Memory is bounded by one incomplete frame and what the caller has not dropped.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from jetspark.errors import BackupError
from jetspark.wire.kernel import (
    S2Decoder,
    kernel_view,
    require_archives,
)

LIST_MAGIC = b"NATSARC1"
"""The first bytes of a list of messages, in the unpacked content."""
_READ = 1 << 20
_HEAD = 4 + 4 + 10  # a frame's kind and length, its checksum, the size of its content
_COMPRESSED, _UNCOMPRESSED = 0x00, 0x01


class ArchiveContent:
    """Unpacks an archive step by step. `more` returns its next bytes, b"" at the end."""

    def __init__(self, more: Callable[[], bytes], *, offset: int = 0) -> None:
        """`offset`: where in the archive `more` begins; it must be the start of a frame.

        Raises ConfigError without the C kernel.
        """
        require_archives()
        self.data = bytearray()
        """The window."""
        self._offset = offset
        self._unpacked = 0
        self._fills: deque[tuple[int, int]] = deque()
        self._more = more
        self._raw = b""
        self._decoder = S2Decoder()
        self._decoder.identified = offset > 0

    def fill(self) -> bool:
        """Add content to the window; False at the archive's end.

        Raises BackupError for a damaged archive or one that ends inside a frame, and the errors of
        `more`.
        """
        size_before = len(self.data)
        while True:
            end, need = self._decoder.decode(kernel_view(self._raw), 0, self.data)
            self._raw = self._raw[end:]
            if len(self.data) > size_before:
                self._fills.append((self._offset, self._unpacked))
                self._unpacked += len(self.data) - size_before
            self._offset += end
            if len(self.data) > size_before:
                return True
            chunk = self._more() if need else b""
            if need and not chunk:
                if self._raw or not self._decoder.identified:
                    raise BackupError(_CUT_INSIDE)
                return False
            self._raw += chunk

    def drop(self, count: int) -> None:
        """Remove the first bytes of the window."""
        del self.data[:count]
        begin = self._unpacked - len(self.data)
        while len(self._fills) > 1 and self._fills[1][1] <= begin:
            self._fills.popleft()

    def position(self) -> tuple[int, int]:
        """The window's start: the offset of its frame, and the frame's bytes before it."""
        if not self.data or not self._fills:
            return self._offset, 0
        offset, begin = self._fills[0]
        return offset, self._unpacked - len(self.data) - begin

    def skip(self, count: int) -> None:
        """Move forward. Raises BackupError at the archive's end, and the errors of `fill`."""
        while count > len(self.data):
            count -= len(self.data)
            self.drop(len(self.data))
            self.require()
        self.drop(count)

    def require(self) -> None:
        """`fill`, where the archive must go on: raises BackupError at its end."""
        if not self.fill():
            raise BackupError("The archive was cut off: its end is missing.")


class ArchiveScan:
    """Measures an archive piece by piece: its sizes, its digest and its form. Stores nothing."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes fed so far."""
        self.content = 0
        """Bytes unpacked so far."""
        self.is_message_list = False
        """True for a list of messages, as servers write it from 2.15 on."""
        self._digest = hashlib.sha256()
        self._decoder = S2Decoder()
        self._rest = b""

    @property
    def sha256(self) -> str:
        """The SHA-256 of all bytes so far, in hexadecimal."""
        return self._digest.hexdigest()

    def feed(self, piece: bytes) -> None:
        """Add bytes of the archive. Raises BackupError when they cannot belong to one."""
        self._digest.update(piece)
        self.size += len(piece)
        self._rest += piece
        need = 0
        while not need:
            unpacked = bytearray()
            end, need = self._decoder.decode(kernel_view(self._rest), 0, unpacked)
            self._rest = self._rest[end:]
            if not self.content:
                self.is_message_list = unpacked.startswith(LIST_MAGIC)
            self.content += len(unpacked)

    def finish(self) -> None:
        """Raise BackupError unless the archive is complete."""
        if self._rest or not self._decoder.identified:
            raise BackupError(_CUT_INSIDE)


_CUT_INSIDE = "The archive is not complete: it ends in the middle of a block."


def open_content(file: BinaryIO, offset: int = 0, skip: int = 0) -> ArchiveContent:
    """The content of a file from a frame on, without its first `skip` bytes."""
    file.seek(offset)
    content = ArchiveContent(lambda: file.read(_READ), offset=offset)
    content.skip(skip)
    return content


class Frames:
    """Finds frames of a file without unpacking them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = 0
        self._begin = 0
        """Content before the frame at `_offset`."""
        self._size = file.seek(0, 2)

    def find(self, position: int) -> tuple[int, int]:
        """The frame with a position of the content, and the bytes before it in the frame.

        Positions must not go backwards. Raises BackupError when the archive ends before.
        """
        while True:
            offset, content = self._frame()
            if self._begin + content > position:
                return self._offset, position - self._begin
            self._offset, self._begin = offset, self._begin + content

    def _frame(self) -> tuple[int, int]:
        """The offset of the next frame, and the size of this one's content."""
        self._file.seek(self._offset)
        head = self._file.read(_HEAD)
        length = int.from_bytes(head[1:4], "little")
        end = self._offset + 4 + length
        if len(head) < 4 or end > self._size:
            raise BackupError("The archive was cut off: its end is missing.")
        if head[0] == _UNCOMPRESSED:
            return end, max(0, length - 4)
        if head[0] != _COMPRESSED:
            return end, 0
        content = 0
        for index, byte in enumerate(head[8 : 4 + length]):
            content |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return end, content
        raise BackupError("The archive is damaged: a block without a length.")
