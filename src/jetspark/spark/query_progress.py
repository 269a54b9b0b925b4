"""The totals of a running query, from Spark's progress reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetspark.spark.lag import figures_of, lag_of, streams_in

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
    quarantined: int = 0
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
            self.quarantined += figures.quarantined
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
