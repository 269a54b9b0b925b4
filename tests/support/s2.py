"""Reading S2 streams (and Snappy's, which they extend), slowly, as the format's description says.

For looking into backups: independent of what the project itself reads of them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


@lru_cache(maxsize=2)  # several tests look into one archive
def decompress(data: bytes) -> bytes:
    """A whole framed stream; every block's checksum is verified."""
    assert data[:4] == b"\xff\x06\x00\x00"
    out = bytearray()
    at = 0
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        body = data[at + 4 : at + 4 + length]
        assert len(body) == length
        at += 4 + length
        if kind in (0, 1):
            block = _block(body[4:]) if kind == 0 else body[4:]
            assert _masked_crc(block) == int.from_bytes(body[:4], "little")
            out += block
        else:
            assert kind >= 0x80
    return bytes(out)


def _block(data: bytes) -> bytes:
    size, at = _uvarint(data, 0)
    out = bytearray()
    offset = 0
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            length += 1
            out += data[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            length = 4 + (tag >> 2 & 7)
            distance = (tag >> 5) << 8 | data[at]
            at += 1
            if distance == 0:  # S2: the offset before, and longer lengths
                code = length - 4
                if code < 5:
                    length = code + 4
                else:
                    extra, add = {5: (1, 4), 6: (2, 1 << 8), 7: (3, 1 << 16)}[code]
                    length = int.from_bytes(data[at : at + extra], "little") + add
                    at += extra
                    length += 4
            else:
                offset = distance
        else:
            width = 2 if tag & 3 == 2 else 4
            length = 1 + (tag >> 2)
            offset = int.from_bytes(data[at : at + width], "little")
            at += width
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Entry(NamedTuple):
    """One part of an archive."""

    name: str
    sequence: int
    data: bytes


def entries(archive: bytes) -> Iterator[Entry]:
    """What a stream's archive holds: a tar's files, or the entries of server 2.15's format."""
    content = decompress(archive)
    if not content.startswith(b"NATSARC1"):
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                yield Entry(member.name, 0, file.read())
        return
    at = 8
    while at < len(content):
        name_size, at = _uvarint(content, at)
        _, at = _uvarint(content, at)  # time
        sequence, at = _uvarint(content, at)
        header_size, at = _uvarint(content, at)
        payload_size, at = _uvarint(content, at)
        name = content[at : at + name_size].decode()
        at += name_size
        yield Entry(name, sequence, content[at : at + header_size + payload_size])
        at += header_size + payload_size
