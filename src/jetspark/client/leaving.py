"""How what is read ends: with its `async with` block, its last loop, or its last reference.

Contract
- Every reader ends with its `async with` block, and when nothing refers to it any more: the client
  keeps one that has no callback by a weak reference (`Client.adopt`), and what the read loop and
  timers call is either a part that does not know the reader, or `weakly`. A task that waits for an
  item refers to it.
- What takes messages out of JetStream ends also when the last `async for` over it is left, unless
  it was entered (`LeavingLoop`): a pull that goes on would use up deliveries that nobody handles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from weakref import WeakMethod

from jetspark.errors import BadSubscriptionError


def cancelled(task: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
    """Cancel a callback's task; returns it to be awaited, or None if it is done or the caller."""
    if task is None or task.done() or task is asyncio.current_task():
        return None
    task.cancel()
    return task


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Calls the method of an object that this does not keep alive; nothing when it is gone."""
    weak = WeakMethod(method)

    def call(*args: Any) -> None:
        if (alive := weak()) is not None:
            alive(*args)

    return call


def loop_was_left() -> BadSubscriptionError:
    """For a new loop over what leaving a loop has ended."""
    return BadSubscriptionError(
        "It ended when the loop over it was left: to go on after a loop, use it in a `with` block."
    )


class Leaving:
    """Ends with its `async with` block, whatever was raised.

    One whose loops count (`_loop_begins`, `_loop_ends`) ends also when the last loop over it is
    left, unless it was entered: several tasks may loop.
    """

    _entered = False
    _loops = 0
    _was_left = False

    def _leave(self) -> None:
        raise NotImplementedError

    def _loop_begins(self) -> None:
        """Raises BadSubscriptionError when leaving a loop has ended it."""
        if self._was_left:
            raise loop_was_left()
        self._loops += 1

    def _loop_ends(self, *, over: bool) -> None:
        """`over`: nothing more would have come."""
        self._loops -= 1
        if not (over or self._entered or self._loops):
            self._was_left = True
            self._leave()

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
