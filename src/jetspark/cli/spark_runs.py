"""Spark for commands: starts it quietly, shows progress in one line, stops it at the end."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jetspark.cli import console
from jetspark.cli.folders import temporary_folder
from jetspark.cli.options import Repeated, pairs
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.errors import ConfigError, JetsparkError, PipelineError, SparkUnavailableError
from jetspark.links.link_pool import pool
from jetspark.ranges.losses import LOSSES_VARIABLE, Loss
from jetspark.spark.queries import rows_in_progress
from jetspark.wire.documents import decode_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.cli.console import Outcome
    from jetspark.cli.lineage import Lineage
    from jetspark.cli.signals import Stop
    from jetspark.connection.options import ConnectOptions
    from jetspark.spark.queries.metrics import QueryMetrics
    from jetspark.spark.queries.progress import QueryProgress

logger = logging.getLogger("jetspark.cli")

# -------------------------------------------------------------------------------------------------
# Flags. --master and --conf are checked before Spark starts, which would take long to refuse them.


_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|(?!sc:)\w+://.+")
_STANDALONE = re.compile(r"spark://(.+)")
_HOST = re.compile(r"(\[[^\]]+\]|[^:/\[\]]+):(\d{1,5})")
_MASTER_CONNECT_TIMEOUT = 5.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SparkFlags:
    """The flags --master, --conf and --quiet."""

    master: str = "local[*]"
    """Spark's master."""
    conf: Repeated = None
    """Setting of Spark, as name=value; may be given again."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())] = False
    """Print errors only."""

    def settings(self) -> dict[str, str]:
        """The settings of --conf. Raises ConfigError, and SparkUnavailableError for the master."""
        settings = pairs("--conf", self.conf)
        for name in settings:
            if not name.startswith("spark."):
                raise ConfigError(
                    f"--conf {name}: Spark ignores settings that do not begin with 'spark.'; "
                    "write spark.hadoop.NAME for one of Hadoop's."
                )
        _check_master(self.master)
        return settings


LOCAL = SparkFlags()


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"--master {master!r}: write local[*] for this machine, local[2] for two of its cores, "
            "spark://host:7077, yarn, or k8s://https://host:port."
        )
    if standalone := _STANDALONE.fullmatch(master):
        hosts = [_HOST.fullmatch(part.strip()) for part in standalone[1].split(",")]
        if not all(hosts):
            raise ConfigError(f"--master {master!r}: write spark://host:7077, several with commas.")
        _check_reachable(master, [(host[1].strip("[]"), int(host[2])) for host in hosts if host])


def _check_reachable(master: str, addresses: list[tuple[str, int]]) -> None:
    """Raise SparkUnavailableError for an unreachable master; Spark itself takes a minute."""
    for address in addresses:
        try:
            return socket.create_connection(address, _MASTER_CONNECT_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise SparkUnavailableError(f"Spark's master {master} cannot be reached: {reason}.")


# -------------------------------------------------------------------------------------------------
# Reports what queries lose: servers, and messages with failOnDataLoss=false, as Spark finds them.


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


_GATHER_SECONDS = 5.0
"""Seconds within which the partitions of a batch report their losses, for one line."""


class Losses:
    """The losses of one command; each is reported once."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._read = 0
        self._recorded: list[Loss] = []
        self._reported: list[str] = []
        self._due: float | None = None

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the losses of Spark's processes in the block; report the others at its end."""
        with temporary_folder("jetspark-losses-") as folder:
            self._file = folder / "losses"
            os.environ[LOSSES_VARIABLE] = str(self._file)
            try:
                yield
            finally:
                del os.environ[LOSSES_VARIABLE]
                self.report(at_once=True)

    @property
    def messages(self) -> dict[str, int]:
        """Maximum number of messages lost, by stream."""
        parts: dict[str, list[tuple[int, int]]] = {}
        for loss in self._recorded:
            if loss.last:
                parts.setdefault(loss.stream, []).append((loss.first, loss.last))
        return {stream: _count(some) for stream, some in parts.items()}

    @property
    def sentences(self) -> list[str]:
        """All losses so far, with one sentence for the sequences of a stream."""
        return _sentences(self._recorded)

    def report(self, *, at_once: bool = False) -> None:
        """Warn of losses found some seconds ago; `at_once`: of all."""
        if self._read_new_losses() and self._due is None:
            self._due = time.monotonic() + _GATHER_SECONDS
        if self._due is not None and (at_once or time.monotonic() >= self._due):
            for sentence in self.sentences:
                if sentence not in self._reported:
                    logger.warning("%s", sentence)
            self._reported, self._due = self.sentences, None

    def _read_new_losses(self) -> bool:
        """Read the losses added to the file; returns whether there are any."""
        lines = b""
        if self._file is not None:
            with suppress(FileNotFoundError), self._file.open("rb") as file:
                file.seek(self._read)
                lines, newline, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
                self._read += len(lines + newline)
        self._recorded += [decode_json(line, Loss, "loss") for line in lines.splitlines()]
        return bool(lines)


