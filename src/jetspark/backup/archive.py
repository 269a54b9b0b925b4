"""What a backup's archive has: its messages in order, appended to columns step by step.

An archive is what the server sends for a snapshot: an S2 stream (framed like Snappy's) of a list of
messages or, before server 2.15, of a tar of message blocks. A list ends with its end mark; a block
has exactly the messages that the server's index lists. Missing or damaged content raises
BackupError; unpacking verifies every checksum. The only I/O is on the archive's file.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec

from jetspark.errors import BackupError, DocumentError
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document, decode_json
from jetspark.wire.kernel import (
    MAX_MESSAGE,
    Deliveries,
    EntryDecoder,
    RecordDecoder,
    S2Decoder,
    look,
    require_archives,
)

# -------------------------------------------------------------------------------------------------
# What `backup.json` says: the stream's configuration and state from the server's answer. The `nats`
# tool writes no more; jetspark adds the archive's size, its SHA-256 and the number of its messages.

METADATA: Final = "backup.json"
MAX_METADATA: Final = 64 << 20

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class State(msgspec.Struct, frozen=True):
    """The stream's state when the server began to send it."""

    messages: _Count
    bytes: _Count
    first_seq: _Count
    last_seq: _Count
    first_ts: str | None = None
    last_ts: str | None = None

    def __post_init__(self) -> None:
        for text in (self.first_ts, self.last_ts):
            if text is not None:
                parse_isotime(text)  # raises ValueError unless it is a time


class Digest(msgspec.Struct, frozen=True):
    """The archive, as jetspark wrote it."""

    bytes: _Count
    sha256: str
    messages: _Count | None = None
    """How many messages of the state it has."""


