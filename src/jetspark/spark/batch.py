"""spark.read.format("jetstream"): a DataFrame is a snapshot of the range it was planned with."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.spark import planning
from jetspark.spark.options import SourceOptions
from jetspark.spark.reading import (
    RangePartition,
    backfilled,
    leaders,
    plan,
    read_partition,
    read_values,
    resolve_positions,
    snapshot,
    streams_facts,
)
from jetspark.spark.short_errors import without_traceback
from jetspark.spark.sole_reading import check_claims


class JetStreamBatchReader(DataSourceReader):
    """Plans once for each DataFrame; a new one has to be loaded for later messages.

    `pushFilters` is deliberately not overridden: on Spark 4.3 every read then fails while
    `spark.sql.python.filterPushdown.enabled` is off, and plans are confused while it is on.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[RangePartition]:
        """Determine the range, on the driver, and divide it into partitions.

        Raises as `streams_facts`, `check_claims` and `resolve_positions`.
        """
        options = self._options
        facts = streams_facts(options, sure=True)
        if options.sole_reader:
            leaders(options).ask(lambda api: check_claims(api, options, facts))
        if options.is_snapshot:
            return [snapshot(options, one) for one in facts.values()]
        start = resolve_positions(options, options.starting_positions("earliest"), facts, end=False)
        end = resolve_positions(options, options.ending_positions(), facts, end=True)
        return plan(
            options,
            [
                backfilled(
                    options,
                    planning.fixed_range(facts[name], start[name], end[name], options.subjects),
                )
                for name in sorted(facts)
            ],
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        if self._options.is_snapshot:
            return read_values(self._options, partition)
        return read_partition(self._options, partition)
