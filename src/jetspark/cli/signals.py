"""Ctrl-C, SIGTERM and a closed terminal as one exception."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one is not there on Windows


class StopRequested(BaseException):
    """Somebody asked this process to end. Not an Exception, so no `except Exception` eats it."""


@dataclass(slots=True)
class Stop:
    """Whether somebody asked for the end."""

    requested: bool = False

    def check(self) -> None:
        """Raises StopRequested if so: for loops that run long."""
        if self.requested:
            raise StopRequested


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Inside, the first signal to stop raises StopRequested in the main thread.

    Python throws away what is raised in a finalizer (Py4J has one for every Java object) and in
    some callbacks, so the request is also kept: look at it in a loop, and at the end it is raised
    again. A failure after it counts as its consequence: Ctrl-C reaches Spark's workers too.

    Further signals are ignored, so an orderly end is not cut short. Signals that were ignored
    before, as under nohup, stay ignored. For the main thread only.
    """
    stop = Stop()
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before = {
        number: handler
        for number in numbers
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def request_stop(_number: int, _frame: object) -> NoReturn:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        stop.requested = True
        raise StopRequested

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield stop
        stop.check()
    except Exception as failure:
        if not stop.requested:
            raise
        raise StopRequested from failure
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
