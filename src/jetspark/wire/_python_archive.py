"""The plain-Python kernel: the messages in a stream's archive, into columns.

From server 2.15 on an archive is a list of entries: the length of the name (uvarint), the time in
nanoseconds (varint), sequence, size of the headers, size of the payload (uvarints), the name,
headers, payload. Messages have a sequence, and the subject as their name.

Before 2.15 an archive has the server's message blocks, lists of records: length (4 bytes, the
highest bit for headers), sequence (8), time (8), length of the subject (2), subject, size of the
headers (4, with headers only), headers, payload, checksum (8). Numbers are little-endian.
"""

from __future__ import annotations

from typing import NamedTuple

from jetspark.errors import BackupError
from jetspark.wire._python_columns import OTHER_FRAME, Deliveries
from jetspark.wire._python_frames import MAX_MESSAGE
from jetspark.wire._python_highway import highway
from jetspark.wire._python_s2 import uvarint

_MOST_NAME = 1 << 20
_MOST_SEQUENCE = 2**63 - 1
_RECORD_HEAD, _RECORD_HASH = 22, 8
_HEADED = 1 << 31
_ERASED, _TOMBSTONE = 1 << 63, 1 << 62


class Entry(NamedTuple):
    """One entry of a list of messages."""

    name: bytes
    sequence: int
    """0: not a message."""
    time: int
    headers: bytes
    payload: bytes
    end: int
    """The position behind it."""


class EntryDecoder:
    """Decodes a list of messages into columns; only sequences from `start` to before `end`."""

    __slots__ = ("_end", "_start", "last_sequence")

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self.last_sequence = 0
        """Sequence of the last message, wanted or not."""

    def decode(
        self, content: bytes | bytearray | memoryview, pos: int, into: Deliveries
    ) -> tuple[int, int]:
        """Append the messages of complete entries from `pos` on.

        Returns (end, need): need is OTHER_FRAME when the entry at `end` is complete and not a
        message, and 0 when more is wanted. Raises BackupError for anything else.
        """
        while True:
            entry = archive_entry(content, pos)
            if entry is None:
                return pos, 0
            if not entry.sequence:
                return pos, OTHER_FRAME
            check_order(entry.sequence, self.last_sequence)
            self.last_sequence = entry.sequence
            if self._start <= entry.sequence < self._end:
                _append(into, *entry[:5], entry.end - pos)
            pos = entry.end


class RecordDecoder:
    """Decodes a message block into columns; only sequences from `start` to before `end`."""

    __slots__ = ("_end", "_key", "_start", "last_sequence", "tombstones")

    def __init__(self, key: bytes, start: int, end: int) -> None:
        """`key`: 32 bytes, of the block's checksums."""
        if len(key) != 32:
            raise ValueError("the key of a block has 32 bytes")
        self._key = key
        self._start, self._end = start, end
        self.last_sequence = 0
        """Highest sequence, wanted or not; erased ones count."""
        self.tombstones: list[int] = []
        """Sequences of this and other blocks that were deleted, as this block says."""

    def decode(self, content: bytes | bytearray | memoryview, pos: int, into: Deliveries) -> int:
        """Append the messages of complete records from `pos` on; the position behind the last one.

        Erased records, and those whose sequence has been there, are left out. Raises BackupError
        for anything else.
        """
        while True:
            record = block_record(content, pos, self._key)
            if record is None:
                return pos
            sequence = record.sequence & ~(_ERASED | _TOMBSTONE)
            if record.sequence & _TOMBSTONE:
                self.tombstones.append(sequence)
            elif sequence > self.last_sequence:
                self.last_sequence = sequence
                if record.sequence == sequence and self._start <= sequence < self._end:
                    _append(into, *record[:5], record.end - pos)
            pos = record.end


def _append(
    into: Deliveries,
    name: bytes,
    sequence: int,
    time: int,
    headers: bytes,
    payload: bytes,
    size: int,
) -> None:
    into.append(name, sequence, time, headers, payload)
    into.size += size - len(payload)


def check_order(sequence: int, last: int) -> None:
    """Raises BackupError unless the sequence follows the last one."""
    if sequence <= last:
        raise BackupError(f"The archive is damaged: message {sequence} comes after message {last}.")


def archive_entry(content: bytes | bytearray | memoryview, pos: int) -> Entry | None:
    """The entry at `pos`; None while a part of it is missing. Raises BackupError."""
    view = memoryview(content)
    try:
        name, at = uvarint(view, pos)
        zigzag, at = uvarint(view, at)
        sequence, at = uvarint(view, at)
        headers, at = uvarint(view, at)
        payload, at = uvarint(view, at)
    except IndexError:
        return None
    except OverflowError:
        raise _no_entry() from None
    if (
        name > _MOST_NAME
        or headers > MAX_MESSAGE
        or payload > MAX_MESSAGE - headers
        or sequence > _MOST_SEQUENCE
    ):
        raise _no_entry()
    end = at + name + headers + payload
    if end > len(view):
        return None
    body = bytes(view[at:end])
    time = zigzag >> 1 ^ -(zigzag & 1)
    return Entry(
        body[:name], sequence, time, body[name : name + headers], body[name + headers :], end
    )


def block_record(content: bytes | bytearray | memoryview, pos: int, key: bytes) -> Entry | None:
    """The record at `pos`, its sequence with the marks; None while a part of it is missing.

    Raises BackupError.
    """
    view = memoryview(content)[pos:]
    if len(view) < _RECORD_HEAD:
        return None
    length = int.from_bytes(view[:4], "little")
    headed = bool(length & _HEADED)
    length &= ~_HEADED
    subject = int.from_bytes(view[20:22], "little")
    rest = _RECORD_HEAD + subject + (4 if headed else 0)
    end = length - _RECORD_HASH
    if rest > end or length > MAX_MESSAGE:
        raise _no_record()
    if len(view) < length:
        return None
    headers = int.from_bytes(view[rest - 4 : rest], "little") if headed else 0
    name, body = bytes(view[_RECORD_HEAD : _RECORD_HEAD + subject]), bytes(view[rest:end])
    if headers > len(body):
        raise _no_record()
    if highway(key, bytes(view[4:20]) + name + body) != int.from_bytes(view[end:length], "little"):
        raise BackupError("The archive is damaged: the checksum of a message does not match.")
    sequence = int.from_bytes(view[4:12], "little")
    time = int.from_bytes(view[12:20], "little", signed=True)
    marked = sequence if sequence else _ERASED
    return Entry(name, marked, time, body[:headers], body[headers:], pos + length)


def refuse_entry(data: bytes, last: int) -> None:
    """Raise the error for the entry that `data` begins with; `last`: the sequence before it."""
    entry = archive_entry(data, 0)
    if entry is not None:
        check_order(entry.sequence, last)


def refuse_record(data: bytes, key: bytes) -> None:
    """Raise the error for the record that `data` begins with."""
    block_record(data, 0, key)


def _no_entry() -> BackupError:
    return BackupError("The archive is damaged: an entry in it has no valid sizes.")


def _no_record() -> BackupError:
    return BackupError("The archive is damaged: a record in it has no valid sizes.")