class _Config(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class Metadata(msgspec.Struct, frozen=True):
    """The checked part of `backup.json`."""

    config: _Config
    state: State
    archive: Digest | None = None

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name

    def check_size(self, size: int) -> None:
        """Raise BackupError unless the archive has the size that `backup.json` says."""
        if self.archive is not None and self.archive.bytes != size:
            raise BackupError(
                f"The archive has {size} bytes; {METADATA} says {self.archive.bytes}."
            )


def metadata_from(data: bytes) -> tuple[Metadata, dict[str, Any]]:
    """The content of `backup.json`, of which at most `MAX_METADATA` bytes need to be read: what is
    checked, and everything. Raises BackupError."""
    if len(data) >= MAX_METADATA:
        raise BackupError(f"{METADATA} is damaged: it is larger than {MAX_METADATA >> 20} MiB.")
    try:
        return decode_json(data, Metadata, METADATA), decode_document(data, METADATA)
    except DocumentError as error:
        raise BackupError(f"{METADATA} is damaged: {error.why}.") from None


# -------------------------------------------------------------------------------------------------
# The unpacked content, through a window that moves forward. Memory is bounded by one incomplete
# frame and what the caller has not dropped.

_READ = 1 << 20
_HEAD = 4 + 4 + 10  # a frame's kind and length, its checksum, the size of its content
_COMPRESSED, _PLAIN = 0x00, 0x01


class Content:
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
        had = len(self.data)
        while True:
            end, need = self._decoder.decode(look(self._raw), 0, self.data)
            self._raw = self._raw[end:]
            if len(self.data) > had:
                self._fills.append((self._offset, self._unpacked))
                self._unpacked += len(self.data) - had
            self._offset += end
            if len(self.data) > had:
                return True
            piece = self._more() if need else b""
            if need and not piece:
                if self._raw or not self._decoder.identified:
                    raise BackupError(_CUT_INSIDE)
                return False
            self._raw += piece

    def drop(self, count: int) -> None:
        """Remove the first bytes of the window."""
        del self.data[:count]
        begin = self._unpacked - len(self.data)
        while len(self._fills) > 1 and self._fills[1][1] <= begin:
            self._fills.popleft()

    def place(self) -> tuple[int, int]:
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
        """Whether it is a list of messages, as from server 2.15 on."""
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
            end, need = self._decoder.decode(look(self._rest), 0, unpacked)
            self._rest = self._rest[end:]
            if not self.content:
                self.is_message_list = unpacked.startswith(LIST_MAGIC)
            self.content += len(unpacked)

    def finish(self) -> None:
        """Raise BackupError unless the archive is complete."""
        if self._rest or not self._decoder.identified:
            raise BackupError(_CUT_INSIDE)


_CUT_INSIDE = "The archive is not complete: it ends in the middle of a block."


def content_from(file: BinaryIO, offset: int = 0, skip: int = 0) -> Content:
    """The content of a file from a frame on, without its first `skip` bytes."""
    file.seek(offset)
    content = Content(lambda: file.read(_READ), offset=offset)
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


# -------------------------------------------------------------------------------------------------
# The files in an archive of a server before 2.15: a tar of message blocks and their index. Only the
# index is read and the blocks are located; what lies between is not unpacked.

_UNIT = tarfile.BLOCKSIZE
_BLOCK = re.compile(r"msgs/(\d+)\.(blk|idx)")
_INDEX = "msgs/index.db"
_CONFIG = "meta.inf"
_FAILURE = "errors.txt"  # the server's own words
_MOST_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Block:
    """Where a message block is in the archive, and which messages of it count."""

    number: int
    offset: int
    """The offset in the file of the frame in which the block begins."""
    skip: int
    """Bytes of that frame's content before the block."""
    size: int
    state: BlockState


@dataclass(frozen=True, slots=True)
class Files:
    """The files in an archive."""

    blocks: list[Block]
    """The blocks that have messages, by their number."""
    index: Index | None
    """The server's index; None when there are no messages."""
    stream: str | None
    """The stream's name in its configuration."""


def files_of(file: BinaryIO) -> Files:
    """Look up the files of an archive.

    Raises BackupError for an archive that was cut off, lacks a block or the index, or has a failure
    of the server in it.
    """
    members = _Members(file)
    index = members.run()
    blocks = []
    for number, state in sorted(index.blocks.items() if index else ()):
        if state.count(state.first, state.last):
            if number not in members.blocks:
                raise BackupError(f"The archive is damaged: message block {number} is missing.")
            blocks.append(Block(number, *members.blocks[number], state))
    return Files(blocks, index, members.stream)


class _Members:
    """One walk over the files in a tar."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frames = Frames(file)
        self._position = 0
        self.blocks: dict[int, tuple[int, int, int]] = {}
        """Offset, skip and size, by number."""
        self.stream: str | None = None

    def run(self) -> Index | None:
        """Read to the tar's end. Returns the index; None when there are no messages."""
        index: Index | None = None
        own: dict[int, BlockState] = {}
        while (member := self._next()) is not None:
            begin, size = self._position, member.size
            if member.name == _FAILURE:
                raise BackupError(f"The server's own failure: {self._text(size)}")
            if member.name == _CONFIG:
                self.stream = _name_in(self._text(size))
            elif member.name == _INDEX:
                index = index_of(self._numbers(size))
            elif (match := _BLOCK.fullmatch(member.name)) is not None:
                number = int(match[1])
                if match[2] == "idx":
                    own[number] = idx_state(self._numbers(size))
                elif size:
                    self.blocks[number] = (*self._frames.find(begin), size)
            self._position = begin + size + -size % _UNIT
        if index is None and own:
            return Index(own, max(state.last for state in own.values()))
        if index is None and self.blocks:
            raise BackupError("The archive has no index of its messages: restore it on its server.")
        return index

    def _next(self) -> tarfile.TarInfo | None:
        """The next file; None at the tar's end."""
        while any(head := self._bytes(_UNIT)):
            try:
                member = tarfile.TarInfo.frombuf(head, "utf-8", "replace")
            except tarfile.HeaderError as error:
                raise BackupError(f"The archive is damaged: {error} in its tar.") from None
            if member.size < 0:
                raise BackupError("The archive is damaged: a file in it has no valid size.")
            if member.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE):
                return member
            self._position += member.size + -member.size % _UNIT  # a time with its fraction
        return None

    def _bytes(self, count: int) -> bytes:
        content = content_from(self._file, *self._frames.find(self._position))
        while len(content.data) < count:
            content.require()
        self._position += count
        return bytes(content.data[:count])

    def _text(self, size: int) -> str:
        before = self._position
        text = self._bytes(min(size, _MOST_TEXT)).decode("utf-8", "replace")
        self._position = before
        return text

    def _numbers(self, size: int) -> Numbers:
        return Numbers(content_from(self._file, *self._frames.find(self._position)), size)


def _name_in(text: str) -> str | None:
    try:
        return decode_json(text, _Config, "configuration").name
    except DocumentError:  # longer than the part that is read
        return None


# -------------------------------------------------------------------------------------------------
# Which sequences each message block has, as written by a server before 2.15.
#
# `msgs/index.db` (from 2.10 on) has all blocks; before, each block had a file `msgs/N.idx`. Numbers
# are uvarints and varints. Deleted sequences are bitmaps, or distances from the first sequence.

