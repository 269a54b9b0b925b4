"""Ctrl-C, SIGTERM and a closed terminal as one exception, and the exit code of each."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows lacks the last one


class StopRequested(BaseException):
    """Raised when a signal asks this process to end: Ctrl-C, SIGTERM or SIGHUP.

    Not an Exception, so that `except Exception` lets it pass.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        """`number`: the signal's number."""
        super().__init__(number)
        self.number = number

    @property
    def name(self) -> str:
        """The signal's name, such as SIGINT."""
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """The exit code that shells and service managers know for this signal."""
        return 128 + self.number


@dataclass(slots=True)
class Stop:
    """Tells the loops of a command whether a signal has asked it to end."""

    requested: int | None = None
    """The signal's number."""
    held: bool = False
    """Whether a signal is only recorded, and raises no exception in the main thread."""

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Raise no exception for a signal during the block; only record it, for `check`.

        An exception in the middle of a call to the JVM would leave the call's answer unread, and
        the next call would take it for its own.
        """
        self.held = True
        try:
            yield
        finally:
            self.held = False

    def check(self) -> None:
        """Raise StopRequested if a signal has come; long loops call this."""
        if self.requested is not None:
            raise StopRequested(self.requested)


def run_until_signal(
    work: Callable[[], Coroutine[Any, Any, T]], *, endless: Callable[[], bool] = lambda: False
) -> T | None:
    """Run `work` as `asyncio.run` does, but let a signal cancel it and raise StopRequested.

    The work cleans up first; further signals do not interrupt that. A signal after the work's end
    has no effect. Notes that the work adds to its CancelledError, for example about failed
    clean-up, go to StopRequested. `endless`: says at a signal whether that is the work's normal
    end, so that None is returned.
    """
    import asyncio  # slow to import, and not needed by every command

    stop = Stop()
    cancel: Callable[[], object] | None = None

    async def main() -> T:
        """Do the work; its cancellation by a signal becomes StopRequested."""
        nonlocal cancel
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        try:
            stop.check()
            return await work()
        except asyncio.CancelledError as cancelled:
            if stop.requested is None:
                raise
            request = StopRequested(stop.requested)
            for note in getattr(cancelled, "__notes__", ()):
                request.add_note(note)
            raise request from None

    def request_stop(signal_number: int, _frame: object) -> None:
        """Handle a signal: record the first one, and cancel the work's task."""
        # An exception raised here could get lost in the event loop, or while that closes.
        if stop.requested is None:
            stop.requested = signal_number
            if cancel is not None:
                with suppress(RuntimeError):  # the loop has ended
                    cancel()

    coroutine = main()
    with _handled_by(request_stop):
        try:
            return asyncio.run(coroutine)
        except StopRequested:
            if not endless():
                raise
            return None
        finally:
            coroutine.close()  # if it was never started: Python would warn of that


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT (Ctrl-C) during the block, which starts another command of jetspark.

    The new process inherits that, and ends it in its `main`. Ctrl-C goes to all processes of a
    terminal, and a Python that has just begun would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold back signals that ask to stop during the block, and deliver the first at its end.

    For imports of native modules (pandas, PyArrow), since an exception during their initialisation
    can crash the process. Does nothing outside the main thread, which gets all signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held_back: list[int] = []
    with _handled_by(lambda number, _frame: held_back.append(number)):
        yield
    for number in held_back[:1]:
        signal.raise_signal(number)


def _find_handlers() -> dict[int, Any]:
    """The present handlers of the signals that ask to stop (SIGINT, SIGTERM, SIGHUP), by number.

    Signals that are ignored, and those whose handler was not set from Python, are left out.
    """
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    return {n: handler for n, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}


@contextmanager
def _handled_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Handle signals that ask to stop with `handler` during the block, then as before.

    Signals that are ignored stay ignored, and handlers that the block sets itself stay in place.
    """
    before = _find_handlers()
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Raise StopRequested in the main thread at the first signal to stop during the block.

    Python discards exceptions in finalizers (Py4J has one for every Java object) and in some
    callbacks. So the signal is also recorded: loops check it, and the end of the block raises it
    again. A failure after the signal counts as its consequence, since Ctrl-C also reaches Spark's
    workers.

    Further signals are ignored until the process ends, so that they do not interrupt the cleanup.
    Signals ignored before, as under nohup, stay ignored. For the main thread only.
    """
    stop = Stop()
    process = os.getpid()

    def request_stop(signal_number: int, _frame: object) -> None:
        """Handle the first signal: record it, ignore further ones, and raise unless held."""
        if os.getpid() != process:
            return  # a fork that will become another program (the JVM), which this process ends
        for number in _find_handlers():
            signal.signal(number, signal.SIG_IGN)
        stop.requested = signal_number
        if not stop.held:
            raise StopRequested(signal_number)

    with _handled_by(request_stop):
        try:
            yield stop
            stop.check()
        except Exception as failure:
            if stop.requested is None:
                raise
            raise StopRequested(stop.requested) from failure
