"""Reads the message blocks in an archive of a server before 2.15: a tar of blocks and their index.

Only the index is read and the blocks are located; what lies between is not unpacked.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from jetspark.backup.archive_content import Frames, open_content
from jetspark.backup.block_index import (
    BlockState,
    Deleted,
    Index,
    NumberReader,
    parse_block_index,
    parse_index,
)
from jetspark.backup.metadata import NamedConfig
from jetspark.errors import BackupError, DocumentError
from jetspark.wire.documents import decode_json
from jetspark.wire.kernel import (
    Deliveries,
    RecordDecoder,
)

_UNIT = tarfile.BLOCKSIZE
_BLOCK = re.compile(r"msgs/(\d+)\.(blk|idx)")
_INDEX = "msgs/index.db"
_CONFIG = "meta.inf"
_FAILURE = "errors.txt"  # the server's own words
_MAX_TEXT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Block:
    """A message block: its position in the archive, and the messages that it must have."""

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


def find_files(file: BinaryIO) -> Files:
    """Look up the files of an archive.

    Raises BackupError for an archive that was cut off, lacks a block or the index, or has a failure
    of the server in it.
    """
    members = _Members(file)
    index = members.find_index()
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

    def find_index(self) -> Index | None:
        """Read to the tar's end. Returns the index; None when there are no messages."""
        index: Index | None = None
        own: dict[int, BlockState] = {}
        while (member := self._next_member()) is not None:
            begin, size = self._position, member.size
            if member.name == _FAILURE:
                raise BackupError(f"The server's own failure: {self._peek_text(size)}")
            if member.name == _CONFIG:
                self.stream = _stream_name_in(self._peek_text(size))
            elif member.name == _INDEX:
                index = parse_index(self._number_reader(size))
            elif (match := _BLOCK.fullmatch(member.name)) is not None:
                number = int(match[1])
                if match[2] == "idx":
                    own[number] = parse_block_index(self._number_reader(size))
                elif size:
                    self.blocks[number] = (*self._frames.find(begin), size)
            self._position = begin + size + -size % _UNIT
        if index is None and own:
            return Index(own, max(state.last for state in own.values()))
        if index is None and self.blocks:
            raise BackupError("The archive has no index of its messages: restore it on its server.")
        return index

    def _next_member(self) -> tarfile.TarInfo | None:
        """The next file; None at the tar's end."""
        while any(head := self._read_bytes(_UNIT)):
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

    def _read_bytes(self, count: int) -> bytes:
        content = open_content(self._file, *self._frames.find(self._position))
        while len(content.data) < count:
            content.require()
        self._position += count
        return bytes(content.data[:count])

    def _peek_text(self, size: int) -> str:
        before = self._position
        text = self._read_bytes(min(size, _MAX_TEXT_BYTES)).decode("utf-8", "replace")
        self._position = before
        return text

    def _number_reader(self, size: int) -> NumberReader:
        return NumberReader(open_content(self._file, *self._frames.find(self._position)), size)


def _stream_name_in(text: str) -> str | None:
    try:
        return decode_json(text, NamedConfig, "configuration").name
    except DocumentError:  # longer than the part that is read
        return None


def read_blocks(
    file: BinaryIO, stream: str, blocks: Iterable[Block], start: int, end: int, rows: Deliveries
) -> Iterator[int]:
    """Append the messages from `start` to before `end` of the blocks.

    Yields the sequence of the last message read from a block.
    """
    for block in blocks:
        if block.state.count(start, end - 1):
            yield from _decode_block(file, stream, block, start, end, rows)


def _decode_block(
    file: BinaryIO, stream: str, block: Block, start: int, end: int, rows: Deliveries
) -> Iterator[int]:
    first = max(start, block.state.first)
    # The key of the block's checksums.
    key = hashlib.sha256(f"{stream}-{block.number}".encode()).digest()
    decoder = RecordDecoder(key, first, end)
    count = 0
    for window, used in _windows(file, block):
        first_row = len(rows)
        used.append(decoder.decode(window, 0, rows))
        if block.state.deleted is not None:
            _drop_deleted(rows, first_row, block.state.deleted)
        count += len(rows) - first_row
        yield decoder.last_sequence
    if count != (expected := block.state.count(first, end - 1)):
        raise BackupError(
            f"The archive is damaged: message block {block.number} has {count} of {expected} "
            "messages."
        )


def _windows(file: BinaryIO, block: Block) -> Iterator[tuple[memoryview, list[int]]]:
    """Yield the block's content piece by piece; the caller appends to the list what it has used."""
    content = open_content(file, block.offset, block.skip)
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


def _drop_deleted(rows: Deliveries, first_row: int, deleted: Deleted) -> None:
    sequences = rows.sequences(first_row)
    rows_to_keep = [
        row for row, sequence in enumerate(sequences, first_row) if sequence not in deleted
    ]
    if len(rows_to_keep) < len(sequences):
        rows.keep([*range(first_row), *rows_to_keep])
