"""The JVM of a Spark session, started so that it can be ended at any moment.

PySpark starts it by a shell script in the program's process group, where Ctrl-C reaches what the
script has started; if PySpark is interrupted while it waits, it loses track of the process, and
nothing can end it. So PySpark is called in a thread, which signals do not interrupt, and we record
the process and give it its own process group.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from jetspark.errors import SparkUnavailableError
from jetspark.spark.failures import blamed_setting, explain

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
            blamed = blamed_setting(failure, reason, self._settings)
            forget()  # while the JVM is there
            if self._jvm is not None:
                kill(self._jvm)
            if blamed is not None:
                raise WrongSettingError(*blamed) from failure
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
