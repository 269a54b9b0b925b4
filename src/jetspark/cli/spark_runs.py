"""Spark for commands: starts it quietly, shows progress in one line, stops it at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from jetspark.cli import console
from jetspark.cli.folders import temporary_folder
from jetspark.cli.losses import Losses
from jetspark.cli.signals import signals_held
from jetspark.errors import ConfigError, PipelineError, SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.cli.outcome import Outcome
    from jetspark.cli.signals import Stop
    from jetspark.spark.ingest import Progress as QueryProgress
    from jetspark.spark.under_way import RowsUnderWay

_LOOK_SECONDS = 0.2
_LINE_SECONDS = 60.0
_MEANWHILE_SECONDS = 60.0
_MEANWHILE_SHARE = 20
"""One part of the time at most goes to what is done meanwhile."""
_SHORT_JOB_MESSAGES = 2_000_000


@contextmanager
def quiet_spark(
    name: str,
    master: str,
    settings: Mapping[str, str] | None = None,
    *,
    messages: int | None = None,
    quiet: bool = False,
    look_only: bool = False,
    told: Callable[[str], str] = "--conf {}".format,
) -> Iterator[SparkSession]:
    """A session whose log goes to a file, which is kept only when Spark fails, not for a user's
    mistake.

    `messages`: how many the job reads at most; None if that is not known, or the job has no end.
    `look_only`: the command leaves nothing behind, not even a class archive. `told`: returns how an
    error should name a setting.
    """
    with signals_held():
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.errors import AnalysisException, PySparkException

        from jetspark.spark.failures import explain
        from jetspark.spark.jvm import WrongSettingError, last_words
        from jetspark.spark.session import close_session, local_session, short_job
        from jetspark.spark.warming import warm_up

    with temporary_folder("jetspark-spark-") as folder:
        log = folder / "spark.log"
        conf = _temporary(folder) | dict(settings or {})
        short = messages is not None and messages <= _SHORT_JOB_MESSAGES
        options = short_job(conf) if short else []
        try:
            with _logs_in(log):
                with spinner("starting Spark …", quiet=quiet):
                    spark = local_session(
                        name, master=master, log_file=log, conf=conf, jvm_options=options
                    )
                log_failures(spark.sparkContext._accumulatorServer)
                if (
                    short
                    and master.startswith("local")
                    and spark.sparkContext.defaultParallelism > 1
                ):
                    warm_up(spark)
                try:
                    yield spark
                except (PySparkException, Py4JError, ConnectionError) as error:
                    ended = isinstance(error, Py4JNetworkError | ConnectionError)
                    reason = (ended and last_words(log)) or str(explain(error))
                    raise PipelineError(f"Spark ended: {reason}" if ended else reason) from error
                finally:
                    with spinner("stopping Spark …", quiet=quiet):
                        close_session(spark)
                if not look_only:
                    _start_faster_next_time(quiet=quiet)
        except WrongSettingError as error:
            raise SparkUnavailableError(f"{told(error.setting)}: {error.reason}") from error
        except (PipelineError, SparkUnavailableError) as error:
            if not isinstance(error.__cause__, AnalysisException | ConfigError):
                _keep(log, error)
            raise


def _start_faster_next_time(*, quiet: bool) -> None:
    from jetspark.spark.class_archive import VARIABLE, class_archive

    archive = class_archive()
    if archive is not None and archive.make_later() and not quiet:
        console.err.print(
            Text(
                "In the background, once: Spark's classes are prepared for faster starts"
                f" ({VARIABLE}=off: never).",
                style="dim",
            ),
            soft_wrap=True,
        )


def _keep(log: Path, error: PipelineError | SparkUnavailableError) -> None:
    """Keep the log of all files that Spark has written."""
    kept = log.parent.with_suffix(".log")
    with suppress(OSError):
        log.rename(kept)
        error.add_note(f"Spark's log: {kept}")


def log_failures(server: Any) -> None:
    """Log errors of requests to the server, which would be printed as tracebacks.

    For PySpark's accumulator server, to which the end of a connection is an error, also when a
    query was stopped.
    """

    def handle_error(_request: object, address: object) -> None:
        logging.getLogger("py4j").debug("Accumulators of %s", address, exc_info=True)

    server.handle_error = handle_error


@contextmanager
def _logs_in(file: Path) -> Iterator[None]:
    """Send the logs of PySpark and Py4J in this process to the file, too: they include the Java
    stack traces of errors that are shown in one sentence."""
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(file, delay=True)
    loggers = [logging.getLogger(name) for name in ("py4j", "py.warnings")]
    # Loggers that write to the terminal from their creation on.
    loggers += [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    logging.captureWarnings(True)
    logging.root.addHandler(handler)  # Py4J logs there, too, when its JVM is ended
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        logging.captureWarnings(False)
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


def _temporary(folder: Path) -> dict[str, str]:
    """Settings that keep the temporary files of Spark and its libraries in one folder."""
    return {
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }


class Watch:
    """Watches queries until they end.

    On a terminal the figures are live. Elsewhere, for example in a pod's log, there is a line after
    the first batch and then one a minute. `counted`: what was done with the rows, "read" where a
    query does not write each.
    """

    def __init__(self, outcome: Outcome, *, counted: str = "written") -> None:
        self._outcome = outcome
        self._counted = counted
        self.losses = Losses()
        self._under_way: dict[StreamingQuery, RowsUnderWay] = {}
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_SECONDS
        self._said_first = False
        self.done: dict[str, QueryProgress] = {}

    @property
    def rows(self) -> dict[str, int]:
        """The rows that each query has read so far; each is written unless SQL chooses."""
        return {name: progress.rows for name, progress in self.done.items()}

    @property
    def lag(self) -> int | None:
        """The lag of all queries together, as far as they have reported it."""
        lags = [one.lag for one in self.done.values() if one.lag is not None]
        return sum(lags) if lags else None

    def run(
        self,
        queries: Mapping[str, StreamingQuery],
        stop: Stop,
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Wait for the end of all queries. When one fails, or after a signal, all are stopped; the
        next run continues where they ended. `meanwhile`: called when every query has finished its
        first trigger, and then about once a minute. Raises PipelineError with the reason,
        StopRequested, and what `meanwhile` raises.
        """
        with stop.holding():
            self._run(queries, stop, meanwhile)

    def _run(
        self,
        queries: Mapping[str, StreamingQuery],
        stop: Stop,
        meanwhile: Callable[[], None] | None,
    ) -> None:
        from jetspark.spark.failures import explain
        from jetspark.spark.ingest import Progress as QueryProgress

        self.done = {name: QueryProgress() for name in queries}
        failure = None
        due = 0.0
        try:
            with _display(self._outcome.quiet) as display:
                lines = {name: display.add_task("", total=None) for name in queries}
                while failure is None and (
                    active := [one for one in queries.values() if one.isActive]
                ):
                    stop.check()
                    self.losses.look()
                    for name, query in queries.items():
                        self.done[name].update(query)
                        failure = failure or query.exception()
                    if not display.disable:
                        for name, line in self._lines(queries):
                            display.update(lines[name], description=line)
                    elif self._is_line_due():
                        for _, line in self._lines(queries):
                            self._outcome.note(line)
                    begun = all(query.lastProgress is not None for query in queries.values())
                    if meanwhile is not None and begun and time.monotonic() >= due:
                        before = time.monotonic()
                        meanwhile()
                        took = time.monotonic() - before
                        due = before + max(_MEANWHILE_SECONDS, _MEANWHILE_SHARE * took)
                    _wait(active[0])
        finally:
            for name, query in queries.items():
                query.stop()
                self.done[name].update(query)
        stop.check()
        for query in queries.values():
            failure = failure or query.exception()
        if failure is not None:
            raise explain(failure)

    def _is_line_due(self) -> bool:
        first = not self._said_first and any(self.rows.values())
        if not first and time.monotonic() < self._next_line:
            return False
        self._said_first = self._said_first or first
        self._next_line = time.monotonic() + _LINE_SECONDS
        return True

    def _lines(self, queries: Mapping[str, StreamingQuery]) -> Iterator[tuple[str, str]]:
        """Name and figures of each query, which cost some calls to the JVM."""
        for name, query in queries.items():
            label = f"{name}: " if len(queries) > 1 else ""
            yield name, label + self._figures(self.done[name], query)

    def _figures(self, done: QueryProgress, query: StreamingQuery) -> str:
        if query.lastProgress is None:
            reading = query.status["message"] == "Processing new data"
            if reading and (rows := self._rows_under_way(query)):
                return f"reading the first batch · {console.counted(rows, 'row')}"
            return f"{'reading' if reading else 'planning'} the first batch"
        rate = done.rows / max(time.monotonic() - self._began, 0.001)
        line = f"{console.counted(done.rows, 'row')} {self._counted} · {rate:,.0f} messages/s"
        return line if done.lag is None else f"{line} · lag {done.lag:,}"

    def _rows_under_way(self, query: StreamingQuery) -> int:
        from jetspark.spark.under_way import RowsUnderWay

        if query not in self._under_way:
            self._under_way[query] = RowsUnderWay(query)
        return self._under_way[query].count()


def _wait(query: StreamingQuery) -> None:
    """Until it is time to look, or the query has ended."""
    from pyspark.errors import StreamingQueryException

    with suppress(StreamingQueryException):
        query.awaitTermination(_LOOK_SECONDS)  # type: ignore[arg-type]


@contextmanager
def spinner(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows that a slow operation is running."""
    with _display(quiet) as display:
        display.add_task(what, total=None)
        yield


def _display(quiet: bool) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console.err,
        transient=True,
        disable=quiet or not console.is_live(),
    )
