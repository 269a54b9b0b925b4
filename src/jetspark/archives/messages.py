"""The messages of an archive in order, appended to columns step by step.

Proofs: a list of messages ends with its end mark, or a sequence at or after the wanted end was
seen. A block has exactly the messages that the server's index lists. Whatever is missing or
damaged is a BackupError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO, NamedTuple

from jetspark.archives.content import Content, content_from
from jetspark.archives.states import BlockState, Deleted
from jetspark.archives.tar import Block
from jetspark.errors import BackupError
from jetspark.wire.kernel import MAX_MESSAGE, Deliveries, EntryDecoder, RecordDecoder

LIST_MAGIC = b"NATSARC1"
_WIDTH = 2048  # sequences in one bitmap
_MOST_NAME = 1 << 20


def is_list(content: Content) -> bool:
    """Whether the content is a list of messages. Raises BackupError for an empty archive."""
    while len(content.data) < len(LIST_MAGIC):
        content.require()
    return content.data.startswith(LIST_MAGIC)


def list_steps(
    content: Content, start: int, end: int, rows: Deliveries, *, whole: bool = False
) -> Iterator[int]:
    """Append the messages from `start` to before `end`; the content begins with an entry.

    Goes on to the end mark if `whole`. Yields the sequence of the last message, wanted or not.
    """
    decoder = EntryDecoder(start, end)
    while True:
        behind, other = decoder.decode(content.data, 0, rows)
        while other:
            entry = entry_at(content.data, behind)
            assert entry is not None  # noqa: S101 - the decoder has seen it whole
            behind = entry.end
            if not entry.name:
                _check_end(content, behind)
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
    """The position behind it."""


def entry_at(content: bytes | bytearray, pos: int) -> Entry | None:
    """The entry at `pos`; None while a part of it is missing. Raises BackupError."""
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


def _check_end(content: Content, behind: int) -> None:
    if len(content.data) > behind or content.fill():
        raise BackupError("The archive is damaged: something comes after its end mark.")


def block_steps(
    file: BinaryIO, stream: str, blocks: Iterable[Block], start: int, end: int, rows: Deliveries
) -> Iterator[int]:
    """Append the messages of the blocks from `start` to before `end`.

    Yields the sequence of the last message in a block so far, wanted or not.
    """
    for block in blocks:
        state = block.state
        assert state is not None  # noqa: S101 - whoever has none has looked for marks
        if state.count(start, end - 1):
            yield from _one_block(file, stream, block, state, start, end, rows)


def _one_block(
    file: BinaryIO,
    stream: str,
    block: Block,
    state: BlockState,
    start: int,
    end: int,
    rows: Deliveries,
) -> Iterator[int]:
    first = max(start, state.first)
    decoder = RecordDecoder(block_key(stream, block.number), first, end)
    count = 0
    for window, behind in _windows(file, block):
        had = len(rows)
        behind.append(decoder.decode(window, 0, rows))
        if state.deleted is not None:
            _leave_out(rows, had, state.deleted)
        count += len(rows) - had
        yield decoder.last_sequence
    if state.exact and count != (wanted := state.count(first, end - 1)):
        raise BackupError(
            f"The archive is damaged: message block {block.number} has {count} of {wanted} "
            "messages."
        )


def _windows(file: BinaryIO, block: Block) -> Iterator[tuple[memoryview, list[int]]]:
    """The block's content piece by piece; the caller appends to the list what it has used."""
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


def by_marks(
    file: BinaryIO, stream: str, blocks: Iterable[Block], first: int, last: int
) -> list[Block]:
    """The blocks of an archive without an index, with what their records say was deleted."""
    maps: dict[int, int] = {}
    for sequence in _tombstones_of(file, stream, blocks):
        number, bit = divmod(sequence, _WIDTH)
        maps[number] = maps.get(number, 0) | 1 << bit
    state = BlockState(first, last, Deleted(_WIDTH, maps), exact=False)
    return [replace(block, state=state) for block in blocks]


def _tombstones_of(file: BinaryIO, stream: str, blocks: Iterable[Block]) -> set[int]:
    found: set[int] = set()
    for block in blocks:
        decoder = RecordDecoder(block_key(stream, block.number), 0, 0)
        for window, behind in _windows(file, block):
            behind.append(decoder.decode(window, 0, Deliveries()))
        found.update(decoder.tombstones)
    return found


def block_key(stream: str, number: int) -> bytes:
    """The key of a block's checksums."""
    return hashlib.sha256(f"{stream}-{number}".encode()).digest()
