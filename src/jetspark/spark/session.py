"""A Spark session on this machine for the command line, tests and notebooks.

Spark runs in a JVM that PySpark starts, which needs Java 17 or newer. The JVM and Python workers
log to one file instead of the user's terminal, listen on loopback only, receive no signals of the
terminal, and have ended when `close_session` returns or `local_session` raises.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jetspark.errors import ConfigError, SparkUnavailableError
from jetspark.spark.class_archive import class_archive
from jetspark.spark.failures import blamed_setting, explain
from jetspark.spark.java import find_java
from jetspark.spark.workers.preloading import Preloader, preloading

if TYPE_CHECKING:
    import pyarrow as pa

# -------------------------------------------------------------------------------------------------
# The JVM of a Spark session, started so that it can be ended at any moment.
#
# PySpark starts it by a shell script in the program's process group, where Ctrl-C reaches what the
# script has started; if PySpark is interrupted while it waits, it loses track of the process, and
# nothing can end it. So PySpark is called in a thread, which signals do not interrupt, and we
# record the process and give it its own process group.


_EXIT_SECONDS = 20.0
_VARIABLE = "SPARK_SUBMIT_OPTS"
# A JVM's messages about its own end, and log4j's errors.
_LAST_WORDS = re.compile(
    r"^(?:Exception in thread \S+ [\w.$]+: |Error: |\S+ \S+ ERROR \w+: "
    r"|(?=Invalid|Unrecognized))(.+)$",
    re.MULTILINE,
)


started: subprocess.Popen[bytes] | None = None
"""The JVM that was started last, also while it starts or ends and PySpark has no link to it."""

inherited: tuple[int, ...] = ()
"""Descriptors that the next JVM gets."""


class WrongSettingError(SparkUnavailableError):
    """One of the caller's settings has prevented Spark's start."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class SessionStart:
    """Starts a JVM with a session. `log_file`: instead of standard error.

    `options`: of the JVM, before those of the configuration. `settings`: the caller's, to be named
    in errors.
    """

    def __init__(
        self,
        builder: SparkSession.Builder,
        log_file: Path | None,
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._builder = builder
        self._log_file = log_file
        self._log_start = log_file.stat().st_size if log_file and log_file.exists() else 0
        self._options = options
        self._settings = settings or {}
        self._lock = threading.Lock()
        # Not the thread's own join: after an interrupt it considers the thread ended (3.11).
        self._done = threading.Event()
        self._unwanted = False
        self._jvm: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None

    def session(self) -> SparkSession:
        """The session. Raises SparkUnavailableError; after an exception that interrupts the wait,
        nothing is left running."""
        starting = threading.Thread(target=self._start, name="jetspark-spark", daemon=True)
        try:
            starting.start()
            self._done.wait()
            if self._session is not None:
                activate(self._session)
        except BaseException:
            with self._lock:
                self._unwanted = True
            if self._jvm is not None:
                kill(self._jvm)
            self._done.wait(_EXIT_SECONDS)
            forget()
            raise
        if self._session is None:
            reason = f"Spark did not start: {self._reason()}"
            failure = self._failure
            assert failure is not None  # noqa: S101
            code = None if self._jvm is None else self._jvm.poll()
            blamed = blamed_setting(failure, reason, self._settings)
            forget()  # while the JVM is there
            if self._jvm is not None:
                kill(self._jvm)
            if blamed is not None:
                raise WrongSettingError(*blamed) from failure
            if code is not None:
                reason = f"{reason.rstrip('.')}; the JVM's exit code is {code}."
            raise SparkUnavailableError(reason) from failure
        return self._session

    def _start(self) -> None:
        try:
            with self._log() as log, _popen(lambda *a, **k: self._launch(log, *a, **k)):
                session = self._builder.getOrCreate()
            session.sparkContext.setLogLevel("WARN")
            # Otherwise created with the first query, which would fail for a wrong setting of SQL.
            session._jsparkSession.sessionState()
            self._session = session
        except BaseException as failure:
            self._failure = failure
        finally:
            self._done.set()

    def _launch(
        self, log: IO[bytes] | None, *arguments: Any, **options: Any
    ) -> subprocess.Popen[bytes]:
        if log is not None:
            options["stderr"] = log  # standard output is for sinks that print
        if self._options:
            # Spark's script passes this variable to the JVM, before the configuration's options.
            environment = options["env"]
            before = environment.get(_VARIABLE, "")
            environment[_VARIABLE] = " ".join(
                [before, *(f'"{option}"' for option in self._options)]
            ).strip()
        # PySpark's function, to ignore SIGINT, would run in a fork of this process, in which
        # handlers of libraries may crash. Signals of the terminal reach no other process group.
        options.pop("preexec_fn", None)
        if os.name == "posix":
            options["process_group"] = 0
        options["pass_fds"] = inherited
        jvm: subprocess.Popen[bytes] = subprocess.Popen(*arguments, **options)  # noqa: S603
        global started
        with self._lock:
            self._jvm = started = jvm
            unwanted = self._unwanted
        if unwanted:
            kill(jvm)
        return jvm

    def _log(self) -> Any:
        return nullcontext() if self._log_file is None else self._log_file.open("ab")

    def _reason(self) -> str:
        """Spark's own message; from the log if the JVM has ended before it could send one."""
        failure = self._failure
        assert failure is not None  # noqa: S101
        ended = self._jvm is None or self._jvm.poll() is not None
        return (ended and last_words(self._log_file, self._log_start)) or str(explain(failure))


def last_words(log_file: Path | None, start: int = 0) -> str:
    """Why a JVM ended, from its log from this byte on; empty if that has no reason."""
    if log_file is None or not log_file.exists():
        return ""
    found = _LAST_WORDS.search(log_file.read_bytes()[start:].decode("utf-8", "replace"))
    return found[1].strip() if found else ""


def activate(session: SparkSession) -> None:
    """Spark keeps the active session by thread, and finds formats of Python through it."""
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)


