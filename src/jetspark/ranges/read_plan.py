"""Plans what `jetspark.read` reads, and reads it: a range of a stream or backup, or a bucket.

`plan_read` asks the leader once, and fixes the range. Its rows can then be read as often as the
server has them, each time in bounded memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.links.leaders import Leaders, confirmed_facts, linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_shape import Shape
from jetspark.payloads.tolerant import Decoder, decode_in_parts
from jetspark.ranges import arrow
from jetspark.ranges.backup import Backup, Part, open_backup
from jetspark.ranges.current_values import read_current_values
from jetspark.ranges.fixed_range import (
    AtTime,
    Position,
    PositionOrTime,
    check_subjects,
    fixed_range,
    head,
    resolve_position,
)
from jetspark.ranges.reader import read_range
from jetspark.ranges.sample import first_rows, limits_for, read_sample
from jetspark.ranges.scan import Scan
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.wire import js_api
from jetspark.wire.kernel import IMPLEMENTATION

Batches: TypeAlias = Iterator[pa.RecordBatch]

_SAMPLE_MESSAGES: Final = 1000
_SAMPLE_COLUMNS: Final = ("data", "headers")
_MIN_SNAPSHOT_MESSAGES: Final = 64_000
"""Messages from which on a snapshot is faster than a consumer."""


@dataclass(frozen=True)
class ReadPlan(ABC):
    """What `jetspark.read` reads: a fixed range of rows, and how their payloads are decoded.

    A subclass for each source reads the rows, again with each call.
    """

    scan: Scan
    name: str
    """Name of the stream or bucket."""
    rows: int | None
    """Maximum number of rows; None if it is not known."""

    @abstractmethod
    def _read(self, limits: ReadLimits, *, to_the_end: bool) -> Batches:
        """Read the rows in order, with payloads that are not decoded yet.

        `to_the_end`: the caller wants all of them, and not only the first.
        """

    @abstractmethod
    def _sample(self, count: int) -> Batches:
        """Read payloads and headers (`_SAMPLE_COLUMNS`) of about `count` messages."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        schema = arrow.schema_of(self.scan.all_columns)
        return schema if self._decoder is None else self._decoder.decoded_schema(schema)

    def batches(self) -> Batches:
        """All rows."""
        return self._decode(self._read(self.scan.limits(), to_the_end=True))

    def first(self, count: int) -> Batches:
        """Read the first `count` rows only."""
        limits = replace(limits_for(count), timeout=self.scan.read_timeout)
        return self._decode(first_rows(self._read(limits, to_the_end=False), count))

    def _decode(self, batches: Batches) -> Batches:
        """Decode the payloads of the batches into further columns, if the user wants that."""
        return batches if self._decoder is None else decode_in_parts(self._decoder, batches)

    @cached_property
    def _decoder(self) -> Decoder | None:
        """The decoder that the user chose for payloads; None if they stay as they are."""
        decoding, json_schema = self.scan.decoding, self.scan.json_schema
        if json_schema or isinstance(json_schema, str):  # an empty text is an error
            decoding = self._json_decoding(json_schema)
        return None if decoding is None else decoding.decoder()

    def _json_decoding(self, json_schema: str | bool) -> Decoding | None:
        """Make the decoding of JSON payloads, by a schema or (True) by the fields of a sample.

        None if the payloads of the sample have no fields.
        """
        rename = self.scan.rename
        if isinstance(json_schema, str):
            return Decoding.make("json", schema=json_schema, rename=rename)
        shape = Shape()
        unframed = chain.from_iterable(map(Framing().strip, self._sample(_SAMPLE_MESSAGES)))
        for batch in unframed:
            for payload in batch.column("data").to_pylist():
                shape.add(payload)
        ddl, _ = shape.schema()
        if not ddl:
            return None
        # The columns come beside the whole payload, since a sample may not show all fields.
        return Decoding.make("json", schema=ddl, keep_payload=True, rename=rename)


def plan_read(scan: Scan) -> ReadPlan:
    """Ask the server, or open the backup, once, and fix the range of rows that are read.

    Raises StreamNotFoundError, BucketNotFoundError, BackupError, DataLossError, ConfigError for
    what cannot be read, and the errors of `Leaders.call`.
    """
    if scan.backup is not None:
        return _plan_backup(scan, open_backup(scan.backup))
    assert scan.connection is not None  # noqa: S101 - only a backup has none
    leaders = Leaders(scan.connection, scan.read_timeout, at_once_if_new=True)
    return leaders.call(partial(_plan_server, scan, scan.connection))