def _sentences(losses: Iterable[Loss]) -> list[str]:
    without_sequences: dict[tuple[str, str], str] = {}
    ranges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for loss in losses:
        if loss.last:
            parts = ranges.setdefault((loss.stream, loss.text, loss.key), [])
            parts.append((loss.first, loss.last))
        else:
            without_sequences.setdefault((loss.stream, loss.key or loss.text), loss.text)
    with_sequences = (_of_sequences(s, verb, p) for (s, verb, _), p in ranges.items())
    return [*without_sequences.values(), *with_sequences]


def _of_sequences(stream: str, verb: str, parts: list[tuple[int, int]]) -> str:
    """`parts`: ranges of sequences, which may overlap."""
    count, start, end = _count(parts), min(parts)[0], max(last for _, last in parts)
    sequences = f"sequence {start}" if start == end else f"sequences {start} to {end}"
    # "Up to": some may have been deleted or replaced before, which is not a loss.
    return (
        f"Stream {stream!r}: up to {console.counted(count, 'message')} ({sequences}) "
        f"{'was' if count == 1 else 'were'} {verb}."
    )


def _count(parts: list[tuple[int, int]]) -> int:
    count = end = 0
    for first, last in sorted(parts):
        count += max(0, last - max(first - 1, end))
        end = max(end, last)
    return count


# -------------------------------------------------------------------------------------------------
# Sessions and their queries


_POLL_SECONDS = 0.2
_LINE_SECONDS = 60.0
_MEANWHILE_SECONDS = 60.0
_MEANWHILE_SHARE = 20
"""`meanwhile` may take one part in so many of the time."""
_SHORT_JOB_MESSAGES = 2_000_000
_STUCK_SECONDS = 600.0


