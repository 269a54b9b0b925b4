"""A Spark session on this machine for the command line, tests and notebooks.

Spark runs in a JVM that PySpark starts: Java 17 or newer has to be there. The JVM and its Python
workers write their log to one file instead of the user's terminal, listen on loopback only, and
are gone when `close_session` returns.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from jetspark.errors import SparkUnavailableError

OLDEST_JAVA = 17
_JVM_EXIT_SECONDS = 20.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """The java that Spark will use. Raises SparkUnavailableError when missing or too old."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else shutil.which("java")
    advice = f"Spark needs Java {OLDEST_JAVA} or newer: install it and put it on PATH (or set \
JAVA_HOME)."
    if found is None or not os.access(found, os.X_OK):
        where = f"there is no java in JAVA_HOME ({home})" if home else "no java was found"
        raise SparkUnavailableError(f"{advice} Now {where}.")
    # java -version writes to standard error.
    ran = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = _VERSION.search(ran.stderr)
    if match is None or int(match[1]) < OLDEST_JAVA:
        is_now = f"version {match[1]}" if match else "not a working Java"
        raise SparkUnavailableError(f"{advice} {found} is {is_now}.")
    return Path(found)


def local_session(
    app_name: str,
    *,
    master: str = "local[*]",
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with quiet, loopback-only settings; `conf` wins over them.

    `log_file` gets everything that the JVM and its workers print; None leaves it on standard
    error. Raises SparkUnavailableError.
    """
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "jetspark-warehouse")),
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (settings | dict(conf or {})).items():
        builder = builder.config(name, value)
    with _standard_error_to(log_file), _keeping_own_interrupt_handler():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def close_session(session: SparkSession) -> None:
    """Stop the session and wait until its JVM is gone."""
    gateway = session.sparkContext._gateway
    session.stop()
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or jvm is None:
        return
    gateway.shutdown()
    if jvm.stdin is not None:
        jvm.stdin.close()  # the JVM takes this as the end of its Python
    try:
        jvm.wait(_JVM_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _keeping_own_interrupt_handler() -> Iterator[None]:
    """PySpark replaces the handler of SIGINT; one that the program set itself stays."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before not in (signal.default_int_handler, signal.getsignal(signal.SIGINT)):
        with suppress(ValueError):  # not in the main thread: nothing was replaced
            signal.signal(signal.SIGINT, before)


@contextmanager
def _standard_error_to(file: Path | None) -> Iterator[None]:
    """Processes started inside inherit the file as their standard error."""
    if file is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