# -- streams and buckets -------------------------------------------------------------------------


@dataclass(frozen=True)
class _StreamPlan(ReadPlan):
    """Reads the messages of a stream's range, or all entries of a bucket."""

    connection: ConnectOptions
    sequence_range: SequenceRange
    by_snapshot: bool
    """Read through a snapshot, if all rows are wanted and the user may request one."""

    def _read(self, limits: ReadLimits, *, to_the_end: bool) -> Batches:
        """Read the range through a snapshot of the stream if that is planned, else by a consumer.

        Also by a consumer if the user may not request snapshots, and did not ask for one.
        """
        if to_the_end and self.by_snapshot:
            batches = self._read_range(replace(self.sequence_range, snapshot=True), limits)
            try:
                first = next(batches, None)  # requests the snapshot
            except errors.PermissionsError:  # read by a consumer below
                if self.scan.backfill is not None:
                    raise  # the user asked for a snapshot
            else:
                if first is not None:
                    yield first
                    yield from batches
                return
        yield from self._read_range(self.sequence_range, limits)

    def _read_range(self, sequence_range: SequenceRange, limits: ReadLimits) -> Batches:
        """Read a range of the stream with the user's columns and policy for lost messages."""
        return read_range(
            self.connection,
            sequence_range,
            limits=limits,
            columns=self.scan.all_columns,
            fail_on_data_loss=self.scan.fail_on_data_loss,
        )

    def _sample(self, count: int) -> Batches:
        return read_sample(self.connection, self.sequence_range, count, _SAMPLE_COLUMNS)


@dataclass(frozen=True)
class _CurrentValuesPlan(ReadPlan):
    """Reads the present values of a bucket, whose payloads are never decoded."""

    connection: ConnectOptions
    all_messages: SequenceRange
    """All messages of the bucket's stream when this was planned."""

    def _read(self, limits: ReadLimits, *, to_the_end: bool) -> Batches:
        columns = self.scan.all_columns
        return read_current_values(self.connection, self.all_messages, limits, columns=columns)

    def _sample(self, count: int) -> Batches:
        return iter(())


def _plan_server(scan: Scan, connection: ConnectOptions, api: StreamAPI) -> ReadPlan:
    """Plan the reading of a stream, or of a bucket's history or present values.

    Raises the errors of `plan_read`.
    """
    facts = _confirmed_facts(scan, api)
    check_subjects("subjects", scan.subjects, api, {facts.name: facts})
    subjects = scan.subjects or tuple(f"$KV.{scan.bucket}.{key}" for key in scan.keys)
    if scan.bucket is not None and not scan.history:
        # A consumer of last messages needs a filter, even if no keys are chosen.
        all_messages = SequenceRange(
            facts.name, 1, facts.last_seq + 1, facts.created, subjects=subjects or (">",)
        )
        return _CurrentValuesPlan(scan, scan.bucket, None, connection, all_messages)

    def resolve(api: StreamAPI) -> SequenceRange:
        return _resolve_range(scan, facts, partial(api.sequence_at, facts.name), subjects)

    has_time = isinstance(scan.start, AtTime) or isinstance(scan.end, AtTime)
    # Only the look-up of a time asks the stream, and so needs a proven leader.
    sequence_range = linearizable_read(api, [facts.name] if has_time else [], resolve)
    by_snapshot = _prefers_snapshot(scan, api, facts, sequence_range)
    # With subjects or keys, the number of rows is not known.
    name, rows = scan.bucket or facts.name, min(len(sequence_range), facts.messages)
    return _StreamPlan(
        scan, name, None if subjects else rows, connection, sequence_range, by_snapshot
    )


