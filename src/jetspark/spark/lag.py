"""The progress of queries: rows and lag from reports, by a listener, and during a batch.

The lag of a stream is the number of sequences between the end of the last batch and the end of the
stream at that time; deleted messages count.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming import listener

from jetspark.spark.rows_under_way import rows_under_way

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("jetspark.spark")


def lag_by_stream(report: Mapping[str, Any]) -> dict[str, int] | None:
    """Lag in sequences by stream of one progress report; None if the report does not have it."""
    lag: dict[str, int] = {}
    told = False
    for source in report["sources"]:
        end, latest = streams_in(source["endOffset"]), streams_in(source["latestOffset"])
        if not end or not latest:
            continue
        told = True
        for name, one in latest.items():
            # The lag of a stream that a pattern just found is its whole content.
            read = end[name]["next"] if name in end else 1
            lag[name] = lag.get(name, 0) + max(0, one["next"] - read)
    return lag if told else None


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Lag in sequences of one progress report, all streams together."""
    lag = lag_by_stream(report)
    return None if lag is None else sum(lag.values())


WRITTEN = "jetspark written"
"""The observed metric of queries of `ingest`, whose tasks return files, not rows."""


class Figures(NamedTuple):
    """The figures of one batch."""

    rows: int
    aside: int
    """Quarantined records."""
    left_out: int
    """Messages that are no rows by their format."""
    rows_per_second: float


def figures_of(report: Mapping[str, Any]) -> Figures:
    """The figures of one progress report."""
    rows = report["numInputRows"]
    found = (report.get("observedMetrics") or {}).get(WRITTEN)
    if found is None or not rows:
        return Figures(rows, 0, 0, float(report.get("processedRowsPerSecond") or 0.0))
    rows, aside = found["rows"], found["aside"]
    milliseconds = report["durationMs"].get("triggerExecution") or 1
    return Figures(rows, aside, found["left_out"], 1000 * (rows + aside) / milliseconds)


def streams_in(offset: Any) -> dict[str, Any]:
    """The streams of an offset, as JSON or its text; none of another format's."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    # Other sources of the query have other offsets.
    return dict(offset["streams"]) if isinstance(offset, dict) and "streams" in offset else {}


@dataclass(frozen=True, slots=True)
class QueryLag:
    """One query after one batch."""

    query: str
    """The query's name, or its id when it has none."""
    batch: int
    rows: int
    """Rows of this batch."""
    rows_per_second: float
    lag: Mapping[str, int]
    """Sequences by stream."""


class LagListener(listener.StreamingQueryListener):
    """Follows the lag of all queries of a session: `spark.streams.addListener(LagListener())`.

    Every batch is logged (logger "jetspark.spark", level INFO) and passed to `callback` in a thread
    of Spark; its exceptions are logged. For Prometheus: `query_metrics`.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None) -> None:
        self._callback = callback
        self._latest: dict[str, QueryLag] = {}
        self._names: dict[str, str] = {}

    @property
    def latest(self) -> dict[str, QueryLag]:
        """The last batch of each running query, by the query's name or id."""
        return dict(self._latest)

    # -- called by Spark -------------------------------------------------------------------

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        """Remember the name."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Process one report."""
        report = json.loads(event.progress.json)
        lag = lag_by_stream(report)
        if lag is None:
            return
        name = report.get("name") or report["id"]
        figures = figures_of(report)
        one = QueryLag(name, report["batchId"], figures.rows, figures.rows_per_second, lag)
        self._latest[name] = one
        logger.info("%s: batch %d, %d rows, lag %d", name, one.batch, one.rows, sum(lag.values()))
        if self._callback is not None:
            try:
                self._callback(one)
            except Exception:
                logger.exception("The lag callback failed")

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        """Forget the query."""
        self._latest.pop(self._names.pop(str(event.id), ""), None)


_KEPT = 1000


@dataclass(slots=True)
class Progress:
    """The totals of a running query, from Spark's progress reports."""

    rows: int = 0
    """Rows written since the start."""
    rows_per_second: float = 0.0
    """Rows per second of the last batch with rows."""
    lag: int | None = None
    """Sequences in the stream after the last batch, at that time."""
    aside: int = 0
    """Records quarantined since the start."""
    left_out: int = 0
    """Messages since the start that are no rows by their format, such as heartbeats of Debezium."""
    batches: int = 0
    """Batches with rows."""
    seconds: list[float] = field(default_factory=list)
    """How long the last of them took; who reads them removes them."""
    ends: dict[str, int] = field(default_factory=dict)
    """The next sequence of each stream after the last batch."""
    _batch: int = -1

    def update(self, query: StreamingQuery) -> bool:
        """Add new reports; returns whether there were any."""
        new = False
        for report in query.recentProgress:
            if report["batchId"] <= self._batch or not report["numInputRows"]:
                continue
            self._batch = report["batchId"]
            self.batches += 1
            figures = figures_of(report)
            self.rows += figures.rows
            self.aside += figures.aside
            self.left_out += figures.left_out
            self.rows_per_second = figures.rows_per_second
            self.seconds.append(report.get("durationMs", {}).get("triggerExecution", 0) / 1000)
            del self.seconds[:-_KEPT]
            for source in report["sources"]:
                streams = streams_in(source["endOffset"])
                self.ends |= {name: one["next"] for name, one in streams.items()}
            new = True
        if query.lastProgress is not None:
            self.lag = lag_of(query.lastProgress)
        return new


# -------------------------------------------------------------------------------------------------
# How many rows a running batch has read so far: what its tasks tell (`told`), or else the figures
# of Spark's user interface.
#
# Executors report the rows of running tasks with their heartbeats, every ten seconds by default
# (`spark.executor.heartbeatInterval`). The bytes that Spark shows beside them are no use: with
# several partitions it adds up running totals.


_ROWS = "number of output rows"
_SCANS = "MicroBatchScan", "BatchScan"


class RowsUnderWay:
    """The rows that a query's first batch has read so far, or without a query all that a session,
    the JVM's, has read, also of files. Not for Spark Connect."""

    def __init__(self, query: StreamingQuery | None, session: Any = None) -> None:
        if query is not None:
            session = query._jsq.sparkSession()
        self._store: Any = session.sharedState().statusStore()
        self._query = "" if query is None else str(query.id)
        self._run = "" if query is None else f"runId = {query.runId}"
        self._names = (*_SCANS, "Scan ") if query is None else _SCANS
        self._scans: dict[int, list[int]] = {}
        """The accumulators of scanned rows, by execution; a batch has several executions."""

    def count(self) -> int:
        """0 before the batch has begun."""
        if rows := rows_under_way(self._query):
            return rows
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
                if node.name().startswith(self._names)
                for metric in _items(node.metrics())
                if metric.name() == _ROWS
            ]
        found = self._store.executionMetrics(execution)
        values = map(found.get, self._scans[execution])
        return sum(int(one.get().replace(",", "")) for one in values if one.isDefined())


def _items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala Seq."""
    return map(sequence.apply, range(sequence.size()))
