"""Who waits until a callback has handled what had arrived by then."""

from __future__ import annotations

import asyncio
from collections import deque


class Barriers:
    """Of one callback, which is called for one item after the other, in order.

    An item is handled when the next call begins, or when nothing is queued any more.
    """

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = 0
        # How many have to be taken, and by then handled; in the order in which they were made.
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, queued: int) -> asyncio.Future[bool]:
        """Done when these, and what is being handled, are handled; False: they never will be."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._taken + queued, future))
        return future

    def begun(self) -> None:
        """A call begins: all calls before it have ended."""
        while self._waiting and self._waiting[0][0] <= self._taken:
            _set(self._waiting.popleft()[1], True)
        self._taken += 1

    def took(self, count: int) -> None:
        """The present call handles so many more items."""
        self._taken += count

    def end(self, *, handled: bool) -> None:
        """Nothing is queued any more."""
        while self._waiting:
            _set(self._waiting.popleft()[1], handled)


def _set(future: asyncio.Future[bool], handled: bool) -> None:
    if not future.done():
        future.set_result(handled)
