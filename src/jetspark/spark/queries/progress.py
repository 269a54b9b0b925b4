"""The progress of queries, from Spark's reports: totals, lag, and a listener that follows both.

The lag of a stream is the number of sequences between the end of the last batch and the end of the
stream at that time; deleted messages count.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql.streaming import listener
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.timestamps import parse_isotime

logger = logging.getLogger("jetspark.spark")

_MAX_DURATIONS = 1000
_MAX_RECENT = 20


def lag_by_stream(report: Mapping[str, Any]) -> dict[str, int] | None:
    """By stream, how many sequences a query had not read yet, from one of Spark's progress reports.

    None if the report does not tell, as for other sources.
    """
    lag: dict[str, int] = {}
    for source in report["sources"]:
        end, latest = parse_streams(source["endOffset"]), parse_streams(source["latestOffset"])
        if not end:
            continue
        for name, stream in latest.items():
            # A pattern has just found this stream, of which nothing was read.
            read = end[name]["next"] if name in end else 1
            lag[name] = lag.get(name, 0) + max(0, stream["next"] - read)
    return lag or None


def total_lag(report: Mapping[str, Any]) -> int | None:
    """How many sequences of all streams a query had not read yet, from one of Spark's progress
    reports; None if the report does not tell."""
    lag = lag_by_stream(report)
    return None if lag is None else sum(lag.values())


WRITTEN_METRIC = "jetspark written"
"""The observed metric of queries of `ingest`, whose tasks return files, not rows."""


class BatchFigures(NamedTuple):
    """What one micro-batch has written."""

    rows: int
    rows_per_second: float
    quarantined: int = 0
    """Records in the quarantine table."""
    left_out: int = 0
    """Messages that are no rows by their format, such as heartbeats of Debezium."""


def read_figures(report: Mapping[str, Any]) -> BatchFigures:
    """What a micro-batch has written, and how fast, from Spark's progress report about it.

    Tasks of `ingest` return files instead of rows, so there the rows are in an observed metric.
    """
    input_rows = report["numInputRows"]
    metrics = (report.get("observedMetrics") or {}).get(WRITTEN_METRIC)
    if metrics is None or not input_rows:
        return BatchFigures(input_rows, float(report.get("processedRowsPerSecond") or 0.0))
    rows, quarantined = metrics["rows"], metrics["quarantined"]
    milliseconds = report["durationMs"].get("triggerExecution") or 1
    speed = 1000 * (rows + quarantined) / milliseconds
    return BatchFigures(rows, speed, quarantined, metrics["left_out"])


def parse_streams(offset: Any) -> dict[str, Any]:
    """By stream, the positions in an offset of the source jetstream; empty for another source's.

    `offset`: Spark's document, or its JSON.
    """
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    # Other sources of the query have other offsets.
    return dict(offset["streams"]) if isinstance(offset, dict) and "streams" in offset else {}


class FinishedBatch(NamedTuple):
    """One micro-batch with rows, from Spark's report."""

    batch: int
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    rows: int
    quarantined: int


@dataclass(slots=True)
class QueryProgress:
    """Totals of a running query, added up from Spark's progress reports at each `update`."""

    rows: int = 0
    """Rows written since the start."""
    rows_per_second: float = 0.0
    """Rows per second of the last batch with rows."""
    lag: int | None = None
    """Sequences not read by the last batch, in all streams; None if it is not known."""
    quarantined: int = 0
    """Records quarantined since the start."""
    left_out: int = 0
    """Messages left out since the start (`BatchFigures.left_out`)."""
    batches: int = 0
    """Batches with rows."""
    durations: list[float] = field(default_factory=list)
    """Durations of the last batches, in seconds. The reader removes them."""
    recent: deque[FinishedBatch] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    """The last batches, oldest first."""
    ends: dict[str, int] = field(default_factory=dict)
    """The next sequence of each stream after the last batch."""
    _last_batch: int = -1
    """The number of the last batch that is in the totals."""

    def update(self, query: StreamingQuery) -> bool:
        """Add the batches that the query has finished since the last call to the totals.

        Returns whether there were any; batches without rows do not count.
        """
        batches_before = self.batches
        for report in query.recentProgress:
            if report["batchId"] <= self._last_batch or not report["numInputRows"]:
                continue
            self._last_batch = report["batchId"]
            self.batches += 1
            figures = read_figures(report)
            self.rows += figures.rows
            self.quarantined += figures.quarantined
            self.left_out += figures.left_out
            self.rows_per_second = figures.rows_per_second
            seconds = report.get("durationMs", {}).get("triggerExecution", 0) / 1000
            self.durations.append(seconds)
            began = parse_isotime(report["timestamp"]) / 1e9
            self.recent.append(
                FinishedBatch(report["batchId"], began, seconds, figures.rows, figures.quarantined)
            )
            del self.durations[:-_MAX_DURATIONS]
            for source in report["sources"]:
                streams = parse_streams(source["endOffset"])
                self.ends |= {name: stream["next"] for name, stream in streams.items()}
        if query.lastProgress is not None:
            self.lag = total_lag(query.lastProgress)
        return self.batches > batches_before


@dataclass(frozen=True, slots=True)
class QueryLag:
    """How far behind its streams one query is after one batch."""

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
    of Spark; its exceptions are logged. For Prometheus: `queries.metrics`.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None) -> None:
        """Follow the lag of a session's queries; `callback` gets it after each batch of each."""
        self._callback = callback
        self._latest: dict[str, QueryLag] = {}
        self._names: dict[str, str] = {}
        """By id, the name of each running query, or its id when it has none."""

    @property
    def latest(self) -> dict[str, QueryLag]:
        """The last batch of each running query, by the query's name or id."""
        return dict(self._latest)

    # -- called by Spark -------------------------------------------------------------------

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Log a finished batch of a query that reads from JetStream; pass it to the callback."""
        report = json.loads(event.progress.json)
        if (lag := lag_by_stream(report)) is None:
            return
        name, batch = report.get("name") or report["id"], report["batchId"]
        rows, rows_per_second, *_ = read_figures(report)
        query_lag = QueryLag(name, batch, rows, rows_per_second, lag)
        self._latest[name] = query_lag
        logger.info("%s: batch %d, %d rows, lag %d", name, batch, rows, sum(lag.values()))
        if self._callback is not None:
            try:
                self._callback(query_lag)
            except Exception:
                logger.exception("The lag callback failed")

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
        """Nothing to do: an idle query has no new batch."""

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        self._latest.pop(self._names.pop(str(event.id), ""), None)
