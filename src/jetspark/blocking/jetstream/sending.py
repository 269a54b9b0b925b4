"""The waiting part of blocking publishers and of fast ingest.

Any number of threads may send; they take places in the window one at a time, and the event loop's
thread frees them. A thread that waits, for space or for the end, waits on a condition, which is
notified whenever the loop's thread has changed the window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.loop_thread import LOOK_EVERY


class Window(Protocol):
    """The messages in flight."""

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""


class Core(Protocol):
    """The part that runs in the event loop's thread: it sends and follows the acks."""

    def open(self) -> None:
        """At the beginning of the block."""

    def close(self) -> None:
        """At its end."""

    def tell_failures(self, error: BaseException | None) -> None:
        """After its end: raises PublishFailedError if messages failed."""


class Sending:
    """The part of a publisher that waits. `_window` and `_inner` are set by the class itself."""

    _window: Window
    _inner: Core

    def __init__(self, client: CallerSide) -> None:
        self._thread = client.thread
        self._buffer = client.buffer
        self._sending = threading.Lock()
        self._fates = threading.Condition()

    def _complete(self) -> None:
        """Wait until every message is acknowledged or failed, at the end of the block."""
        raise NotImplementedError

    def _wait_for_space(self) -> None:
        """Wait for space in window and buffer. Raises Suspended in the event loop's thread."""
        window = self._window
        while True:
            if window.full:
                self._wait(lambda: not window.full)
            elif self._buffer.crowded:
                self._buffer.block()
            else:
                return

    def _wait(self, is_so: Callable[[], bool]) -> None:
        self._thread.check_may_wait()
        with self._fates:
            while not is_so():
                self._fates.wait(LOOK_EVERY)
        self._thread.sleep_in_daemons()

    def _changed(self) -> None:
        with self._fates:
            self._fates.notify_all()

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        goes_on = kind is None or issubclass(kind, Exception)
        try:
            if goes_on:
                self._complete()
        finally:
            self._thread.call(self._inner.close)
        self._inner.tell_failures(error)
