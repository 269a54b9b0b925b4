"""A signal to stop is never lost, and what breaks because of it is not reported."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jetspark.cli import app
from jetspark.cli.demo import _read_flights, demo
from jetspark.cli.server_flags import ServerFlags
from jetspark.cli.signals import StopRequested, run_until_signal, signals_held, stop_on_signals
from jetspark.cli.spark_flags import SparkFlags
from jetspark.cli.spark_session import quiet_spark
from jetspark.server import NatsServer


class _SignalledInItsFinalizer:
    """What is raised in a finalizer, Python prints and throws away."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # the handler runs between two instructions: here
            pass


def _signal_in_a_finalizer() -> None:
    holder = [_SignalledInItsFinalizer()]
    holder.clear()


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """Signals do what they do there, also where the tests run in the background of a shell."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("command", [["sub", "x"], ["events"], ["stream", "ls"], ["pub", "x"]])
def test_one_before_the_event_loop_runs_leaves_no_coroutine_that_was_never_awaited(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_loop() -> NoReturn:
        sys.exit(143)  # as the handler of SIGTERM

    monkeypatch.setattr(asyncio.events, "new_event_loop", make_loop)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)
        with pytest.raises(SystemExit):
            app.run([*command, "--server", "nats://127.0.0.1:1"])
        gc.collect()
    assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []


def test_one_while_the_connection_is_closed_does_not_hide_what_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.asynccontextmanager
    async def closing_long(**_: object) -> AsyncIterator[None]:
        yield
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def work(_: object) -> str:
        return "done"

    monkeypatch.setattr("jetspark.connect", closing_long)
    assert ServerFlags().run(work) == "done"


@pytest.mark.skipif(sys.platform == "win32", reason="loops of another kind")
def test_one_while_the_loop_is_closed_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also in between, and after asyncio has put handlers of its own back."""
    close = asyncio.SelectorEventLoop.close

    def close_slowly(self: asyncio.SelectorEventLoop) -> None:
        BaseSelectorEventLoop.close(self)
        os.kill(os.getpid(), signal.SIGTERM)
        close(self)
        os.kill(os.getpid(), signal.SIGINT)

    async def work() -> str:
        return "done"

    monkeypatch.setattr(asyncio.SelectorEventLoop, "close", close_slowly)
    assert run_until_signal(work) == "done"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_raised_at_once_in_the_main_thread(number: signal.Signals) -> None:
    with pytest.raises(StopRequested) as caught, stop_on_signals():
        os.kill(os.getpid(), number)
        pytest.fail("went on")
    assert (caught.value.name, caught.value.exit_code) == (number.name, 128 + number)
    os.kill(os.getpid(), number)  # ignored, to the end of the process


def test_signals_do_what_they_did_when_none_came() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def _quiet_spark() -> None:
    with stop_on_signals(), quiet_spark("test", SparkFlags(master="local[1]", quiet=True)):
        pytest.fail("went on")


def _server() -> None:
    with stop_on_signals(), NatsServer():
        pytest.fail("went on")


@pytest.mark.parametrize(
    ("use", "prefix"),
    [(_quiet_spark, "spark"), (demo, "demo"), (_server, "server")],
)
def test_one_in_the_moment_when_a_folder_is_made_leaves_no_folder(
    use: Callable[[], Any], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may come in `jetspark demo`, a millisecond after the line that says Spark is next."""
    make, made = os.mkdir, []

    def signalled(path: str | Path, *arguments: Any, **options: Any) -> None:
        make(path, *arguments, **options)
        if Path(path).name.startswith(f"jetspark-{prefix}-"):
            made.append(Path(path))
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "mkdir", signalled)
    with pytest.raises(StopRequested):
        use()
    gc.collect()
    (folder,) = made
    assert not folder.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_a_finalizer_swallowed_is_raised_in_the_loop_and_at_the_end() -> None:
    with pytest.raises(StopRequested), stop_on_signals() as stop:
        stop.check()
        _signal_in_a_finalizer()
        assert stop.requested
        with pytest.raises(StopRequested):
            stop.check()


def test_a_held_signal_is_raised_where_it_is_checked() -> None:
    with pytest.raises(StopRequested) as caught, stop_on_signals() as stop:
        with stop.holding():
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested == signal.SIGTERM
            stop.check()
        pytest.fail("went on")
    assert caught.value.exit_code == 143


def test_one_during_an_import_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of pandas, whose native modules do not survive it."""
    (tmp_path / "pandas.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(1000): pass\n"
        "read_csv = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    with pytest.raises(StopRequested), stop_on_signals():
        _read_flights(Path("flights.csv"))
    assert hasattr(sys.modules.pop("pandas"), "read_csv")


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_handlers_are_as_before_when_signals_were_held(handler: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        came = pytest.raises(KeyboardInterrupt) if callable(handler) else contextlib.nullcontext()
        with came, signals_held():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_failure_that_follows_is_its_consequence_and_any_other_stays_itself() -> None:
    with pytest.raises(OSError, match="of itself"), stop_on_signals():
        raise OSError("of itself")
    with pytest.raises(StopRequested), stop_on_signals():
        with contextlib.suppress(StopRequested):
            os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("a worker that got the signal too")


def test_one_that_was_ignored_before_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        stop.check()


def test_one_that_reaches_a_fork_before_it_is_another_program_says_nothing() -> None:
    """Ctrl-C goes to the whole group, also to the JVM's process in its first moment."""

    def in_the_fork() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    with stop_on_signals():
        done = subprocess.run(
            [sys.executable, "-c", "print('began')"],
            preexec_fn=in_the_fork,
            capture_output=True,
            text=True,
            check=True,
        )
    assert (done.stdout, done.stderr) == ("began\n", "")
