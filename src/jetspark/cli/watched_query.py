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
    """A Spark query that a command runs: its totals, and the line that shows them to the user.

    The query may be replaced by one that continues it.
    """

    def __init__(
        self, query: StreamingQuery, began: float, *, verb: str = "written", label: str = ""
    ) -> None:
        """Watch a Spark query, with totals since it began.

        `began`: when that was, after Spark's start, by the monotonic clock. `verb`: what happens to
        the query's rows, "read" or "written", for the line that shows them. `label`: the beginning
        of that line.
        """
        from jetspark.spark.queries.progress import QueryProgress  # it loads PySpark

        self.query = query
        self.progress = QueryProgress()
        self._verb = verb
        self._label = label
        self._rows_in_progress: RowsInProgress | None = None
        """Counts the rows of the first batch, whose figures Spark reports only at its end."""
        self._line_times = deque([(began, 0)])
        """When lines of the last minute were made, and the rows then."""

    @property
    def has_progress(self) -> bool:
        """Whether the query has finished its first batch, or has found nothing to read."""
        return self.query.lastProgress is not None

    def update(self) -> None:
        """Add Spark's progress reports since the last call to the totals."""
        self.progress.update(self.query)

    def replace(self, query: StreamingQuery) -> None:
        """Watch `query` from now on, which continues the one before; the totals go on."""
        self.query = query
        self._rows_in_progress = None

    def rows_in_first_batch(self) -> int:
        """Count the rows that the first batch has read so far; calls the JVM several times."""
        if self._rows_in_progress is None:
            self._rows_in_progress = RowsInProgress(self.query)
        return self._rows_in_progress.count()

    def describe(self) -> str:
        """The line of text for the user: rows, their rate and the lag.

        Until the first batch is finished, it says what the query is doing.
        """
        if not self.has_progress:
            return self._label + self._describe_first_batch()
        rows = format_count(self.progress.rows, "row")
        rate = self.rows_per_second(time.monotonic(), self.progress.rows)
        line = f"{self._label}{rows} {self._verb} · {rate:,.0f} messages/s"
        return line if self.progress.lag is None else f"{line} · lag {self.progress.lag:,}"

    def _describe_first_batch(self) -> str:
        """Say what the query is doing before it has finished its first batch."""
        if self.query.status["message"] != "Processing new data":
            return "planning the first batch"
        rows = self.rows_in_first_batch()
        return "reading the first batch" + (f" · {format_count(rows, 'row')}" if rows else "")

    def rows_per_second(self, now: float, rows: int) -> float:
        """The rate of rows in the last minute, or since the line before if that is older.

        `now`: the time by the monotonic clock; `rows`: the total by then. Each call is remembered
        as a line, since lines on a terminal change several times a second.
        """
        while len(self._line_times) > 1 and now - self._line_times[1][0] >= LINE_SECONDS:
            self._line_times.popleft()
        self._line_times.append((now, rows))
        start, rows_at_start = self._line_times[0]
        return (rows - rows_at_start) / max(now - start, 0.001)
