"""Equal tasks get equal shares.

Five equal tasks, or threads with the blocking client, publish, or call, in one way and without a
pause: the slowest must get at least half of what the fastest gets. Beside such tasks a request, a
JetStream publish, an ack and a `get` of a bucket must end, within their timeouts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tests.support import campaign
from tests.support.together import together

import jetspark
from jetspark import blocking
from jetspark.server import NatsServer

TASKS = 5
SHARE = 0.5
"""What the slowest must get of what the fastest gets."""
SIZES = (100, 2000)

Send = Callable[[], Awaitable[object]]


@dataclass
class Figures(campaign.Figures):
    smallest_share: float = 1.0
    slowest_call: float = 0.0
    counts: dict[str, list[int]] = field(default_factory=dict)

    def counted(self, how: str, counts: list[int]) -> None:
        self.counts[how] = counts
        share = min(counts) / max(*counts, 1)
        self.smallest_share = min(self.smallest_share, share)
        if share < SHARE:
            self.wrong.append(f"{how}: {counts}")


async def _together(figures: Figures, how: str, seconds: float, send: Send) -> None:
    counts = [0] * TASKS
    end = time.monotonic() + seconds

    async def one(task: int) -> None:
        while time.monotonic() < end:
            await send()
            counts[task] += 1

    async with asyncio.timeout(seconds + 60):
        await asyncio.gather(*map(one, range(TASKS)))
    figures.counted(how, counts)


@asynccontextmanager
async def _busy(nc: Any) -> AsyncIterator[None]:
    """Three tasks that publish without a pause."""
    over = False

    async def one() -> None:
        while not over:
            await nc.publish("unheard", b"x")

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        over = True
        await asyncio.gather(*tasks)


async def _asyncio(url: str, figures: Figures, seconds: float, rng: Random) -> None:
    async with jetspark.connect(url) as nc, jetspark.connect(url) as other:
        js = nc.jetstream()
        await js.create_stream(name="FAIR", subjects=["fair.>"], storage="memory", max_msgs=10_000)
        bucket = await js.create_bucket("FAIR", storage="memory")
        await bucket.put("k", b"v")
        other.subscribe("echo", callback=lambda message: message.respond(b""))
        await other.flush()
        for size in rng.sample(SIZES, len(SIZES)):
            data = bytes(size)
            ways: dict[str, Send] = {
                "publish": partial(nc.publish, "unheard", data),
                "request": partial(nc.request, "echo", data, timeout=10),
                "js.publish": partial(js.publish, "fair.a", data),
                "put": partial(bucket.put, "k", data),
            }
            for name, send in rng.sample([*ways.items()], len(ways)):
                await _together(figures, f"{name} {size}", seconds, send)
            async with js.publisher(500) as publisher:
                send = partial(publisher.publish, "fair.a", data)
                await _together(figures, f"publisher {size}", seconds, send)
        consumer = await js.stream("FAIR").create_consumer(name="c")
        async with _busy(nc):
            messages = await consumer.fetch(10, timeout=10)
            for call in (
                lambda: nc.request("echo", b"", timeout=10),
                lambda: js.publish("fair.a", timeout=10),
                lambda: bucket.get("k"),
                lambda: bucket.put("k", b""),
                lambda: messages[0].ack_sync(timeout=10),
                lambda: messages[1].ack(),
                lambda: nc.flush(10),
            ):
                begun = time.monotonic()
                await call()
                figures.slowest_call = max(figures.slowest_call, time.monotonic() - begun)
        await js.delete_bucket("FAIR")
        await js.delete_stream("FAIR")


def _in_threads(seconds: float, send: Callable[[], object]) -> list[int]:
    counts = [0] * TASKS
    end = time.monotonic() + seconds

    def one(task: int) -> None:
        while time.monotonic() < end:
            send()
            counts[task] += 1

    together(one, range(TASKS))
    return counts


def _blocking(url: str, figures: Figures, seconds: float) -> None:
    with blocking.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name="FAIR", subjects=["fair.>"], storage="memory", max_msgs=10_000)
        with js.publisher(500) as publisher:
            ways: dict[str, Callable[[], object]] = {
                "publish": lambda: nc.publish("unheard", bytes(2000)),
                "js.publish": lambda: js.publish("fair.a", b"x"),
                "publisher": lambda: publisher.publish("fair.a", b"x"),
            }
            for name, send in ways.items():
                figures.counted(f"blocking {name}", _in_threads(seconds, send))
        js.delete_stream("FAIR")


async def run_on(
    url: str, figures: Figures, seconds: float, rng: Random, *, threads: bool = True
) -> None:
    """One run on a server; `threads`: of the blocking client, too, which the system schedules."""
    await _asyncio(url, figures, seconds, rng)
    if threads:
        await asyncio.to_thread(_blocking, url, figures, seconds)
    figures.count_run()


async def run(runs: int = 1, seed: int = 0, seconds: float = 3.0) -> Figures:
    """In a run each way is measured for so many seconds."""
    figures = Figures()
    with NatsServer() as server:
        for number in range(runs):
            await run_on(server.url, figures, seconds, Random(f"{seed} {number}"))
    return figures
