"""Workers: as many as have something to do, up to the limit, and none for each item."""

from __future__ import annotations

import asyncio
from collections import deque

from jetspark.errors import JetsparkError
from jetspark.services.endpoint import Workers


class Scene:
    """Items are functions that are awaited."""

    def __init__(self, limit: int) -> None:
        self.queue: deque[asyncio.Event | None] = deque()
        self.done = 0
        self.errors: list[JetsparkError] = []
        self.workers = Workers(
            asyncio.get_running_loop(), self.queue, self.work, limit, "w", self.errors.append
        )

    async def work(self) -> None:
        while self.queue:
            item = self.queue.popleft()
            if self.queue:
                self.workers.call()
            if item is not None:
                await item.wait()
            self.done += 1

    def put(self, *items: asyncio.Event | None) -> None:
        self.queue.extend(items)
        self.workers.call()

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_items_that_do_not_wait_need_two_workers_however_many_they_are() -> None:
    scene = Scene(8)
    for _ in range(20):
        scene.put(*[None] * 50)
        await scene.turns()
    assert scene.done == 1000
    assert len(scene.workers.tasks) <= 2


async def test_worker_that_is_cancelled_is_replaced() -> None:
    scene = Scene(1)
    scene.put(asyncio.Event(), None, None)
    await scene.turns()
    (task,) = scene.workers.tasks
    task.cancel()
    await scene.turns()
    assert scene.done == 2
    (other,) = scene.workers.tasks
    assert other is not task
    other.cancel()  # while it is idle
    await scene.turns()
    scene.put(None)
    await scene.turns()
    assert scene.done == 3
    assert scene.errors == []


async def test_item_that_comes_while_the_only_worker_finishes_is_worked_at() -> None:
    scene = Scene(1)
    finishing, gate = asyncio.Event(), asyncio.Event()

    async def work_and_take_leave() -> None:
        """As with a thread: it has seen the queue empty, and its loop does not know yet."""
        scene.queue.popleft()
        scene.done += 1
        finishing.set()
        await gate.wait()

    scene.workers._work = work_and_take_leave
    scene.put(None)
    await finishing.wait()
    scene.put(None)
    gate.set()
    await scene.turns()
    assert (scene.done, len(scene.queue)) == (2, 0)
