"""Counts the rows that a running batch has read so far.

They come from what its tasks report (`rows_in_progress`), or else from the figures of Spark's user
interface. Executors report the rows of running tasks with their heartbeats, every ten seconds by
default (`spark.executor.heartbeatInterval`). The bytes that Spark shows beside them are no use:
with several partitions it adds up running totals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from jetspark.spark.rows_in_progress import rows_in_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_OUTPUT_ROWS_METRIC = "number of output rows"
_SCAN_NODES = "MicroBatchScan", "BatchScan"


class RowsInProgress:
    """The rows that a query's first batch has read so far, or without a query all that a session,
    the JVM's, has read, also of files. Not for Spark Connect."""

    def __init__(self, query: StreamingQuery | None, session: Any = None) -> None:
        if query is not None:
            session = query._jsq.sparkSession()
        self._store: Any = session.sharedState().statusStore()
        self._query = "" if query is None else str(query.id)
        self._run = "" if query is None else f"runId = {query.runId}"
        self._names = (*_SCAN_NODES, "Scan ") if query is None else _SCAN_NODES
        self._scans: dict[int, list[int]] = {}
        """The accumulators of scanned rows, by execution; a batch has several executions."""

    def count(self) -> int:
        """0 before the batch has begun."""
        if rows := rows_in_progress(self._query):
            return rows
        with suppress(Py4JJavaError):  # what Spark has just dropped
            for execution in _items(self._store.executionsList()):
                if self._run in execution.description():
                    rows += self._rows_of(execution.executionId())
        return rows

    def _rows_of(self, execution: int) -> int:
        if execution not in self._scans:
            self._scans[execution] = [
                metric.accumulatorId()
                for node in _items(self._store.planGraph(execution).allNodes())
                if node.name().startswith(self._names)
                for metric in _items(node.metrics())
                if metric.name() == _OUTPUT_ROWS_METRIC
            ]
        metrics = self._store.executionMetrics(execution)
        values = map(metrics.get, self._scans[execution])
        return sum(
            int(execution.get().replace(",", "")) for execution in values if execution.isDefined()
        )


def _items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala Seq."""
    return map(sequence.apply, range(sequence.size()))
