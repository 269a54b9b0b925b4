"""What a running query has done since it started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetspark.spark.queries.lag import parse_streams, read_figures, total_lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_MAX_DURATIONS = 1000


@dataclass(slots=True)
class QueryProgress:
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
    """Messages left out since the start (`BatchFigures.left_out`)."""
    batches: int = 0
    """Batches with rows."""
    durations: list[float] = field(default_factory=list)
    """Durations of the last batches, in seconds. The reader removes them."""
    ends: dict[str, int] = field(default_factory=dict)
    """The next sequence of each stream after the last batch."""
    _last_batch: int = -1

    def update(self, query: StreamingQuery) -> bool:
        """Add new reports of batches with rows; returns whether there were any."""
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
            self.durations.append(report.get("durationMs", {}).get("triggerExecution", 0) / 1000)
            del self.durations[:-_MAX_DURATIONS]
            for source in report["sources"]:
                streams = parse_streams(source["endOffset"])
                self.ends |= {name: stream["next"] for name, stream in streams.items()}
        if query.lastProgress is not None:
            self.lag = total_lag(query.lastProgress)
        return self.batches > batches_before
