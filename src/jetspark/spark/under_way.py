"""How many rows a running batch has read so far: the figures of Spark's user interface.

Executors report the rows of running tasks with their heartbeats, every ten seconds by default
(`spark.executor.heartbeatInterval`). The bytes that Spark shows beside them are no use: with
several partitions it adds up running totals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ROWS = "number of output rows"
_SCANS = "MicroBatchScan", "BatchScan"


class RowsUnderWay:
    """The rows that the first batch of a query has read, while it runs. Not of Spark Connect."""

    def __init__(self, query: StreamingQuery) -> None:
        self._store: Any = query._jsq.sparkSession().sharedState().statusStore()
        self._run = f"runId = {query.runId}"
        self._scans: dict[int, list[int]] = {}
        """By execution, the accumulators of its scans' rows: a batch has several executions."""

    def count(self) -> int:
        """0 before the batch has begun."""
        rows = 0
        with suppress(Py4JJavaError):  # what Spark has just dropped
            for one in _items(self._store.executionsList()):
                if self._run in one.description():
                    rows += self._rows_of(one.executionId())
        return rows

    def _rows_of(self, execution: int) -> int:
        if execution not in self._scans:
            self._scans[execution] = [
                metric.accumulatorId()
                for node in _items(self._store.planGraph(execution).allNodes())
                if node.name().startswith(_SCANS)
                for metric in _items(node.metrics())
                if metric.name() == _ROWS
            ]
        found = self._store.executionMetrics(execution)
        values = map(found.get, self._scans[execution])
        return sum(int(one.get().replace(",", "")) for one in values if one.isDefined())


def _items(sequence: Any) -> Iterator[Any]:
    """Of a Scala Seq."""
    return map(sequence.apply, range(sequence.size()))
