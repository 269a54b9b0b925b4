"""The unpacked content of an archive, through a window that moves forward.

Every frame's checksum is verified when it is unpacked. Memory is bounded: a frame that is not
complete, and what the caller has not dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from jetspark.errors import BackupError
from jetspark.wire.kernel import S2Decoder, look, require_archives

_READ = 1 << 20
_HEAD = 4 + 4 + 10  # of a frame: kind and length, checksum, the size of its content
_IDENTIFIER, _COMPRESSED, _PLAIN = 0xFF, 0x00, 0x01


class Content:
    """Content as it comes; `more` returns the next bytes of the archive, b"" at its end."""

    def __init__(self, more: Callable[[], bytes], *, offset: int = 0) -> None:
        """`offset`: where in the archive `more` begins, with a frame.

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

        Raises BackupError for an archive that is damaged or ends inside a frame, and as `more`.
        """
        had = len(self.data)
        while True:
            end, need = self._decoder.decode(look(self._raw), 0, self.data)
            if len(self.data) > had:
                self._fills.append((self._offset, self._unpacked))
                self._unpacked += len(self.data) - had
            self._raw = self._raw[end:]
            self._offset += end
            if len(self.data) > had:
                return True
            if not need:
                continue
            pieces = [self._raw]
            missing = need - len(self._raw)
            while missing > 0:
                piece = self._more()
                if not piece:
                    if self._raw or len(pieces) > 1 or not self._decoder.identified:
                        raise BackupError(
                            "The archive is not complete: it ends in the middle of a block."
                        )
                    return False
                pieces.append(piece)
                missing -= len(piece)
            self._raw = b"".join(pieces)

    def drop(self, count: int) -> None:
        """Remove the first bytes of the window."""
        del self.data[:count]
        begin = self._unpacked - len(self.data)
        while len(self._fills) > 1 and self._fills[1][1] <= begin:
            self._fills.popleft()

    def place(self) -> tuple[int, int]:
        """Where the window begins: (offset of a frame, bytes of content behind its start)."""
        if not self.data or not self._fills:
            return self._offset, 0
        offset, begin = self._fills[0]
        return offset, self._unpacked - len(self.data) - begin

    def skip(self, count: int) -> None:
        """Move forward. Raises BackupError at the archive's end, and as `fill`."""
        while count > len(self.data):
            count -= len(self.data)
            self.drop(len(self.data))
            self.require()
        self.drop(count)

    def require(self) -> None:
        """As `fill`, but more has to come: raises BackupError at the archive's end."""
        if not self.fill():
            raise BackupError("The archive was cut off: its end is missing.")


def content_from(file: BinaryIO, offset: int = 0, skip: int = 0) -> Content:
    """The content of a file from a frame on; `skip`: bytes of content to leave out first."""
    file.seek(offset)
    content = Content(lambda: file.read(_READ), offset=offset)
    content.skip(skip)
    return content


class Frames:
    """The frames of a file, which are passed over without being unpacked."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = 0
        self._begin = 0
        """Content before the frame at `_offset`."""
        self._size = file.seek(0, 2)

    def find(self, position: int) -> tuple[int, int]:
        """(offset, skip) of a position in the content, which must not be before the last one.

        Raises BackupError for an archive that ends before it.
        """
        while True:
            offset, content = self._frame()
            if self._begin + content > position:
                return self._offset, position - self._begin
            self._offset, self._begin = offset, self._begin + content

    def _frame(self) -> tuple[int, int]:
        """(offset of the next frame, content of this one)."""
        self._file.seek(self._offset)
        head = self._file.read(_HEAD)
        length = int.from_bytes(head[1:4], "little")
        behind = self._offset + 4 + length
        if len(head) < 4 or behind > self._size:
            raise BackupError("The archive was cut off: its end is missing.")
        if head[0] == _PLAIN:
            return behind, max(0, length - 4)
        if head[0] != _COMPRESSED:
            return behind, 0
        content = 0
        for index, byte in enumerate(head[8 : 4 + length]):
            content |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return behind, content
        raise BackupError("The archive is damaged: a block without a length.")