def forget() -> None:
    """PySpark's link to the JVM, before that ends."""
    if SparkContext._gateway is not None:
        # Py4J's thread for garbage sends commands, and prints a traceback when one fails.
        SparkContext._gateway._gateway_client.is_connected = False
        with suppress(Exception):
            SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def kill(jvm: subprocess.Popen[bytes]) -> None:
    """End it and everything that it has started, if it is running."""
    if jvm.poll() is None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(jvm.pid, signal.SIGKILL)
            else:
                jvm.kill()
    jvm.wait()


@contextmanager
def _popen(function: Any) -> Iterator[None]:
    """PySpark starts its JVM with this function, and offers no other access to the process."""
    module: Any = java_gateway
    before, module.Popen = module.Popen, function
    try:
        yield
    finally:
        module.Popen = before


# -------------------------------------------------------------------------------------------------
# A job that does nothing, beside the preparation of one that does something.
#
# Planning hardly uses a second processor. Meanwhile the JVM loads what jobs need, and starts the
# Python workers that later tasks take. They import this module, so it imports little.


def warm_up(session: SparkSession) -> None:
    """Begin; does not wait for its end."""
    threading.Thread(target=_do_nothing, args=(session,), name="warm-up", daemon=True).start()


def _do_nothing(session: SparkSession) -> None:
    with suppress(Exception):  # the session has ended already
        rows = session.range(0, 2, 1, 2).selectExpr("from_json(concat('{}', id), 'id INT') AS one")
        rows = rows.mapInArrow(_the_same, rows.schema)
        rows.write.format("noop").mode("overwrite").save()


def _the_same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Environment variables with options for each JVM."""

_STOP_SECONDS = 60.0
_SOCKET_NAME, _LONGEST_SOCKET = 45, 100
"""Bytes of a socket's name in its folder, and of the path that every system takes."""

_preloader: Preloader | None = None
"""Of the one JVM that a program can have."""


@dataclass(frozen=True)
class _Arguments:
    """Of a session, all but `conf`: a running session cannot take others."""

    app_name: str
    master: str
    log_file: Path | None
    jvm_options: tuple[str, ...]


_open: tuple[SparkSession, _Arguments, dict[str, str]] | None = None
"""The session that `local_session` has started last, and what with."""


def short_job(conf: Mapping[str, str]) -> list[str]:
    """JVM options for short jobs, where compiling and preparing costs more than slower code.

    One thread collects garbage, unless the user has chosen a collector.
    """
    given = [conf.get("spark.driver.extraJavaOptions", ""), *map(os.environ.get, _JAVA_OPTIONS)]
    collector = re.search(r"-XX:[+]Use\w+GC\b", " ".join(filter(None, given)))
    return ["-XX:TieredStopAtLevel=1", *([] if collector else ["-XX:+UseSerialGC"])]


def local_session(
    app_name: str,
    *,
    master: str = "local[*]",
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = (),
) -> SparkSession:
    """A session with quiet, loopback-only settings; `conf` overrides them.

    `log_file` gets everything that the JVM and its workers print; None leaves it on standard
    error. `jvm_options`: of the driver's JVM, besides those for the class archive; those of `conf`
    come after them. Raises SparkUnavailableError, with Spark's reason if Spark has refused; for a
    wrong setting in `conf` a WrongSettingError, which names it.

    A program has one session at a time: while it is open, the same arguments return it, after
    setting what it can take of `conf`. Raises ConfigError for other arguments, and settings that
    it cannot take any more: end it first, with `close_session`.
    """
    global _open
    arguments = _Arguments(app_name, master, log_file, tuple(jvm_options))
    if _is_running():
        return _running(arguments, conf or {})
    find_java()
    archive = class_archive()
    if archive is not None:
        jvm_options = [*archive.jvm_options(), *jvm_options]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # On a busy machine a Python worker takes longer to start than Spark waits by default.
        "spark.python.authenticate.socketTimeout": "120s",
        # On the way to a Python sink Spark 4.3 works out its batch's size in bytes for every row,
        # which costs more than everything else on that way. Without that limit a batch must have
        # few rows: 256 messages as large as servers allow by default are 256 MB.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "jetspark-warehouse")),
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # So that figures of what is under way are not ten seconds old; on one machine it is cheap.
        settings["spark.executor.heartbeatInterval"] = "1s"
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        if os.name == "posix" and _socket_fits(conf or {}):
            # Over TCP the first packets of each task wait 40 ms for a delayed ACK.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (settings | dict(conf or {})).items():
        builder = builder.config(name, value)
    with _preloaded(master, conf or {}, log_file):
        session = SessionStart(builder, log_file, jvm_options, conf).session()
    _open = session, arguments, dict(conf or {})
    return session


