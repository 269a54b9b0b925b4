"""The option `table` of `spark.read`: a table, and what its streams have beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.failures import names_of_spark, without_traceback
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.partitions import plan_partitions
from jetspark.spark.source.source_streams import leaders
from jetspark.tables.arguments import resolve_table
from jetspark.tables.formats import open_table
from jetspark.tables.table import Table
from jetspark.tails.table_and_tail import (
    TableAndTail,
    TableRows,
    plan_table_and_tail,
    table_columns,
)


class TableAndTailPartition(InputPartition):
    """What one task of Spark reads: files of the table, or ranges of its streams."""

    def __init__(
        self,
        both: TableAndTail,
        files: TableRows | None = None,
        ranges: Sequence[SequenceRange] = (),
    ) -> None:
        super().__init__(None)
        self.both, self.files, self.ranges = both, files, ranges


class TableAndTailReader(DataSourceReader):
    """Reads one version of a table, and the messages of its streams after it, for `spark.read`.

    Both are fixed once for each DataFrame.
    """

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        """`columns`: of the rows."""
        self._options, self._columns = options.for_batch(), columns

    @without_traceback
    def partitions(self) -> list[TableAndTailPartition]:
        """Take the table's newest version and the ends of the streams, and plan what each task
        reads. Raises the errors of `plan_table_and_tail`."""
        options = self._options
        table = open_source_table(options)
        table_columns(table, self._columns.names)  # raises for one that the table has lost
        both = leaders(options).call(
            lambda api: plan_table_and_tail(
                table,
                api,
                options.streams,
                self._columns,
                lookup=options.lookup,
                fail_on_data_loss=options.fail_on_data_loss,
                at_least=options.min_partitions,
            )
        )
        shared = replace(both, files=(), ranges=())
        return [
            *(TableAndTailPartition(shared, files=files) for files in both.files),
            *(
                TableAndTailPartition(shared, ranges=partition.ranges)
                for partition in plan_partitions(options, both.ranges)
            ),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; Spark calls this on an executor."""
        # Spark sends a placeholder when no partition was planned.
        if not isinstance(partition, TableAndTailPartition):
            return
        options, both = self._options, partition.both
        with names_of_spark():
            if partition.files is not None:
                yield from both.file_batches(partition.files)
            yield from both.tail_batches(
                options.connection,
                partition.ranges,
                options.limits(),
                fail_on_data_loss=options.fail_on_data_loss,
            )


def open_source_table(options: SourceOptions) -> Table:
    """Open the table of the option `table` at its newest version. Raises ConfigError."""
    return open_table(*resolve_table(options.table or "", options.table_format, options.storage))
