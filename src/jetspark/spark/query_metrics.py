"""Figures of running queries for Prometheus, and whether the queries are getting on.

Everything comes from what the driver knows: Spark's reports, and the query's checkpoint, which has
the position and what tables got (`lakehouse.ledger`), so that these figures survive a restart. When
Prometheus or a probe comes, a thread asks the servers where the streams end, and how old the first
unread message is; it goes on ageing while no server answers. A checkpoint on another machine is not
read: then position and rows are those of the reports since the process began.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric as Family
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import jetspark.metrics.names as metrics
from jetspark.bulk.fixed_range import tail
from jetspark.bulk.link_pool import pool
from jetspark.bulk.many_streams import fetch_stream_facts
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.errors import JetsparkError
from jetspark.metrics.endpoint import Durations, Health, collected, family, serving
from jetspark.spark.checkpoints import finished_offsets
from jetspark.spark.lag import parse_streams
from jetspark.spark.lakehouse.ledger import TableLedger, Totals
from jetspark.spark.local_folders import local_path
from jetspark.spark.options import SourceOptions
from jetspark.spark.queries import sources_in
from jetspark.spark.query_progress import QueryProgress
from jetspark.spark.scanned_rows import RowsInProgress
from jetspark.timestamps import parse_isotime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("jetspark.metrics")

_NEW_FOR = 2.0
"""Seconds for which a look is new enough."""
_CALL_SECONDS = 2.0
_INTERVALS = 10
_PATIENCE = 60.0
"""A query that has something to read gets on within so many intervals, and within so many seconds,
and within three times its last batch."""


@dataclass
class _Followed:
    """One query: what is known of it."""

    query: StreamingQuery
    progress: QueryProgress
    sources: list[SourceOptions]
    folder: str | None
    """Its checkpoint on this machine."""
    under_way: RowsInProgress
    interval: float
    """Seconds from one batch to the next, by its trigger."""
    restarts: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    """The next sequence by stream."""
    ends: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)
    """The time of the first unread message, in nanoseconds, of streams with such a one."""
    read: dict[str, int] = field(default_factory=dict)
    """A time since which all is unread, in nanoseconds, as far as that is known."""
    unreachable: str = ""
    totals: Totals | None = None
    durations: Durations = field(default_factory=Durations)
    longest: float = 0.0
    is_active: bool = True
    seen: object = None
    moved: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Bring everything up to date."""
        self.is_active = self.query.isActive
        self._count_batches()
        self.read_checkpoint()
        for source in self.sources:
            try:
                with pool.link(source.connection) as link:
                    self._ask(StreamAPI(link, _CALL_SECONDS), source)
                self.unreachable = ""
            except (JetsparkError, OSError) as error:
                self.unreachable = str(error)
        seen = (self.positions, self.progress.batches or self.under_way.count())
        if seen != self.seen or not self.is_behind:
            self.seen, self.moved = seen, time.monotonic()

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
        taken = self.progress.durations[:]
        del self.progress.durations[: len(taken)]
        for one in taken:
            self.durations.add(one)
            self.longest = one

    def read_checkpoint(self) -> None:
        """What is finished. Files of this machine: cheap enough for each scrape."""
        if self.folder is None or (found := finished_offsets(self.folder)) is None:
            self.positions = dict(self.progress.ends)
            return
        self.totals = TableLedger(self.folder, str(self.query.id)).totals
        batch, texts = found
        what = "start" if batch < 0 else "next"
        streams = {name: one for text in texts for name, one in parse_streams(text).items()}
        self.positions = {name: one[what] for name, one in streams.items()}
        # The stream's last message when the batch was planned, as far as the batch has it.
        lasts = {name: one.get("last", (0, 0)) for name, one in streams.items()}
        self.read = {name: ns for name, (seq, ns) in lasts.items() if seq < self.positions[name]}

    def _ask(self, api: StreamAPI, source: SourceOptions) -> None:
        """Where the streams end, and how old what is unread is."""
        names = [name for name in self.positions if source.stream_pattern or name in source.streams]
        facts, _ = fetch_stream_facts(api, names or source.streams, not_found_for=0.0)
        for name, one in facts.items():
            self.ends[name] = tail(one)
            oldest = self._oldest(api, source, one)
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
        """Reasons."""
        if not self.is_active:
            yield "the query has ended"
        if self.unreachable:
            yield self.unreachable
        patience = max(_INTERVALS * self.interval, _PATIENCE, 3 * self.longest)
        if (waited := time.monotonic() - self.moved) > patience:
            yield f"no progress for {waited:.0f} s, though there are messages to read"


