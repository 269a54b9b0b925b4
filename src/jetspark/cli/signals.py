"""Ctrl-C, SIGTERM and a closed terminal as one exception."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one is not there on Windows


class StopRequested(BaseException):
    """Somebody asked this process to end. Not an Exception, so no `except Exception` eats it."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside, the first signal to stop raises StopRequested in the main thread.

    Further ones are ignored, so an orderly end is not cut short. Signals that were ignored before,
    as under nohup, stay ignored. For the main thread only.
    """
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before = {
        number: handler
        for number in numbers
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def request_stop(_number: int, _frame: object) -> NoReturn:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise StopRequested

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