def _is_running() -> bool:
    """Whether a session is open; a JVM that has none any more is ended."""
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if gateway is None:
        return False
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if context is not None and (jvm is None or jvm.poll() is None):
        return True
    _end(gateway)
    return False


def _running(arguments: _Arguments, conf: Mapping[str, str]) -> SparkSession:
    """The open session, with these settings. Raises ConfigError, WrongSettingError."""
    if _open is None or SparkContext._active_spark_context is not _open[0].sparkContext:
        raise ConfigError(
            "A Spark session that local_session has not started is open in this program: use it, "
            "or end it first with close_session(spark)."
        )
    session, before, settings = _open
    names = [field.name for field in fields(_Arguments)]
    other = [name for name in names if getattr(arguments, name) != getattr(before, name)]
    if not other:  # first where a wrong setting does no harm
        other = _set(session.newSession(), conf, settings) or _set(session, conf, settings)
    if other:
        raise ConfigError(
            f"A session is open already, which cannot take another {', '.join(other)}: end it "
            "first with close_session(spark), or give what it was started with."
        )
    activate(session)
    return session


def _set(session: SparkSession, conf: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Set what a running session can take; returns the names of what it cannot, unless it was
    started with the same. Raises WrongSettingError."""
    refused = []
    for name, value in conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            if not (error.getCondition() or "").startswith("CANNOT_MODIFY"):
                raise WrongSettingError(name, str(explain(error))) from error
            if before.get(name) != value:
                refused.append(name)
    return refused


def _socket_fits(conf: Mapping[str, str]) -> bool:
    """Whether Spark's Unix sockets, in Java's folder for temporary files, have paths that are short
    enough."""
    found = re.search(r"-Djava\.io\.tmpdir=(\S+)", conf.get("spark.driver.extraJavaOptions", ""))
    folder = found[1] if found is not None else "/tmp"  # noqa: S108
    return len(os.fsencode(folder)) + _SOCKET_NAME <= _LONGEST_SOCKET


@contextmanager
def _preloaded(master: str, conf: Mapping[str, str], log_file: Path | None) -> Iterator[None]:
    """For a JVM that is started meanwhile: its Python imports while Java starts."""
    global _preloader
    _stop_preloader()
    # Named before it is made: a signal may raise its exception between any two steps.
    folder = Path(tempfile.gettempdir(), f"jetspark-{secrets.token_hex(6)}")
    try:
        with nullcontext() if log_file is None else log_file.open("ab") as log:
            _preloader = preloading(folder, master, conf, log)
        with nullcontext() if _preloader is None else _preloader.announced():
            yield
    except BaseException:
        _stop_preloader()
        shutil.rmtree(folder, ignore_errors=True)  # a process in it ends with its standard input
        raise


def _stop_preloader() -> None:
    global _preloader
    if _preloader is not None:
        _preloader.stop()
    _preloader = None


def close_session(session: SparkSession, *, exit_seconds: float = 20.0) -> None:
    """Stop the session and wait until its JVM is gone; after `exit_seconds` it is killed.

    A session that is stopped already has a JVM, which is ended, too; one that is closed has none.
    """
    context = SparkContext._active_spark_context
    gateway = SparkContext._gateway
    if gateway is None or context not in (None, session.sparkContext):
        return  # closed already; there may be another one since
    # This thread's own connection may still be busy with a call that a signal has interrupted, and
    # the JVM would take the next one only after it.
    stopping = threading.Thread(target=_stop, args=(session,), daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    _end(gateway, 0.0 if stopping.is_alive() else exit_seconds)


def _end(gateway: Any, exit_seconds: float = 20.0) -> None:
    """End the JVM; it is killed after these seconds."""
    global _open
    _open = None
    _stop_preloader()
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if jvm is None:
        return
    if exit_seconds > 0:
        forget()
        if jvm.stdin is not None:
            jvm.stdin.close()  # for the JVM this is the end of its Python
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(exit_seconds)
    kill(jvm)
    forget()


def _stop(session: SparkSession) -> None:
    if session.sparkContext._accumulatorServer is not None:  # it is stopped already
        end_without_waiting(session.sparkContext._accumulatorServer)
    with suppress(Exception):  # the JVM has ended already
        session.stop()


def end_without_waiting(server: Any) -> None:
    """Before the session's end, of which PySpark's server of accumulators is a part.

    It waits for up to a second: so often the server looks whether it has to end. Its connection
    ends with the JVM, which is no error.
    """
    server.shutdown = threading.Thread(target=server.shutdown, daemon=True).start
    server.handle_error = lambda *_: None
