"""Ctrl-C, SIGTERM and a closed terminal as one exception, and the exit code of each."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one is not there on Windows


class StopRequested(BaseException):
    """Somebody asked this process to end. Not an Exception, so no `except Exception` eats it."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def name(self) -> str:
        """The signal's name."""
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """What shells and service managers take for "ended by this signal", unfinished."""
        return 128 + self.number


@dataclass(slots=True)
class Stop:
    """Whether a signal asked for the end, and which one."""

    requested: int | None = None
    held: bool = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, a signal is only noted, for `check`: an exception in the middle of a call to the
        JVM would leave its answer to be taken for the next call's."""
        self.held = True
        try:
            yield
        finally:
            self.held = False

    def check(self) -> None:
        """Raises StopRequested if so: for loops that run long."""
        if self.requested is not None:
            raise StopRequested(self.requested)


@contextmanager
def signals_held() -> Iterator[None]:
    """Inside, a signal to stop is only noted; at the end, what has come arrives.

    For imports of native modules (pandas, PyArrow): an exception in the middle of their
    initialisation can crash the process. Other threads than the main one get no signals anyway.
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
    """Those of the signals that are not ignored."""
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    found = {number: signal.getsignal(number) for number in numbers}
    return {
        number: handler
        for number, handler in found.items()
        if handler is not signal.SIG_IGN and handler is not None
    }


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Inside, the first signal to stop raises StopRequested in the main thread.

    Python throws away what is raised in a finalizer (Py4J has one for every Java object) and in
    some callbacks, so the request is also kept: look at it in a loop, and at the end it is raised
    again. A failure after it counts as its consequence: Ctrl-C reaches Spark's workers too.

    Further signals are ignored, so an orderly end is not cut short: to the end of the process, of
    which some is left when this is. Signals that were ignored before, as under nohup, stay
    ignored. For the main thread only.
    """
    stop = Stop()
    before = _handlers()

    def request_stop(asked: int, _frame: object) -> None:
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
