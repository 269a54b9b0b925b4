"""Rows that never pass the JVM: a task writes what it reads into the table's files itself.

format("jetspark-direct") reads as format("jetstream") does, with the same offsets, batches and
partitions. A task decodes its range, writes the rows into new files of the table (`into.…`: the
options of the table's sink), and returns one row that describes these files (`task_output`); the
sink adds them to the batch's commit (`table_sink.writers`).

Spark may run a task again: files of an attempt that failed are in no commit, and `vacuum` removes
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from jetspark.links.retry import Retry
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.data_source import JetStreamDataSource
from jetspark.spark.failures import names_of_spark, without_traceback
from jetspark.spark.pipelines.sequence_order import tables_ordered_by_seq
from jetspark.spark.pipelines.table_rows import RowSpec, build_rows
from jetspark.spark.queries.progress import WRITTEN_METRIC
from jetspark.spark.queries.rows_in_progress import report_folder, reporting
from jetspark.spark.sink_tasks import query_id
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.partitions import RangePartition, read_partition
from jetspark.spark.source.payload_columns import with_json_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader
from jetspark.spark.table_sink.data_sources import DeltaDataSource, IcebergDataSource
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import (
    ROW_RECIPE,
    TASK_ROWS,
    TASK_SECRET,
    LakehouseOptions,
)
from jetspark.spark.table_sink.table_preparation import check_fit, prepare_for_query
from jetspark.spark.table_sink.target import Target
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.task_output import (
    COLUMN,
    TaskOutput,
    make_secret,
    observed_figures,
    report,
)
from jetspark.spark.versions import of_arrow, register, stream_reader
from jetspark.tables.formats import Format
from jetspark.tables.stream_positions import StreamPosition, latest_positions
from jetspark.tails.row_recipe import RowBuilder

FORMAT = "jetspark-direct"
_PREFIX = "into."
_SINK = f"{_PREFIX}sink."
_FORMAT = f"{_PREFIX}format"
_ROWS = f"{_PREFIX}rows"
_PROGRESS = f"{_PREFIX}progress"


@dataclass(frozen=True)
class Flow:
    """What a query writes: a DataFrame, and options that its sink needs to understand the rows."""

    rows: DataFrame
    """The rows; for a table into which tasks write themselves, the reports of these tasks."""
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the sink beside those of the user, with a secret."""


def flow_into(
    spark: SparkSession,
    options: Mapping[str, str],
    table: LakehouseOptions,
    sink: Mapping[str, str],
    spec: RowSpec,
) -> Flow:
    """Plan a query whose source tasks write a stream into a table's files themselves; starts and
    writes nothing.

    The rows of the result are reports of these tasks about their files, which the query's sink
    commits. `options`: of format jetstream; `table`, `sink`: options of the table, parsed and as
    texts, with the query's checkpoint; `spec`: how messages become rows. Raises ConfigError, and
    Spark's errors.
    """
    if tables_ordered_by_seq(table):
        options = {**options, "ordersBySeq": "true"}
    source = parse_options(options)
    spec = spec.for_table(table, source)
    options = _with_fixed_schema(options, source, table, spec)
    source = parse_options(options)
    schemas = spec.schemas(source)
    check_fit(table, schemas)
    columns = json.dumps([of_arrow(schema).jsonValue() for schema in schemas])
    # The sink accepts only reports that are sealed with the secret, which source and sink get.
    secrets = {TASK_SECRET: make_secret(), TASK_ROWS: columns}
    if (recipe := spec.recipe(source, table)) is not None:
        secrets[ROW_RECIPE] = recipe.dump()
    into = {f"{_SINK}{name}": value for name, value in {**sink, **secrets}.items()}
    into |= {_FORMAT: table.format, _ROWS: spec.dump()}
    if (folder := report_folder()) is not None:
        into[_PROGRESS] = folder
    reports = spark.readStream.format(FORMAT).options(**options, **into).load()
    return Flow(reports.observe(WRITTEN_METRIC, *observed_figures()), secrets)


def _with_fixed_schema(
    options: Mapping[str, str], source: SourceOptions, table: LakehouseOptions, spec: RowSpec
) -> dict[str, str]:
    """Add the payloads' schema that the driver has found to the options of the source, so that all
    tasks use this one: a registry may have a newer version when they ask.

    If the table evolves, a newer version ends the query, which is then started again with it.
    """
    decoding = source.decoding
    if decoding is None:
        return dict(options)
    if decoding.is_json:
        return with_json_options(options, spec.ddl or "")
    fixed = dict(options)
    if decoding.schema.version:
        fixed["schemaVersion"] = str(decoding.schema.version)
    if table.evolve:
        fixed["onNewVersion"] = "stop"
    return fixed


