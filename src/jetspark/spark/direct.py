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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StringType, StructType

from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.retry import Retry
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.framing import Framing
from jetspark.codecs.tolerant import Bare, Decoder, decode_in_parts
from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import Format
from jetspark.lakehouse.routes import ValueOf
from jetspark.lakehouse.upserts import Upsert
from jetspark.spark.failures import explain, without_traceback
from jetspark.spark.json_payloads import (
    CORRUPT,
    bare_payload,
    decode_json,
    refused_payloads,
    with_json_options,
    with_refused,
)
from jetspark.spark.lag import WRITTEN
from jetspark.spark.lakehouse import listed
from jetspark.spark.lakehouse.growth import fields_by_now, without
from jetspark.spark.lakehouse.options import (
    TASK_SECRET,
    LakehouseOptions,
    ListedTable,
    parse_lakehouse_options,
)
from jetspark.spark.lakehouse.source import DeltaDataSource, IcebergDataSource
from jetspark.spark.lakehouse.target import (
    Target,
    TaskFiles,
    check_fit,
    prepare_for_query,
)
from jetspark.spark.options import SourceOptions, packing_of, parse_options
from jetspark.spark.reading import RangePartition, read_partition
from jetspark.spark.rows_under_way import reporting
from jetspark.spark.sequence_order import ordered_tables
from jetspark.spark.sink import query_id
from jetspark.spark.source import JetStreamDataSource
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.spark.task_output import COLUMN, TaskOutput, attach, make_secret
from jetspark.spark.versions import in_arrow, register, stream_reader

FORMAT = "jetspark-direct"
_PREFIX = "into."


def _direct_options(
    format_: Format,
    sink: Mapping[str, str],
    rows: StructType,
    made: Mapping[str, ValueOf],
    in_tasks: Sequence[str],
) -> dict[str, str]:
    """Options of format jetspark-direct, beside those of format jetstream.

    `sink`: the options of the table's sink, with its checkpoint; `rows`: the columns that the sink
    gets; `made`: those that are made of others; `in_tasks`: what tasks parse for each
    table of a list, as DDL.
    """
    given = {
        "format": format_,
        "schema": rows.json(),
        "made": json.dumps({name: value.said for name, value in made.items()}),
        "fields": json.dumps(list(in_tasks)),
    }
    return {f"{_PREFIX}{name}": value for name, value in given.items()} | {
        f"{_PREFIX}sink.{name}": value for name, value in sink.items()
    }


@dataclass(frozen=True)
class Flow:
    """The rows of a query on their way into a table."""

    rows: DataFrame
    direct: bool = False
    """Whether the tasks that read a stream write the table's files; else rows go through Spark."""
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of the table's sink."""


@dataclass(frozen=True)
class RowsOf:
    """How messages become the rows of a table, or of a list of tables."""

    json: tuple[str, str | None]
    """Name of the schema of JSON payloads for messages, and the schema in DDL or None."""
    made: Mapping[str, ValueOf]
    """Columns that are made of others."""
    in_sql: Mapping[str, str] = field(default_factory=dict)
    """Columns that only Spark makes, and its expressions."""
    tables: tuple[ListedTable, ...] = ()
    decoding: Decoding | None = None
    """How the source decodes payloads; None of a bucket, whose payloads may be JSON, too."""
    framing: Framing = field(default_factory=Framing)
    """What is around the JSON payloads of a list of tables."""

    @property
    def bare_payload(self) -> Bare:
        """Which rows need their payload without compression and frame."""
        return bare_payload(self.decoding, self.made.values())

    def into(self, table: LakehouseOptions) -> RowsOf:
        """The same for this table: where new fields become columns, with those that are columns by
        now, and the one for further ones."""
        (name, ddl), made, decoding = self.json, self.made, self.decoding
        if ddl is not None and decoding is not None:
            ddl = fields_by_now(table, ddl, name, [*made, *self.in_sql], decoding.names) or ddl
            new = table.evolve and table.route is None
            made = without(ddl, made, new=new, names=decoding.names)
            decoding = decoding.with_json_fields(ddl)
        tables = [
            replace(one, json=fields_by_now(one.options, one.json, one.option, one.made, one.names))
            for one in table.tables
        ]
        return replace(self, json=(name, ddl), made=made, tables=tuple(tables), decoding=decoding)


