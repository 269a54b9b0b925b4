"""The data sources "jetspark-delta" and "jetspark-iceberg", and the columns of their DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError, named
from jetspark.nearest import did_you_mean_or_list
from jetspark.payloads.tolerant import CORRUPT
from jetspark.reserved_names import check_names
from jetspark.spark.failures import without_traceback
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import PREFIX, LakehouseOptions
from jetspark.spark.table_sink.table_preparation import prepare, prepare_for_query
from jetspark.spark.table_sink.writers import LakehouseBatchWriter, LakehouseStreamWriter
from jetspark.spark.versions import in_arrow
from jetspark.tables import quarantine
from jetspark.tables.formats import Format, open_table
from jetspark.tables.table import ScanTask, Table

_NEWER_TYPES = ("time(", "geometry", "geography")
"""Beginnings of the names of types that older versions of Spark lack."""


# -------------------------------------------------------------------------------------------------
# spark.read of a Delta or Iceberg table: its library plans, tasks read Parquet as Arrow.


@dataclass
class ScanPartition(InputPartition):
    """The files of a table that one Spark task reads."""

    scan_task: ScanTask


class LakehouseReader(DataSourceReader):
    """Reads one version of a Delta or Iceberg table, for spark.read.

    `pushFilters` is deliberately not overridden: on Spark 4.3 every read then fails while
    `spark.sql.python.filterPushdown.enabled` is off, and plans are confused while it is on.
    """

    def __init__(self, options: LakehouseOptions, schema: StructType) -> None:
        """`schema`: the columns to read, which may be fewer than the table's."""
        self._options = options
        self._columns = arrow_schema(schema)

    @without_traceback
    def partitions(self) -> list[ScanPartition]:
        """Divide the table's files into the partitions of the read; runs on the driver. Raises
        ConfigError for columns that the table does not have."""
        table = _open(self._options)
        columns = table.schema.names
        for name in self._columns.names:
            if name not in columns:
                problem = f"{self._options.name} has no column {name!r}"
                raise ConfigError(f"{problem}{did_you_mean_or_list(name, columns)}")
        options = self._options
        scan_tasks = table.scan_tasks(self._columns.names, options.prune, options.min_partitions)
        return [ScanPartition(scan_task) for scan_task in scan_tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition's files as Arrow; runs on an executor. Spark calls it with
        None for a table without files."""
        if not isinstance(partition, ScanPartition):
            return
        for batch in partition.scan_task.batches():
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [batch.column(field.name).cast(field.type) for field in self._columns],
                    schema=self._columns,
                )


def _open(options: LakehouseOptions) -> Table:
    """Open a table at the version that the option `versionAsOf` names, by default the newest.
    Raises ConfigError."""
    table = open_table(options.format, options.name)
    return table if options.version_as_of is None else table.at_version(options.version_as_of)


def read_schema(options: LakehouseOptions) -> StructType:
    """The columns of a Delta or Iceberg table, as a schema of Spark. Raises ConfigError."""
    columns = pa.schema([field.remove_metadata() for field in _open(options).schema])
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)  # the default since Spark 4.2


class _LakehouseDataSource(DataSource):
    """What Spark's data sources for Delta and Iceberg tables have in common: all but the format."""

    format_: ClassVar[Format]

    @classmethod
    def name(cls) -> str:
        return PREFIX + cls.format_

    @cached_property
    def _parsed(self) -> LakehouseOptions:
        """The options of the read or write, parsed from Spark's texts. Raises ConfigError."""
        return parse_lakehouse_options(self.format_, self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The columns of the table that is read, for spark.read without a schema of the user.
        Raises ConfigError."""
        return read_schema(self._parsed.for_reading())

    @without_traceback
    def reader(self, schema: StructType) -> LakehouseReader:
        """The reader of a table for spark.read; columns that the user's schema leaves out are not
        read. Raises ConfigError."""
        return LakehouseReader(self._parsed.for_reading(), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LakehouseBatchWriter:
        """Create or check the table of a df.write, and return its writer. `overwrite`: whether the
        rows replace the others. Raises ConfigError, before a row is written."""
        options = self._parsed.for_batch()
        rows = written_schemas(options, schema)
        if overwrite and options.upsert is not None:
            raise ConfigError(
                "merges rows into those that are there: write with mode('append').", option="keys"
            )
        return LakehouseBatchWriter(options, prepare(options, rows), replace=overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> LakehouseStreamWriter:
        """Create or check the tables for a batch of a df.writeStream, and return its writer.
        `overwrite`: Spark's output mode is "complete". Raises ConfigError and TableError, before a
        row is written."""
        options = self._parsed.for_streaming()
        rows = written_schemas(options, schema)
        if overwrite:
            raise ConfigError(
                "outputMode 'complete' would replace the table with every batch; use 'append', or "
                f"foreachBatch and in it mode('overwrite') or {named('keys')}."
            )
        return LakehouseStreamWriter(options, prepare_for_query(options, rows), replace=False)


class DeltaDataSource(_LakehouseDataSource):
    """format("jetspark-delta"): Delta tables, without a JAR."""

    format_ = Format.DELTA


class IcebergDataSource(_LakehouseDataSource):
    """format("jetspark-iceberg"): Iceberg tables, without a JAR."""

    format_ = Format.ICEBERG


# -- columns of DataFrames -------------------------------------------------------------------------


def written_schemas(options: LakehouseOptions, schema: types.StructType) -> list[pa.Schema]:
    """The Arrow schemas of the rows that a table gets, from a DataFrame with this schema.

    There is one: the columns of the DataFrame. But in a query whose source tasks write the table's
    files themselves, the DataFrame only has their reports, and the option `taskRows` has the
    schemas. Raises ConfigError for a column that no table can have, and for a reserved name.
    """
    if options.task_rows:
        return list(options.task_rows)
    allowed = (CORRUPT, quarantine.REASON)  # these come with the rows of format jetstream
    check_names(f"The rows for {options.name}", schema.names, allowed=allowed)
    return [arrow_schema(schema)]


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Convert a schema of Spark to Arrow's. Raises ConfigError for types that a Delta or Iceberg
    table cannot have, and if there are no columns."""
    if not schema.fields:
        raise ConfigError("The rows have no columns.")
    for column in schema:
        if name := _find_unsupported_type(column.dataType):
            raise ConfigError(
                f"A table cannot have the column {column.name!r} of type {name}: cast it, or leave "
                "it out."
            )
    return in_arrow(schema)


def _find_unsupported_type(kind: types.DataType) -> str | None:
    """Search a Spark type, at any depth, for a type that Delta and Iceberg lack or that their
    libraries do not write; returns its name, or None if tables can have all of it."""
    inner: list[types.DataType] = []
    match kind:
        case types.StructType() if not kind.fields:
            return kind.simpleString()
        case types.StructType():
            inner = [field.dataType for field in kind]
        case types.ArrayType():
            inner = [kind.elementType]
        case types.MapType():
            inner = [kind.keyType, kind.valueType]
        case (
            types.NullType()
            | types.VariantType()
            | types.AnsiIntervalType()
            | types.CalendarIntervalType()
        ):
            return kind.simpleString()
        case _ if kind.simpleString().startswith(_NEWER_TYPES):
            return kind.simpleString()
    return next(filter(None, map(_find_unsupported_type, inner)), None)
