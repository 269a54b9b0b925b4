"""Tasks that wait: in order, and without a trace once they no longer do."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Unique

from jetspark.connection.waiting import Room, Waiters
from jetspark.full_client import Client, JetStream


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(1, 20))
def test_whoever_takes_all_the_room_waits_behind_the_others(wants: list[int], size: int) -> None:
    async def run() -> list[int]:
        free = 0
        room = Room(lambda: free <= 0)
        order: list[int] = []

        async def take(who: int, count: int) -> None:
            nonlocal free
            for _ in range(count):
                while free <= 0:
                    await room.wait()
                free -= 1
                order.append(who)

        tasks = [asyncio.create_task(take(*each)) for each in enumerate(wants)]
        await turns()
        while not all(task.done() for task in tasks):
            free = size
            room.wake(size)
            await turns()
        assert len(room) == 0
        return order

    order = asyncio.run(run())
    # Each round of `size` places begins with whoever has waited longest.
    served: dict[int, int] = {}
    for begin in range(0, len(order), size):
        first, waiting = order[begin], set(order[begin:])
        longest = min(served.get(who, -1) for who in waiting)
        assert served.get(first, -1) == longest
        served.update(dict.fromkeys(order[begin : begin + size], begin))


async def test_a_cancelled_task_gives_its_room_to_the_next() -> None:
    full = True
    room = Room(lambda: full)
    first, second = (asyncio.create_task(room.wait()) for _ in range(2))
    await turns()
    full = False
    room.wake(1)
    first.cancel()
    async with asyncio.timeout(10):
        await second


async def grown(call: Callable[[], Awaitable[object]]) -> float:
    """Bytes that each call in vain leaves behind."""
    for _ in range(100):
        await call()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(400):
            await call()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / 400
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["Waiters", "Room"])
async def test_a_wait_that_is_over_leaves_nothing(kind: str) -> None:
    waits = Waiters() if kind == "Waiters" else Room(lambda: True)

    async def call() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await waits.wait()

    assert await grown(call) < 16
    assert not len(waits)


@pytest.mark.full
async def test_next_that_times_out_leaves_none(nc: Client, js: JetStream, unique: Unique) -> None:
    name = unique("QUIET")
    await js.create_stream(name=name, subjects=[name], storage="memory")
    subscription = nc.subscribe(unique("quiet"))
    async with js.stream(name).ordered() as messages, js.events(stream=name) as events:
        for source in (subscription, messages, events):

            async def call(source: object = source) -> None:
                with suppress(TimeoutError):
                    await source.next(0.0001)  # type: ignore[attr-defined]

            assert await grown(call) < 48, source


async def test_a_send_that_times_out_on_a_full_window_leaves_nothing(
    nc: Client, js: JetStream, unique: Unique
) -> None:
    nc.subscribe(subject := unique("silent"))  # it answers nothing
    async with js.publisher(1, timeout=600, raise_failures=False) as publisher:
        await publisher.publish(subject)

        async def call() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.0001):
                    await publisher.publish(subject)

        assert await grown(call) < 48
        await nc.close()  # nothing will be acknowledged