def flow_into(
    spark: SparkSession,
    options: Mapping[str, str],
    table: LakehouseOptions,
    sink: Mapping[str, str],
    how: RowsOf,
    *,
    through_spark: bool = False,
) -> Flow:
    """The rows of a stream, the direct way if tasks can write all of them. Writes nothing.

    `options`: of format jetstream; `table`, `sink`: of the table, and as given, with the query's
    checkpoint. Raises ConfigError, and Spark's errors.
    """
    secret = {TASK_SECRET: make_secret()}
    if ordered_tables(table):
        options = {**options, "ordersBySeq": "true"}
    source = parse_options(options)
    if source.bucket is None:
        how = how.into(table)
    made, decoding = how.made, source.decoding  # with the latest version in the registry
    if decoding is not None and decoding.is_json:
        options = with_json_options(options, how.json[1] or "")
    elif decoding is not None and table.evolve:
        options = {**options, "onNewVersion": "stop"}
    if decoding is not None and not decoding.is_json and decoding.schema.version:
        # Not another one that the registry gets before the query reads these options again.
        options = {**options, "schemaVersion": str(decoding.schema.version)}
    if decoding is not None and table.quarantine is not None:
        options = {**options, "keepPayload": "true"}  # a row may turn out to lack its key, or table
    if bare := how.bare_payload:
        options = {**options, "barePayload": bare}
    packing = {} if not how.tables else packing_of(options)
    options = {name: value for name, value in options.items() if name not in packing}
    of_list = [value for one in how.tables for value in one.made.values()]
    of_time = any(value.unit for value in (*made.values(), *of_list))
    direct = (
        not through_spark
        and not how.in_sql
        and source.bucket is None
        # The order of rows within a batch says which one replaces the others.
        and (table.keys is None or table.sequence_by is not None)
        # Days and hours are those of UTC in tasks, and in Spark those of the session.
        and not (of_time and spark.conf.get("spark.sql.session.timeZone") != "UTC")
    )
    reader = spark.readStream.format("jetstream").options(**options)
    rows = table_rows(reader.load(), how, keep_payload=table.quarantine is not None)
    check_fit(table, rows.schema)
    if direct:
        in_tasks = [one.json or "" for one in how.tables]
        into = _direct_options(table.format, {**sink, **secret}, rows.schema, made, in_tasks)
        rows = reader.format(FORMAT).options(**into, **packing).load()
    if source.bucket is None:
        rows = _with_figures(rows, table)
    return Flow(rows, direct, secret)


def table_rows(loaded: DataFrame, how: RowsOf, *, keep_payload: bool = False) -> DataFrame:
    """The rows of a table, or of a list of tables, from messages, by Spark."""
    rows = listed.with_fields(loaded, how.tables, how.framing) if how.tables else loaded
    (name, ddl), values = how.json, dict(how.made)
    of_payload = [one for one, value in values.items() if value.known is not None]
    for one in of_payload:
        rows = rows.withColumn(one, spark_value(values.pop(one)))
    if how.decoding is not None:
        rows = with_refused(rows, keep_payload=keep_payload)
    elif ddl is not None:
        rows = decode_json(rows, ddl, name, keep_payload=keep_payload)
    for one, value in values.items():
        rows = rows.withColumn(one, spark_value(value))
    for one, expression in how.in_sql.items():
        try:
            rows = rows.withColumn(one, F.expr(expression))
        except PySparkException as error:
            said = f"--partition-by {one}={expression}: {explain(error)}"
            raise ConfigError(said) from error
    return rows


def spark_value(value: ValueOf) -> Column:
    """The value of `ValueOf.of`, computed by Spark."""
    column = F.col(f"`{value.column.replace('`', '``')}`")
    if value.unit is not None:
        return F.to_date(column) if value.unit == "day" else F.date_trunc(value.unit, column)
    if value.known is not None:
        return F.udf(value.of_payload, StringType(), useArrow=False)(column)
    if (header := value.header) is not None:
        return F.get(F.filter(column, lambda one: one["key"].eqNullSafe(header)), 0)["value"]
    if value.token is not None:
        return F.get(F.split(column, r"\."), value.token)
    return column


def _with_figures(rows: DataFrame, sink: LakehouseOptions) -> DataFrame:
    """The rows, observed for the figures of `lag.figures_of`."""
    aside = F.lit(False)
    if sink.quarantine is not None and sink.tables:
        aside = listed.put_aside(sink.tables, unlisted=sink.rest is None)
    elif sink.quarantine is not None:
        aside = F.col(CORRUPT).isNotNull()
        if sink.upsert is not None:
            aside |= _lacking(sink.upsert, rows.columns)
        for one in sink.route.values if sink.route is not None and sink.rest is None else ():
            aside |= F.coalesce(spark_value(one).cast("string"), F.lit("")) == ""
    figures = {"rows": F.when(aside, 0).otherwise(1), "aside": F.when(aside, 1).otherwise(0)}
    figures["left_out"] = F.lit(0)
    if COLUMN.name in rows.columns:
        output = F.col(COLUMN.name)
        figures = {name: F.coalesce(output[name], one) for name, one in figures.items()}
    return rows.observe(WRITTEN, *(F.sum(one).alias(name) for name, one in figures.items()))


def _lacking(upsert: Upsert, columns: Sequence[str]) -> Column:
    """Whether a row lacks its key, as `Upsert.lacking`."""
    found = F.lit(False)
    for name in upsert.keys:
        if name in columns:
            found |= spark_value(ValueOf(name, name)).isNull()
    if (emptying := upsert.truncates) is not None:
        column = spark_value(ValueOf(emptying.column, emptying.column))
        empties = column.isin(*emptying.values) if emptying.values else column
        found &= ~F.coalesce(empties, F.lit(False))
    return found


