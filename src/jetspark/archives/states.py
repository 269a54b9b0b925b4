"""What a server before 2.15 wrote of its message blocks: which sequences each of them has.

`msgs/index.db` (from 2.10 on) has all blocks; before, each block had a file `msgs/N.idx`. Numbers
are uvarints and varints. Deleted sequences are bitmaps, or the distances to the first sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jetspark.errors import BackupError

_FULL_STATE, _VERSIONS = 11, (1, 2, 3, 4)
_INDEX, _INDEX_VERSION = 22, 1
_SET = 22
_BUCKETS = {1: 64, 2: 32}  # 64 sequences each, by the version of the set
_ERASED = 1 << 63
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleted sequences: bitmaps of `width` sequences, by their first one divided by `width`."""

    width: int
    maps: dict[int, int]

    def __contains__(self, sequence: int) -> bool:
        number, bit = divmod(sequence, self.width)
        return bool(self.maps.get(number, 0) >> bit & 1)

    def count(self, first: int, last: int) -> int:
        """How many there are from `first` to `last`, both included."""
        found = 0
        for number, bits in self.maps.items():
            low = max(0, first - number * self.width)
            high = min(self.width, last + 1 - number * self.width)
            if low < high:
                found += (bits >> low & (1 << high - low) - 1).bit_count()
        return found


@dataclass(frozen=True, slots=True)
class BlockState:
    """The sequences of one block, both ends included; none when `first` is greater."""

    first: int
    last: int
    deleted: Deleted | None = None
    exact: bool = True
    """The server said so, and the block has exactly these messages."""

    def count(self, first: int, last: int) -> int:
        """Messages with sequences from `first` to `last`."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return 0
        gone = 0 if self.deleted is None else self.deleted.count(first, last)
        return last + 1 - first - gone


class Numbers:
    """Reads numbers of a file that comes in pieces; `more` returns the next one, b"" at the end."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._data = b""
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes. Raises BackupError when the file ends before, or for an absurd number."""
        if count > _MOST_BYTES:
            raise BackupError("The archive is damaged: a size in it is not valid.")
        while len(self._data) - self._at < count:
            piece = self._more()
            if not piece:
                raise BackupError("The archive is damaged: a file in it is too short.")
            self._data = self._data[self._at :] + piece
            self._at = 0
        self._at += count
        return self._data[self._at - count : self._at]

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
    """What the archive says of its blocks, and of the stream."""

    blocks: dict[int, BlockState]
    """By their number."""
    last: int
    """The stream's last sequence; its message may have been deleted."""
    last_ns: int | None = None
    """The time of that, in nanoseconds since 1970, if the archive says it."""


def index_of(numbers: Numbers) -> Index:
    """From `msgs/index.db`. Raises BackupError for another format."""
    magic, version = numbers.bytes(2)
    if magic != _FULL_STATE or version not in _VERSIONS:
        raise BackupError(
            f"The archive's index has version {version}, which this version of jetspark cannot "
            "read: restore the backup on its server."
        )
    for read in (*[numbers.unsigned] * 3, numbers.signed):
        read()  # messages, bytes, first sequence and its time
    last, last_ns = numbers.unsigned(), numbers.signed()
    for _ in range(numbers.unsigned()):
        subject = numbers.bytes(numbers.unsigned())
        if subject:
            several = numbers.unsigned() > 1 or version >= 4  # messages
            numbers.unsigned()  # the block of the first one
            if several:
                numbers.unsigned()  # and of the last one
    blocks = dict(_state(numbers, version) for _ in range(numbers.unsigned()))
    return Index(blocks, last, last_ns)


def _state(numbers: Numbers, version: int) -> tuple[int, BlockState]:
    number = numbers.unsigned()
    numbers.unsigned()  # bytes
    first = numbers.unsigned()
    numbers.signed()
    last = numbers.unsigned()
    numbers.signed()
    deleted = numbers.unsigned()
    for _ in range(min(version, 3) - 1):  # times to live, schedules
        numbers.unsigned()
    return number, BlockState(first, last, _deleted(numbers) if deleted else None)


def _deleted(numbers: Numbers) -> Deleted:
    magic, version = numbers.bytes(2)
    buckets = _BUCKETS.get(version)
    if magic != _SET or buckets is None:
        raise BackupError("The archive is damaged: deleted sequences cannot be read.")
    nodes = int.from_bytes(numbers.bytes(4), "little")
    numbers.bytes(4)  # how many sequences
    width = 64 * buckets
    maps: dict[int, int] = {}
    for _ in range(nodes):
        base = int.from_bytes(numbers.bytes(8), "little")
        maps[base // width] = int.from_bytes(numbers.bytes(8 * buckets), "little")
        numbers.bytes(2)
    return Deleted(width, maps)


def idx_state(numbers: Numbers) -> BlockState:
    """The block of a file `msgs/N.idx`. Raises BackupError."""
    if tuple(numbers.bytes(2)) != (_INDEX, _INDEX_VERSION):
        raise BackupError("The archive is damaged: a block's index cannot be read.")
    numbers.unsigned()  # messages
    numbers.unsigned()  # bytes
    first = numbers.unsigned() & ~_ERASED
    numbers.signed()
    last = numbers.unsigned() & ~_ERASED
    numbers.signed()
    count = numbers.unsigned() & ~_ERASED
    numbers.bytes(8)  # the last record's checksum
    width = 64 * _BUCKETS[2]
    maps: dict[int, int] = {}
    for _ in range(count):
        found, bit = divmod(first + (numbers.unsigned() & ~_ERASED), width)
        maps[found] = maps.get(found, 0) | 1 << bit
    return BlockState(first, last, Deleted(width, maps) if maps else None)
