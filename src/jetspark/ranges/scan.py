"""Plans what `jetspark.read` reads: messages of a stream or a backup, or entries of a bucket.

`Scan.plan` asks the leader once, and fixes the range. Its rows can then be read
as often as the server has them, each time in bounded memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from typing import Final, Literal, TypeAlias

import pyarrow as pa

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.kv_rules import STREAM_PREFIX, check_bucket, check_filter
from jetspark.links.leaders import Leaders, confirmed_facts, linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.nearest import check_column
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_shape import Shape
from jetspark.payloads.tolerant import Decoder, decode_in_parts
from jetspark.ranges import arrow
from jetspark.ranges.backup import open_backup
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
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.subjects import check_disjoint, check_name, check_subscribe_subject
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, parse_isotime
from jetspark.validation import check_moment, check_sequence
from jetspark.wire import js_api
from jetspark.wire.kernel import IMPLEMENTATION

Batches: TypeAlias = Iterator[pa.RecordBatch]
Bound: TypeAlias = int | datetime | timedelta | str | None
"""Start or end of a range, as the user gives it: a sequence, a time, or how long ago."""
Backfill: TypeAlias = Literal["consumer", "snapshot"]

_SAMPLE_MESSAGES: Final = 1000
_SAMPLE_COLUMNS: Final = ("data", "headers")
_MIN_SNAPSHOT_MESSAGES: Final = 64_000
"""Messages from which on a snapshot is faster than a consumer."""

_AGO = re.compile(
    r"-?(\d+(?:\.\d+)?)\s*(s|m|h|d|w|sec|min|second|minute|hour|day|week)s?(?:\s+ago)?"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def position(name: str, value: Bound) -> AtTime | int | None:
    """A sequence, or the first message at or after a time. Raises ConfigError."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return AtTime(datetime_to_ns(check_moment(name, value)))
    if isinstance(value, timedelta):
        return _ago(value.total_seconds())
    if isinstance(value, str):
        text = value.strip()
        if ago := _AGO.fullmatch(text.casefold()):
            return _ago(float(ago[1]) * _SECONDS[ago[2][0]])
        try:
            return AtTime(parse_isotime(text))
        except ValueError:
            raise errors.ConfigError(
                f"{name} is a sequence (a whole number), a time such as '2026-01-31T12:00:00Z', or "
                f"how long ago, such as '2 hours', not {value!r}."
            ) from None
    return check_sequence(name, value)