_FULL_STATE, _VERSIONS = 11, (1, 2, 3, 4)
_STATE_INDEX, _INDEX_VERSION = 22, 1
_SET = 22
_BUCKETS = {1: 64, 2: 32}  # the size of a bitmap in units of 64 sequences, by the set's version
_ERASED = 1 << 63
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleted sequences: bitmaps of `width` sequences, keyed by first sequence // `width`."""

    width: int
    maps: dict[int, int]

    def __contains__(self, sequence: int) -> bool:
        number, bit = divmod(sequence, self.width)
        return bool(self.maps.get(number, 0) >> bit & 1)

    def count(self, first: int, last: int) -> int:
        """How many were deleted from `first` to `last`, both included."""
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

    def count(self, first: int, last: int) -> int:
        """Messages with sequences from `first` to `last`."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return 0
        gone = 0 if self.deleted is None else self.deleted.count(first, last)
        return last + 1 - first - gone


class Numbers:
    """The numbers in the first `size` bytes of the content."""

    def __init__(self, content: Content, size: int) -> None:
        self._content = content
        self._left = size
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes. Raises BackupError for an absurd number, and at the file's end."""
        if count > min(self._left, _MOST_BYTES):
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
    """What the archive says about its blocks and the stream."""

    blocks: dict[int, BlockState]
    """The blocks by their number."""
    last: int
    """The stream's last sequence; its message may have been deleted."""
    last_ns: int | None = None
    """The time of `last_seq` in nanoseconds since 1970, if the archive says it."""


def index_of(numbers: Numbers) -> Index:
    """The index in `msgs/index.db`. Raises BackupError for another format."""
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
                numbers.unsigned()  # the block of the last one
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
    """The state of a block in a file `msgs/N.idx`. Raises BackupError."""
    if tuple(numbers.bytes(2)) != (_STATE_INDEX, _INDEX_VERSION):
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


LIST_MAGIC = b"NATSARC1"
_MOST_NAME = 1 << 20


def is_list(content: Content) -> bool:
    """Whether the content is a list of messages, not a tar. Raises BackupError when it is empty."""
    while len(content.data) < len(LIST_MAGIC):
        content.require()
    return content.data.startswith(LIST_MAGIC)


def list_steps(
    content: Content, start: int, end: int, rows: Deliveries, *, whole: bool = False
) -> Iterator[int]:
    """Append the messages from `start` to before `end` of a list, which begins with an entry.

    Reads on to the end mark if `whole`. Yields the sequence of the last message read.
    """
    decoder = EntryDecoder(start, end)
    while True:
        behind, other = decoder.decode(content.data, 0, rows)
        while other:
            entry = entry_at(content.data, behind)
            assert entry is not None  # noqa: S101 - the decoder has seen it whole
            behind = entry.end
            if not entry.name:
                if len(content.data) > behind or content.fill():
                    raise BackupError("The archive is damaged: something comes after its end mark.")
                yield decoder.last_sequence
                return
            behind, other = decoder.decode(content.data, behind, rows)
        content.drop(behind)
        yield decoder.last_sequence
        if decoder.last_sequence >= end - 1 and not whole:
            return
        content.require()


class Entry(NamedTuple):
    """An entry of a list of messages that is not a message, such as the stream's state."""

    name: bytes
    sequence: int
    """0: not a message."""
    payload: bytes
    end: int
    """The position after it."""


