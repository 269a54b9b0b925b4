"""One query of a command, its totals, and the line of text that shows them."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from jetspark.cli.formatting import format_count
from jetspark.spark.queries.rows_in_progress import RowsInProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LINE_SECONDS = 60.0
"""Seconds between two lines where standard error is no terminal."""


class WatchedQuery:
    """A query, which may be restarted, with its totals since the command began.

    `began`: when the command began, by the monotonic clock. `verb`: "read" or "written",
    what happens to its rows. `label`: the beginning of its line.
    """

    def __init__(
        self, query: StreamingQuery, began: float, *, verb: str = "written", label: str = ""
    ) -> None:
        from jetspark.spark.queries.progress import QueryProgress  # it loads PySpark

        self.query = query
        self.progress = QueryProgress()
        self._verb = verb
        self._label = label
        self._rows_in_progress: RowsInProgress | None = None
        self._line_times = deque([(began, 0)])
        """When lines of the last minute were made, and the rows then."""

    @property
    def has_progress(self) -> bool:
        """Whether the query has finished a batch, or has found that there is none."""
        return self.query.lastProgress is not None

    def update(self) -> None:
        """Add Spark's new reports to the totals."""
        self.progress.update(self.query)

    def replace(self, query: StreamingQuery) -> None:
        """Watch a query that continues the present one; the totals go on."""
        self.query = query
        self._rows_in_progress = None

    def rows_in_first_batch(self) -> int:
        """The rows that the first batch has read so far, which calls the JVM several times."""
        if self._rows_in_progress is None:
            self._rows_in_progress = RowsInProgress(self.query)
        return self._rows_in_progress.count()

    def describe(self) -> str:
        """The line with the rows, their rate and the lag; before that, what the query does."""
        if not self.has_progress:
            return self._label + self._describe_first_batch()
        rows = format_count(self.progress.rows, "row")
        rate = self.rows_per_second(time.monotonic(), self.progress.rows)
        line = f"{self._label}{rows} {self._verb} · {rate:,.0f} messages/s"
        return line if self.progress.lag is None else f"{line} · lag {self.progress.lag:,}"

    def _describe_first_batch(self) -> str:
        """What a query does that has finished no batch yet."""
        if self.query.status["message"] != "Processing new data":
            return "planning the first batch"
        rows = self.rows_in_first_batch()
        return "reading the first batch" + (f" · {format_count(rows, 'row')}" if rows else "")

    def rows_per_second(self, now: float, rows: int) -> float:
        """The rate since the line before; where lines change all the time, in the last minute."""
        while len(self._line_times) > 1 and now - self._line_times[1][0] >= LINE_SECONDS:
            self._line_times.popleft()
        self._line_times.append((now, rows))
        start, rows_at_start = self._line_times[0]
        return (rows - rows_at_start) / max(now - start, 0.001)
