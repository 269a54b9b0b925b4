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
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jetspark.errors import ConfigError
from jetspark.spark.failures import explain
from jetspark.spark.fast_start.class_archive import class_archive
from jetspark.spark.fast_start.workers import ForkServer, start_fork_server
from jetspark.spark.java import find_java
from jetspark.spark.session.jvm import (
    SessionStart,
    WrongSettingError,
    activate_session,
    forget_gateway,
    kill_jvm,
    open_log,
)

_JAVA_OPTIONS_VARIABLES = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
)
"""Environment variables with options for each JVM."""

_STOP_TIMEOUT_SECONDS = 60.0
_SOCKET_NAME_BYTES, _MAX_SOCKET_PATH_BYTES = 45, 100
"""Most bytes of a socket's name in its folder, and of a path on every system."""


@dataclass(frozen=True)
class _OpenSession:
    """The session that is open now, what it was started with, and what ends with it."""

    session: SparkSession
    arguments: Mapping[str, object]
    """All arguments but the settings, which a running session cannot change."""
    settings: Mapping[str, str]
    fork_server: ForkServer | None
    cleanup: ExitStack
    """Closes the endpoint of metrics, and removes the session's folder."""


_open_session: _OpenSession | None = None
"""The session that `local_session` started last."""


def short_job_options(conf: Mapping[str, str]) -> list[str]:
    """Options with which the JVM runs short jobs faster: it optimizes code less, and collects
    garbage in one thread, unless the user chose a collector.

    `conf`: the user's settings of Spark.
    """
    texts = [os.environ.get(name, "") for name in _JAVA_OPTIONS_VARIABLES]
    texts.append(conf.get("spark.driver.extraJavaOptions", ""))
    if re.search(r"-XX:[+]Use\w+GC\b", " ".join(texts)):
        return ["-XX:TieredStopAtLevel=1"]
    return ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def local_session(
    app_name: str,
    *,
    master: str = "local[*]",
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = (),
    metrics: str | None = None,
) -> SparkSession:
    """Start a Spark session on this machine, quiet and on loopback only; `conf` overrides settings.

    `log_file` gets everything that the JVM and its workers print; None: standard error.
    `jvm_options`: the driver's JVM options, after those for the class archive and before those of
    `conf`. `metrics`: HOST:PORT or :PORT, where figures of all queries are served for Prometheus,
    and probes. Raises SparkUnavailableError, with Spark's reason if there is one; WrongSettingError
    for a wrong setting in `conf`, which it names.

    A program has one session at a time: while it is open, the same arguments return it, after
    setting `conf`. Raises ConfigError for other arguments, and for settings that it can no longer
    change: first end it with `close_session`.
    """
    global _open_session
    arguments = {
        "app_name": app_name,
        "master": master,
        "log_file": log_file,
        "jvm_options": tuple(jvm_options),
        "metrics": metrics,
    }
    conf = dict(conf or {})
    if _is_running():
        return _reuse_session(arguments, conf)
    find_java()  # without a Java it raises an error with advice, which PySpark would not
    folder = _name_private_folder()
    archive = class_archive(master)
    if archive is not None:
        jvm_options = [*archive.jvm_options(), *jvm_options]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    builder = builder.config(map={**_default_settings(master, folder), **conf})
    with ExitStack() as cleanup:
        if metrics is not None:
            from jetspark.spark.queries import metrics as query_metrics

            figures = cleanup.enter_context(query_metrics.served(metrics))
        with _start_workers(folder, master, conf, log_file) as fork_server:
            session = SessionStart(
                builder, log_file, options=jvm_options, settings=conf, folder=folder
            ).session()
        if metrics is not None:
            figures.follow_all(session)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        _open_session = _OpenSession(session, arguments, conf, fork_server, cleanup.pop_all())
    return session


def _default_settings(master: str, folder: Path) -> dict[str, str]:
    """The settings of a session, unless the user has others: quiet, and on loopback if it is local.

    `folder`: the session's private one, for sockets and tables.
    """
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
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if master.startswith("local"):
        # So that figures of running batches are not ten seconds old; it is cheap on one machine.
        settings["spark.executor.heartbeatInterval"] = "1s"
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        if not master.startswith("local-cluster"):
            # Otherwise Spark's ports serve every user of this machine, and unpickle, in Java's
            # way, what they send. Spark makes the secret.
            settings["spark.authenticate"] = "true"
        if os.name == "posix" and _has_room_for_sockets(folder):
            # Between the JVM and Python workers. Over TCP the first packets of each task wait 40 ms
            # for a delayed ACK. A Unix socket has no secret: whoever can open it is served, so it
            # is in the private folder.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = str(folder)
    return settings


def _is_running() -> bool:
    """Whether this program has an open session. A JVM whose session was stopped is ended."""
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if gateway is None:
        return False
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if context is not None and (jvm is None or jvm.poll() is None):
        return True
    _end_jvm(gateway)
    return False


