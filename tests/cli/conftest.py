"""Commands of these tests, in this process or in one of their own, and what they leave running."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from jetspark.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer

_MARK = "JETSPARK_TEST_MARK"
_WITHIN = 60.0  # seconds
_ACT_WITHIN = 300.0


class Run(Protocol):
    def __call__(self, *arguments: str, server: str | None = None) -> tuple[int, str, str]: ...


@pytest.fixture
def run(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("stream", "ls")` is a command on the shared server, in this process.

    Returns the exit code, standard output and standard error, with the log. `server`: the URL of
    another one; "" for none.
    """

    def run(*arguments: str, server: str | None = None) -> tuple[int, str, str]:
        place = [] if server == "" else ["--server", server or url]
        with monkeypatch.context() as patch:
            patch.setattr(logging.root, "handlers", [])  # pytest's own would take the log
            code = app.run([*arguments, *place])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def run_in_spark(run: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run` for commands of Spark: in the session that tests share, in place of their own."""

    def local_session(*_: object, log_file: Path, **__: object) -> SparkSession:
        log_file.touch()
        return spark

    sessions = "jetspark.spark.session.session"
    monkeypatch.setattr(f"{sessions}.local_session", local_session)
    monkeypatch.setattr(f"{sessions}.close_session", lambda _: None)
    monkeypatch.setattr("jetspark.spark.session.warm_up_job.warm_up", lambda _: None)
    return run


@contextmanager
def meanwhile(act: Iterator[None], then: signal.Signals | None = None) -> Iterator[None]:
    """Beside a command in this process, `act` goes on in a thread; it yields while it waits.

    At its end the command gets the signal `then`; SIGINT, if it fails: again and again, as by a
    user.
    """
    ended = threading.Event()

    def run() -> None:
        number: signal.Signals | None = signal.SIGINT
        deadline = time.monotonic() + _ACT_WITHIN
        try:
            for _ in act:
                assert time.monotonic() < deadline, "it waits for ever"
                assert not ended.wait(0.05), "the command has ended"
            number = then
        finally:
            while number is not None and not ended.is_set():
                os.kill(os.getpid(), number)
                ended.wait(10)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
    running.result()


def until(holds: Callable[[], bool]) -> Iterator[None]:
    while not holds():
        yield


@pytest.fixture
def url(shared_server: NatsServer) -> str:
    """That of the shared server."""
    return shared_server.url


def _marked(value: str) -> list[int]:
    wanted = f"{_MARK}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or is not ours
        if wanted in environment.split(b"\0") and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """`nothing_left()` passes when, after a while, no process that the test started is left.

    Called once more at the end of the test.
    """
    value = secrets.token_hex(8)
    monkeypatch.setenv(_MARK, value)

    def check() -> None:
        deadline = time.monotonic() + _WITHIN
        while left := _marked(value):
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)

    yield check
    check()
