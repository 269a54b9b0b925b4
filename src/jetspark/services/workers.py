"""Tasks that work off a queue: as many as have something to do, up to a limit, and no task for each
item.

Contract: `call` when there may be something in the queue. One worker more then looks, unless one
was called that has not looked yet. A worker looks again when it has nothing more to do, and waits
to be called. One that was cancelled from outside, or by what it worked on, is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sized
from typing import Any

from jetspark.client.background import background
from jetspark.errors import JetsparkError


class Workers:
    """`work` takes from `queue` until it is empty. `name`: of the tasks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queue: Sized,
        work: Callable[[], Coroutine[Any, Any, None]],
        limit: int,
        name: str,
        on_error: Callable[[JetsparkError], None],
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._work = work
        self._limit = limit
        self._name = name
        self._on_error = on_error
        self._idle: list[asyncio.Future[None]] = []
        self._ended = False
        self._cancelled = False
        self.called = False
        """Whether a worker was called that has not looked yet."""
        self.tasks: set[asyncio.Task[None]] = set()

    def call(self) -> None:
        """There may be something to do."""
        if self.called:
            return
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                self.called = True
                return
        if len(self.tasks) < self._limit:
            self.called = True
            task = background(self._run(), self._name, self._on_error, name=self._name)
            self.tasks.add(task)
            task.add_done_callback(self._done)

    async def _run(self) -> None:
        while True:
            self.called = False
            await self._work()
            if self._queue:
                continue  # it came when a thread had seen the queue empty and was on its way back
            if self._ended:
                return
            waiting = self._loop.create_future()
            self._idle.append(waiting)
            await waiting

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not self._cancelled:
            self.called = False  # perhaps it was this one, cancelled before it could look
            if self._queue:
                self.call()

    def end(self) -> None:
        """Each ends when it finds nothing more to do."""
        self._ended = True
        for waiting in self._idle:
            if not waiting.done():
                waiting.set_result(None)
        self._idle.clear()

    def cancel(self) -> set[asyncio.Task[None]]:
        """End them now, but for the calling task; returns those that were cancelled."""
        self.end()
        self._cancelled = True
        cancelled = self.tasks - {asyncio.current_task()}
        for task in cancelled:
            task.cancel()
        return cancelled
