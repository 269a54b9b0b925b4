"""`with` over what the blocking client gives out, and loops: it ends when they are left.

Contract: it ends whatever was raised.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from jetspark.blocking.loop_thread import LoopThread

ItemT = TypeVar("ItemT")
P = ParamSpec("P")
T = TypeVar("T")


class Leaving:
    """`with` ends it at the end of the block."""

    __slots__ = ()

    def _finish(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._finish()


class Stoppable(Protocol):
    """The asyncio class of a LeavingLoop."""

    def stop(self) -> None:
        """The end."""


class LeavingLoop(Leaving):
    """Leaving a loop over it ends it too, unless it was entered with `with`."""

    _thread: LoopThread
    _inner: Stoppable
    _entered = False

    def __enter__(self) -> Self:
        self._entered = True
        return super().__enter__()

    def _loop(self, take: Callable[[], ItemT]) -> Iterator[ItemT]:
        try:
            while True:
                try:
                    yield take()
                except StopIteration:
                    return
        finally:
            # Not waited for: this may be the collector.
            if not (self._entered or self._thread.is_over):
                self._thread.post(self._inner.stop)


class Entering:
    """`with` does what the asyncio class's `async with` does."""

    _thread: LoopThread
    _inner: AbstractAsyncContextManager[Any]

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.run(self._inner.__aexit__, kind, error, trace)


class EnteringInTurn(Entering):
    """Used by many threads, one at a time: who leaves waits for the one whose turn it is."""

    _turn: threading.Lock

    def _run_in_turn(
        self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self._turn:
            return self._thread.run(function, *args, **kwargs)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._turn:
            super().__exit__(kind, error, trace)
