"""Reads which sequences each message block has, as written by a server before 2.15.

`msgs/index.db` (from 2.10 on) has all blocks; before, each block had a file `msgs/N.idx`. Numbers
are uvarints and varints. Deleted sequences are bitmaps, or distances from the first sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from jetspark.backup.archive_content import ArchiveContent
from jetspark.errors import BackupError

_FULL_STATE, _VERSIONS = 11, (1, 2, 3, 4)
_STATE_INDEX, _INDEX_VERSION = 22, 1
_SET = 22
_BUCKETS = {1: 64, 2: 32}  # the size of a bitmap in units of 64 sequences, by the set's version
_ERASED = 1 << 63
_MAX_FIELD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleted sequences: bitmaps of `width` sequences, keyed by first sequence // `width`."""

    width: int
    maps: dict[int, int]

    def __contains__(self, sequence: int) -> bool:
        number, bit = divmod(sequence, self.width)
        return bool(self.maps.get(number, 0) >> bit & 1)

    def count(self, first: int, last: int) -> int:
        """Count the deleted sequences from `first` to `last`, both included."""
        count = 0
        for number, bits in self.maps.items():
            low = max(0, first - number * self.width)
            high = min(self.width, last + 1 - number * self.width)
            if low < high:
                count += (bits >> low & (1 << high - low) - 1).bit_count()
        return count


@dataclass(frozen=True, slots=True)
class BlockState:
    """The sequences of one block, both ends included; none when `first` is greater."""

    first: int
    last: int
    deleted: Deleted | None = None

    def count(self, first: int, last: int) -> int:
        """Messages with sequences from `first` to `last`."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return 0
        deleted = 0 if self.deleted is None else self.deleted.count(first, last)
        return last + 1 - first - deleted


class NumberReader:
    """The numbers in the first `size` bytes of the content."""

    def __init__(self, content: ArchiveContent, size: int) -> None:
        self._content = content
        self._left = size
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes. Raises BackupError for an absurd number, and at the file's end."""
        if count > min(self._left, _MAX_FIELD_BYTES):
            raise BackupError("The archive is damaged: a file in it is too short.")
        while len(self._content.data) - self._at < count:
            self._content.drop(self._at)
            self._at = 0
            self._content.require()
        self._left -= count
        self._at += count
        return bytes(self._content.data[self._at - count : self._at])

    def unsigned(self) -> int:
        """The next uvarint. Raises BackupError."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BackupError("The archive is damaged: a number in it is too long.")

    def signed(self) -> int:
        """The next varint. Raises BackupError."""
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)


@dataclass(frozen=True, slots=True)
class Index:
    """The archive's own account of its blocks and the stream."""

    blocks: dict[int, BlockState]
    """The blocks by their number."""
    last: int
    """The stream's last sequence; its message may have been deleted."""
    last_ns: int | None = None
    """The time of `last_seq` in nanoseconds since 1970, if the archive says it."""


def parse_index(reader: NumberReader) -> Index:
    """The index in `msgs/index.db`. Raises BackupError for another format."""
    magic, version = reader.bytes(2)
    if magic != _FULL_STATE or version not in _VERSIONS:
        raise BackupError(
            f"The archive's index has version {version}, which this version of jetspark cannot "
            "read: restore the backup on its server."
        )
    for read in (*[reader.unsigned] * 3, reader.signed):
        read()  # messages, bytes, first sequence and its time
    last, last_ns = reader.unsigned(), reader.signed()
    for _ in range(reader.unsigned()):
        subject = reader.bytes(reader.unsigned())
        if subject:
            several = reader.unsigned() > 1 or version >= 4  # messages
            reader.unsigned()  # the block of the first one
            if several:
                reader.unsigned()  # the block of the last one
    blocks = dict(_parse_block_state(reader, version) for _ in range(reader.unsigned()))
    return Index(blocks, last, last_ns)


def _parse_block_state(reader: NumberReader, version: int) -> tuple[int, BlockState]:
    number = reader.unsigned()
    reader.unsigned()  # bytes
    first = reader.unsigned()
    reader.signed()
    last = reader.unsigned()
    reader.signed()
    deleted = reader.unsigned()
    for _ in range(min(version, 3) - 1):  # times to live, schedules
        reader.unsigned()
    return number, BlockState(first, last, _parse_deleted(reader) if deleted else None)


def _parse_deleted(reader: NumberReader) -> Deleted:
    magic, version = reader.bytes(2)
    buckets = _BUCKETS.get(version)
    if magic != _SET or buckets is None:
        raise BackupError("The archive is damaged: deleted sequences cannot be read.")
    nodes = int.from_bytes(reader.bytes(4), "little")
    reader.bytes(4)  # how many sequences
    width = 64 * buckets
    maps: dict[int, int] = {}
    for _ in range(nodes):
        base = int.from_bytes(reader.bytes(8), "little")
        maps[base // width] = int.from_bytes(reader.bytes(8 * buckets), "little")
        reader.bytes(2)
    return Deleted(width, maps)


def parse_block_index(reader: NumberReader) -> BlockState:
    """The state of a block in a file `msgs/N.idx`. Raises BackupError."""
    if tuple(reader.bytes(2)) != (_STATE_INDEX, _INDEX_VERSION):
        raise BackupError("The archive is damaged: a block's index cannot be read.")
    reader.unsigned()  # messages
    reader.unsigned()  # bytes
    first = reader.unsigned() & ~_ERASED
    reader.signed()
    last = reader.unsigned() & ~_ERASED
    reader.signed()
    count = reader.unsigned() & ~_ERASED
    reader.bytes(8)  # the last record's checksum
    width = 64 * _BUCKETS[2]
    maps: dict[int, int] = {}
    for _ in range(count):
        map_index, bit = divmod(first + (reader.unsigned() & ~_ERASED), width)
        maps[map_index] = maps.get(map_index, 0) | 1 << bit
    return BlockState(first, last, Deleted(width, maps) if maps else None)
