"""Scanning a stream's archive without unpacking it: complete frames, unpacked size, digest.

An archive is what the server sends for a snapshot: an S2 stream (framed like Snappy's) of a tar of
the stream's files or, from server 2.15 on, of a list of messages. Contract: pure and incremental,
in pieces of any size; costs no more than the SHA-256. The frames have the length of their content,
so progress can be shown in bytes of the stream, and their own length, so an archive that was cut
off or is something else is noticed at once. The checksums of the content are verified by the server
when it restores.
"""

from __future__ import annotations

import hashlib
from typing import Final

from jetspark.errors import BackupError

_HEAD: Final = 4  # a byte for the kind of frame, three for its length
_BODY: Final = 24  # bytes of a frame that are looked at
_IDENTIFIERS: Final = (b"S2sTwO", b"sNaPpY")
_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_SKIPPABLE: Final = 0x80
_CRC: Final = 4
_MESSAGE_LIST: Final = b"NATSARC1"


class ArchiveScan:
    """Feed it an archive piece by piece, then `finish`. Raises BackupError for anything else."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes fed so far."""
        self.content = 0
        """Bytes they unpack to."""
        self.is_message_list = False
        """Whether it is the format of server 2.15, known after the first block."""
        self._digest = hashlib.sha256()
        self._head = b""
        self._wanted = _HEAD
        self._skip = 0
        self._identified = False

    @property
    def sha256(self) -> str:
        """Of all bytes so far, in hexadecimal."""
        return self._digest.hexdigest()

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        self._digest.update(piece)
        self.size += len(piece)
        at = 0
        while at < len(piece):
            if self._skip:
                step = min(self._skip, len(piece) - at)
                self._skip -= step
                at += step
                continue
            step = self._wanted - len(self._head)
            self._head += piece[at : at + step]
            at += step
            if len(self._head) == self._wanted:
                self._look()

    def finish(self) -> None:
        """The archive has ended. Raises BackupError when it is not complete."""
        if not self._identified or self._head or self._skip:
            raise BackupError("The archive is not complete: it ends in the middle of a block.")

    def _look(self) -> None:
        """At a frame's head, or its head and the start of its body."""
        length = int.from_bytes(self._head[1:_HEAD], "little")
        seen = min(length, _BODY)
        if self._wanted == _HEAD and seen:
            self._wanted += seen
            return
        self._frame(self._head[0], length, self._head[_HEAD:])
        self._head = b""
        self._wanted = _HEAD
        self._skip = length - seen

    def _frame(self, kind: int, length: int, body: bytes) -> None:
        if kind == _IDENTIFIER and body in _IDENTIFIERS:
            self._identified = True
        elif not self._identified or (kind > _PLAIN and kind < _SKIPPABLE):
            raise BackupError("The archive is damaged, or is not the archive of a stream.")
        elif kind in (_COMPRESSED, _PLAIN):
            if not self.content:
                self.is_message_list = _MESSAGE_LIST in body
            self.content += length - _CRC if kind == _PLAIN else _uvarint(body[_CRC:])


def _uvarint(data: bytes) -> int:
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise BackupError("The archive is damaged: a block without a length.")
