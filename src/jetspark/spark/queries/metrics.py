"""Figures of running queries for Prometheus, and whether the queries are getting on.

Everything comes from what the driver knows: Spark's reports, and the query's checkpoint, which has
the position and what tables got (`table_sink.ledger`), so that these figures survive a restart.
When Prometheus or a probe comes, a thread asks the servers where the streams end, and how old the
first unread message is; it goes on ageing while no server answers. A checkpoint on another machine
is not read: then position and rows are those of the reports since the process began.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from prometheus_client.core import Metric as Family
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import jetspark.metrics.names as metrics
from jetspark.errors import JetsparkError
from jetspark.links.link_pool import pool
from jetspark.links.many_streams import fetch_stream_facts
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.metrics.endpoint import Durations, Health, collected, family, serving
from jetspark.ranges.fixed_range import tail
from jetspark.spark.checkpoints import finished_offsets
from jetspark.spark.local_folders import local_path
from jetspark.spark.queries.lag import parse_streams
from jetspark.spark.queries.progress import QueryProgress
from jetspark.spark.queries.rows_in_progress import RowsInProgress
from jetspark.spark.queries.start import sources_in
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.table_sink.ledger import TableLedger, Totals
from jetspark.timestamps import parse_isotime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("jetspark.metrics")

_FRESH_SECONDS = 2.0
"""Seconds for which figures are new enough."""
_CALL_TIMEOUT = 2.0
"""Seconds for a call of a server, and for an update of all figures."""
_STALL_INTERVALS = 10
_STALL_SECONDS = 60.0
_STALL_BATCHES = 3
"""A query with something to read is stalled after the longest of so many intervals of its trigger,
so many seconds, and so many times its last batch."""


@dataclass
class _QueryState:
    """The known figures of one query."""

    query: StreamingQuery
    progress: QueryProgress
    sources: list[SourceOptions]
    folder: str | None
    """The checkpoint, if it is on this machine."""
    rows_in_progress: RowsInProgress
    interval: float
    """Seconds from one batch to the next, by its trigger."""
    restarts: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    """The next sequence by stream."""
    ends: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)
    """The time of the first unread message, in nanoseconds, of streams with such a one."""
    unread_since: dict[str, int] = field(default_factory=dict)
    """A time since which all is unread, in nanoseconds, as far as that is known."""
    unreachable: str = ""
    totals: Totals | None = None
    durations: Durations = field(default_factory=Durations)
    last_batch_seconds: float = 0.0
    is_active: bool = True
    position_seen: object = None
    progressed_at: float = field(default_factory=time.monotonic)

    def refresh(self) -> None:
        """Bring everything up to date."""
        self.is_active = self.query.isActive
        self._count_batches()
        self.read_checkpoint()
        for source in self.sources:
            try:
                with pool.link(source.connection) as link:
                    self._refresh_streams(StreamAPI(link, _CALL_TIMEOUT), source)
                self.unreachable = ""
            except (JetsparkError, OSError) as error:
                self.unreachable = str(error)
        position = self.positions, self.progress.batches or self.rows_in_progress.count()
        if position != self.position_seen or not self.is_behind:
            self.position_seen, self.progressed_at = position, time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether there is something to read, as far as is known."""
        return not self.positions or any(lag for _, lag in self.lag())

    def lag(self) -> Iterator[tuple[str, int]]:
        """The lag in sequences by stream."""
        for name, end in list(self.ends.items()):
            if (position := self.positions.get(name)) is not None:
                yield name, max(0, end - position)

    def _count_batches(self) -> None:
        durations = self.progress.durations[:]
        del self.progress.durations[: len(durations)]
        for seconds in durations:
            self.durations.add(seconds)
            self.last_batch_seconds = seconds

    def read_checkpoint(self) -> None:
        """Read what is finished; files of this machine are cheap enough for each scrape."""
        if self.folder is None or (finished := finished_offsets(self.folder)) is None:
            self.positions = dict(self.progress.ends)
            return
        self.totals = TableLedger(self.folder, str(self.query.id)).totals
        batch, texts = finished
        bound = "start" if batch < 0 else "next"
        streams = {name: offset for text in texts for name, offset in parse_streams(text).items()}
        self.positions = {name: offset[bound] for name, offset in streams.items()}
        # The stream's last message when the batch was planned, as far as the batch has it.
        lasts = {name: offset.get("last", (0, 0)) for name, offset in streams.items()}
        self.unread_since = {
            name: ns for name, (seq, ns) in lasts.items() if seq < self.positions[name]
        }

    def _refresh_streams(self, api: StreamAPI, source: SourceOptions) -> None:
        """Ask where the streams end, and when the first unread message was stored."""
        names = [name for name in self.positions if source.stream_pattern or name in source.streams]
        facts, _ = fetch_stream_facts(api, names or source.streams, not_found_for=0.0)
        for name, stream in facts.items():
            self.ends[name] = tail(stream)
            oldest = self._oldest(api, source, stream)
            if oldest is None:
                self.oldest.pop(name, None)
            else:
                self.oldest[name] = oldest

    def _oldest(self, api: StreamAPI, source: SourceOptions, facts: StreamFacts) -> int | None:
        position = self.positions.get(facts.name)
        if position is None or position >= tail(facts) or not facts.messages:
            return None
        unread = api.next_sequence(facts.name, position, source.subjects)
        message = None if unread is None else api.message(facts.name, seq=unread)
        return None if message is None else parse_isotime(message.time)

    def not_ready(self) -> Iterator[str]:
        """The reasons for which the query is not getting on."""
        if not self.is_active:
            yield "the query has ended"
        if self.unreachable:
            yield self.unreachable
        timeout = max(
            _STALL_INTERVALS * self.interval,
            _STALL_SECONDS,
            _STALL_BATCHES * self.last_batch_seconds,
        )
        if (waited := time.monotonic() - self.progressed_at) > timeout:
            yield f"no progress for {waited:.0f} s, though there are messages to read"