@dataclass(frozen=True)
class Into:
    """What a source task needs to write rows into a table itself: the table's options, and how
    messages become rows."""

    options: LakehouseOptions
    spec: RowSpec
    progress_folder: str | None = None
    """The folder in which tasks report their rows (`rows_in_progress`)."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Into:
        """Parse the options that begin with "into.", which `flow_into` adds to those of a source:
        the table into which its tasks write."""
        sink = {
            name.removeprefix(_SINK): value
            for name, value in options.items()
            if name.startswith(_SINK)
        }
        format_ = Format(options[_FORMAT])
        table = parse_lakehouse_options(format_, sink).for_streaming()
        return cls(table, RowSpec.parse(options[_ROWS], table), options.get(_PROGRESS))


class DirectPartition(RangePartition):
    """A partition of a stream's batch: ranges of its messages for one Spark task to read, and the
    table into which this task writes their rows."""

    def __init__(self, ranges: Sequence[SequenceRange], target: Target) -> None:
        """`ranges`: the messages to read; `target`: the table, ready for their rows."""
        super().__init__(*ranges)
        self.target = target


class DirectReader(JetStreamStreamReader):
    """Reads a stream for one table, in a streaming query. Its tasks decode the messages and write
    the rows into the table's files directly, without a way through the JVM; what they return to
    Spark is a report of these files, which the query's sink commits."""

    def __init__(self, options: SourceOptions, into: Into) -> None:
        """`options`: those of the stream; `into`: the table, and how messages become its rows."""
        super().__init__(options)
        self._into = into

    @cached_property
    def _builders(self) -> list[RowBuilder]:
        """The objects that turn messages into rows, one for each table. Each task makes its own,
        since some of their parts cannot be pickled."""
        return self._into.spec.builders(self._options)

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Plan a batch of messages from the offsets `start` to `end`: create or check the table,
        and return one partition for each task that reads and writes.

        No partitions for a batch that is empty, or that the tables have already. Raises the errors
        of `JetStreamStreamReader.partitions` and of `prepare_for_query`.
        """
        partitions = super().partitions(start, end)
        if not partitions:
            return []
        target = prepare_for_query(self._into.options, self._into.options.task_rows)
        if target.completed_batch is not None:
            return []
        return [DirectPartition(partition.ranges, target) for partition in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition and write their rows into new files of the table; runs
        on an executor. Yields no rows, but a report of the files, which the query's sink passes to
        the driver to commit them."""
        if not isinstance(partition, DirectPartition):  # none of ours: nothing to read
            return
        with names_of_spark():
            output = self._write(partition)
        yield report(output, self._into.options.task_secret)

    def _write(self, partition: DirectPartition) -> TaskOutput:
        """Read the messages of a partition, turn them into rows, and write these into new files;
        returns the files and figures for the driver."""
        options, tables = self._options, self._into.options.tables
        # The builders decode. Messages of a list of tables are first divided by their subjects, so
        # each table's builder decompresses its own.
        framing = None if tables else options.framing
        source = replace(options, decoding=None, framing=framing)
        left_out = 0  # messages that are no rows by their format
        retries_before = Retry.repeated  # a count of the whole process
        with TaskFiles(partition.target) as files:
            with reporting(self._into.progress_folder, query_id()) as report_rows:
                for messages in read_partition(source, partition):
                    left_out += messages.num_rows
                    for table_index, rows in build_rows(self._builders, tables, messages):
                        left_out -= rows.num_rows
                        files.write(rows, table_index)
                    report_rows(messages.num_rows)
            output = files.close()
        return replace(
            output,
            retries=Retry.repeated - retries_before,
            left_out=left_out,
            positions=latest_positions(
                StreamPosition(each.stream, each.created, each.end) for each in partition.ranges
            ),
        )


class DirectDataSource(JetStreamDataSource):
    """format("jetspark-direct"): reads a stream for one table, in streaming queries only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @cached_property
    def _parsed(self) -> SourceOptions:
        """The options of the stream, parsed: all but those that begin with "into."."""
        return parse_options(
            {name: value for name, value in self.options.items() if not name.startswith(_PREFIX)}
        )

    @cached_property
    def _into(self) -> Into:
        """The table into which tasks write, from the options that begin with "into."."""
        return Into.parse(self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The only column of the rows that Spark gets: a task's report of the files that it has
        written into the table."""
        return StructType([COLUMN])

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of the stream, whose tasks write the rows into the table."""
        return stream_reader(DirectReader(self._parsed, self._into))


def register_formats(spark: SparkSession) -> None:
    """Register all data sources of this package with a Spark session, so that it knows their
    formats, even if it does not look for data sources in installed packages."""
    for source in (JetStreamDataSource, DirectDataSource, DeltaDataSource, IcebergDataSource):
        register(spark, source)
