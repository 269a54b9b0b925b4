"""`spark.read.format("jetstream")`: a DataFrame is a snapshot of the range it was planned with."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.ranges.current_values import read_current_values
from jetspark.ranges.fixed_range import fixed_range
from jetspark.spark.failures import names_of_spark, without_traceback
from jetspark.spark.source.claims import QueryClaims
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.partitions import (
    RangePartition,
    choose_snapshot,
    plan_bucket,
    plan_partitions,
    read_partition,
)
from jetspark.spark.source.positions import resolve_positions
from jetspark.spark.source.source_streams import fetch_source_facts, leaders


class JetStreamBatchReader(DataSourceReader):
    """Reads a range of streams, or the values of a bucket, for `spark.read`.

    The range is fixed once for each DataFrame; later messages need a new DataFrame.

    `pushFilters` is deliberately not overridden: on Spark 4.3 every read then fails while
    `spark.sql.python.filterPushdown.enabled` is off, and plans are confused while it is on.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[RangePartition]:
        """Plan what each task reads: parts of the streams from the options' start to their end, or
        the present values of a bucket.

        Raises the errors of `fetch_source_facts`, `QueryClaims` and `resolve_positions`.
        """
        options = self._options
        facts = fetch_source_facts(options, linearizable=True)
        if options.sole_reader:  # no streaming query may have the work queue
            leaders(options).call(lambda api: QueryClaims(api, options).check(facts))
        if options.reads_current_values:
            return [plan_bucket(options, stream_facts) for stream_facts in facts.values()]
        start = resolve_positions(options, options.batch_start, facts, end=False)
        end = resolve_positions(options, options.ending, facts, end=True)
        ranges = (
            fixed_range(facts[name], start[name], end[name], options.subjects)
            for name in sorted(facts)
        )
        return plan_partitions(options, [choose_snapshot(options, range_) for range_ in ranges])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; Spark calls this on an executor."""
        options = self._options
        with names_of_spark():
            if options.reads_current_values and isinstance(partition, RangePartition):
                yield from read_current_values(
                    options.connection,
                    partition.ranges[0],  # a bucket has only one
                    options.limits(),
                    columns=options.columns,
                )
            else:
                yield from read_partition(options, partition)
