"""Watches the queries of a command until they end: progress, losses, metrics and restarts."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from jetspark.cli.command_line import show_command
from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import format_count
from jetspark.cli.losses import Losses
from jetspark.cli.lost_links import logging_lost_links
from jetspark.cli.progress import spinner_lines
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.cli.watched_query import LINE_SECONDS, WatchedQuery
from jetspark.spark.queries import rows_in_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.progress import Progress, TaskID

    from jetspark.cli.console import Outcome
    from jetspark.cli.lineage import Lineage
    from jetspark.cli.signals import Stop
    from jetspark.connection.options import ConnectOptions
    from jetspark.spark.queries.metrics import QueryMetrics
    from jetspark.spark.queries.progress import QueryProgress
    from jetspark.spark.stream_sink.options import SinkOptions
    from jetspark.spark.table_sink.options import LakehouseOptions

_POLL_SECONDS = 0.2
_ACTIONS_INTERVAL = 60.0
_MAX_ACTIONS_SHARE = 1 / 20
"""The part of the time that periodic actions may take."""
_STUCK_SECONDS = 600.0


class Watch:
    """Watches the queries of one command until they end, and reports the result.

    On a terminal the figures are live. Elsewhere, for example in a pod's log, there is a line after
    the first batch and then one a minute.
    """

    def __init__(
        self, outcome: Outcome, *, read: Collection[str] = (), metrics: str | None = None
    ) -> None:
        """Prepare to watch the Spark queries of a command, which `run` is given.

        `outcome`: prints the result. `read`: names of the queries whose rows are called read, not
        written, since their SQL may write fewer or more rows than it reads. `metrics`: HOST:PORT to
        serve metrics and probes on.
        """
        self.note = outcome.note
        self.lineage: Lineage | None = None
        """With --lineage: makes a context that sends OpenLineage events around the queries."""
        self.connections: Collection[ConnectOptions] = ()
        """Connections whose loss is logged."""
        self.sinks: Mapping[str, LakehouseOptions | SinkOptions | None] = {}
        """Where each query writes, for the page of --metrics."""
        self.losses = Losses()
        self.stopped: StopRequested | None = None
        """The signal that ended `until_stopped`."""
        self.rows_unfinished = 0
        """Rows of a first batch that was stopped: they are read again."""
        self._outcome = outcome
        self._read = read
        self._address = metrics
        self._metrics: QueryMetrics | None = None
        """The metrics that are served, while they are."""
        self._queries: dict[str, WatchedQuery] = {}
        # Times are by the monotonic clock.
        self._began = self._last_poll = time.monotonic()
        self._next_actions = 0.0
        """When periodic actions, such as events of OpenLineage, are due again; 0: at once."""
        self._first_line_due = True
        """Whether the first line of figures is still due: as soon as there are rows."""
        self._next_line = self._began + LINE_SECONDS
        """When a line of figures is due in any case, where lines are not live."""

    @property
    def progress(self) -> dict[str, QueryProgress]:
        """The totals of each query so far, by the query's name."""
        return {name: query.progress for name, query in self._queries.items()}

    @property
    def rows(self) -> dict[str, int]:
        """The rows that each query has written, or read (see `Watch`), so far."""
        return {name: progress.rows for name, progress in self.progress.items()}

    @property
    def lag(self) -> int | None:
        """The sum of the lags (sequences not read yet) of all queries; None if none has a lag."""
        lags = [progress.lag for progress in self.progress.values() if progress.lag is not None]
        return sum(lags) if lags else None

    @property
    def stop_sentence(self) -> str:
        """The sentence for a run that a signal stopped: rows so far, and how to go on."""
        rows = sum(self.rows.values())
        sentence = f"Stopped after {format_count(rows, 'row')}" if rows else "Stopped"
        if self.rows_unfinished:
            sentence += f" in a batch of {format_count(self.rows_unfinished, 'row')} so far"
        return f"{sentence}; the same command goes on from here."

    @contextmanager
    def until_stopped(self) -> Iterator[Stop]:
        """Surround Spark's queries: gather lost messages, serve metrics, end at a signal.

        A signal ends the block without an error, and is then in `stopped`. Yields the object by
        which loops in the block check for a signal.
        """
        try:
            with (
                stop_on_signals() as stop,
                self.losses.gathered(),
                temporary_folder("jetspark-rows-") as folder,
                # Spark's tasks report there how many rows they have read of a first batch.
                rows_in_progress.collecting_in(folder / "rows"),
                serving_metrics(
                    self._address, self._find_stall, lambda: self.losses.messages
                ) as self._metrics,
            ):
                yield stop
        except StopRequested as request:
            self.stopped = request

    def _find_stall(self) -> list[str]:
        """Say for the liveness probe if this object's loop has stood still for ten minutes.

        Returns the problem in a list, which is empty while the loop runs.
        """
        seconds = time.monotonic() - self._last_poll
        is_stuck = seconds > _STUCK_SECONDS
        return [f"the command has stood still for {seconds:.0f} s"] if is_stuck else []

    def report(self, *sentences: str, **facts: object) -> None:
        """Print the result of the command: the sentences, or with --json the facts.

        Adds the lag, lost messages, the signal that stopped the run, and the seconds it took.
        """
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
        """Show the progress of Spark queries, by name, until all have ended.

        A failure or a signal stops all of them; the next run continues where they ended.
        `meanwhile` is called when every query has finished its first trigger, then about once a
        minute. `restart` is given a query that has ended with an error, and returns the query that
        it has started in its place, or None: the error counts. Raises PipelineError with the
        reason, StopRequested, and the errors of `meanwhile` and `restart`.
        """
        from jetspark.spark.failures import explain

        lineage = nullcontext() if self.lineage is None else self.lineage(lambda: self.rows)
        # A signal must not interrupt calls to the JVM: it is only recorded, and checked for.
        with stop.holding(), lineage as report_running:
            actions = [action for action in (report_running, meanwhile) if action]
            for name, query in queries.items():
                verb = "read" if name in self._read else "written"
                label = f"{name}: " if len(queries) > 1 else ""
                self._queries[name] = WatchedQuery(query, time.monotonic(), verb=verb, label=label)
                self._export_metrics(name)
            try:
                with logging_lost_links(self.connections):
                    notify_ready()
                    failure = self._wait_for_end(stop, actions, restart)
            finally:
                self._stop_queries()
            stop.check()
            # Also a query that failed while the loop was ending.
            for watched in self._queries.values():
                failure = failure or watched.query.exception()
            if failure is not None:
                raise explain(failure)

    def _wait_for_end(
        self,
        stop: Stop,
        actions: Collection[Callable[[], None]],
        restart: Callable[[StreamingQuery], StreamingQuery | None],
    ) -> Exception | None:
        """Poll the queries until none is active, or one fails that `restart` does not start anew.

        Returns that one's error, else None. `actions` are run about once a minute.
        """
        from pyspark.errors import StreamingQueryException

        with spinner_lines(self._outcome.quiet) as display:
            lines = {name: display.add_task("", total=None) for name in self._queries}
            while True:
                # Before the updates, so that these have the last figures of a query that has ended.
                active = [item.query for item in self._queries.values() if item.query.isActive]
                stop.check()
                self._last_poll = time.monotonic()
                self.losses.report()
                for name, watched in self._queries.items():
                    watched.update()
                    if (error := watched.query.exception()) is None:
                        continue
                    if (restarted := restart(watched.query)) is None:
                        return error
                    watched.replace(restarted)
                    active.append(restarted)
                    self._export_metrics(name)
                if not active:
                    return None
                self._show_lines(display, lines)
                # Every query has finished a batch: from now on Spark's reports have the figures.
                if all(watched.has_progress for watched in self._queries.values()):
                    rows_in_progress.stop_collecting()
                    self._run_actions(actions)
                with suppress(StreamingQueryException):  # the next round finds the error
                    active[0].awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]

    def _export_metrics(self, name: str) -> None:
        """Serve the metrics of a query that has just been started, if --metrics is given."""
        if self._metrics is not None:
            from jetspark.spark.table_sink.options import LakehouseOptions

            watched, sink = self._queries[name], self.sinks.get(name)
            tables = sink if isinstance(sink, LakehouseOptions) else None
            self._metrics.follow(name, watched.query, watched.progress, tables)

    def _run_actions(self, actions: Collection[Callable[[], None]]) -> None:
        """Run the periodic actions if a minute has passed, or more if they take long."""
        began = time.monotonic()
        if began >= self._next_actions:
            for action in actions:
                action()
            took = time.monotonic() - began
            self._next_actions = began + max(_ACTIONS_INTERVAL, took / _MAX_ACTIONS_SHARE)

    def _stop_queries(self) -> None:
        """Stop all queries that still run, and take their last figures.

        Rows of a single query's unfinished first batch go into `rows_unfinished`.
        """
        from py4j.protocol import Py4JError

        if self._metrics is not None:
            self._metrics.stop_refreshing()
        for watched in self._queries.values():
            is_in_first_batch = watched.query.isActive and not watched.has_progress
            # Not of several queries: they are stopped one after the other, and the others go on.
            if len(self._queries) == 1 and is_in_first_batch:
                with suppress(Py4JError, ConnectionError):
                    self.rows_unfinished += watched.rows_in_first_batch()
            watched.query.stop()
            watched.update()

    def _show_lines(self, display: Progress, lines: Mapping[str, TaskID]) -> None:
        """Show the figures of each query: live on a terminal, elsewhere if a line is due.

        `lines`: the line of each query in the display.
        """
        if not display.disable:
            for name, line in lines.items():
                display.update(line, description=self._queries[name].describe())
        elif self._is_line_due():
            for watched in self._queries.values():
                self.note(watched.describe())

    def _is_line_due(self) -> bool:
        """Whether to print a line of figures now; if so, the next one is due in a minute.

        The first line need not wait: it is due as soon as there are rows.
        """
        now = time.monotonic()
        if self._first_line_due and any(self.rows.values()):
            self._first_line_due = False
        elif now < self._next_line:
            return False
        self._next_line = now + LINE_SECONDS
        return True


def serving_metrics(
    address: str | None, alive: Callable[[], list[str]] = list, lost: Callable[[], Any] = dict
) -> AbstractContextManager[QueryMetrics | None]:
    """A context that serves metrics of Spark's queries and health probes at `address`; None: none.

    It yields the object to which queries are added, or None. `alive`: returns what is wrong with
    the process, for the liveness probe; `lost`: returns the number of messages lost so far, by
    stream.
    """
    if address is None:
        return nullcontext()
    with signals_held():
        from jetspark.spark.queries.metrics import served

    return served(address, alive, lost, show_command(sys.argv[1:]))


def notify_ready() -> None:
    """Tell systemd that the work has begun, if it runs this command as a unit with Type=notify."""
    # A first "@" stands for the null byte of an abstract socket.
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            to.send(b"READY=1")
