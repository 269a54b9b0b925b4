"""Watches a command's queries: progress, lost links, losses, metrics, and the end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from jetspark.cli.console import Outcome
from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import format_count
from jetspark.cli.losses import Losses
from jetspark.cli.progress import spinner_lines
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.errors import JetsparkError
from jetspark.links.link_pool import pool
from jetspark.spark.queries import rows_in_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.cli.lineage import Lineage
    from jetspark.cli.signals import Stop
    from jetspark.connection.options import ConnectOptions
    from jetspark.spark.queries.metrics import QueryMetrics
    from jetspark.spark.queries.progress import QueryProgress

logger = logging.getLogger("jetspark.cli")

_POLL_SECONDS = 0.2
_LINE_SECONDS = 60.0
_MEANWHILE_SECONDS = 60.0
_MEANWHILE_SHARE = 20
"""`meanwhile` may take one part in so many of the time."""
_STUCK_SECONDS = 600.0

_PING_SECONDS = 1.0


def _log_lost_link(options: ConnectOptions, ended: threading.Event) -> None:
    """Log once when the servers go away, and when one is back, whatever tasks do meanwhile."""
    lost = None
    while not ended.wait(_PING_SECONDS):
        try:
            with pool.link(options) as link:
                while link.check():  # an idle link may be a lost one
                    if lost is not None:
                        took = time.monotonic() - lost
                        logger.info("%s answers again, after %.0f s.", link.server, took)
                    lost = None
                    if ended.wait(_PING_SECONDS):
                        return
            problem = f"The connection to {link.server} is lost."
        except JetsparkError as error:
            problem = str(error)
        if lost is None and not ended.is_set():
            lost = time.monotonic()
            logger.warning("%s The queries wait for a server.", problem)


class Watch:
    """Watches the queries of one command until they end, and reports the result.

    On a terminal the figures are live. Elsewhere, for example in a pod's log, there is a line after
    the first batch and then one a minute. `read`: queries that may not write each row that they
    read. `metrics`: where they are served, and probes with them.
    """

    def __init__(
        self, outcome: Outcome, *, read: Collection[str] = (), metrics: str | None = None
    ) -> None:
        self.lineage: Lineage | None = None
        self.connections: Collection[ConnectOptions] = ()
        """Whose loss is logged."""
        self._outcome = outcome
        self.note = outcome.note
        self._address = metrics
        self._metrics: QueryMetrics | None = None
        self._last_poll = time.monotonic()
        self._read = read
        self.losses = Losses()
        self.stopped: StopRequested | None = None
        self._rows_in_batch: dict[StreamingQuery, rows_in_progress.RowsInProgress] = {}
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_SECONDS
        self._first_line_due = True
        self._rates: dict[str, deque[tuple[float, int]]] = {}
        """When lines were shown, and the rows then."""
        self.progress: dict[str, QueryProgress] = {}
        self.unfinished = 0
        """Rows of first batches that were stopped: they are read again."""

    @property
    def rows(self) -> dict[str, int]:
        """The rows that each query has written so far, or read."""
        return {name: progress.rows for name, progress in self.progress.items()}

    @property
    def lag(self) -> int | None:
        """The sum of the lags that queries reported; None without any."""
        lags = [progress.lag for progress in self.progress.values() if progress.lag is not None]
        return sum(lags) if lags else None

    @property
    def stop_sentence(self) -> str:
        """The result of a run that was stopped."""
        rows = sum(self.rows.values())
        sentence = f"Stopped after {format_count(rows, 'row')}" if rows else "Stopped"
        if self.unfinished:
            sentence += f" in a batch of {format_count(self.unfinished, 'row')} so far"
        return f"{sentence}; the same command goes on from here."

    @contextmanager
    def until_stopped(self) -> Iterator[Stop]:
        """Around Spark: gather losses; a signal ends the block and is in `stopped`."""
        try:
            with (
                stop_on_signals() as stop,
                self.losses.gathered(),
                temporary_folder("jetspark-rows-") as folder,
                rows_in_progress.collecting_in(folder / "rows"),
                serving_metrics(
                    self._address, self._not_alive, lambda: self.losses.messages
                ) as self._metrics,
            ):
                yield stop
        except StopRequested as request:
            self.stopped = request

    def _not_alive(self) -> list[str]:
        stands = time.monotonic() - self._last_poll
        return [f"the command has stood still for {stands:.0f} s"] * (stands > _STUCK_SECONDS)

    def report(self, *sentences: str, **facts: object) -> None:
        """Print the result: the sentences, or the facts with lag, losses, signal and seconds."""
        self._outcome.report(
            *sentences,
            **facts,
            lag=self.lag,
            losses=self.losses.sentences,
            stopped_by=self.stopped and self.stopped.name,
            seconds=round(time.monotonic() - self._began, 3),
        )

    def run(
        self,
        queries: Mapping[str, StreamingQuery],
        stop: Stop,
        *,
        meanwhile: Callable[[], None] | None = None,
        restart: Callable[[StreamingQuery], StreamingQuery | None] = lambda _: None,
    ) -> None:
        """Wait for the end of all queries.

        A failure or a signal stops all of them; the next run continues where they ended.
        `meanwhile` is called when every query has finished its first trigger, then about once a
        minute. `restart` starts a query anew that has ended with an error, or returns None. Raises
        PipelineError with the reason, StopRequested, and the errors of `meanwhile` and `restart`.
        """
        lineage = nullcontext() if self.lineage is None else self.lineage(lambda: self.rows)
        with stop.holding(), lineage as report_running:
            actions = [action for action in (report_running, meanwhile) if action]
            self._run(dict(queries), stop, actions, restart)

    def _run(
        self,
        queries: dict[str, StreamingQuery],
        stop: Stop,
        meanwhile: Collection[Callable[[], None]],
        restart: Callable[[StreamingQuery], StreamingQuery | None],
    ) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import StreamingQueryException

        from jetspark.spark.failures import explain
        from jetspark.spark.queries.progress import QueryProgress

        self.progress = {name: QueryProgress() for name in queries}
        failure = None
        due = 0.0
        ended = threading.Event()
        for link in self.connections:
            threading.Thread(target=_log_lost_link, args=(link, ended), daemon=True).start()
        self._follow(queries)
        notify_ready()
        try:
            with spinner_lines(self._outcome.quiet) as display:
                lines = {name: display.add_task("", total=None) for name in queries}
                while True:
                    active = [query for query in queries.values() if query.isActive]
                    stop.check()
                    self._last_poll = time.monotonic()
                    self.losses.report()
                    for name, query in queries.items():
                        self.progress[name].update(query)
                        if (error := query.exception()) is None:
                            continue
                        if (restarted := restart(query)) is None:
                            failure = failure or error
                        else:
                            queries[name] = restarted
                            active.append(restarted)
                            self._follow({name: restarted})
                    if failure is not None or not active:
                        break
                    if not display.disable:
                        for name, line in self._lines(queries):
                            display.update(lines[name], description=line)
                    elif self._is_line_due():
                        for _, line in self._lines(queries):
                            self._outcome.note(line)
                    all_began = all(query.lastProgress is not None for query in queries.values())
                    if all_began:
                        rows_in_progress.stop_collecting()
                    if meanwhile and all_began and time.monotonic() >= due:
                        before = time.monotonic()
                        for action in meanwhile:
                            action()
                        took = time.monotonic() - before
                        due = before + max(_MEANWHILE_SECONDS, _MEANWHILE_SHARE * took)
                    with suppress(StreamingQueryException):
                        active[0].awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
        finally:
            ended.set()
            if self._metrics is not None:
                self._metrics.stop_refreshing()
            for name, query in queries.items():
                # Said of a single table only: those of a pipeline are stopped at once.
                if len(queries) == 1 and query.isActive and query.lastProgress is None:
                    with suppress(Py4JError, ConnectionError):
                        self.unfinished += self._rows_in_progress(query)
                query.stop()
                self.progress[name].update(query)
        stop.check()
        for query in queries.values():
            failure = failure or query.exception()
        if failure is not None:
            raise explain(failure)

    def _follow(self, queries: Mapping[str, StreamingQuery]) -> None:
        if self._metrics is not None:
            for name, query in queries.items():
                self._metrics.follow(name, query, self.progress[name])

    def _is_line_due(self) -> bool:
        first = self._first_line_due and any(self.rows.values())
        if not first and time.monotonic() < self._next_line:
            return False
        self._first_line_due = self._first_line_due and not first
        self._next_line = time.monotonic() + _LINE_SECONDS
        return True

    def _lines(self, queries: Mapping[str, StreamingQuery]) -> Iterator[tuple[str, str]]:
        """Name and figures of each query; this calls the JVM several times."""
        for name, query in queries.items():
            label = f"{name}: " if len(queries) > 1 else ""
            yield name, label + self._figures(name, query)

    def _figures(self, name: str, query: StreamingQuery) -> str:
        progress = self.progress[name]
        if query.lastProgress is None:
            reading = query.status["message"] == "Processing new data"
            if reading and (rows := self._rows_in_progress(query)):
                return f"reading the first batch · {format_count(rows, 'row')}"
            return f"{'reading' if reading else 'planning'} the first batch"
        rate = self._rate(name, time.monotonic(), progress.rows)
        verb = "read" if name in self._read else "written"
        line = f"{format_count(progress.rows, 'row')} {verb} · {rate:,.0f} messages/s"
        return line if progress.lag is None else f"{line} · lag {progress.lag:,}"

    def _rate(self, name: str, moment: float, rows: int) -> float:
        """Rows a second since the line before; of a live line, in the last minute."""
        lines = self._rates.setdefault(name, deque([(self._began, 0)]))
        while len(lines) > 1 and moment - lines[1][0] >= _LINE_SECONDS:
            lines.popleft()
        lines.append((moment, rows))
        return (rows - lines[0][1]) / max(moment - lines[0][0], 0.001)

    def _rows_in_progress(self, query: StreamingQuery) -> int:
        if query not in self._rows_in_batch:
            self._rows_in_batch[query] = rows_in_progress.RowsInProgress(query)
        return self._rows_in_batch[query].count()


def serving_metrics(
    address: str | None, alive: Callable[[], list[str]] = list, lost: Callable[[], Any] = dict
) -> AbstractContextManager[QueryMetrics | None]:
    """Serve figures of Spark, and probes with them (`metrics.endpoint`), if there is an address."""
    if address is None:
        return nullcontext()
    with signals_held():
        from jetspark.spark.queries.metrics import served

    return served(address, alive, lost)


def notify_ready() -> None:
    """Tell systemd that the work has begun (a unit with Type=notify)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            to.send(b"READY=1")