class QueryMetrics:
    """The queries of one command, or all of a session. `lost`: messages by stream."""

    def __init__(self, lost: Callable[[], Mapping[str, int]] = dict) -> None:
        self._lost = lost
        self._spark: SparkSession | None = None
        self._followed: dict[str, _QueryState] = {}
        self._session: Any = None  # the JVM's
        self._batch: tuple[str, RowsInProgress, int] | None = None
        """The name of a batch without a query, the session's rows, and those of before."""
        self._rows = 0
        self._tasks = 0, 0
        self._refresh_wanted, self._refreshed, self._stop = (threading.Event() for _ in range(3))
        self._fresh_until = 0.0

    def follow(self, name: str, query: StreamingQuery, progress: QueryProgress) -> None:
        """Follow a query from now on, in place of one of this name that has ended."""
        execution: Any = query._jsq.streamingQuery()
        before = self._followed.get(name)
        interval = re.search(r"\((\d+)\)", execution.trigger().toString())
        state = _QueryState(
            query,
            progress,
            list(sources_in(execution.analyzedPlan())),
            local_path(execution.resolvedCheckpointRoot()),
            RowsInProgress(query),
            0.0 if interval is None else int(interval[1]) / 1000,
        )
        if before is not None:
            state.restarts = before.restarts + 1
            state.durations = before.durations
        self._followed[name] = state
        self._session = query._jsq.sparkSession()

    def follow_all(self, spark: SparkSession) -> None:
        """Follow all queries of a session from now on."""
        self._spark, self._session = spark, spark._jsparkSession

    @contextmanager
    def batch(self, name: str, spark: SparkSession) -> Iterator[None]:
        """Follow the one batch, of no query, that a session has in the block."""
        self._session = spark._jsparkSession
        rows = RowsInProgress(None, self._session)
        self._batch = name, rows, rows.count()
        try:
            yield
        finally:
            self.stop_refreshing()

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Give all figures to Prometheus during the block."""
        thread = threading.Thread(
            target=self._refresh_when_wanted, name="jetspark-lag", daemon=True
        )
        with collected(self._collect):
            thread.start()
            try:
                yield
            finally:
                self.stop_refreshing()

    def stop_refreshing(self) -> None:
        """Leave the figures as they are, before Spark ends."""
        self._stop.set()

    def _refresh_when_wanted(self) -> None:
        while not self._stop.is_set():
            self._refresh_wanted.clear()
            try:
                self._refresh()
            except Exception as error:  # the JVM may end at any time
                logger.debug("The queries' figures are not known: %s", error)
            self._fresh_until = time.monotonic() + _FRESH_SECONDS
            self._refreshed.set()
            self._refresh_wanted.wait(5 * _FRESH_SECONDS)  # before Spark forgets its reports

    def _refresh_if_stale(self) -> None:
        if time.monotonic() >= self._fresh_until and not self._stop.is_set():
            self._refreshed.clear()
            self._refresh_wanted.set()
            self._refreshed.wait(_CALL_TIMEOUT)  # a server may be silent for longer

    def _refresh(self) -> None:
        if self._spark is not None:
            self._find_queries(self._spark)
        for state in list(self._followed.values()):
            state.refresh()
        if self._session is not None:
            if self._batch is not None:
                _, rows, before = self._batch
                self._rows = rows.count() - before
            executors = self._session.sparkContext().statusStore().executorList(False)
            summaries = [executors.apply(index) for index in range(executors.size())]
            self._tasks = (
                sum(executor.totalTasks() for executor in summaries),
                sum(executor.failedTasks() for executor in summaries),
            )

    def _find_queries(self, spark: SparkSession) -> None:
        """Follow the queries of a session, where nobody else updates their progress."""
        active = {query.name or str(query.id): query for query in spark.streams.active}
        for name, query in active.items():
            before = self._followed.get(name)
            if before is None or before.query.runId != query.runId:
                try:
                    self.follow(name, query, QueryProgress())
                except Py4JError:  # it has just ended
                    continue
            self._followed[name].progress.update(query)
        for name in self._followed.keys() - active.keys():
            del self._followed[name]

    def not_ready(self) -> list[str]:
        """The reasons for which queries are not getting on."""
        self._refresh_if_stale()
        if not self._followed and self._batch is None:
            return ["no query is running yet"]
        return [
            f"{name}: {reason}"
            for name, state in list(self._followed.items())
            for reason in state.not_ready()
        ]

    # -- for Prometheus ----------------------------------------------------------------------

    def _collect(self) -> Iterator[Family]:
        self._refresh_if_stale()
        values: _Values = {
            metric: {} for metric in (metrics.LAG, metrics.LAG_TIME, metrics.POSITION)
        }
        batches: Any = family(metrics.BATCH)
        for name, state in dict(self._followed).items():
            state.read_checkpoint()
            _collect_streams(values, name, state)
            _collect_totals(values, name, state)
            state.durations.give(batches, [name])
        if self._batch is not None:
            name = self._batch[0]
            values |= {metrics.ACTIVE: {(name,): 1.0}, metrics.ROWS: {(name,): float(self._rows)}}
        values[metrics.LOST] = {(stream,): float(count) for stream, count in self._lost().items()}
        for metric, count in zip((metrics.TASKS, metrics.FAILED_TASKS), self._tasks, strict=True):
            values[metric] = {(): count}
        for metric, of_metric in values.items():
            samples: Any = family(metric)
            for labels, value in of_metric.items():
                samples.add_metric(labels, value)
            yield samples
        yield batches


_Values: TypeAlias = dict[metrics.Metric, dict[tuple[str, ...], float]]
"""Values of metrics by their labels."""


def _collect_streams(values: _Values, query: str, state: _QueryState) -> None:
    time_ns = time.time_ns()
    for stream, position in state.positions.items():
        values[metrics.POSITION][query, stream] = position - 1
    for stream, lag in state.lag():
        values[metrics.LAG][query, stream] = lag
        since = max(state.oldest.get(stream, time_ns), state.unread_since.get(stream, 0))
        values[metrics.LAG_TIME][query, stream] = max(0, time_ns - since) / 1e9


def _collect_totals(values: _Values, query: str, state: _QueryState) -> None:
    totals, progress = state.totals, state.progress
    rows, quarantined = (
        (progress.rows, progress.quarantined)
        if totals is None
        else (totals.rows, totals.quarantined)
    )
    of_query: dict[metrics.Metric, float] = {
        metrics.ACTIVE: state.is_active,
        metrics.REACHABLE: not state.unreachable,
        metrics.RESTARTS: state.restarts,
        metrics.ROWS: rows,
        metrics.QUARANTINED: quarantined,
    }
    if totals is not None:
        of_query |= {
            metrics.FILES: totals.files,
            metrics.FILE_BYTES: totals.bytes,
            metrics.COMMITS: totals.commits,
            metrics.RETRIES: totals.retries,
        }
    for metric, value in of_query.items():
        values.setdefault(metric, {})[query,] = float(value)


@contextmanager
def served(
    address: str,
    alive: Callable[[], list[str]] = list,
    lost: Callable[[], Mapping[str, int]] = dict,
) -> Iterator[QueryMetrics]:
    """Serve figures of queries in the block, and probes with them (`metrics.endpoint.serving`)."""
    figures = QueryMetrics(lost)
    with serving(address, Health(figures.not_ready, alive)), figures.exporting():
        yield figures
