"""The plain-Python kernel: streams of S2, and of Snappy, whose framing S2 extends.

A stream is a list of frames: a kind, a length of three bytes, a body. Frames of content have a
checksum (CRC-32C, masked) of what they unpack to, 4 MiB at most, and are unpacked on their own: a
block is literals and copies of what came before in the same block. S2 has a copy with the offset of
the last one, and longer lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

from jetspark.errors import BackupError

MOST_AT_ONCE = 1 << 20
"""Bytes of content after which `S2Decoder.decode` returns; one frame may exceed it."""

_HEAD, _CRC = 4, 4
_MOST_CONTENT = 4 << 20
_MOST_BODY = _CRC + 16 + _MOST_CONTENT + _MOST_CONTENT // 6
_IDENTIFIERS = (b"S2sTwO", b"sNaPpY")
_COMPRESSED, _PLAIN, _SKIPPABLE, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_LONGER = {5: (1, 4), 6: (2, 1 << 8), 7: (3, 1 << 16)}


class S2Decoder:
    """Unpacks an S2 stream that comes in pieces. Frames are verified one by one."""

    __slots__ = ("identified",)

    def __init__(self) -> None:
        self.identified = False
        """Whether the stream's first frame has come, which names the format."""

    def decode(
        self, data: bytes | bytearray | memoryview, pos: int, into: bytearray
    ) -> tuple[int, int]:
        """Append the content of complete frames from `pos` on.

        Returns (end, need): bytes from `end` on were not used. `need`: at least so many bytes are
        needed of the frame there; 0 when it stopped because there was content enough. Raises
        BackupError for bytes that are not such a stream, after what was in order.
        """
        view = memoryview(data)
        had = len(into)
        while len(into) - had < MOST_AT_ONCE:
            size = s2_frame_size(view[pos : pos + _HEAD], self.identified)
            if len(view) - pos < size:
                return pos, size
            into += s2_content(view[pos : pos + size])
            self.identified = True
            pos += size
        return pos, 0


def s2_frame_size(head: bytes | memoryview, identified: bool) -> int:
    """The size of a frame, as far as its first four bytes say. Raises BackupError."""
    if len(head) < _HEAD:
        return _HEAD
    kind, length = head[0], int.from_bytes(head[1:_HEAD], "little")
    if kind == _IDENTIFIER:
        right = length == len(_IDENTIFIERS[0])
    elif not identified:
        right = False
    elif kind == _COMPRESSED:
        right = _CRC <= length <= _MOST_BODY
    elif kind == _PLAIN:
        right = _CRC <= length <= _CRC + _MOST_CONTENT
    else:
        right = kind >= _SKIPPABLE
    if not right:
        raise BackupError("The archive is damaged, or is not the archive of a stream.")
    return _HEAD + length


def s2_content(frame: bytes | memoryview) -> bytes:
    """What a whole frame unpacks to; nothing for frames without content. Raises BackupError."""
    kind, body = frame[0], bytes(frame[_HEAD:])
    if kind == _IDENTIFIER and body not in _IDENTIFIERS:
        raise BackupError("The archive is damaged, or is not the archive of a stream.")
    if kind > _PLAIN:
        return b""
    content = body[_CRC:] if kind == _PLAIN else _unpacked(body[_CRC:])
    crc = crc32c(content)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if masked != int.from_bytes(body[:_CRC], "little"):
        raise BackupError("The archive is damaged: a checksum does not match.")
    return content


def refuse_frame(data: bytes, identified: bool) -> None:
    """Raise the error for the frame that `data` begins with."""
    s2_content(data[: s2_frame_size(data[:_HEAD], identified)])


def uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, position behind it). Raises IndexError at the data's end, OverflowError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise OverflowError


def _unpacked(block: bytes) -> bytes:
    try:
        size, at = uvarint(block, 0)
        if size <= _MOST_CONTENT:
            out = bytearray()
            for piece in _pieces(block, at, out):
                out += piece
                if len(out) > size:
                    break
            if len(out) == size:
                return bytes(out)
    except (IndexError, OverflowError):
        pass
    raise BackupError("The archive is damaged: a block cannot be unpacked.")


def _pieces(block: bytes, at: int, out: bytearray) -> Iterator[bytes]:
    """The literals and copies of a block; `out` has what they made so far."""
    offset = 0
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                length, at = _number(block, at, length - 59)
            length += 1
            if length > len(block) - at:
                raise IndexError
            yield block[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            distance = (tag & 0xE0) << 3 | block[at]
            at += 1
            length = tag >> 2 & 7
            if distance:
                offset = distance
            elif length in _LONGER:
                extra, more = _LONGER[length]
                length, at = _number(block, at, extra)
                length += more
            length += 4
        else:
            length = 1 + (tag >> 2)
            offset, at = _number(block, at, 2 if tag & 3 == 2 else 4)
        if not 0 < offset <= len(out):
            raise IndexError
        last = bytes(out[len(out) - offset : len(out) - offset + length])
        yield (last * (length // len(last) + 1))[:length]


def _number(block: bytes, at: int, width: int) -> tuple[int, int]:
    if len(block) - at < width:
        raise IndexError
    return int.from_bytes(block[at : at + width], "little"), at + width


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
