"""Backups of streams as tables, without a server.

A backup is a folder with `backup.json` and `stream.tar.s2`, as `jetspark stream backup` and `nats
stream backup` write it, by any supported server. Its messages are those of the stream when the
backup began, up to the `last_seq` in `backup.json`, except those removed while it ran: from server
2.15 on those deleted, purged or removed by limits, before only by limits. `Backup.removed` counts
them. The archive is read as a stream, in bounded memory, and the checksums of that part are
verified. An archive that is damaged, cut off, another stream's or lacks a message raises
BackupError. Only `verify_backup` compares the SHA-256 of the whole file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import BinaryIO

import pyarrow as pa

from jetspark.backup.archive import count_messages, find_blocks
from jetspark.backup.archive_content import LIST_MAGIC, open_content
from jetspark.backup.folder import (
    ARCHIVE,
    location_of,
    redact_folder,
    removed_sentence,
)
from jetspark.backup.message_blocks import Block, read_blocks
from jetspark.backup.message_list import read_message_list
from jetspark.backup.metadata import MAX_METADATA, METADATA, BackupMetadata, parse_metadata
from jetspark.errors import BackupError, ConfigError, switching
from jetspark.links.stream_facts import StreamFacts, facts_of
from jetspark.nearest import did_you_mean, did_you_mean_or_list
from jetspark.ranges._backup_files import errors_name_folder, open_file
from jetspark.ranges.arrow import COLUMNS, batches
from jetspark.ranges.fixed_range import head
from jetspark.ranges.losses import Loss, raise_or_report
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.ranges.subject_filter import SubjectFilter
from jetspark.subjects import check_disjoint, check_subscribe_subject, subjects_overlap
from jetspark.validation import MAX_SEQUENCE, check_sequence, check_whole, texts_of
from jetspark.wire.kernel import Columns, Deliveries

logger = logging.getLogger("jetspark.ranges")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a backup that can be read on its own: sequences from `start` to before `end`.

    An archive has message blocks or, from server 2.15 on, a list of messages.
    """

    start: int
    end: int
    blocks: tuple[Block, ...] | None
    """The blocks with these sequences; None for a list of messages."""
    offset: int = 0
    """Only for a list: the offset in the archive of the frame where unpacking begins."""
    skip: int = len(LIST_MAGIC)
    """Only for a list: how many unpacked bytes are before the part's first entry."""


