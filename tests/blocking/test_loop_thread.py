"""The event-loop thread: values, errors, interrupts, closing."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.blocking.interrupted import interrupt_next_wait

from jetspark import errors
from jetspark.blocking.caller_side import drive
from jetspark.blocking.loop_thread import LoopThread, Suspended, _Call, current
from jetspark.blocking.worker import Worker


async def echo(value: object) -> object:
    await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


def test_values_and_errors_come_back() -> None:
    thread = current()
    assert thread.run(echo, 42) == 42
    with pytest.raises(KeyError, match="mine"):
        thread.run(echo, KeyError("mine"))
    with pytest.raises(StopAsyncIteration):
        thread.run(echo, StopAsyncIteration())
    assert thread.call(threading.get_ident) != threading.get_ident()
    assert thread.calls == set()


def test_thread_is_a_named_daemon() -> None:
    (thread,) = [one for one in threading.enumerate() if one.name == "jetspark-loop"]
    assert thread.daemon


def test_a_call_cancelled_before_it_begins_leaves_nothing() -> None:
    thread = current()

    async def never() -> None:
        raise AssertionError("begun")

    call = _Call(thread, never)

    def start_and_cancel() -> None:
        call.start()
        call.cancel()

    thread.call(start_and_cancel)
    thread.run(asyncio.sleep, 0)
    assert thread.calls == set()


def test_a_cancelled_call_is_reported_as_a_closed_connection() -> None:
    thread = current()

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(errors.ConnectionClosedError):
        thread.run(cancelled)


def test_an_interrupted_wait_cancels_its_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = current()
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    interrupt_next_wait(monkeypatch, begun)
    with pytest.raises(KeyboardInterrupt):
        thread.run(wait)
    assert ended.wait(30)
    thread.run(asyncio.sleep, 0)
    assert thread.calls == set()


def test_wait_wakes_regularly_to_notice_a_missed_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came in the moment between the last look and the wait: nothing wakes the thread."""
    thread = current()
    looks: list[float] = []

    class Deaf:
        """A lock of a thread whose signal is noticed by Python when it wakes."""

        def acquire(self, timeout: float) -> bool:
            looks.append(timeout)
            if len(looks) == 3:
                raise KeyboardInterrupt
            return False

        def release(self) -> None: ...

    create = _Call.__init__

    def make(self: _Call, *args: object) -> None:
        create(self, *args)  # type: ignore[arg-type]
        self.ended = Deaf()  # type: ignore[assignment]

    monkeypatch.setattr(_Call, "__init__", make)
    with pytest.raises(KeyboardInterrupt):
        thread.run(asyncio.sleep, 60)
    monkeypatch.undo()
    assert len(looks) == 3
    assert all(0 < look <= 1 for look in looks)
    thread.run(asyncio.sleep, 0)
    assert thread.calls == set()


def test_stop_ends_tasks_and_thread() -> None:
    thread = LoopThread()
    closed = []

    async def end() -> None:
        closed.append(1)

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    thread.open.add(end)
    thread.spawn(wait)
    thread.stop()
    assert closed == [1]
    assert thread.loop.is_closed()
    with pytest.raises(errors.ConnectionClosedError, match="interpreter exits"):
        thread.run(wait)
    thread.post(lambda: None)


def test_drive_runs_what_does_not_suspend() -> None:
    async def plain() -> int:
        return 7

    assert drive(plain()) == 7
    with pytest.raises(Suspended):
        drive(echo(1))


def test_worker_keeps_order_and_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    worker, seen, done = Worker("jetspark-test"), [], threading.Event()
    worker.post(lambda: seen.append(worker.is_current))
    worker.post(lambda: 1 / 0)
    worker.post(done.set)
    assert done.wait(30)
    worker.stop()
    assert (seen, worker.is_current) == ([True], False)
    assert "A callback raised" in caplog.text


def test_worker_runs_for_a_coroutine_and_gives_back_what_is_raised() -> None:
    thread, worker, seen = current(), Worker("jetspark-test"), []
    thread.run(worker.run, thread, lambda: seen.append(worker.is_current))
    with pytest.raises(ZeroDivisionError):
        thread.run(worker.run, thread, lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):  # a coroutine cannot raise it
        thread.run(worker.run, thread, lambda: next(iter(())))
    thread.call(worker.stop)
    assert seen == [True]
