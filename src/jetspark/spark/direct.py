"""Rows that never pass the JVM: a task writes what it reads into the table's files itself.

format("jetspark-direct") reads as format("jetstream") does, with the same offsets, batches and
partitions. A task decodes its range, writes the rows into new files of the table (`into.…`: the
options of the table's sink), and returns one row that describes these files; the sink adds them to
the batch's commit (`spark.lakehouse.target`).

Spark may run a task again: files of an attempt that failed are in no commit, and `vacuum` removes
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.retry import Retry
from jetspark.lakehouse.formats import Format
from jetspark.spark.failures import without_traceback
from jetspark.spark.json_payloads import with_json_options
from jetspark.spark.lag import WRITTEN
from jetspark.spark.lakehouse.options import (
    TASK_ROWS,
    TASK_SECRET,
    LakehouseOptions,
    parse_lakehouse_options,
)
from jetspark.spark.lakehouse.source import DeltaDataSource, IcebergDataSource
from jetspark.spark.lakehouse.target import Target, TaskFiles, check_fit, prepare_for_query
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.partitions import RangePartition, read_partition
from jetspark.spark.rows_under_way import reporting
from jetspark.spark.sequence_order import ordered_tables
from jetspark.spark.sink_tasks import query_id
from jetspark.spark.source import JetStreamDataSource
from jetspark.spark.stream_reader import JetStreamStreamReader
from jetspark.spark.table_rows import RowMaker, RowsOf, rows_by_table
from jetspark.spark.task_output import COLUMN, TaskOutput, make_secret, report
from jetspark.spark.versions import of_arrow, register, stream_reader

FORMAT = "jetspark-direct"
_PREFIX = "into."
_SINK = f"{_PREFIX}sink."


@dataclass(frozen=True)
class Flow:
    """The rows of a query on their way into a table, or other sink."""

    rows: DataFrame
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of the sink."""


def flow_into(
    spark: SparkSession,
    options: Mapping[str, str],
    table: LakehouseOptions,
    sink: Mapping[str, str],
    how: RowsOf,
) -> Flow:
    """The reports of tasks that write a stream into a table. Writes nothing.

    `options`: of format jetstream; `table`, `sink`: of the table, and as given, with the query's
    checkpoint. Raises ConfigError, and Spark's errors.
    """
    if ordered_tables(table):
        options = {**options, "ordersBySeq": "true"}
    source = parse_options(options)
    how = how.into(table, source)
    options = _with_schema(options, source, table, how)
    source = parse_options(options)
    schemas = how.schemas(source)
    check_fit(table, schemas)
    columns = json.dumps([of_arrow(one).jsonValue() for one in schemas])
    secrets = {TASK_SECRET: make_secret(), TASK_ROWS: columns}
    into = {f"{_SINK}{name}": value for name, value in {**sink, **secrets}.items()}
    into |= {f"{_PREFIX}format": table.format, f"{_PREFIX}rows": how.dump()}
    reports = spark.readStream.format(FORMAT).options(**options, **into).load()
    figures = [F.sum(COLUMN.name + "." + one).alias(one) for one in ("rows", "aside", "left_out")]
    return Flow(reports.observe(WRITTEN, *figures), secrets)


def _with_schema(
    options: Mapping[str, str], source: SourceOptions, table: LakehouseOptions, how: RowsOf
) -> dict[str, str]:
    """The options of the source, by which its tasks decode as the driver has decided."""
    found, decoding = dict(options), source.decoding
    if decoding is not None and decoding.is_json:
        found = with_json_options(found, how.json[1] or "")
    elif decoding is not None and table.evolve:
        found["onNewVersion"] = "stop"
    if decoding is not None and not decoding.is_json and decoding.schema.version:
        # Not another one that the registry gets before tasks read these options.
        found["schemaVersion"] = str(decoding.schema.version)
    if decoding is not None and table.quarantine is not None:
        found["keepPayload"] = "true"  # a row may turn out to lack its key, or table
    if how.needs_bare:
        found["barePayload"] = "true"
    return found


@dataclass(frozen=True)
class Into:
    """The table into which tasks write, and how messages become its rows."""

    options: LakehouseOptions
    how: RowsOf

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Into:
        """Parse what `flow_into` adds to the options of the source."""
        sink = {
            name.removeprefix(_SINK): value
            for name, value in given.items()
            if name.startswith(_SINK)
        }
        format_ = Format(given[f"{_PREFIX}format"])
        options = parse_lakehouse_options(format_, sink).for_streaming()
        return cls(options, RowsOf.parse(given[f"{_PREFIX}rows"], options))


class DirectPartition(RangePartition):
    """Ranges, and the table for their rows."""

    def __init__(self, ranges: Sequence[SequenceRange], target: Target) -> None:
        super().__init__(*ranges)
        self.target = target


class DirectReader(JetStreamStreamReader):
    """The stream's reader, whose tasks return files, not rows."""

    def __init__(self, options: SourceOptions, into: Into) -> None:
        super().__init__(options)
        self._into = into

    @cached_property
    def _makers(self) -> list[RowMaker]:
        """In a task: libraries have parts that are not sent."""
        return self._into.how.makers(self._options)

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The stream's partitions, with the table, which the first batch creates.

        Raises the errors of the stream's, and of `prepare_for_query`.
        """
        parts = super().partitions(start, end)
        if not parts:
            return []
        target = prepare_for_query(self._into.options, self._into.options.task_rows)
        if target.completed is not None:
            return []
        return [DirectPartition(part.ranges, target) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the rows of one partition; runs on an executor."""
        if not isinstance(partition, DirectPartition):
            return
        files = TaskFiles(partition.target)
        options, tables = self._options, self._into.options.tables
        # Messages of a list of tables are divided by their subjects before they are unpacked.
        source = options.as_stored() if tables else options.without_decoder()
        before = Retry.repeated
        try:
            with reporting(query_id()) as note:
                for batch in read_partition(source, partition):
                    files.left_out += batch.num_rows
                    for number, rows in rows_by_table(self._makers, tables, batch):
                        files.left_out -= rows.num_rows
                        files.write(rows, number)
                    note(batch.num_rows)
            written = files.close()
        except BaseException:
            files.discard()
            raise
        if written or files.growth or files.left_out:
            retries = Retry.repeated - before
            output = TaskOutput(tuple(written), files.growth, retries, files.aside, files.left_out)
            yield report(output, self._into.options.task_secret)


class DirectDataSource(JetStreamDataSource):
    """format("jetspark-direct"): reads a stream for one table, in streaming queries only."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    @cached_property
    def _parsed(self) -> SourceOptions:
        own = {name: one for name, one in self.options.items() if not name.startswith(_PREFIX)}
        return parse_options(own)

    @cached_property
    def _into(self) -> Into:
        return Into.parse(self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The column of tasks' reports."""
        return StructType([COLUMN])

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        return stream_reader(DirectReader(self._parsed, self._into))


def register_formats(spark: SparkSession) -> None:
    """All of this package, also for a Spark whose executors find it but whose driver does not
    search for it."""
    for one in (JetStreamDataSource, DirectDataSource, DeltaDataSource, IcebergDataSource):
        register(spark, one)