def _ago(seconds: float) -> AtTime:
    return AtTime(time.time_ns() - int(abs(seconds) * NANOSECONDS))


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The arguments of `jetspark.read`, checked. Raises ConfigError."""

    connection: ConnectOptions | None = field(repr=False)
    stream: str | None = None
    bucket: str | None = None
    backup: str | None = None
    subjects: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    history: bool = False
    columns: tuple[str, ...] = ()
    json_schema: str | bool = False
    decoding: Decoding | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    start: AtTime | int | None = None
    end: AtTime | int | None = None
    fail_on_data_loss: bool = True
    read_timeout: float = ReadLimits.timeout
    backfill: Backfill | None = None

    def __post_init__(self) -> None:
        if self.stream is not None:
            check_name("stream", self.stream)
        if self.bucket is not None:
            check_bucket(self.bucket)
        for subject in self.subjects:
            check_subscribe_subject(subject)
        check_disjoint("subjects", self.subjects)
        for key in self.keys:
            check_filter(key)
        check_disjoint("keys", self.keys)
        self._check_columns()
        if self.bucket is not None:
            self._check_bucket()
        elif self.keys or self.history:
            raise errors.ConfigError(
                "keys and history are for buckets: give bucket='NAME' with them."
            )
        self.limits()

    def _check_columns(self) -> None:
        columns = arrow.COLUMNS if self.bucket is None else arrow.BUCKET_COLUMNS
        for name in self.columns:
            check_column("columns", name, columns)
        if len(set(self.columns)) < len(self.columns):
            raise errors.ConfigError(f"columns names one twice: {', '.join(self.columns)}.")
        if self.json_schema and self.decoding:
            raise errors.ConfigError("Give json_schema or decode: both say what the payloads are.")
        if self.json_schema or self.decoding:
            argument = "decode" if self.decoding else "json_schema"
            if self.bucket is not None:
                raise errors.ConfigError(
                    f"{argument} is for streams and backups: a bucket's values stay as they are."
                )
            for needed in ("data", *(self.decoding.needs if self.decoding else ())):
                if needed not in self.all_columns:
                    raise errors.ConfigError(
                        f"{argument} needs the column {needed}, which columns leaves out."
                    )

    def _check_bucket(self) -> None:
        if self.subjects:
            raise errors.ConfigError("subjects are for streams: a bucket has keys.")
        if self.backfill is not None and not self.history:
            raise errors.ConfigError("backfill is for streams, and for a bucket with history=True.")
        if not self.history and (self.start is not None or self.end is not None):
            raise errors.ConfigError(
                "A bucket's present values have neither start nor end: history=True reads a range "
                "of its revisions."
            )

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns, before those of JSON payloads."""
        return self.columns or (arrow.COLUMNS if self.bucket is None else arrow.BUCKET_COLUMNS)

    def limits(self) -> ReadLimits:
        """The limits for reading everything."""
        return ReadLimits(timeout=self.read_timeout)

    def plan(self) -> Plan:
        """The range, and how to read it.

        Raises StreamNotFoundError, BucketNotFoundError, BackupError, DataLossError, ConfigError for
        what cannot be read, and the errors of `Leaders.call`.
        """
        if self.backup is not None:
            return _plan_backup(self, self.backup)
        assert self.connection is not None  # noqa: S101 - without one it is of a backup
        leaders = Leaders(self.connection, self.read_timeout, at_once_if_new=True)
        return leaders.call(partial(_plan_server, self, self.connection))


@dataclass(frozen=True)
class Plan:
    """A range of rows."""

    scan: Scan
    name: str
    """Name of the stream or bucket."""
    rows: int | None
    """Maximum number of rows; None if it is not known."""
    read: Callable[[ReadLimits, bool], Batches]
    """The batches; the last argument says whether all of them are wanted."""
    take: Callable[[int], Batches]
    """The columns `_SAMPLE_COLUMNS` of some messages."""

    @cached_property
    def _decoder(self) -> Decoder | None:
        decoding = self.scan.decoding
        if isinstance(self.scan.json_schema, str):
            decoding = Decoding.make("json", schema=self.scan.json_schema, rename=self.scan.rename)
        elif self.scan.json_schema:
            shape = Shape()
            for batch in chain.from_iterable(map(Framing().strip, self.take(_SAMPLE_MESSAGES))):
                for payload in batch.column("data").to_pylist():
                    shape.add(payload)
            ddl, _ = shape.schema()
            if not ddl:
                return None
            # Beside the whole payload, since a sample may not show all fields.
            rename = self.scan.rename
            decoding = Decoding.make("json", schema=ddl, keep_payload=True, rename=rename)
        return None if decoding is None else decoding.decoder()

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        schema = arrow.schema_of(self.scan.all_columns)
        if self._decoder is None:
            return schema
        return self._decoder.decoded_schema(schema)

    def batches(self) -> Batches:
        """All rows."""
        return self._decoded(self.read(self.scan.limits(), True))

    def first(self, count: int) -> Batches:
        """The first `count` rows."""
        batches = self.read(replace(limits_for(count), timeout=self.scan.read_timeout), False)
        return self._decoded(first_rows(batches, count))

    def _decoded(self, batches: Batches) -> Batches:
        return batches if self._decoder is None else decode_in_parts(self._decoder, batches)


# -- streams and buckets -------------------------------------------------------------------------