@dataclass(frozen=True)
class Backup:
    """A backup of a stream, from `open_backup`. Each read opens the archive again."""

    location: str = field(repr=False)
    """An absolute path, or a URI with its options, which may be secret."""
    metadata: BackupMetadata
    facts: StreamFacts
    """The stream when the backup began; a backup does not have its creation time."""
    size: int
    """The archive's size in bytes."""

    @property
    def folder(self) -> str:
        """The path, or the URI without user, password and options."""
        return redact_folder(self.location)

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
            blocks = find_blocks(file, self.metadata)
        return None if blocks is None else tuple(blocks)

    @cached_property
    def messages(self) -> int:
        """The number of messages in the archive, up to the last sequence.

        If `backup.json` does not have it, they are counted, by unpacking a list of messages. Raises
        BackupError.
        """
        digest = self.metadata.archive
        if digest is not None and digest.messages is not None:
            return digest.messages
        with self._archive() as file:
            return count_messages(file, self.metadata)

    @property
    def removed(self) -> int:
        """The number of messages that are missing, since they were removed during the backup.

        The backup does not show which ones, or how they were removed. Raises BackupError.
        """
        return max(0, self.facts.messages - self.messages)

    def check_removed(self, *, fail: bool) -> None:
        """Raise DataLossError if messages were removed while the backup ran.

        Without `fail` it only logs a warning, and reports the loss to the command.
        """
        facts = self.facts
        if self.removed:
            message = removed_sentence(self.stream, facts.messages, self.messages)
            self._on_loss(message, facts.first_seq, facts.last_seq, fail, "read the others")

    def check_head(self, first: int, *, fail: bool) -> None:
        """Raise DataLossError if the backup lacks messages from sequence `first` on at its head.

        Without `fail` it only logs a warning, and reports the loss to the command.
        """
        facts = self.facts
        # Where newer messages replace older ones, the head moves without a loss.
        if first >= head(facts) or facts.keeps_last_per_subject:
            return
        message = (
            f"The backup of stream {facts.name!r} begins at sequence {facts.first_seq}: "
            f"{first} to {facts.first_seq - 1} had been removed."
        )
        self._on_loss(message, first, facts.first_seq - 1, fail, "begin there")

    def _on_loss(self, message: str, first: int, last: int, fail: bool, without_fail: str) -> None:
        """Raise DataLossError for the sequences `first` to `last`; without `fail`, only report it.

        The error advises to leave these messages out; `without_fail`: what that does, in words.
        """
        advice = f"{switching('fail_on_data_loss', False)} to {without_fail}."
        loss = Loss(self.stream, message)
        raise_or_report(logger, loss, first, last, fail=fail, advice=advice)

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        subjects: Sequence[str] = (),
        columns: Sequence[str] = COLUMNS,
        limits: ReadLimits | None = None,
        fail_on_data_loss: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Read the messages from sequence `start` to before `end` (default: all), in order.

        Yields record batches of `arrow.schema_of(columns)`, within the limits of rows and bytes.
        `subjects`: only messages under one of these, wildcards allowed; they must not overlap.
        `fail_on_data_loss=False`: messages removed during the backup only cause a warning in the
        log. Raises ConfigError, DataLossError (see `removed`), BackupError.
        """
        subjects, columns = texts_of("subjects", subjects), texts_of("columns", columns)
        _check_choice(subjects, columns)
        self.check_removed(fail=fail_on_data_loss)
        parts = self.parts(start, end)
        return (
            batch
            for part in parts
            for batch in self.read_part(part, subjects=subjects, columns=columns, limits=limits)
        )

    def parts(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        max_messages: int | None = None,
    ) -> list[Part]:
        """Divide the messages from `start` to before `end` into parts of about `max_messages`.

        Without it there is one part. A part has whole message blocks, which the archive's index
        names. A list of messages is unpacked once to find where parts begin. Raises ConfigError,
        BackupError.
        """
        first, end_of_range = self.facts.first_seq, self.facts.last_seq + 1
        if start is not None:
            first = max(first, check_whole("start", start, 0, MAX_SEQUENCE))
        if end is not None:
            end_of_range = min(end_of_range, check_sequence("end", end))
        if first >= end_of_range or not self.facts.messages:
            return []
        blocks = self.blocks
        if blocks is not None:
            return list(_group_blocks(blocks, first, end_of_range, max_messages))
        if max_messages is None or end_of_range - first <= max_messages:
            return [Part(first, end_of_range, None)]
        return self._split_list(first, end_of_range, max_messages)

    def _split_list(self, start: int, end: int, max_messages: int) -> list[Part]:
        """Divide an archive that is a list of messages into parts of `max_messages`.

        Unpacks it once, to find where in the archive each part begins.
        """
        parts: list[Part] = []
        open_part = Part(start, end, None)
        rows, count = Deliveries(), 0  # count: messages of the open part before `rows`
        with self._archive() as file:
            content = open_content(file, 0, open_part.skip)
            position = content.position()  # of the first of `rows`
            for _ in read_message_list(content, start, end, rows):
                if count + len(rows) > max_messages:
                    sequences = rows.sequences()
                    for row in range(max_messages - count, len(sequences), max_messages):
                        parts.append(replace(open_part, end=sequences[row]))
                        open_part = Part(sequences[row], end, None, *position)
                        count = -row  # after `len(rows)` is added: the rows from `row` on
                count += len(rows)
                rows.truncate(0)
                position = content.position()
        return [*parts, open_part]

    def read_part(
        self,
        part: Part,
        *,
        subjects: Sequence[str] = (),
        columns: Sequence[str] = COLUMNS,
        limits: ReadLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read the messages of one part as record batches, as `read` does for all parts.

        Does not check arguments, nor whether messages were removed during the backup.
        """
        limits = limits or ReadLimits()
        subject_filter = SubjectFilter(subjects) if subjects else None
        for rows in self._read_rows(part, limits):
            yield from batches(self.stream, rows, subject_filter, columns, limits)

    def sequence_at(self, ns: int) -> int | None:
        """Find the first message stored at time `ns` or later, and return its sequence.

        `ns`: nanoseconds since the epoch. None if all messages are older. Unpacks the archive up to
        there. Raises BackupError.
        """
        for part in self.parts():
            for rows in self._read_rows(part, ReadLimits()):
                # Views of the decoded columns as 64-bit integers.
                times = memoryview(rows.times).cast("B").cast("q")
                for row, time in enumerate(times):
                    if time >= ns:
                        return memoryview(rows.sequences).cast("B").cast("q")[row]
        return None

    def check_subjects(self, name: str, subjects: Sequence[str]) -> None:
        """Raise ConfigError for a subject under which the backup can have no message.

        The archive is only searched for a subject that the stream did not listen to. `name`: what
        the user calls the subjects.
        """
        stream_subjects = self.facts.subjects
        for subject in subjects:
            if any(subjects_overlap(subject, pattern) for pattern in stream_subjects):
                continue
            matches = (
                batch
                for part in self.parts()
                for batch in self.read_part(part, subjects=(subject,), columns=("seq",))
            )
            if next(matches, None) is None:
                hint = did_you_mean(subject, stream_subjects)
                raise ConfigError(
                    f"{name}: no message under {subject!r} is in the backup of stream "
                    f"{self.stream!r}, which listened to "
                    f"{', '.join(stream_subjects) or 'others'}{hint}"
                )

    def _read_rows(self, part: Part, limits: ReadLimits) -> Iterator[Columns]:
        """Read the messages of a part as decoded columns.

        Each item has about as many rows or bytes as one batch may have by `limits`.
        """
        rows = Deliveries()
        with self._archive() as file:
            for _ in self._append_rows(file, part, rows):
                if len(rows) >= limits.max_rows or rows.size >= limits.max_bytes:
                    yield rows.take()
            if len(rows):
                yield rows.take()

    def _append_rows(self, file: BinaryIO, part: Part, rows: Deliveries) -> Iterator[object]:
        """Append the messages of a part to `rows`, some of them with each step of the iterator.

        `file`: the archive. The items of the iterator mean nothing.
        """
        if part.blocks is not None:
            return read_blocks(file, self.stream, part.blocks, part.start, part.end, rows)
        find_blocks(file, self.metadata)  # raises BackupError for another stream's archive
        content = open_content(file, part.offset, part.skip)
        return read_message_list(content, part.start, part.end, rows)

    @contextmanager
    def _archive(self) -> Iterator[BinaryIO]:
        """Open the archive for the block; errors in it name the backup's folder."""
        with errors_name_folder(self.location), open_file(self.location, ARCHIVE) as file:
            yield file


