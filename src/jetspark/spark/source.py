"""The data source "jetstream": its schema, its batch reader, and the factory of the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from jetspark.bulk import arrow
from jetspark.bulk.backup import Backup, Part, open_backup
from jetspark.bulk.fixed_range import Position, fixed_range, resolve_position
from jetspark.bulk.link_pool import pool
from jetspark.errors import ConfigError
from jetspark.spark import reading
from jetspark.spark.claims import Claims
from jetspark.spark.failures import without_traceback
from jetspark.spark.options import Positions, SourceOptions, parse_options
from jetspark.spark.sink import (
    JetStreamBatchWriter,
    JetStreamStreamWriter,
    check_bucket_columns,
    check_columns,
    with_payloads,
)
from jetspark.spark.sink_options import (
    Guarantee,
    SinkOptions,
    SinkTarget,
    parse_sink_options,
    prepare,
)
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.spark.versions import in_arrow, of_arrow, stream_reader

SCHEMA = of_arrow(arrow.SCHEMA)
"""The rows of a stream."""
BUCKET_SCHEMA = of_arrow(arrow.BUCKET_SCHEMA)
"""The rows of a Key-Value bucket."""


def schema_of(options: SourceOptions) -> StructType:
    """The columns of these options, in their order, then the fields of payloads."""
    columns = arrow.schema_of(options.columns)
    decoder = options.decoder
    return of_arrow(columns if decoder is None else decoder.schema(columns))


def check_schema(asked: StructType, fixed: StructType) -> None:
    """Raise ConfigError for a schema other than the fixed one."""
    # A catalog table may have made columns nullable.
    if _shape(asked) != _shape(fixed):
        raise ConfigError(
            f"format jetstream has a fixed schema ({', '.join(fixed.names)}): leave .schema(…) out "
            "and use the options columns, or decode and schema for fields of payloads."
        )


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.typeName()) for field in schema]


# -------------------------------------------------------------------------------------------------
# spark.read.format("jetstream"): a DataFrame is a snapshot of the range it was planned with.


class JetStreamBatchReader(DataSourceReader):
    """Plans once for each DataFrame; later messages need a new DataFrame.

    `pushFilters` is deliberately not overridden: on Spark 4.3 every read then fails while
    `spark.sql.python.filterPushdown.enabled` is off, and plans are confused while it is on.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[reading.RangePartition]:
        """The range in parts. Raises as `streams_facts`, `Claims` and `resolve_positions`."""
        options = self._options
        facts = reading.streams_facts(options, sure=True)
        if options.sole_reader:
            reading.leaders(options).call(lambda api: Claims(api, options).check(facts))
        if options.is_snapshot:
            return [reading.snapshot(options, one) for one in facts.values()]
        start = reading.resolve_positions(options, options.batch_start, facts, end=False)
        end = reading.resolve_positions(options, options.ending, facts, end=True)
        return reading.plan(
            options,
            [
                reading.backfilled(
                    options,
                    fixed_range(facts[name], start[name], end[name], options.subjects),
                )
                for name in sorted(facts)
            ],
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        if self._options.is_snapshot:
            return reading.read_current_values(self._options, partition)
        return reading.read_partition(self._options, partition)


# -------------------------------------------------------------------------------------------------
# option("backup", folder) of spark.read: a backup's messages, without a server.


logger = logging.getLogger("jetspark.spark")


class BackupPartition(InputPartition):
    """A part of a backup; plain values only, since it is sent to an executor."""

    def __init__(self, backup: Backup, part: Part) -> None:
        super().__init__(None)
        self.backup, self.part = backup, part

    def __repr__(self) -> str:
        return f"BackupPartition({self.backup.stream} {self.part.start}..{self.part.end - 1})"


class JetStreamBackupReader(DataSourceReader):
    """The backup's folder must have the same path on the driver and all executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[BackupPartition]:
        """The options' range in parts.

        The driver reads the archive's index, or the whole archive if it is a list of messages
        (server 2.15) and there is more than one part. Raises ConfigError, DataLossError,
        BackupError.
        """
        options = self._options
        backup = open_backup(options.backup or "")
        start = self._position(backup, options.batch_start, end=False)
        end = self._position(backup, options.ending, end=True)
        wanted = fixed_range(backup.facts, start, end)
        if isinstance(start, int):
            backup.check_head(wanted.start, fail=options.fail_on_data_loss)
        backup.check_subjects("Option 'subjects'", options.subjects)
        backup.check_removed(fail=options.fail_on_data_loss)
        share = -(-min(len(wanted), backup.messages) // options.min_partitions)
        most = max(1, min(options.max_records_per_partition, share))
        parts = backup.parts(wanted.start, wanted.end, most=most)
        return [BackupPartition(replace(backup), part) for part in parts]

    def _position(self, backup: Backup, positions: Positions, *, end: bool) -> Position:
        positions.check([backup.stream])
        return resolve_position(
            positions.of(backup.stream),
            backup.stream,
            lambda _, ns: backup.sequence_at(ns),
            none_is_latest=end or self._options.strategy == "latest",
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor; Spark sends a placeholder when nothing was planned."""
        if not isinstance(partition, BackupPartition):
            return iter(())
        options = self._options
        batches = partition.backup.read_part(
            partition.part,
            subjects=options.subjects,
            columns=options.columns,
            limits=options.limits(),
        )
        return reading.decoded(options, batches)


class JetStreamDataSource(DataSource):
    """format("jetstream"): reads and writes streams and buckets, in batch and in streaming.

    Spark finds it once jetspark is installed. Where it does not, as under Spark Connect, register
    it: `spark.dataSource.register(JetStreamDataSource)`. Its methods raise ConfigError; those for
    writing also as `prepare`, before a row is written.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "jetstream"

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The columns of the options. Spark asks for them on load, which checks the options."""
        return schema_of(self._parsed)

    @without_traceback
    def reader(self, schema: StructType) -> JetStreamBatchReader | JetStreamBackupReader:
        """The batch reader."""
        check_schema(schema, self.schema())
        if self._parsed.backup is not None:
            return JetStreamBackupReader(self._parsed)
        return JetStreamBatchReader(self._parsed)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        try:
            check_schema(schema, self.schema())
            return stream_reader(JetStreamStreamReader(self._parsed))
        except ConfigError as error:
            return Refusal(error)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> JetStreamBatchWriter:
        """The batch writer."""
        options = parse_sink_options(self.options).for_batch()
        return JetStreamBatchWriter(options, _checked(options, schema, overwrite))

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """The streaming writer."""
        options = parse_sink_options(self.options).for_streaming()
        # Spark asks again, in another process, for each batch and commit.
        pool.known.add(options.connection)
        return JetStreamStreamWriter(options, _checked(options, schema, overwrite))


class Refusal(DataSourceStreamReader):
    """In place of a reader. An error while the reader is made would end as an UnboundLocalError, in
    PySpark's attempt to stop it."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    @without_traceback
    def _refuse(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = read = _refuse  # type: ignore[assignment]


def _checked(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkTarget:
    if overwrite:
        raise ConfigError(
            "A stream can only be appended to: use mode('append') or outputMode('append'). Write "
            "rows that change later, such as totals, with foreachBatch and in it mode('append'). "
            "To replace the stream's content, purge it yourself."
        )
    check_written(options, schema)
    return prepare(options)


def check_written(options: SinkOptions, schema: StructType) -> None:
    """Raise ConfigError for columns that are not those of messages, or of a bucket's entries."""
    if options.bucket is not None:
        check_bucket_columns(schema)
    else:
        msg_id = options.guarantee is Guarantee.EFFECTIVELY_ONCE
        if options.encoding is not None:
            rows = [pa.RecordBatch.from_pylist([], in_arrow(schema))]
            batches = with_payloads(options.encoding, rows, subject=options.subject, msg_id=msg_id)
            *left, _ = next(batches).schema.names
            schema = StructType([one for one in schema if one.name in left]).add("data", "binary")
        check_columns(schema, subject=options.subject, msg_id=msg_id)
