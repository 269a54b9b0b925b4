"""spark.readStream.format("jetstream"): Spark's checkpoint is the only truth.

Nothing on the server depends on this query: no durable consumer, no ack. `commit` comes one batch
late and `stop` may never run, so nothing is left to either. Offsets are explained in `offsets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from jetspark.errors import ConfigError
from jetspark.spark import planning
from jetspark.spark.offsets import StreamOffset, from_json, to_json
from jetspark.spark.options import SourceOptions
from jetspark.spark.reading import RangePartition, plan, read_partition, stream_facts


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of explicit sequence ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_streaming()
        self._initial: StreamOffset | None = None
        self._target: int | None = None

    # -- offsets, on the driver ------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Spark may ask twice before the first batch: same answer."""
        if self._initial is None:
            start = self._options.starting_offsets
            self._initial = planning.initial_offset(
                stream_facts(self._options), "latest" if start is None else start
            )
        return self._document(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, if given."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze where this run ends."""
        self._target = planning.tail(stream_facts(self._options))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself, text for text, when there is nothing."""
        offset = self._offset(start)
        end = planning.next_offset(
            stream_facts(self._options),
            offset,
            max_offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            target=self._target,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return start if end == offset else self._document(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The stream's end, for the lag in the query's progress."""
        facts = stream_facts(self._options)
        end = planning.tail(facts)
        return self._document(StreamOffset(facts.created, end, end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The same partitions for the same offsets, however often Spark asks."""
        wanted = planning.batch_range(
            self._options.stream, self._offset(start), self._offset(end), self._options.subjects
        )
        return plan(self._options, wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint holds what was read."""

    def stop(self) -> None:
        """Nothing: there is nothing on the server to take away."""

    # -- rows, on executors ----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return read_partition(self._options, partition)

    # -- documents -------------------------------------------------------------------------

    def _document(self, offset: StreamOffset) -> dict[str, Any]:
        return to_json({self._options.stream: offset})

    def _offset(self, document: dict[str, Any]) -> StreamOffset:
        offsets = from_json(document)
        if self._options.stream not in offsets:
            raise ConfigError(
                f"The checkpoint belongs to a query on stream {', '.join(offsets)!r}, not "
                f"{self._options.stream!r}: use another checkpointLocation."
            )
        return offsets[self._options.stream]