def _plan_server(scan: Scan, connection: ConnectOptions, api: StreamAPI) -> Plan:
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
    check_subjects("subjects", scan.subjects, api, {name: facts})
    subjects = scan.subjects or tuple(f"$KV.{scan.bucket}.{key}" for key in scan.keys)
    if scan.bucket is not None and not scan.history:
        # A consumer of last messages needs a filter, even if no keys are chosen.
        all_messages = SequenceRange(
            name, 1, facts.last_seq + 1, facts.created, subjects=subjects or (">",)
        )
        values = partial(read_current_values, connection, all_messages, columns=scan.all_columns)
        return Plan(scan, scan.bucket, None, lambda limits, _: values(limits), lambda _: iter(()))
    start, end = linearizable_read(
        api,
        [name] if isinstance(scan.start, AtTime) or isinstance(scan.end, AtTime) else [],
        partial(_positions, scan, facts),
    )
    sequence_range = fixed_range(facts, start, end, subjects, names=("start", "end"))
    read = partial(
        _read,
        connection,
        sequence_range,
        scan,
        by_snapshot=_snapshot_is_faster(scan, api, facts, sequence_range),
    )
    rows = None if subjects else min(len(sequence_range), facts.messages)
    take = partial(read_sample, connection, sequence_range, columns=_SAMPLE_COLUMNS)
    return Plan(scan, scan.bucket or name, rows, read, take)


def _positions(scan: Scan, facts: StreamFacts, api: StreamAPI) -> tuple[Position, Position]:
    return _position(scan.start, facts, api.sequence_at, "earliest"), _position(
        scan.end, facts, api.sequence_at, "latest"
    )


def _position(
    position: PositionOrTime | None,
    facts: StreamFacts,
    sequence_at: Callable[[str, int], int | None],
    default: Position,
) -> Position:
    if position is None:
        return default
    resolved = resolve_position(position, facts.name, sequence_at, none_is_latest=True)
    # All that is stored is newer: what limits remove before its turn was not asked for by number.
    if isinstance(position, AtTime) and default == "earliest" and resolved == head(facts):
        return "earliest"
    return resolved


def _snapshot_is_faster(
    scan: Scan, api: StreamAPI, facts: StreamFacts, sequence_range: SequenceRange
) -> bool:
    """Whether to read through a snapshot, which sends the whole stream, but at a lower cost.

    Not through imports of other accounts, which may not let it pass.
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


def _read(
    connection: ConnectOptions,
    sequence_range: SequenceRange,
    scan: Scan,
    limits: ReadLimits,
    reads_all: bool,
    *,
    by_snapshot: bool,
) -> Batches:
    read = partial(
        read_range,
        connection,
        limits=limits,
        columns=scan.all_columns,
        fail_on_data_loss=scan.fail_on_data_loss,
    )
    if reads_all and by_snapshot:
        batches = read(replace(sequence_range, snapshot=True))
        try:
            first = next(batches, None)
        except errors.PermissionsError:
            if scan.backfill is not None:
                raise
        else:
            if first is not None:
                yield first
                yield from batches
            return
    yield from read(sequence_range)


# -- backups -------------------------------------------------------------------------------------


def _plan_backup(scan: Scan, folder: str) -> Plan:
    backup = open_backup(folder)
    facts, fail = backup.facts, scan.fail_on_data_loss

    def sequence_at(_: str, ns: int) -> int | None:
        return backup.sequence_at(ns)

    start = _position(scan.start, facts, sequence_at, "earliest")
    end = _position(scan.end, facts, sequence_at, "latest")
    sequence_range = fixed_range(facts, start, end, names=("start", "end"))
    if isinstance(scan.start, int):
        backup.check_head(scan.start, fail=fail)
    backup.check_subjects("subjects", scan.subjects)
    backup.check_removed(fail=fail)
    parts = backup.parts(sequence_range.start, sequence_range.end)

    def read(limits: ReadLimits, _: bool, columns: tuple[str, ...] = scan.all_columns) -> Batches:
        for part in parts:
            yield from backup.read_part(
                part, subjects=scan.subjects, columns=columns, limits=limits
            )

    def take(count: int) -> Batches:
        return first_rows(read(limits_for(count), False, _SAMPLE_COLUMNS), count)

    rows = None if scan.subjects else min(len(sequence_range), backup.messages)
    return Plan(scan, backup.stream, rows, read, take)