def entry_at(content: bytes | bytearray, pos: int) -> Entry | None:
    """The entry at `pos`; None while its bytes are incomplete. Raises BackupError."""
    numbers = []
    for _ in range(5):
        value = shift = 0
        while True:
            if pos >= len(content):
                return None
            byte = content[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                raise _no_entry()
        numbers.append(value)
    name, _, sequence, headers, payload = numbers
    if name > _MOST_NAME or headers + payload > MAX_MESSAGE:
        raise _no_entry()
    end = pos + name + headers + payload
    if end > len(content):
        return None
    return Entry(
        bytes(content[pos : pos + name]), sequence, bytes(content[end - payload : end]), end
    )


def _no_entry() -> BackupError:
    return BackupError("The archive is damaged: an entry in it has no valid sizes.")


def block_steps(
    file: BinaryIO, stream: str, blocks: Iterable[Block], start: int, end: int, rows: Deliveries
) -> Iterator[int]:
    """Append the messages from `start` to before `end` of the blocks.

    Yields the sequence of the last message read from a block.
    """
    for block in blocks:
        if block.state.count(start, end - 1):
            yield from _one_block(file, stream, block, start, end, rows)


def _one_block(
    file: BinaryIO, stream: str, block: Block, start: int, end: int, rows: Deliveries
) -> Iterator[int]:
    first = max(start, block.state.first)
    # The key of the block's checksums.
    key = hashlib.sha256(f"{stream}-{block.number}".encode()).digest()
    decoder = RecordDecoder(key, first, end)
    count = 0
    for window, behind in _windows(file, block):
        had = len(rows)
        behind.append(decoder.decode(window, 0, rows))
        if block.state.deleted is not None:
            _leave_out(rows, had, block.state.deleted)
        count += len(rows) - had
        yield decoder.last_sequence
    if count != (wanted := block.state.count(first, end - 1)):
        raise BackupError(
            f"The archive is damaged: message block {block.number} has {count} of {wanted} "
            "messages."
        )


def _windows(file: BinaryIO, block: Block) -> Iterator[tuple[memoryview, list[int]]]:
    """Yield the block's content piece by piece; the caller appends to the list what it has used."""
    content = content_from(file, block.offset, block.skip)
    left = block.size
    while left:
        if not content.data:
            content.require()
        size = min(left, len(content.data))
        used: list[int] = []
        with memoryview(content.data) as view, view[:size] as window:
            yield window, used
        content.drop(used[0])
        left -= used[0]
        if left and used[0] < size == left + used[0]:
            raise BackupError(
                f"The archive is damaged: message block {block.number} ends inside a message."
            )
        if left:
            content.require()


def _leave_out(rows: Deliveries, had: int, deleted: Deleted) -> None:
    sequences = rows.sequences(had)
    kept = [row for row, sequence in enumerate(sequences, had) if sequence not in deleted]
    if len(kept) < len(sequences):
        rows.keep([*range(had), *kept])


# -------------------------------------------------------------------------------------------------
# The content of an archive, compared with what `backup.json` says about the stream.
#
# A list of messages begins with the state of the server's answer. It has the messages that a walk
# through the live stream finds, so those removed before the walk reaches them are missing. A tar
# has the stream's configuration and index; only limits remove messages while it is made. So an
# archive may have fewer messages than the state, never more.

_STATE = b"state.json"


def blocks_in(file: BinaryIO, metadata: Metadata) -> list[Block] | None:
    """The message blocks of an archive, each with its state; None for a list of messages.

    Raises BackupError for a damaged archive, and for one of another stream than `metadata`.
    """
    content = content_from(file)
    state = metadata.state
    if is_list(content):
        content.drop(len(LIST_MAGIC))
        _compare(_state_in(content), state)
        return None
    files = files_of(file)
    if files.stream not in (None, metadata.stream):
        raise BackupError(
            f"The archive is of stream {files.stream!r}, but {METADATA} of {metadata.stream!r}."
        )
    if files.index is None:
        return []
    last, last_ns = files.index.last, files.index.last_ns
    if last < state.last_seq:
        raise _another("last_seq", last, state.last_seq)
    if last == state.last_seq and state.messages and last_ns not in (None, _ns(state.last_ts)):
        raise _another("last_ts", last_ns, _ns(state.last_ts))
    found = sum(block.state.count(0, state.last_seq) for block in files.blocks)
    if found > state.messages and last_ns is not None:  # the count of 2.9 may be one too low
        raise _another("messages", found, state.messages)
    return files.blocks


def messages_in(file: BinaryIO, metadata: Metadata) -> int:
    """How many messages of the state an archive has.

    Unpacks a list of messages, but reads only the index of blocks. Raises the errors of
    `blocks_in`.
    """
    blocks = blocks_in(file, metadata)
    last = metadata.state.last_seq
    if blocks is not None:
        return sum(block.state.count(0, last) for block in blocks)
    content = content_from(file, 0, len(LIST_MAGIC))
    rows, count = Deliveries(), 0
    for _ in list_steps(content, 0, last + 1, rows, whole=True):
        count += len(rows)
        rows.truncate(0)
    return count


def _state_in(content: Content) -> dict[str, object]:
    while (entry := entry_at(content.data, 0)) is None:
        content.require()
    if entry.name != _STATE or entry.sequence:
        raise BackupError("The archive is damaged: it does not begin with the stream's state.")
    try:
        return decode_document(entry.payload, "state")
    except DocumentError as error:
        raise BackupError(
            f"The archive is damaged: its state cannot be read ({error.why})."
        ) from None


def _compare(found: dict[str, object], state: State) -> None:
    for name in State.__struct_fields__:
        said = getattr(state, name)
        if said is not None and found.get(name, said) != said:
            raise _another(name, found[name], said)


def _another(name: str, found: object, said: object) -> BackupError:
    return BackupError(
        f"The archive and {METADATA} are not of the same backup: {name} is {found} in the archive, "
        f"and {said} in {METADATA}."
    )


def _ns(text: str | None) -> int | None:
    return None if text is None else parse_isotime(text)
