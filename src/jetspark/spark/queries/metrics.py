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
from typing import TYPE_CHECKING, Any, NamedTuple

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
from jetspark.spark.queries.live_queries import History, LiveTables, batches_document
from jetspark.spark.queries.progress import QueryProgress, parse_streams
from jetspark.spark.queries.rows_in_progress import RowsInProgress, iterate_scala
from jetspark.spark.queries.start import sources_in
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.table_sink.ledger import TableLedger, Totals
from jetspark.timestamps import parse_isotime

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.spark.table_sink.options import LakehouseOptions

logger = logging.getLogger("jetspark.metrics")

_FRESH_SECONDS = 2.0
"""Seconds for which figures are new enough."""
_CALL_TIMEOUT = 2.0
"""Seconds for a call of a server, and for an update of all figures."""
# A query with something to read is stalled after the longest of so many intervals of its trigger,
# so many seconds, and so many times its last batch.
_STALL_INTERVALS = 10
_STALL_SECONDS = 60.0
_STALL_BATCHES = 3


class _Sample(NamedTuple):
    """One value of a metric for Prometheus, with the values of its labels."""

    metric: metrics.Metric
    labels: tuple[str, ...]
    value: float


@dataclass
class _QueryState:
    """What is known about one running query, for its metrics and for probes of its health."""

    query: StreamingQuery
    progress: QueryProgress
    sources: list[SourceOptions]
    folder: str | None
    """The checkpoint, if it is on this machine."""
    rows_in_progress: RowsInProgress
    interval: float
    """Seconds from one batch to the next, by its trigger."""
    tables: LiveTables = field(default_factory=LiveTables)
    restarts: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    """By stream, the next sequence that the query will read."""
    ends: dict[str, int] = field(default_factory=dict)
    """By stream, the sequence that its next message will have."""
    oldest: dict[str, int] = field(default_factory=dict)
    """The time of the first unread message, in nanoseconds, of streams with such a one."""
    unread_since: dict[str, int] = field(default_factory=dict)
    """By stream, the time of a message that is read while all later ones are not, in nanoseconds.
    """
    unreachable: str = ""
    """Why a server cannot be asked; empty if it can."""
    servers: list[dict[str, Any]] = field(default_factory=list)
    """The server of each source, for the page."""
    ledger: TableLedger | None = None
    """What the query has written since it began; None if its checkpoint is on another machine."""
    history: History = field(default_factory=History)
    durations: Durations = field(default_factory=Durations)
    last_batch_seconds: float = 0.0
    is_active: bool = True
    last_progress: object = None
    """The positions and the count of batches, or of rows, at `progressed_at`: only compared."""
    progressed_at: float = field(default_factory=time.monotonic)
    """When the query last got on, or had nothing to read, on the monotonic clock."""

    def refresh(self) -> None:
        """Bring the query's figures up to date, from Spark, the checkpoint and the servers."""
        self.is_active = self.query.isActive
        # The durations are taken out of the list, to which another thread may add meanwhile.
        durations = self.progress.durations[:]
        del self.progress.durations[: len(durations)]
        for self.last_batch_seconds in durations:  # after the loop: that of the last batch
            self.durations.add(self.last_batch_seconds)
        self.read_checkpoint()
        servers = []
        for source in self.sources:
            try:
                with pool.link(source.connection) as link:
                    info = link.info
                    server = {"url": link.server, "name": info.server_name, "version": info.version}
                    self._refresh_streams(StreamAPI(link, _CALL_TIMEOUT), source)
                self.unreachable = ""
            except (JetsparkError, OSError) as error:
                self.unreachable = str(error)
                urls = ", ".join(map(str, source.connection.urls()))
                server = {"url": urls, "problem": self.unreachable}
            if server not in servers:
                servers.append(server)
        self.servers = servers
        # During the first batch, which may be long, the rows that it has read count as progress.
        progress = self.positions, self.progress.batches or self.rows_in_progress.count()
        has_nothing_to_read = bool(self.positions) and not any(self.lag().values())
        if progress != self.last_progress or has_nothing_to_read:
            self.last_progress, self.progressed_at = progress, time.monotonic()
        self.history.add(self.written.rows, max(self.lag_seconds().values(), default=None))

    @property
    def totals(self) -> Totals | None:
        """What the query has written since it began, from its ledger."""
        return None if self.ledger is None else self.ledger.totals

    @property
    def written(self) -> Totals | QueryProgress:
        """The totals, or those since this process began."""
        return self.totals or self.progress

    def lag_seconds(self) -> dict[str, float]:
        """By stream, how old its first unread message is."""
        # When that was stored, as a server last told, but not before a message that was read since.
        time_ns = time.time_ns()
        oldest, since = self.oldest.copy(), self.unread_since
        return {
            name: max(0, time_ns - max(oldest.get(name, time_ns), since.get(name, 0))) / 1e9
            for name in self.lag()
        }

    def lag(self) -> dict[str, int]:
        """By stream, the number of sequences that the query has not read yet."""
        # Another thread may add streams meanwhile, or replace the positions.
        ends, positions = self.ends.copy(), self.positions
        return {
            name: max(0, end - positions[name]) for name, end in ends.items() if name in positions
        }

    def read_checkpoint(self) -> None:
        """Bring the query's positions and totals up to date from its checkpoint's files.

        These are cheap enough to read for each scrape. If they are not on this machine, the
        positions come from Spark's reports.
        """
        if self.folder is None or (finished := finished_offsets(self.folder)) is None:
            self.positions = dict(self.progress.ends)
            return
        self.ledger = TableLedger(self.folder, str(self.query.id))
        streams = {
            name: offset for text in finished.texts for name, offset in parse_streams(text).items()
        }
        # Of a batch that is not committed, nothing is finished but what lies before it.
        bound = "next" if finished.is_committed else "start"
        self.positions = {name: offset[bound] for name, offset in streams.items()}
        # The sequence and time of the stream's last message when the batch was planned. If it has
        # been read, all unread messages are newer.
        lasts = {name: offset.get("last", (0, 0)) for name, offset in streams.items()}
        self.unread_since = {
            name: ns for name, (seq, ns) in lasts.items() if seq < self.positions[name]
        }

    def _refresh_streams(self, api: StreamAPI, source: SourceOptions) -> None:
        """Ask the servers where a source's streams end, and when the first unread message of each
        was stored."""
        # Positions are of the streams of all sources; before the first batch there are none.
        names = [name for name in self.positions if source.stream_pattern or name in source.streams]
        facts, _ = fetch_stream_facts(api, names or source.streams, not_found_for=0.0)
        for name, stream in facts.items():
            self.ends[name] = tail(stream)
            first_unread = self._time_of_first_unread(api, source, stream)
            if first_unread is None:
                self.oldest.pop(name, None)
            else:
                self.oldest[name] = first_unread

    def _time_of_first_unread(
        self, api: StreamAPI, source: SourceOptions, facts: StreamFacts
    ) -> int | None:
        """When a stream's first message that the query has not read was stored, in nanoseconds.

        None if the query has read all messages, or its position is not known.
        """
        position = self.positions.get(facts.name)
        if position is None or position >= tail(facts) or not facts.messages:
            return None
        unread = api.next_sequence(facts.name, position, source.subjects)
        message = None if unread is None else api.message(facts.name, seq=unread)
        return None if message is None else parse_isotime(message.time)

    def not_ready(self) -> Iterator[str]:
        """Yield the reasons, as texts, why the query is not getting on; none if it is."""
        if not self.is_active:
            yield "the query has ended"
        if self.unreachable:
            yield self.unreachable
        # A slow trigger, or long batches, are no stall.
        timeout = max(
            _STALL_INTERVALS * self.interval,
            _STALL_SECONDS,
            _STALL_BATCHES * self.last_batch_seconds,
        )
        if (waited := time.monotonic() - self.progressed_at) > timeout:
            yield f"no progress for {waited:.0f} s, though there are messages to read"

    def samples(self, name: str) -> Iterator[_Sample]:
        """Yield the query's values of all metrics but the durations; `name`: its label."""
        for stream, position in self.positions.items():
            yield _Sample(metrics.POSITION, (name, stream), position - 1)  # the last one read
        for stream, lag in self.lag().items():
            yield _Sample(metrics.LAG, (name, stream), lag)
        for stream, seconds in self.lag_seconds().items():
            yield _Sample(metrics.LAG_TIME, (name, stream), seconds)
        written = self.written
        values: dict[metrics.Metric, float] = {
            metrics.ACTIVE: self.is_active,
            metrics.REACHABLE: not self.unreachable,
            metrics.RESTARTS: self.restarts,
            metrics.ROWS: written.rows,
            metrics.QUARANTINED: written.quarantined,
        }
        if (totals := self.totals) is not None:
            values |= {
                metrics.FILES: totals.files,
                metrics.FILE_BYTES: totals.bytes,
                metrics.COMMITS: totals.commits,
                metrics.RETRIES: totals.retries,
            }
        for metric, value in values.items():
            yield _Sample(metric, (name,), float(value))

    def document(self, name: str) -> dict[str, Any]:
        """What the page shows of the query; `name`: its label."""
        self.read_checkpoint()
        lag, lag_seconds = self.lag(), self.lag_seconds()
        return {
            "name": name,
            "rows": self.written.rows,
            "quarantined": self.written.quarantined,
            "restarts": self.restarts,
            "lag": sum(lag.values()) if lag else None,
            "lag_seconds": max(lag_seconds.values(), default=None),
            "not_ready": [*self.not_ready()],
            "streams": [
                {
                    "stream": stream,
                    "position": position - 1,
                    "lag": lag.get(stream),
                    "lag_seconds": lag_seconds.get(stream),
                }
                for stream, position in self.positions.items()
            ],
            "servers": self.servers,
            "history": self.history.document(),
            "batches": batches_document(self.progress, self.ledger),
            **self.tables.document(self.ledger),
        }


