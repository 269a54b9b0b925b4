"""spark.read.format("jetstream"): a DataFrame is a snapshot of the range it was planned with."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.spark import planning
from jetspark.spark.options import SourceOptions
from jetspark.spark.reading import RangePartition, plan, read_partition, stream_facts


class JetStreamBatchReader(DataSourceReader):
    """Plans once for a DataFrame: later messages are not in it; make a new one to see them.

    `pushFilters` is deliberately not overridden: on Spark 4.3 that fails every read while
    `spark.sql.python.filterPushdown.enabled` is off, and mixes plans up while it is on.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    def partitions(self) -> list[RangePartition]:
        """Resolve the range on the driver and cut it."""
        options = self._options
        wanted = planning.fixed_range(
            stream_facts(options),
            "earliest" if options.starting_offsets is None else options.starting_offsets,
            "latest" if options.ending_offsets is None else options.ending_offsets,
            options.subjects,
        )
        return plan(options, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        return read_partition(self._options, partition)