def _group_blocks(
    blocks: Iterable[Block], start: int, end: int, max_messages: int | None
) -> Iterator[Part]:
    """Divide the messages from `start` to before `end` into parts of consecutive whole blocks.

    A part has at most `max_messages` (None: any number), unless one block has more.
    """
    group: list[Block] = []
    messages, first = 0, start
    for block in blocks:
        messages_in_block = block.state.count(start, end - 1)
        if not messages_in_block:
            continue
        if group and max_messages is not None and messages + messages_in_block > max_messages:
            yield Part(first, block.state.first, tuple(group))
            group, messages, first = [], 0, block.state.first
        group.append(block)
        messages += messages_in_block
    if group:
        yield Part(first, end, tuple(group))


def _check_choice(subjects: Sequence[str], columns: Sequence[str]) -> None:
    """Raise ConfigError for subjects that are invalid or overlap, and for unknown columns."""
    for subject in subjects:
        check_subscribe_subject(subject)
    check_disjoint("subjects", subjects)
    if not columns:
        raise ConfigError("columns is empty: name one, or leave it out for all.")
    for column in columns:
        if column not in COLUMNS:
            hint = did_you_mean_or_list(column, COLUMNS)
            raise ConfigError(f"columns: a backup has no column {column!r}{hint}")


def open_backup(folder: str | os.PathLike[str]) -> Backup:
    """Open the backup in a folder of this machine, or under a URI that `pyarrow.fs` knows.

    Reads only `backup.json`. Raises ConfigError when the folder is not a backup, BackupError when
    it cannot be read or the archive does not have its size.
    """
    location = location_of(folder)
    with errors_name_folder(location):
        with open_file(location, METADATA) as file:
            metadata, document = parse_metadata(file.read(MAX_METADATA))
        with open_file(location, ARCHIVE) as file:
            size = file.seek(0, 2)
        metadata.check_size(size)
        try:
            facts = facts_of(metadata.stream, {"created": "", **document})
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise BackupError(f"{METADATA} is damaged: {error}.") from None
    return Backup(location, metadata, facts, size)
