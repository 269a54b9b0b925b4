"""Contenders for a lock that are killed and suspended.

Eight processes compete for one lock; its holder writes to a resource, which remembers the greatest
token and refuses smaller ones. A run is a disturbance, every `--every` seconds: one of them, mostly
the holder, is killed (another one is started) or stands still for `--pause` seconds, longer than
the lease. Half of them never ask whether they still hold the lock: after a pause they go on
writing, and only the token tells. Wrong is: a token that two processes had, or that a later holder
had a smaller one, a write that was accepted with an older token after a newer one, a time without a
holder that is too long.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.support import campaign
from tests.support.instances import Instance

import jetspark
from jetspark.server import NatsServer

CONTENDERS = 8
BUCKET, KEY = "locks", "resource"


@dataclass
class Resource:
    """What the lock guards."""

    greatest: int = 0
    accepted: list[tuple[int, str]] = field(default_factory=list)
    """Token and process of each write."""
    holders: dict[int, str] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Writes with an old token, by process."""
    wrong: list[str] = field(default_factory=list)
    longest: float = 0.0
    """Seconds between two accepted writes."""
    at: float = field(default_factory=time.monotonic)

    def acquired(self, token: int, who: str) -> None:
        """Somebody says that it holds the lock."""
        if self.holders.setdefault(token, who) != who:
            self.wrong.append(f"token {token} of {self.holders[token]} and of {who}")

    def write(self, token: int, who: str) -> bool:
        self.acquired(token, who)
        if token < self.greatest:
            self.refused[who] += 1
            return False
        self.greatest = token
        self.accepted.append((token, who))
        self.longest = max(self.longest, time.monotonic() - self.at)
        self.at = time.monotonic()
        return True

    def judge(self) -> None:
        tokens = [token for token, _ in self.accepted]
        if tokens != sorted(tokens):
            self.wrong.append("a write with an older token was accepted after a newer one")
        turns = [who for who, _ in itertools.groupby(self.accepted)]
        if len(turns) != len({token for token, _ in turns}):
            self.wrong.append("a token was used again after another one")


@dataclass
class Figures(campaign.Figures):
    writes: int = 0
    tokens: int = 0
    killed: int = 0
    pauses: int = 0
    paused: set[str] = field(default_factory=set)
    """Processes that stood still once."""
    refused: Counter[str] = field(default_factory=Counter)
    """Writes with an old token, by kind of process."""
    refused_for_no_reason: int = 0
    """Those of careful processes that never stood still: two held the lock, or a write was under
    way for longer than a tenth of the lease."""
    longest_seconds_without_a_write: float = 0.0

    def take(self, resource: Resource) -> None:
        """What the resource has seen."""
        resource.judge()
        self.wrong += resource.wrong
        self.writes, self.tokens = len(resource.accepted), len(resource.holders)
        self.longest_seconds_without_a_write = resource.longest
        for who, count in resource.refused.items():
            self.refused[who.partition("-")[0]] += count
            if who.startswith("careful") and who not in self.paused:
                self.refused_for_no_reason += count


class Contenders:
    def __init__(
        self, url: str, lease: float, resource: Resource, figures: Figures, rng: random.Random
    ) -> None:
        self._url = url
        self._lease = lease
        self._resource = resource
        self._figures = figures
        self._rng = rng
        self._number = itertools.count()
        self._running: dict[str, Instance] = {}
        self._resuming: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        number = next(self._number)
        name = f"{'careless' if number % 2 else 'careful'}-{number}"
        module = "tests.chaos.locks_contender"
        self._running[name] = await Instance.start(module, self._url, name, str(self._lease))
        await self._running[name].ready()

    async def disturb(self, pause: float) -> None:
        """Kill or suspend one."""
        accepted = self._resource.accepted
        name = self._rng.choice(sorted(self._running))
        if self._rng.random() < 0.7 and accepted and accepted[-1][1] in self._running:
            name = accepted[-1][1]
        instance = self._running.pop(name)
        if self._rng.random() < 0.4:
            self._figures.killed += 1
            await instance.kill()
            await self.start()
            return
        self._figures.pauses += 1
        self._figures.paused.add(name)
        instance.pause()
        task = asyncio.create_task(self._resume(name, instance, pause))
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def _resume(self, name: str, instance: Instance, pause: float) -> None:
        await asyncio.sleep(pause)
        instance.resume()
        self._running[name] = instance

    async def end_all(self) -> None:
        await asyncio.gather(*self._resuming)
        for name, instance in self._running.items():
            if instance.ended:
                self._resource.wrong.append(f"{name} ended by itself")
            await instance.kill()


async def run(
    runs: int = 90,
    seed: int = 0,
    contenders: int = CONTENDERS,
    lease: float = 3.0,
    every: float = 2.0,
    pause: float = 10.0,
    without_ttl: bool = False,
) -> Figures:
    """`without_ttl`: the server does not remove records of the dead."""
    figures, resource, rng = Figures(), Resource(), random.Random(seed)
    with NatsServer(name="chaos") as server:
        async with jetspark.connect(server.url) as nc:
            await nc.jetstream().create_bucket(BUCKET, limit_marker_ttl=None if without_ttl else 60)

            async def serve(message: jetspark.Message) -> None:
                token, who = json.loads(message.data)
                if message.subject == "resource.write":
                    await message.respond(b"1" if resource.write(token, who) else b"0")
                else:
                    resource.acquired(token, who)
                    await message.respond(b"1")

            nc.subscribe("resource.*", callback=serve)
            them = Contenders(server.url, lease, resource, figures, rng)
            try:
                await asyncio.gather(*(them.start() for _ in range(contenders)))
                resource.at = time.monotonic()
                for _ in range(runs):
                    await asyncio.sleep(every)
                    await them.disturb(pause)
                    figures.count_run()
            finally:
                await them.end_all()
    figures.take(resource)
    return figures
