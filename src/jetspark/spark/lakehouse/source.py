"""The data sources "jetspark-delta" and "jetspark-iceberg"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError, named
from jetspark.lakehouse.formats import Format, open_table
from jetspark.lakehouse.table import ScanTask, Table
from jetspark.nearest import instead
from jetspark.spark.failures import without_traceback
from jetspark.spark.lakehouse.dataframe_columns import arrow_schema, written_schemas
from jetspark.spark.lakehouse.options import PREFIX, LakehouseOptions, parse_lakehouse_options
from jetspark.spark.lakehouse.table_preparation import prepare, prepare_for_query
from jetspark.spark.lakehouse.writers import LakehouseBatchWriter, LakehouseStreamWriter

# -------------------------------------------------------------------------------------------------
# spark.read of a Delta or Iceberg table: its library plans, tasks read Parquet as Arrow.


@dataclass
class PiecePartition(InputPartition):
    """The piece that one task reads."""

    piece: ScanTask


class LakehouseReader(DataSourceReader):
    """Reads one version of the table.

    `pushFilters` is deliberately not overridden: on Spark 4.3 every read then fails while
    `spark.sql.python.filterPushdown.enabled` is off, and plans are confused while it is on.
    """

    def __init__(self, options: LakehouseOptions, schema: StructType) -> None:
        self._options = options
        self._rows = arrow_schema(schema)

    @without_traceback
    def partitions(self) -> list[PiecePartition]:
        """Plan, on the driver. Raises ConfigError for columns that the table does not have."""
        table = opened(self._options)
        there = table.schema.names
        for name in self._rows.names:
            if name not in there:
                said = f"{self._options.name} has no column {name!r}"
                raise ConfigError(f"{said}{instead(name, there)}")
        options = self._options
        pieces = table.scan_tasks(self._rows.names, options.prune, options.min_partitions)
        return [PiecePartition(one) for one in pieces]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Runs on an executor; without a partition when there is none."""
        if not isinstance(partition, PiecePartition):
            return
        for batch in partition.piece.batches():
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [batch.column(one.name).cast(one.type) for one in self._rows],
                    schema=self._rows,
                )


def opened(options: LakehouseOptions) -> Table:
    """The table at the version of the options. Raises ConfigError."""
    table = open_table(options.format, options.name)
    return table if options.version_as_of is None else table.at_version(options.version_as_of)


def read_schema(options: LakehouseOptions) -> StructType:
    """The table's columns as Spark's. Raises ConfigError."""
    columns = pa.schema([one.remove_metadata() for one in opened(options).schema])
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)  # the default since 4.2


class _LakehouseDataSource(DataSource):
    format_: ClassVar[Format]

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return PREFIX + cls.format_

    @cached_property
    def _parsed(self) -> LakehouseOptions:
        return parse_lakehouse_options(self.format_, self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The table's columns. Raises ConfigError."""
        return read_schema(self._parsed.for_reading())

    @without_traceback
    def reader(self, schema: StructType) -> LakehouseReader:
        """The batch reader; columns that the user's schema leaves out are not read.

        Raises ConfigError.
        """
        return LakehouseReader(self._parsed.for_reading(), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LakehouseBatchWriter:
        """The batch writer. Raises ConfigError, before a row is written."""
        options = self._parsed.for_batch()
        rows = written_schemas(options, schema)
        if overwrite and options.upsert is not None:
            raise ConfigError(
                "merges rows into those that are there: write with mode('append').", option="keys"
            )
        return LakehouseBatchWriter(options, prepare(options, rows), replace=overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> LakehouseStreamWriter:
        """The streaming writer. Raises ConfigError and TableError, before a row is written."""
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
