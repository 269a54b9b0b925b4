"""Backups of streams as tables, without a server.

A backup is a folder with `backup.json` and `stream.tar.s2`, as `jetspark stream backup` and `nats
stream backup` write it, by any supported server. Its messages are those of the stream when the
backup began: sequences up to the `last_seq` in `backup.json`. From servers before 2.15, messages
that limits removed while it ran are left out. The archive is read as a stream, in bounded memory.
The checksums in what is read are verified; an archive that is damaged, cut off or lacks a message
is a BackupError.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from jetspark.bulk.archive.content import content_from
from jetspark.bulk.archive.files import ARCHIVE, METADATA, absolute, opened, unreadable
from jetspark.bulk.archive.messages import (
    LIST_MAGIC,
    block_steps,
    is_list,
    list_steps,
    tombstones_of,
)
from jetspark.bulk.archive.states import BlockState, Deleted
from jetspark.bulk.archive.tar import Block, blocks_of
from jetspark.bulk.arrow import COLUMNS, batches
from jetspark.bulk.facts import StreamFacts, facts_of
from jetspark.bulk.ranges import ReadLimits
from jetspark.bulk.subject_choice import SubjectChoice
from jetspark.errors import BackupError
from jetspark.wire.kernel import Columns, Deliveries

_WIDTH = 2048  # sequences in one bitmap


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a backup, to be read on its own: sequences from `start` to before `end`."""

    start: int
    end: int
    blocks: tuple[Block, ...] | None
    """The blocks that have them; None in a list of messages."""
    offset: int = 0
    """In a list: the frame of the archive from which on it is unpacked."""
    skip: int = len(LIST_MAGIC)
    """In a list: bytes of content before the first entry."""


