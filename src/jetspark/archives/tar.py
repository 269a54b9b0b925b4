"""The files in an archive of a server before 2.15: a tar of message blocks and their index.

Only the places of the blocks are looked up, and the index is read. What lies between is passed over
frame by frame, without being unpacked.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from jetspark.archives.content import Content, Frames, content_from
from jetspark.archives.states import BlockState, Index, Numbers, idx_state, index_of
from jetspark.errors import BackupError, DocumentError
from jetspark.wire.documents import decode_json

_UNIT = tarfile.BLOCKSIZE
_BLOCK = re.compile(r"msgs/(\d+)\.(blk|idx)")
_INDEX = "msgs/index.db"
_CONFIG = "meta.inf"
_FAILURE = "errors.txt"  # the server's own words
_MOST_TEXT = 1 << 16


class _Config(msgspec.Struct):
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Where a message block is in the archive, and which messages of it count."""

    number: int
    offset: int
    """In the file: the frame in which the block begins."""
    skip: int
    """Bytes of the frame's content before the block."""
    size: int
    state: BlockState | None
    """None: only marks in the records say what was deleted."""


@dataclass(frozen=True, slots=True)
class Files:
    """What is in an archive."""

    blocks: list[Block]
    """The blocks that have messages, by their number."""
    index: Index | None
    """What the server's index says; None if there is none."""
    stream: str | None
    """The name in the stream's configuration."""


def files_of(file: BinaryIO) -> Files:
    """Look up the files of an archive.

    Raises BackupError for an archive that was cut off, that lacks a block, or with which the server
    reports a failure.
    """
    members = _Members(file)
    index = members.run()
    found = members.blocks
    if index is None:
        blocks = sorted(found.values(), key=lambda block: block.number)
        return Files(blocks, None, members.stream)
    blocks = []
    for number, state in sorted(index.blocks.items()):
        if state.count(state.first, state.last):
            if number not in found:
                raise BackupError(f"The archive is damaged: message block {number} is missing.")
            one = found[number]
            blocks.append(Block(one.number, one.offset, one.skip, one.size, state))
    return Files(blocks, index, members.stream)


class _Members:
    """One walk over the files in a tar."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frames = Frames(file)
        self._position = 0
        self.blocks: dict[int, Block] = {}
        self.stream: str | None = None

    def run(self) -> Index | None:
        """The index; None if there is none."""
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
                    place = self._frames.find(begin)
                    self.blocks[number] = Block(number, *place, size, None)
            self._position = begin + size + -size % _UNIT
        if index is None and own:
            index = Index(own, max(state.last for state in own.values()))
        return index

    def _next(self) -> tarfile.TarInfo | None:
        """The next file; None at the tar's end."""
        size: int | None = None
        while True:
            head = self._bytes(_UNIT)
            if not any(head):
                return None
            try:
                member = tarfile.TarInfo.frombuf(head, "utf-8", "replace")
            except tarfile.HeaderError as error:
                raise BackupError(f"The archive is damaged: {error} in its tar.") from None
            if member.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE):
                if size is not None:
                    member.size = size
                if member.size < 0:
                    raise BackupError("The archive is damaged: a file in it has no valid size.")
                return member
            size = _size_in(self._text(member.size))
            self._position += member.size + -member.size % _UNIT

    def _content(self) -> Content:
        return content_from(self._file, *self._frames.find(self._position))

    def _bytes(self, count: int) -> bytes:
        content = self._content()
        while len(content.data) < count:
            content.require()
        self._position += count
        return bytes(content.data[:count])

    def _text(self, size: int) -> str:
        before = self._position
        text = self._bytes(min(max(size, 0), _MOST_TEXT)).decode("utf-8", "replace")
        self._position = before
        return text

    def _numbers(self, size: int) -> Numbers:
        return Numbers(_pieces(self._content(), size))


def _pieces(content: Content, size: int) -> Callable[[], bytes]:
    """What `Numbers` reads of the first `size` bytes of the content."""
    left = size

    def more() -> bytes:
        nonlocal left
        if not left:
            return b""
        if not content.data:
            content.require()
        piece = bytes(content.data[:left])
        content.drop(len(piece))
        left -= len(piece)
        return piece

    return more


def _size_in(text: str) -> int | None:
    """The size in an extended header, for files whose size the plain one cannot hold."""
    match = re.search(r"(?:^|\n)\d+ size=(\d+)\n", text)
    return int(match[1]) if match else None


def _name_in(text: str) -> str | None:
    try:
        return decode_json(text, _Config, "configuration").name
    except DocumentError:  # longer than what is read of it
        return None