class QueryMetrics:
    """The queries of one command, or all of a session. `lost`: messages by stream."""

    def __init__(self, lost: Callable[[], Mapping[str, int]] = dict) -> None:
        self._lost = lost
        self._spark: SparkSession | None = None
        self._followed: dict[str, _Followed] = {}
        self._session: Any = None  # the JVM's
        self._batch: tuple[str, RowsInProgress, int] | None = None
        """The name of a batch without a query, the session's rows, and those of before."""
        self._rows = 0
        self._tasks = 0, 0
        self._asked, self._looked, self._stop = (threading.Event() for _ in range(3))
        self._new_until = 0.0

    def follow(self, name: str, query: StreamingQuery, progress: QueryProgress) -> None:
        """From now on, or in place of the query of this name that has ended."""
        execution: Any = query._jsq.streamingQuery()
        before = self._followed.get(name)
        interval = re.search(r"\((\d+)\)", execution.trigger().toString())
        one = _Followed(
            query,
            progress,
            list(sources_in(execution.analyzedPlan())),
            local_path(execution.resolvedCheckpointRoot()),
            RowsInProgress(query),
            0.0 if interval is None else int(interval[1]) / 1000,
        )
        if before is not None:
            one.restarts = before.restarts + 1
            one.durations = before.durations
        self._followed[name] = one
        self._session = query._jsq.sparkSession()

    def follow_all(self, spark: SparkSession) -> None:
        """From now on, all queries of a session."""
        self._spark, self._session = spark, spark._jsparkSession

    @contextmanager
    def batch(self, name: str, spark: SparkSession) -> Iterator[None]:
        """In the block, the session has one batch, which is no query's."""
        self._session = spark._jsparkSession
        rows = RowsInProgress(None, self._session)
        self._batch = name, rows, rows.count()
        try:
            yield
        finally:
            self.stop_looking()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """In the block, give everything to Prometheus."""
        thread = threading.Thread(target=self._look, name="jetspark-lag", daemon=True)
        with collected(self._collect):
            thread.start()
            try:
                yield
            finally:
                self.stop_looking()

    def stop_looking(self) -> None:
        """Before Spark ends: the figures stay as they are."""
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.is_set():
            self._asked.clear()
            try:
                self._look_once()
            except Exception as error:  # the JVM may end at any time
                logger.debug("The queries' figures are not known: %s", error)
            self._new_until = time.monotonic() + _NEW_FOR
            self._looked.set()
            self._asked.wait(5 * _NEW_FOR)  # before Spark forgets its reports

    def _look_if_old(self) -> None:
        if time.monotonic() >= self._new_until and not self._stop.is_set():
            self._looked.clear()
            self._asked.set()
            self._looked.wait(_CALL_SECONDS)  # a server may be silent for longer

    def _look_once(self) -> None:
        if self._spark is not None:
            self._find_queries(self._spark)
        for one in list(self._followed.values()):
            one.look()
        if self._session is not None:
            if self._batch is not None:
                _, rows, before = self._batch
                self._rows = rows.count() - before
            executors = self._session.sparkContext().statusStore().executorList(False)
            found = [executors.apply(at) for at in range(executors.size())]
            self._tasks = sum(x.totalTasks() for x in found), sum(x.failedTasks() for x in found)

    def _find_queries(self, spark: SparkSession) -> None:
        """Those of a session, where nobody else updates their progress."""
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
        """Why the queries are not getting on, as far as they are not."""
        self._look_if_old()
        if not self._followed and self._batch is None:
            return ["no query is running yet"]
        return [
            f"{name}: {reason}"
            for name, one in list(self._followed.items())
            for reason in one.not_ready()
        ]

    # -- for Prometheus ----------------------------------------------------------------------

    def _collect(self) -> Iterator[Family]:
        self._look_if_old()
        queries = dict(self._followed)
        now = time.time_ns()
        of_stream: dict[metrics.Metric, dict[tuple[str, ...], float]] = {
            metrics.LAG: {},
            metrics.LAG_TIME: {},
            metrics.POSITION: {},
        }
        of_query: dict[metrics.Metric, dict[tuple[str, ...], float]] = {}
        batches: Any = family(metrics.BATCH)
        for name, one in queries.items():
            one.read_checkpoint()
            for stream, position in one.positions.items():
                of_stream[metrics.POSITION][name, stream] = position - 1
            for stream, lag in one.lag():
                of_stream[metrics.LAG][name, stream] = lag
                since = max(one.oldest.get(stream, now), one.read.get(stream, 0))
                of_stream[metrics.LAG_TIME][name, stream] = max(0, now - since) / 1e9
            totals = one.totals or Totals(
                rows=one.progress.rows, quarantined=one.progress.quarantined
            )
            of_table = (
                (metrics.FILES, totals.files),
                (metrics.FILE_BYTES, totals.bytes),
                (metrics.COMMITS, totals.commits),
                (metrics.RETRIES, totals.retries),
            )
            for metric, value in (
                (metrics.ACTIVE, one.is_active),
                (metrics.REACHABLE, not one.unreachable),
                (metrics.RESTARTS, one.restarts),
                (metrics.ROWS, totals.rows),
                (metrics.QUARANTINED, totals.quarantined),
                *(of_table if one.totals else ()),
            ):
                of_query.setdefault(metric, {})[name,] = float(value)
            one.durations.give(batches, [name])
        if self._batch is not None:
            name = self._batch[0]
            of_query |= {metrics.ACTIVE: {(name,): 1.0}, metrics.ROWS: {(name,): float(self._rows)}}
        lost: dict[tuple[str, ...], float] = {
            (stream,): float(count) for stream, count in self._lost().items()
        }
        every = {**of_stream, **of_query, metrics.LOST: lost}
        for metric, count in zip((metrics.TASKS, metrics.FAILED_TASKS), self._tasks, strict=True):
            every[metric] = {(): count}
        for metric, values in every.items():
            found: Any = family(metric)
            for labels, value in values.items():
                found.add_metric(labels, value)
            yield found
        yield batches


@contextmanager
def served(
    address: str,
    alive: Callable[[], list[str]] = list,
    lost: Callable[[], Mapping[str, int]] = dict,
) -> Iterator[QueryMetrics]:
    """In the block, serve figures of queries, and probes with them (`metrics.endpoint.serving`)."""
    figures = QueryMetrics(lost)
    with serving(address, Health(figures.not_ready, alive)), figures.looking():
        yield figures
