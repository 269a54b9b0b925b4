"""Ctrl-C, SIGTERM and a closed terminal as one exception, and the exit code of each."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

T = TypeVar("T")

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one is not there on Windows


class StopRequested(BaseException):
    """A signal asked this process to end. Not an Exception, so `except Exception` lets it pass."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def name(self) -> str:
        """The signal's name."""
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """The exit code by which shells and service managers recognise an end by this signal."""
        return 128 + self.number


@dataclass(slots=True)
class Stop:
    """The signal that asked for the end, if any."""

    requested: int | None = None
    held: bool = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """In the block a signal is only recorded, for `check`: after an exception in a call to the
        JVM, the next call would read its answer."""
        self.held = True
        try:
            yield
        finally:
            self.held = False

    def check(self) -> None:
        """Raises StopRequested after a signal; for long loops."""
        if self.requested is not None:
            raise StopRequested(self.requested)


def run_until_signal(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """`asyncio.run`, in which a signal to stop cancels the work; raises StopRequested then.

    The work cleans up first, and further signals do not interrupt that. A signal that comes when it
    is done changes nothing. Notes that it adds to its CancelledError, about what it could not clean
    up, are those of the StopRequested.
    """
    import asyncio  # not for commands that do without it

    stop = Stop()
    before = _handlers()
    cancel: Callable[[], object] | None = None

    async def main() -> T:
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

    def request_stop(number: int, _frame: object) -> None:
        # An exception raised here could be lost inside the event loop, or while that is closed.
        if stop.requested is None:
            stop.requested = number
            if cancel is not None:
                with suppress(RuntimeError):  # the loop has ended
                    cancel()

    for number in before:
        signal.signal(number, request_stop)
    try:
        return run_async(main())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, without a warning when a signal's exception keeps the work from starting."""
    import asyncio

    try:
        return asyncio.run(work)
    finally:
        work.close()


@contextmanager
def signals_held() -> Iterator[None]:
    """Holds signals back in the block and delivers them at its end.

    For imports of native modules (pandas, PyArrow): an exception during their initialisation can
    crash the process. Only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = _handlers()
    for number in before:
        signal.signal(number, lambda asked, _frame: came.append(asked))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def _handlers() -> dict[int, Any]:
    """The signals that are not ignored."""
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    found = {number: signal.getsignal(number) for number in numbers}
    return {
        number: handler
        for number, handler in found.items()
        if handler is not signal.SIG_IGN and handler is not None
    }


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """In the block, the first signal to stop raises StopRequested in the main thread.

    Python discards exceptions in finalizers (Py4J has one for every Java object) and in some
    callbacks, so the request is also recorded: loops check it, and it is raised again at the end of
    the block. A failure after it counts as its consequence, since Ctrl-C reaches Spark's workers
    too.

    Further signals are ignored until the process ends, so that an orderly end is not interrupted.
    Signals that were ignored before, as under nohup, stay ignored. For the main thread only.
    """
    stop = Stop()
    before = _handlers()
    process = os.getpid()

    def request_stop(asked: int, _frame: object) -> None:
        if os.getpid() != process:
            return  # a fork that is about to become another program (the JVM); this one ends it
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        stop.requested = asked
        if not stop.held:
            raise StopRequested(asked)

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield stop
        stop.check()
    except Exception as failure:
        if stop.requested is None:
            raise
        raise StopRequested(stop.requested) from failure
    finally:
        if stop.requested is None:
            for number, handler in before.items():
                signal.signal(number, handler)
