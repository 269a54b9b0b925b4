"""Requests to three instances of a service while they die.

Three processes run the same service, one of them with the blocking client. Every `--every` seconds
one is ended, by kill -9 or (`--gently`: always) by SIGTERM, which stops it in good order, and
another one is started. A run is a request. Each request has to end with its own answer or a typed
error within its timeout; when instances are only stopped, with its answer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support import campaign
from tests.support.instances import Instance

import jetspark
from jetspark.errors import NoRespondersError, RequestTimeoutError, ServiceError
from jetspark.server import NatsServer
from jetspark.services import Services

INSTANCES = 3
ANSWER_WITHIN = 2.0  # seconds
_HANG = 30.0  # seconds, far more than any request may take


@dataclass
class Figures(campaign.Figures):
    ended: Counter[str] = field(default_factory=Counter)
    """How requests ended."""
    killed: int = 0
    stopped: int = 0
    longest: float = 0.0
    """Seconds from a request to its end."""


class Instances:
    def __init__(self, url: str, figures: Figures, rng: random.Random) -> None:
        self._url = url
        self._figures = figures
        self._rng = rng
        self._running: list[Instance] = []
        self._number = itertools.count()

    async def start(self) -> None:
        """One more; returns when it takes requests."""
        client = "blocking" if next(self._number) % INSTANCES == INSTANCES - 1 else "asyncio"
        instance = await Instance.start("tests.soak.services_instance", self._url, client)
        self._running.append(instance)
        await instance.ready()

    async def end_one(self, *, gently: bool) -> None:
        """End any of them, and start another one."""
        instance = self._running.pop(self._rng.randrange(len(self._running)))
        if gently:
            self._figures.stopped += 1
            assert await instance.terminate() == 0
        else:
            self._figures.killed += 1
            assert not instance.ended
            await instance.kill()
        await self.start()

    async def end_all(self) -> None:
        for instance in self._running:
            await instance.kill()


async def _ask(services: Services, numbers: Iterator[int], figures: Figures) -> None:
    for number in numbers:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(_HANG):
                reply = await services.request("soak.echo", b"%d" % number, timeout=ANSWER_WITHIN)
            if reply.data != b"%d" % number:
                figures.wrong.append(f"{number} was answered with {reply.data!r}")
            figures.ended["answered"] += 1
        except (ServiceError, NoRespondersError, RequestTimeoutError) as error:
            figures.ended[type(error).__name__] += 1
        except Exception as error:
            figures.ended["other"] += 1
            figures.wrong.append(f"{number}: {error!r}")
        figures.longest = max(figures.longest, time.perf_counter() - begun)
        figures.count_run()


async def run(
    runs: int = 100_000, seed: int = 0, every: float = 5.0, at_once: int = 10, gently: bool = False
) -> Figures:
    """Raises AssertionError when an instance ends otherwise than it should."""
    figures, rng = Figures(), random.Random(seed)
    with NatsServer(name="soak", jetstream=False) as server:
        instances = Instances(server.url, figures, rng)
        try:
            await asyncio.gather(*(instances.start() for _ in range(INSTANCES)))
            async with jetspark.connect(server.url) as nc:
                services, numbers = nc.services(), iter(range(runs))
                asking = asyncio.gather(*(_ask(services, numbers, figures) for _ in range(at_once)))
                while not (await asyncio.wait({asking}, timeout=every))[0]:
                    await instances.end_one(gently=gently or rng.random() < 0.3)
                await asking
                assert len(nc.requests) == 0
                found = await services.stats("soak", timeout=10, max_msgs=INSTANCES).all()
                assert len(found) == INSTANCES
                if gently and len(figures.ended) > 1:
                    figures.wrong.append(f"requests failed: {figures.ended}")
        finally:
            await instances.end_all()
    return figures