@dataclass(frozen=True)
class Into:
    """The table into which tasks write."""

    options: LakehouseOptions
    rows: StructType
    made: Mapping[str, ValueOf]
    fields: tuple[str, ...] = ()
    """Of each table of a list, the schema of its payloads in DDL, or nothing."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Into:
        """Parse `_direct_options`, without their prefix."""
        sink = {
            name.removeprefix("sink."): value
            for name, value in given.items()
            if name.startswith("sink.")
        }
        options = parse_lakehouse_options(Format(given["format"]), sink).for_streaming()
        rows = StructType.fromJson(json.loads(given["schema"]))
        made = {name: ValueOf.parse(name, said) for name, said in json.loads(given["made"]).items()}
        return cls(options, rows, made, tuple(json.loads(given["fields"])))


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
    def _decoder(self) -> Decoder | None:
        """In a task: libraries have parts that are not sent."""
        return self._options.decoder

    @cached_property
    def _decoders(self) -> list[Decoder | None]:
        """Of the tables of a list."""
        return [
            listed.decoder_of(table, ddl or None, self._options.around)
            for ddl, table in zip(self._into.fields, self._into.options.tables, strict=True)
        ]

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The stream's partitions, with the table, which the first batch creates.

        Raises the errors of the stream's, and of `prepare_for_query`.
        """
        parts = super().partitions(start, end)
        if not parts:
            return []
        target = prepare_for_query(self._into.options, self._into.rows)
        if target.completed is not None:
            return []
        return [DirectPartition(part.ranges, target) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the rows of one partition; runs on an executor."""
        if not isinstance(partition, DirectPartition):
            return
        files = TaskFiles(partition.target)
        if self._into.options.tables:
            write, source = self._write_listed, self._options.as_stored()
        else:
            write, source = self._write, self._options.without_decoder()
        before = Retry.repeated
        try:
            with reporting(query_id()) as report:
                for batch in read_partition(source, partition):
                    write(files, batch)
                    report(batch.num_rows)
            written = files.close()
        except BaseException:
            files.discard()
            raise
        if written or files.growth or files.left_out:
            retries = Retry.repeated - before
            figures = retries, files.aside, files.left_out
            output = TaskOutput(tuple(written), files.growth, *figures)
            placeholder = _placeholder(in_arrow(self._into.rows))
            yield attach(placeholder, output, self._into.options.task_secret)

    def _write(self, files: TaskFiles, batch: pa.RecordBatch) -> None:
        if self._decoder is None:
            files.write(self._row_columns(batch))
            return
        files.left_out += batch.num_rows
        for part in decode_in_parts(self._decoder, [batch]):
            files.left_out -= part.num_rows
            refused = refused_payloads(part)
            files.write(self._row_columns(part.append_column(CORRUPT, refused)))

    def _write_listed(self, files: TaskFiles, batch: pa.RecordBatch) -> None:
        """The same, where each table of a list has its own fields."""
        numbers = listed.numbers_of(batch.column("subject"), self._into.options.tables)
        for number, rows in listed.divided(batch, numbers):
            decoder = None if number is None else self._decoders[number]
            if decoder is None:
                files.write_listed(number, rows)
                continue
            for part in decode_in_parts(decoder, [rows]):
                files.write_listed(number, listed.with_corrupt(part))

    def _row_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns of decoded rows, with the values that Spark would give them."""
        for name, value in self._into.made.items():
            batch = batch.append_column(name, value.of(batch))
        return batch


def _placeholder(schema: pa.Schema) -> pa.RecordBatch:
    """One row of this schema, which describes files."""
    columns = [
        pa.nulls(1, one.type) if one.nullable else pa.array([_EMPTY.get(one.type, 0)], one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_EMPTY: dict[pa.DataType, Any] = {pa.string(): "", pa.binary(): b""}
"""In columns without nulls; the others are numbers, dates and times."""


class DirectDataSource(JetStreamDataSource):
    """format("jetspark-direct"): reads a stream for one table, in streaming queries only."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse_options(self._given(of_sink=False))

    @cached_property
    def _into(self) -> Into:
        return Into.parse(self._given(of_sink=True))

    def _given(self, *, of_sink: bool) -> dict[str, str]:
        return {
            name.removeprefix(_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_PREFIX) is of_sink
        }

    @without_traceback
    def schema(self) -> StructType:
        """The columns of the table's rows, which are null, and that of tasks' reports."""
        return StructType([*self._into.rows, COLUMN])

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        return stream_reader(DirectReader(self._parsed, self._into))


def register_formats(spark: SparkSession) -> None:
    """All of this package, also for a Spark whose executors find it but whose driver does not
    search for it."""
    for one in (JetStreamDataSource, DirectDataSource, DeltaDataSource, IcebergDataSource):
        register(spark, one)
