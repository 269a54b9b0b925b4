"""spark.read of a Delta or Iceberg table: its library plans, tasks read Parquet as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import open_table
from jetspark.lakehouse.scans import Piece
from jetspark.lakehouse.table import Table
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.lakehouse.target import arrow_schema
from jetspark.spark.short_errors import without_traceback


@dataclass
class PiecePartition(InputPartition):
    """The piece that one task reads."""

    piece: Piece


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
                raise ConfigError(
                    f"{self._options.name} has no column {name!r}; there are {', '.join(there)}."
                )
        options = self._options
        pieces = table.pieces(self._rows.names, options.prune, options.min_partitions)
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
    return table if options.version is None else table.at_version(options.version)


def read_schema(options: LakehouseOptions) -> StructType:
    """The table's columns as Spark's. Raises ConfigError."""
    return from_arrow_schema(pa.schema([one.remove_metadata() for one in opened(options).schema]))