@dataclass
class _BatchState:
    """The rows of one batch job, such as a replay, which belongs to no streaming query."""

    name: str
    rows_of_session: RowsInProgress
    rows_before: int
    """Rows that the session had read before."""
    rows: int = 0
    """Rows that the batch has read so far."""


class QueryMetrics:
    """Metrics for Prometheus, and the health, of the queries that one command follows, or of all
    queries of a session. A thread refreshes them while `exporting`."""

    def __init__(self, lost: Callable[[], Mapping[str, int]] = dict) -> None:
        """Create metrics for Prometheus that follow no query yet.

        `lost`: called for each scrape, returns by stream how many messages were lost.
        """
        self._lost = lost
        self._spark: SparkSession | None = None
        self._followed: dict[str, _QueryState] = {}
        self._session: Any = None  # the JVM's
        self._batch: _BatchState | None = None
        self._tasks = self._failed_tasks = 0  # of the session, since it began
        self._refresh_wanted, self._refreshed, self._stop = (threading.Event() for _ in range(3))
        self._fresh_until = 0.0

    def follow(
        self,
        name: str,
        query: StreamingQuery,
        progress: QueryProgress,
        sink: LakehouseOptions | None = None,
    ) -> None:
        """Follow a query from now on: report its metrics and its health under this name.

        It replaces an earlier query of the name, which has ended and counts as restarted.
        `progress`: totals of the query, which the caller updates. `sink`: the tables that it
        writes, for the page.
        """
        execution: Any = query._jsq.streamingQuery()
        interval = re.search(r"\((\d+)\)", execution.trigger().toString())  # ProcessingTime…(5000)
        state = _QueryState(
            query=query,
            progress=progress,
            sources=list(sources_in(execution.analyzedPlan())),
            folder=local_path(execution.resolvedCheckpointRoot()),
            rows_in_progress=RowsInProgress(query),
            interval=0.0 if interval is None else int(interval[1]) / 1000,
            tables=LiveTables(sink),
        )
        if (before := self._followed.get(name)) is not None:
            state.restarts = before.restarts + 1
            state.durations, state.history = before.durations, before.history
        self._followed[name] = state
        self._session = query._jsq.sparkSession()

    def follow_all(self, spark: SparkSession) -> None:
        """Follow all queries of a session from now on: report their metrics and their health."""
        self._spark, self._session = spark, spark._jsparkSession

    @contextmanager
    def batch(self, name: str, spark: SparkSession) -> Iterator[None]:
        """Follow the batch job, no streaming query, that a session runs in the block: its rows."""
        self._session = spark._jsparkSession
        rows = RowsInProgress(query=None, session=self._session)
        self._batch = _BatchState(name, rows_of_session=rows, rows_before=rows.count())
        try:
            yield
        finally:
            self.stop_refreshing()

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Have Prometheus collect the metrics during the block; a thread refreshes them."""
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
        """Leave the metrics as they are from now on, since Spark is about to end."""
        self._stop.set()

    def _refresh_when_wanted(self) -> None:
        """Refresh the metrics whenever a scrape or probe wants it, and every ten seconds.

        Runs in a thread of its own, until `stop_refreshing`.
        """
        while not self._stop.is_set():
            self._refresh_wanted.clear()
            try:
                self._refresh()
            except Exception as error:  # the JVM may end at any time
                logger.debug("The queries' figures are not known: %s", error)
            self._fresh_until = time.monotonic() + _FRESH_SECONDS
            self._refreshed.set()
            # Spark keeps only its latest reports, so they are read at least this often.
            self._refresh_wanted.wait(5 * _FRESH_SECONDS)

    def _refresh_if_stale(self) -> None:
        """Have the thread refresh the metrics if they are old, and wait for that a short time.

        A server may be silent for longer; then the caller gets the old figures.
        """
        if time.monotonic() >= self._fresh_until and not self._stop.is_set():
            self._refreshed.clear()
            self._refresh_wanted.set()
            self._refreshed.wait(_CALL_TIMEOUT)

    def _refresh(self) -> None:
        """Bring the metrics of all followed queries, and of the session's tasks, up to date."""
        if self._spark is not None:
            self._find_queries(self._spark)
        for state in list(self._followed.values()):
            state.refresh()
        if self._session is not None:
            if (batch := self._batch) is not None:
                batch.rows = batch.rows_of_session.count() - batch.rows_before
            store = self._session.sparkContext().statusStore()
            executors = list(iterate_scala(store.executorList(False)))
            self._tasks = sum(executor.totalTasks() for executor in executors)
            self._failed_tasks = sum(executor.failedTasks() for executor in executors)

    def _find_queries(self, spark: SparkSession) -> None:
        """Follow the queries that now run in a session, and no others; update their progress."""
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
        """The reasons why queries are not getting on, for a probe; empty if all are."""
        self._refresh_if_stale()
        if not self._followed and self._batch is None:
            return ["no query is running yet"]
        return [
            f"{name}: {reason}"
            for name, state in list(self._followed.items())
            for reason in state.not_ready()
        ]

    def documents(self) -> list[dict[str, Any]]:
        """What the page for people shows of each query."""
        self._refresh_if_stale()
        return [state.document(name) for name, state in list(self._followed.items())]

    # -- for Prometheus ----------------------------------------------------------------------

    def _collect(self) -> Iterator[Family]:
        """Yield all metrics with their present values, when Prometheus asks for them."""
        self._refresh_if_stale()
        durations = family(metrics.BATCH)
        samples = [
            _Sample(metrics.TASKS, (), self._tasks),
            _Sample(metrics.FAILED_TASKS, (), self._failed_tasks),
        ]
        for name, state in dict(self._followed).items():
            state.read_checkpoint()  # cheap enough for each scrape, and newer
            samples += state.samples(name)
            state.durations.give(durations, [name])
        if (batch := self._batch) is not None:
            samples.append(_Sample(metrics.ACTIVE, (batch.name,), 1.0))
            samples.append(_Sample(metrics.ROWS, (batch.name,), batch.rows))
        samples += [_Sample(metrics.LOST, (name,), count) for name, count in self._lost().items()]
        # These metrics are named even without a value.
        always = (metrics.LAG, metrics.LAG_TIME, metrics.POSITION, metrics.LOST)
        families = {metric: family(metric) for metric in always}
        for metric, labels, value in samples:
            if metric not in families:
                families[metric] = family(metric)
            families[metric].add_metric(labels, value)
        yield from families.values()
        yield durations


@contextmanager
def served(
    address: str,
    alive: Callable[[], list[str]] = list,
    lost: Callable[[], Mapping[str, int]] = dict,
    command: str = "",
) -> Iterator[QueryMetrics]:
    """Serve metrics of queries over HTTP in the block, probes of their health, and the page.

    `address`: see `metrics.endpoint.serving`; `alive`: returns reasons why the program is not
    alive; `lost`: returns by stream how many messages were lost; `command`: the command line,
    without secrets. Yields the metrics, which the caller tells what to follow.
    """
    figures = QueryMetrics(lost)
    health = Health(figures.not_ready, alive)
    with (
        serving(address, health, command=command, queries=figures.documents),
        figures.exporting(),
    ):
        yield figures