@dataclass(frozen=True)
class Backup:
    """A backup of a stream. `open_backup` makes one; reading opens the archive again each time."""

    folder: str
    """An absolute path, or a URI."""
    facts: StreamFacts
    """The stream when the backup began; its creation time is not in a backup."""
    size: int
    """Bytes of the archive."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.facts.name

    @cached_property
    def blocks(self) -> tuple[Block, ...] | None:
        """The message blocks in the archive; None if it is a list of messages (server 2.15).

        Raises BackupError.
        """
        with self._archive() as file:
            if is_list(content_from(file)):
                return None
            found = blocks_of(file)
            if any(block.state is None for block in found):
                found = self._by_marks(file, found)
            return tuple(found)

    def _by_marks(self, file: BinaryIO, found: list[Block]) -> list[Block]:
        """The same, with what the records say of deleted messages in place of an index."""
        maps: dict[int, int] = {}
        for sequence in tombstones_of(file, self.stream, found):
            number, bit = divmod(sequence, _WIDTH)
            maps[number] = maps.get(number, 0) | 1 << bit
        deleted = Deleted(_WIDTH, maps)
        state = BlockState(self.facts.first_seq, self.facts.last_seq, deleted, exact=False)
        return [replace(block, state=state) for block in found]

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        subjects: Sequence[str] = (),
        columns: Sequence[str] = COLUMNS,
        limits: ReadLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages from sequence `start` to before `end` (default: all), in order.

        As record batches of `arrow.schema_of(columns)`, within the limits of rows and bytes.
        `subjects`: only messages under one of these, wildcards allowed. Raises BackupError.
        """
        for part in self.parts(start, end):
            yield from self.read_part(part, subjects=subjects, columns=columns, limits=limits)

    def parts(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        most: int | None = None,
    ) -> list[Part]:
        """The messages from `start` to before `end` in parts of about `most` (default: one part).

        A part has whole blocks, and the index of the archive is read for it. A list of messages is
        unpacked once to find where parts may begin. Raises BackupError.
        """
        first = max(self.facts.first_seq, start or 0)
        behind = self.facts.last_seq + 1
        behind = behind if end is None else min(end, behind)
        if first >= behind or not self.facts.messages:
            return []
        blocks = self.blocks
        if blocks is not None:
            return list(_grouped(blocks, first, behind, most))
        if most is None or behind - first <= most:
            return [Part(first, behind, None)]
        return self._split(first, behind, most)

    def _split(self, start: int, end: int, most: int) -> list[Part]:
        parts: list[Part] = []
        open_part = Part(start, end, None)
        with self._archive() as file:
            content = content_from(file, 0, open_part.skip)
            for last in list_steps(content, 0, end, Deliveries(), keep=False):
                if open_part.start + most <= last + 1 < end:
                    parts.append(replace(open_part, end=last + 1))
                    open_part = Part(last + 1, end, None, *content.place())
        return [*parts, open_part]

    def read_part(
        self,
        part: Part,
        *,
        subjects: Sequence[str] = (),
        columns: Sequence[str] = COLUMNS,
        limits: ReadLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a part, as `read`."""
        limits = limits or ReadLimits()
        choice = SubjectChoice(subjects) if subjects else None
        for taken in self._taken(part, limits):
            yield from batches(self.stream, taken, choice, columns, limits)

    def sequence_at(self, ns: int) -> int | None:
        """The first sequence of time `ns` (nanoseconds) or later; None if all are older.

        The archive is unpacked up to there. Raises BackupError.
        """
        for part in self.parts():
            for taken in self._taken(part, ReadLimits()):
                times = memoryview(taken.times).cast("B").cast("q")
                for row, time in enumerate(times):
                    if time >= ns:
                        return memoryview(taken.sequences).cast("B").cast("q")[row]
        return None

    def _taken(self, part: Part, limits: ReadLimits) -> Iterator[Columns]:
        rows = Deliveries()
        with self._archive() as file:
            for _ in self._steps(file, part, rows):
                if len(rows) >= limits.max_rows or rows.size >= limits.max_bytes:
                    yield rows.take()
            if len(rows):
                yield rows.take()

    def _steps(self, file: BinaryIO, part: Part, rows: Deliveries) -> Iterator[object]:
        if part.blocks is not None:
            return block_steps(file, self.stream, part.blocks, part.start, part.end, rows)
        content = content_from(file, part.offset, part.skip)
        return list_steps(content, part.start, part.end, rows)

    @contextmanager
    def _archive(self) -> Iterator[BinaryIO]:
        try:
            with opened(self.folder, ARCHIVE) as file:
                yield file
        except OSError as error:
            raise unreadable(self.folder, error) from error
        except BackupError as error:
            raise BackupError(f"{self.folder}: {error}") from None


def _grouped(blocks: Iterable[Block], start: int, end: int, most: int | None) -> Iterator[Part]:
    """Parts of whole blocks, which lie one behind the other in the archive."""
    group: list[Block] = []
    count, begin = 0, start
    for block in blocks:
        assert block.state is not None  # noqa: S101 - see `Backup.blocks`
        found = block.state.count(start, end - 1)
        if not found:
            continue
        if group and most is not None and count + found > most and block.state.exact:
            yield Part(begin, block.state.first, tuple(group))
            group, count, begin = [], 0, block.state.first
        group.append(block)
        count += found
    if group:
        yield Part(begin, end, tuple(group))


def open_backup(folder: str | os.PathLike[str]) -> Backup:
    """A backup in a folder of this machine, or under a URI that `pyarrow.fs` knows.

    Only `backup.json` is read. Raises ConfigError when the folder is not a backup, BackupError when
    it cannot be read or the archive does not have the size that was written.
    """
    place = absolute(folder)
    try:
        with opened(place, METADATA) as file:
            document = msgspec.json.decode(file.read(), type=dict[str, Any])
        with opened(place, ARCHIVE) as file:
            size = file.seek(0, 2)
        name = document["config"]["name"]
        facts = facts_of(name, {"created": "", **document})
    except OSError as error:
        raise unreadable(place, error) from error
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise BackupError(f"{place}/{METADATA} is damaged: {error}.") from None
    said = document.get("archive", {}).get("bytes", size)
    if said != size:
        raise BackupError(
            f"{place}: The archive has {size} bytes and not {said}, as {METADATA} says."
        )
    return Backup(place, facts, size)