@contextmanager
def quiet_spark(
    name: str,
    flags: SparkFlags,
    settings: Mapping[str, str] | None = None,
    *,
    messages: int | None = None,
    keep_nothing: bool = False,
    name_setting: Callable[[str], str] = "--conf {}".format,
) -> Iterator[SparkSession]:
    """A session that logs to a file, which stays only when Spark fails, not after a user's mistake.

    `messages`: how many go through the JVM at most; None if unknown or endless. `keep_nothing`:
    leave nothing behind, not even a class archive. `name_setting`: how errors name a setting.
    """
    with signals_held():
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.errors import AnalysisException, PySparkException

        from jetspark.spark.failures import explain
        from jetspark.spark.session.jvm import WrongSettingError, read_end_reason
        from jetspark.spark.session.session import close_session, local_session, short_job_options
        from jetspark.spark.session.warm_up_job import warm_up

    master, quiet = flags.master, flags.quiet
    with temporary_folder("jetspark-spark-") as folder:
        log = folder / "spark.log"
        # Temporary files of Spark and its libraries stay in one folder.
        conf = {
            "spark.local.dir": str(folder),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
            **(settings or {}),
        }
        short = messages is not None and messages <= _SHORT_JOB_MESSAGES
        options = short_job_options(conf) if short else []
        try:
            with _logs_in(log):
                with spinner("starting Spark …", quiet=quiet):
                    spark = local_session(
                        name, master=master, log_file=log, conf=conf, jvm_options=options
                    )
                context = spark.sparkContext
                log_failures(context._accumulatorServer)
                if short and master.startswith("local") and context.defaultParallelism > 1:
                    warm_up(spark)
                try:
                    yield spark
                except (PySparkException, Py4JError, ConnectionError) as error:
                    ended = isinstance(error, Py4JNetworkError | ConnectionError)
                    reason = (ended and read_end_reason(log)) or str(explain(error))
                    raise PipelineError(f"Spark ended: {reason}" if ended else reason) from error
                finally:
                    with spinner("stopping Spark …", quiet=quiet):
                        close_session(spark)
                if not keep_nothing:
                    _make_class_archive(master, quiet=quiet)
        except WrongSettingError as error:
            raise SparkUnavailableError(f"{name_setting(error.setting)}: {error.reason}") from error
        except (PipelineError, SparkUnavailableError) as error:
            by_user = isinstance(error.__cause__, AnalysisException | ConfigError)
            if not by_user and not (isinstance(error, PipelineError) and error.is_mistake):
                kept_log = folder.with_suffix(".log")
                with suppress(OSError):
                    log.chmod(0o600)  # it may have rows in it
                    log.rename(kept_log)
                    error.add_note(f"Spark's log: {kept_log}")
            raise


def _make_class_archive(master: str, *, quiet: bool) -> None:
    from jetspark.spark.fast_start.class_archive import class_archive
    from jetspark.spark.fast_start.switch import VARIABLE

    archive = class_archive(master)
    if archive is not None and archive.make_later() and not quiet:
        console.warn(
            "Preparing Spark's classes in the background, once, for faster starts"
            f" ({VARIABLE}=off turns this off)."
        )


def log_failures(server: Any) -> None:
    """Log the errors of PySpark's accumulator server, which would print tracebacks.

    To that server the end of a connection is an error, even after a query was stopped.
    """

    def handle_error(_request: object, address: object) -> None:
        logging.getLogger("py4j").debug("Accumulators of %s", address, exc_info=True)

    server.handle_error = handle_error


@contextmanager
def _logs_in(file: Path) -> Iterator[None]:
    """Write PySpark's and Py4J's logs in this process to the file, too: they have the Java
    stack traces of errors that commands print as one sentence."""
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(file, delay=True)
    loggers = [logging.getLogger(name) for name in ("py4j", "py.warnings")]
    # These handlers write to the terminal as soon as they are created.
    loggers += [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    logging.captureWarnings(True)
    logging.root.addHandler(handler)  # Py4J also logs when its JVM ends
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        logging.captureWarnings(False)
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


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
        sentence = f"Stopped after {console.counted(rows, 'row')}" if rows else "Stopped"
        if self.unfinished:
            sentence += f" in a batch of {console.counted(self.unfinished, 'row')} so far"
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
                figures_served(
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
            with _display(self._outcome.quiet) as display:
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
                return f"reading the first batch · {console.counted(rows, 'row')}"
            return f"{'reading' if reading else 'planning'} the first batch"
        rate = self._rate(name, time.monotonic(), progress.rows)
        verb = "read" if name in self._read else "written"
        line = f"{console.counted(progress.rows, 'row')} {verb} · {rate:,.0f} messages/s"
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


def figures_served(
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


@contextmanager
def spinner(description: str, *, quiet: bool = False) -> Iterator[None]:
    """Show that a slow operation is running."""
    with _display(quiet) as display:
        display.add_task(description, total=None)
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
