"""The JVM of a Spark session, started so that it can be ended at any moment.

PySpark starts it by a shell script in the program's process group, where Ctrl-C reaches what the
script has started; if PySpark is interrupted while it waits, it loses track of the process, and
nothing can end it. So PySpark is called in a thread, which signals do not interrupt, and we
record the process and give it its own process group.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from jetspark.errors import SparkUnavailableError
from jetspark.spark.failures import blamed_setting, explain

_EXIT_TIMEOUT_SECONDS = 20.0
_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
# A JVM's messages about its own end, and log4j's errors.
_END_REASON = re.compile(
    r"^(?:Exception in thread \S+ [\w.$]+: |Error: |\S+ \S+ ERROR \w+: "
    r"|(?=Invalid|Unrecognized))(.+)$",
    re.MULTILINE,
)


last_jvm: subprocess.Popen[bytes] | None = None
"""The last started JVM, also while it starts or ends and PySpark has no link to it."""


class WrongSettingError(SparkUnavailableError):
    """One of the caller's settings has a value with which Spark does not start."""

    def __init__(self, setting: str, reason: str) -> None:
        """The error for a setting with which Spark does not start, and the reason, for the user."""
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


@dataclass
class SessionStart:
    """Starts a JVM with a Spark session in a thread, so that it can be ended at any moment.

    For one start only: create it, then call `session`.
    """

    builder: SparkSession.Builder
    log_file: Path | None
    """What the JVM writes to, instead of standard error."""
    options: Sequence[str]
    """The JVM's options, before those of the configuration."""
    settings: Mapping[str, str]
    """The caller's settings, which errors name."""
    folder: Path
    """A folder that only this user can open."""
    _started: Future[SparkSession] = field(default_factory=Future)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_wanted: bool = True
    """False once the caller no longer waits, so that a JVM that starts then is ended."""
    _jvm: subprocess.Popen[bytes] | None = None

    def session(self) -> SparkSession:
        """Start the JVM, wait for its session, and return it.

        Raises SparkUnavailableError with Spark's reason, as WrongSettingError if one of the
        caller's settings is to blame. After any error, such as an interrupt, no JVM is left.
        """
        log_start = self.log_file.stat().st_size if self.log_file and self.log_file.exists() else 0
        thread = threading.Thread(target=self._start, name="jetspark-spark", daemon=True)
        try:
            thread.start()
            wait([self._started])
            failure = self._started.exception()
            if failure is None:
                activate_session(self._started.result())
        except BaseException:  # such as KeyboardInterrupt
            with self._lock:
                self._is_wanted = False
            if self._jvm is not None:
                kill_jvm(self._jvm)
            wait([self._started], _EXIT_TIMEOUT_SECONDS)
            forget_gateway()
            raise
        if failure is None:
            return self._started.result()
        code = None if self._jvm is None else self._jvm.poll()
        # Spark's own message, or the log's if the JVM ended before it could send one.
        ended = self._jvm is None or code is not None
        message = (ended and read_end_reason(self.log_file, log_start)) or explain(failure)
        reason = f"Spark did not start: {message}"
        blamed = blamed_setting(failure, reason, self.settings)
        forget_gateway()  # before the JVM is ended, as it must be
        if self._jvm is not None:
            kill_jvm(self._jvm)
        if blamed is not None:
            raise WrongSettingError(*blamed) from failure
        if code is not None:
            reason = f"{reason.rstrip('.')}; the JVM's exit code is {code}."
        raise SparkUnavailableError(reason) from failure

    def _start(self) -> None:
        """Start the JVM and the session in a thread; the future `_started` gets the session, or the
        error."""
        try:
            with (
                open_log(self.log_file) as log,
                _replace_popen(lambda *arguments, **options: self._launch(log, arguments, options)),
            ):
                session = self.builder.getOrCreate()
            session.sparkContext.setLogLevel("WARN")
            # This creates the session's state now. Otherwise the first query would, and fail for a
            # wrong setting of SQL.
            session._jsparkSession.sessionState()
            self._started.set_result(session)
        except BaseException as failure:
            self._started.set_exception(failure)

    def _launch(
        self, log: IO[bytes] | None, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> subprocess.Popen[bytes]:
        """Start the JVM's process in its own process group; called by PySpark in place of Popen.

        `arguments`, `options`: what PySpark would pass to Popen.
        """
        if log is not None:
            options["stderr"] = log  # not standard output, to which sinks may print rows
        if self.options:
            # Spark's script passes this variable to the JVM, before the configuration's options.
            quoted = [f'"{option}"' for option in self.options]
            before = options["env"].get(_OPTIONS_VARIABLE, "")
            options["env"][_OPTIONS_VARIABLE] = " ".join([before, *quoted]).strip()
        # PySpark's function, to ignore SIGINT, would run in a fork of this process, in which
        # handlers of libraries may crash. Signals of the terminal reach no other process group.
        options.pop("preexec_fn", None)
        if os.name == "posix":
            options["process_group"] = 0
        command, *positional = arguments
        command = _move_settings_to_file(command, self.folder / "settings")
        jvm: subprocess.Popen[bytes] = subprocess.Popen(command, *positional, **options)  # noqa: S603
        global last_jvm
        with self._lock:
            self._jvm = last_jvm = jvm
            is_wanted = self._is_wanted
        if not is_wanted:
            kill_jvm(jvm)
        return jvm


def open_log(log_file: Path | None) -> AbstractContextManager[IO[bytes] | None]:
    """Open the file to which a JVM prints, to append to it.

    `log_file`: None if the JVM prints to standard error; then nothing is opened. A new file can be
    read only by this user, since it may have rows in it.
    """
    if log_file is None:
        return nullcontext()
    return open(log_file, "ab", opener=partial(os.open, mode=0o600))


def _move_settings_to_file(command: Sequence[str], file: Path) -> list[str]:
    """Change the command that starts Spark so that its settings are in `file`, not in arguments.

    Every user of the machine sees the arguments of all processes, and settings may be secret; only
    this user can read the file. Returns the new command, or the same if there are no settings.
    """
    remaining, settings = list(command), list[str]()
    while "--conf" in remaining:
        index = remaining.index("--conf")
        settings.append(remaining[index + 1])
        del remaining[index : index + 2]
    if not settings or "--properties-file" in remaining:  # Spark takes only one such file
        return list(command)
    with open(file, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as properties:
        for name, _, value in (setting.partition("=") for setting in settings):
            properties.write(f"{_escape_property(name)}={_escape_property(value)}\n")
    return [remaining[0], "--properties-file", str(file), "--load-spark-defaults", *remaining[1:]]


def _escape_property(text: str) -> str:
    """Escape a name or value for a properties file of Java: special characters as \\uXXXX."""
    return re.sub(
        r"[^\w.\-/\U00010000-\U0010ffff]", lambda character: f"\\u{ord(character[0]):04x}", text
    )


def read_end_reason(log_file: Path | None, start: int = 0) -> str:
    """Find the reason why a JVM ended in what it has logged since byte `start` of its log.

    Empty if the log does not tell.
    """
    if log_file is None or not log_file.exists():
        return ""
    match = _END_REASON.search(log_file.read_bytes()[start:].decode("utf-8", "replace"))
    return match[1].strip() if match else ""


def activate_session(session: SparkSession) -> None:
    """Make the session the active one of this thread in the JVM.

    Through it Spark finds data sources that are written in Python.
    """
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)


def forget_gateway() -> None:
    """Drop PySpark's link to the JVM, which is about to end, so that a new session can be started.

    Otherwise Py4J would print errors about the lost link.
    """
    if SparkContext._gateway is not None:
        # Py4J has a thread that sends commands for objects that are no longer used. It would print
        # a traceback for each.
        SparkContext._gateway._gateway_client.is_connected = False
        with suppress(Exception):
            SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def kill_jvm(jvm: subprocess.Popen[bytes]) -> None:
    """Kill the JVM and all processes that it started, unless it has ended; wait for its end."""
    if jvm.poll() is None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(jvm.pid, signal.SIGKILL)
            else:
                jvm.kill()
    jvm.wait()


@contextmanager
def _replace_popen(function: Any) -> Iterator[None]:
    """Have PySpark call this function in place of Popen to start its JVM, during the block.

    There is no other way to learn the process that PySpark starts.
    """
    module: Any = java_gateway
    before, module.Popen = module.Popen, function
    try:
        yield
    finally:
        module.Popen = before
