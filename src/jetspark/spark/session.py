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
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from jetspark.spark.class_archive import class_archive
from jetspark.spark.java import find_java
from jetspark.spark.jvm import SessionStart, kill
from jetspark.spark.table_keeper import settle
from jetspark.spark.workers.preloading import Preloader, preloading

_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Environment variables with options for each JVM."""

_STOP_SECONDS = 60.0
_SOCKET_NAME, _LONGEST_SOCKET = 45, 100
"""Bytes of a socket's name in its folder, and of the path that every system takes."""

_preloader: Preloader | None = None
"""Of the one JVM that a program can have."""


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
    """
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
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        if os.name == "posix" and _socket_fits(conf or {}):
            # Over TCP the first packets of each task wait 40 ms for a delayed ACK.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (settings | dict(conf or {})).items():
        builder = builder.config(name, value)
    with _preloaded(master, conf or {}, log_file):
        return SessionStart(builder, log_file, jvm_options, conf).session()


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
    """Stop the session and wait until its JVM is gone; after `exit_seconds` it is killed."""
    settle()  # while the JVM is there
    _stop_preloader()
    gateway = session.sparkContext._gateway
    # This thread's own connection may still be busy with a call that a signal has interrupted, and
    # the JVM would take the next one only after it.
    stopping = threading.Thread(target=_stop, args=(session,), daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or jvm is None:
        return
    if not stopping.is_alive():
        gateway.shutdown()
        if jvm.stdin is not None:
            jvm.stdin.close()  # for the JVM this is the end of its Python
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(exit_seconds)
    kill(jvm)
    SparkContext._gateway = SparkContext._jvm = None


def _stop(session: SparkSession) -> None:
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