def _reuse_session(arguments: Mapping[str, object], conf: Mapping[str, str]) -> SparkSession:
    """Return the open session for another call of `local_session`, after setting `conf` in it.

    Raises ConfigError if it was not started by `local_session`, or with other arguments, or a
    setting can no longer be changed; WrongSettingError for a setting that Spark refuses.
    """
    if (
        _open_session is None
        or SparkContext._active_spark_context is not _open_session.session.sparkContext
    ):
        raise ConfigError(
            "A Spark session that local_session has not started is open in this program: use it, "
            "or end it first with close_session(spark)."
        )
    different = [
        name for name, value in arguments.items() if value != _open_session.arguments[name]
    ]
    for name, value in conf.items() if not different else ():
        try:
            _open_session.session.conf.set(name, value)
        except PySparkException as error:
            if not (error.getCondition() or "").startswith("CANNOT_MODIFY"):
                raise WrongSettingError(name, str(explain(error))) from error
            # A setting that cannot be changed may be given again with the same value.
            if _open_session.settings.get(name) != value:
                different.append(name)
    if different:
        raise ConfigError(
            f"A session is open already, which cannot take another {', '.join(different)}: end it "
            "first with close_session(spark), or give what it was started with."
        )
    activate_session(_open_session.session)
    return _open_session.session


def _name_private_folder() -> Path:
    """Choose a path for a session's private folder, which is created later (`_start_workers`).

    The folder has sockets, whose paths must be short, so `/tmp` replaces a long path of the
    temporary folder.
    """
    name = f"jetspark-{secrets.token_hex(6)}"
    folders = [Path(parent, name) for parent in (tempfile.gettempdir(), "/tmp")]  # noqa: S108
    return next(filter(_has_room_for_sockets, folders), folders[0])


def _has_room_for_sockets(folder: Path) -> bool:
    """Whether a socket in the folder would have a path that is short enough for the system."""
    return len(os.fsencode(folder)) + _SOCKET_NAME_BYTES <= _MAX_SOCKET_PATH_BYTES


@contextmanager
def _start_workers(
    folder: Path, master: str, conf: Mapping[str, str], log_file: Path | None
) -> Iterator[ForkServer | None]:
    """Create a new session's private folder, and start the process from which it forks Python
    workers, so that this imports modules while Java starts.

    Yields that process's handle; None if Spark starts its workers itself. The caller starts the JVM
    in the block; if that fails, process and folder are removed.
    """
    # Named before it is created: a signal may raise its exception between any two steps.
    server = None
    try:
        folder.mkdir(0o700)
        with open_log(log_file) as log:
            server = start_fork_server(folder, master, conf, log)
        with nullcontext() if server is None else server.as_python():
            yield server
    except BaseException:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)  # a process in it ends with its standard input
        raise


def close_session(session: SparkSession, *, exit_seconds: float = 20.0) -> None:
    """Stop a Spark session and wait until its JVM has ended.

    After `exit_seconds` the JVM is killed. A session that was only stopped still has a JVM, which
    is ended; one that was closed has none.
    """
    context = SparkContext._active_spark_context
    gateway = SparkContext._gateway
    if gateway is None or context not in (None, session.sparkContext):
        return  # already closed; there may be a new one
    # A new thread has a new connection to the JVM. This thread's own may still be busy with a call
    # that a signal interrupted, and the JVM would handle the next one only after it.
    stopping = threading.Thread(target=_stop_session, args=(session,), daemon=True)
    stopping.start()
    stopping.join(_STOP_TIMEOUT_SECONDS)
    _end_jvm(gateway, 0.0 if stopping.is_alive() else exit_seconds)


def _end_jvm(gateway: Any, exit_seconds: float = 20.0) -> None:
    """End a JVM, and what belongs to its session: the fork server, the metrics' endpoint, the
    private folder.

    `gateway`: PySpark's link to the JVM. After `exit_seconds` the JVM is killed.
    """
    global _open_session
    if _open_session is not None:
        _open_session.cleanup.close()
        if _open_session.fork_server is not None:
            _open_session.fork_server.stop()
    _open_session = None
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if jvm is None:
        return
    if exit_seconds > 0:
        forget_gateway()
        if jvm.stdin is not None:
            jvm.stdin.close()  # to the JVM its Python has ended
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(exit_seconds)
    kill_jvm(jvm)
    forget_gateway()


def _stop_session(session: SparkSession) -> None:
    """Stop the session, but not its JVM, which still runs afterwards."""
    if session.sparkContext._accumulatorServer is not None:  # else it was stopped before
        stop_without_waiting(session.sparkContext._accumulatorServer)
    with suppress(Exception):  # the JVM may have ended already
        session.stop()


def stop_without_waiting(server: Any) -> None:
    """Make `server`, PySpark's accumulator server, stop in the background when the session stops.

    It checks only once a second whether to end, for which the session's end would wait. It also no
    longer prints an error when its connection ends, as it does with the JVM.
    """
    server.shutdown = threading.Thread(target=server.shutdown, daemon=True).start
    server.handle_error = lambda *_: None