def _confirmed_facts(scan: Scan, api: StreamAPI) -> StreamFacts:
    """Request the state of the stream to read, or of the bucket's, from a proven leader.

    Raises StreamNotFoundError, BucketNotFoundError; ConfigError if consumers remove its messages,
    or if it is a mirror of which only some keys are wanted.
    """
    name = scan.stream if scan.bucket is None else STREAM_PREFIX + scan.bucket
    assert name is not None  # noqa: S101 - one of them is given
    try:
        facts = confirmed_facts(api, [name])[name]
    except errors.StreamNotFoundError:
        if scan.bucket is None:
            raise
        raise errors.BucketNotFoundError(scan.bucket) from None
    if facts.retention != "limits":
        raise errors.ConfigError(
            f"Stream {name!r} has retention {facts.retention!r}: consumers remove its messages, so "
            f"there is no exact table of it. `jetspark stream view {name}` shows what it has; a "
            "stream with retention 'limits' that has it as a source keeps it."
        )
    if scan.keys and facts.is_mirror:
        raise errors.ConfigError(
            f"Bucket {scan.bucket!r} is a mirror, whose keys cannot be chosen by the server: read "
            "it without keys, or its origin."
        )
    return facts


def _resolve_range(
    scan: Scan,
    facts: StreamFacts,
    sequence_at: Callable[[int], int | None],
    subjects: tuple[str, ...] = (),
) -> SequenceRange:
    """Make the range of sequences from the user's start to the user's end. Raises ConfigError.

    `sequence_at`: looks up the first sequence stored at or after a time (ns); None if all messages
    are older.
    """

    def without_time(position: PositionOrTime | None, default: Position) -> Position:
        """The position, with `default` for None, and a sequence for a time."""
        if position is None:
            return default
        return resolve_position(position, facts.name, sequence_at, none_is_latest=True)

    start, end = without_time(scan.start, "earliest"), without_time(scan.end, "latest")
    # If all messages are newer than the start, what limits remove before its turn is no loss: the
    # user did not name these sequences.
    if isinstance(scan.start, AtTime) and start == head(facts):
        start = "earliest"
    return fixed_range(facts, start, end, subjects, names=("start", "end"))


def _prefers_snapshot(
    scan: Scan, api: StreamAPI, facts: StreamFacts, sequence_range: SequenceRange
) -> bool:
    """Whether to read through a snapshot, which sends the whole stream, but faster than a consumer.

    The user's `backfill` decides, if it is given. Otherwise only for a large part of a stream, and
    not through imports of other accounts (another API prefix), which may not let a snapshot pass.
    """
    if scan.backfill is not None:
        return scan.backfill == "snapshot"
    return (
        IMPLEMENTATION == "c"
        and api.link.info.at_least(2, 15)
        and api.link.api_prefix == js_api.DEFAULT_PREFIX
        and not sequence_range.subjects
        and not arrow.WITH_PAYLOAD.isdisjoint(scan.all_columns)
        and len(sequence_range) >= _MIN_SNAPSHOT_MESSAGES
        and 2 * len(sequence_range) > facts.last_seq - head(facts)
    )


# -- backups -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BackupPlan(ReadPlan):
    """Reads the messages of a backup, in one or more parts of it."""

    backup: Backup
    parts: Sequence[Part]

    def _read(self, limits: ReadLimits, *, to_the_end: bool) -> Batches:
        return self._read_columns(limits, self.scan.all_columns)

    def _sample(self, count: int) -> Batches:
        return first_rows(self._read_columns(limits_for(count), _SAMPLE_COLUMNS), count)

    def _read_columns(self, limits: ReadLimits, columns: Sequence[str]) -> Batches:
        """Read the rows of all parts, in order, with these columns."""
        for part in self.parts:
            yield from self.backup.read_part(
                part, subjects=self.scan.subjects, columns=columns, limits=limits
            )


def _plan_backup(scan: Scan, backup: Backup) -> ReadPlan:
    """Plan the reading of a backup's range. Raises the errors of `plan_read`."""
    sequence_range = _resolve_range(scan, backup.facts, backup.sequence_at)
    # Messages missing at the head are a loss only if the user named their sequences.
    if isinstance(scan.start, int):
        backup.check_head(scan.start, fail=scan.fail_on_data_loss)
    backup.check_subjects("subjects", scan.subjects)
    backup.check_removed(fail=scan.fail_on_data_loss)
    parts = backup.parts(sequence_range.start, sequence_range.end)
    rows = None if scan.subjects else min(len(sequence_range), backup.messages)
    return _BackupPlan(scan, backup.stream, rows, backup, parts)
