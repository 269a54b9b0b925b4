"""Base classes for objects that end when a `with` block, or a loop over them, is left.

They end also when the block or the loop raises.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.subscription import loop_was_left

ItemT = TypeVar("ItemT")
P = ParamSpec("P")
T = TypeVar("T")


class Leaving:
    """A context manager that calls `_finish` when the block is left."""

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
    """The asyncio object of a LeavingLoop."""

    @property
    def active(self) -> bool:
        """Whether more may come."""

    def stop(self) -> None:
        """End it."""


class LeavingLoop(Leaving):
    """Leaving the last loop over it ends it too, unless it is used in a `with` block.

    Several threads may loop: it goes on for those that still do.
    """

    _thread: LoopThread
    _inner: Stoppable
    _entered = False
    _was_left = False
    _loops: list[None]
    """One for each loop; a list, since a thread changes it in one step."""

    def __enter__(self) -> Self:
        self._entered = True
        return super().__enter__()

    def _loop(self, take: Callable[[], ItemT]) -> Iterator[ItemT]:
        if self._was_left:
            raise loop_was_left()
        self._loops.append(None)
        try:
            while True:
                try:
                    yield take()
                except StopIteration:
                    return
        finally:
            self._loops.pop()
            if not (self._entered or self._loops or self._thread.is_over):
                self._was_left = self._inner.active
                # Not waited for: the garbage collector may be running this.
                self._thread.post(self._inner.stop)


class Entering:
    """A context manager that runs the asyncio object's `async with`."""

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
        self._thread.leave(error, self._inner.__aexit__, kind, error, trace)


class EnteringInTurn(Entering):
    """As `Entering`, for several threads: calls run one at a time, and leaving waits for them."""

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
