"""What clients do while servers end: the base of all loads."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tests.support import campaign

import jetspark
from jetspark import Client, JetsparkError
from jetspark.server import NatsServer


@dataclass
class Figures(campaign.Figures):
    faults: Counter[str] = field(default_factory=Counter)
    longest_recovery: float = 0.0
    """Seconds from a fault until the load made progress again."""
    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    received: int = 0
    redelivered: int = 0
    batches: int = 0
    consumers: set[str] = field(default_factory=set)
    reconnects: int = 0
    reported: int = 0
    reported_and_stored: int = 0
    refused: int = 0
    unknown: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """What clients were told."""


class Load:
    """Clients at work, from the beginning of the block to its end."""

    FAULTS: ClassVar[tuple[str, ...]] = ("kill", "stop")
    """What happens to it; what no server does by itself is a method here."""
    JETSTREAM: ClassVar[bool] = True
    CONFIG: ClassVar[str] = ""
    """Of the servers."""
    CLIENTS: ClassVar[int] = 2
    COMING_AND_GOING: ClassVar[int] = 0
    """Tasks that there may be more at times."""
    PASSING: ClassVar[type[Exception]] = JetsparkError

    def __init__(self, how: str, servers: list[NatsServer], rng: random.Random) -> None:
        self.how, self.servers, self.rng = how, servers, rng
        self.figures = Figures()
        self.stopping = False
        self.clients: list[Client] = []
        self._working: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._exit = AsyncExitStack()

    async def begin(self) -> None:
        """Make what is needed, and start the work; the clients are there."""
        raise NotImplementedError

    async def progress(self) -> None:
        """Return when everything works at this moment."""
        raise NotImplementedError

    async def check(self) -> None:
        """Nobody works any more: raise AssertionError for what must not be."""
        raise NotImplementedError

    async def leader(self) -> NatsServer | None:
        """The server on which the load depends most, if it is known."""
        return None

    def work(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Beside everything else; it ends when `stopping` is set."""
        self._working.append(asyncio.create_task(coroutine))

    def read(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Beside everything else, to the end of the block."""
        self._reading.append(asyncio.create_task(coroutine))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when it holds. Raises what one of the tasks has raised."""
        while not holds():
            for task in (*self._working, *self._reading):
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)

    async def finish(self) -> None:
        """End the work and look."""
        self.stopping = True
        await asyncio.gather(*self._working)
        await self.check()

    async def __aenter__(self) -> Self:
        urls = [server.url for server in self.servers]
        for number in range(self.CLIENTS):
            # Each has another server, where there are enough.
            at = number % len(urls)
            connecting = jetspark.connect(
                urls[at:] + urls[:at],
                randomize=False,
                reconnect_wait=0.05,
                reconnect_jitter=0.02,
                max_reconnect_attempts=-1,
            )
            self.clients.append(await self._exit.enter_async_context(connecting))
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (tasks := [*self._working, *self._reading]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exit.aclose()
