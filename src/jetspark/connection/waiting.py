"""Tasks: how they begin, and how they wait for a change, or for room.

Contract: all belong to one event loop. A task that no longer waits, because it was cancelled or
its time is over, leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar

AT_ONCE = 16
"""Tasks woken in one turn of the event loop."""

T = TypeVar("T")


def start_task(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """A task that begins in a later turn of the loop, even under `asyncio.eager_task_factory`.

    So whoever starts it can first take note of it, and what it does is never done in the middle of
    the caller.
    """
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name)


class Waiters(list["asyncio.Future[None]"]):
    """Tasks that wait for a change. False without any, which the read loop checks."""

    __slots__ = ()

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self:
                self.remove(waiter)
            raise

    def wake(self) -> None:
        """Let all waiting tasks check again."""
        waiters = self[:]
        self.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Room:
    """Tasks that wait for room, and find it in the order in which they came.

    Nobody knows how much each takes. So they are woken in order, and a task that finds no room left
    keeps its place: one that takes all of it waits behind the others the next time.
    """

    def __init__(self, full: Callable[[], bool]) -> None:
        self._full = full
        self._queue: list[tuple[int, asyncio.Future[None]]] = []
        self._tickets = count()

    def __len__(self) -> int:
        """Number of tasks that wait."""
        return len(self._queue)

    async def wait(self) -> None:
        """Return when there is room, at once or after those who came before."""
        ticket = next(self._tickets)
        while self._full():
            waiter = asyncio.get_running_loop().create_future()
            heappush(self._queue, (ticket, waiter))
            try:
                await waiter
            except BaseException:
                if (ticket, waiter) in self._queue:
                    self._queue.remove((ticket, waiter))
                    heapify(self._queue)
                elif not self._full():
                    self.wake(1)  # the room may have been for somebody else
                raise

    def wake(self, max_tasks: float) -> None:
        """Let tasks look for room, at most so many; a few at once, as the first may take it all."""
        queue = self._queue
        woken = 0
        while queue and woken < min(max_tasks, AT_ONCE):
            waiter = heappop(queue)[1]
            if not waiter.done():
                waiter.set_result(None)
                woken += 1
        if queue and max_tasks > woken:
            asyncio.get_running_loop().call_soon(self._wake_more, max_tasks - woken)

    def _wake_more(self, max_tasks: float) -> None:
        if not self._full():
            self.wake(max_tasks)
