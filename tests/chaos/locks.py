"""Contenders for a lock that are killed and suspended: `python -m tests.chaos.locks --seconds 180`.

Eight processes compete for one lock; its holder writes to a resource, which remembers the greatest
token and refuses smaller ones. Every `--every` seconds one of them, mostly the holder, is killed
(another one is started) or stands still for `--pause` seconds, longer than the lease. Half of them
never ask whether they still hold the lock: after a pause they go on writing, and only the token
tells. Wrong is: a token that two processes had, or that a later holder had a smaller one, a write
that was accepted with an older token after a newer one, a time without a holder that is too long.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import jetspark
from jetspark.server import NatsServer

CONTENDERS = 8
BUCKET, KEY = "locks", "resource"
_READY_WITHIN = 60.0


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
class Figures:
    """What happened."""

    resource: Resource = field(default_factory=Resource)
    killed: int = 0
    pauses: int = 0
    paused: set[str] = field(default_factory=set)
    """Processes that stood still once."""
    seconds: float = 0.0

    @property
    def unexpected(self) -> int:
        """Refusals of careful processes that never stood still: two held the lock, or a write was
        under way for longer than a tenth of the lease."""
        refused = self.resource.refused
        return sum(
            refused[who] for who in refused if who.startswith("careful") and who not in self.paused
        )

    def __str__(self) -> str:
        resource = self.resource
        kinds: Counter[str] = Counter()
        for who, count in resource.refused.items():
            kinds[who.partition("-")[0]] += count
        refused = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"{len(resource.accepted):,} writes with {len(resource.holders):,} tokens "
            f"in {self.seconds:.0f} s, {self.killed} killed, {self.pauses} pauses; refused for an "
            f"old token: {refused or 'none'} processes, {self.unexpected} of them of careful ones "
            f"that never stood still; longest time without a write "
            f"{resource.longest:.1f} s; {len(resource.wrong)} wrong"
        )


class Contenders:
    """The processes."""

    def __init__(self, url: str, lease: float, figures: Figures, rng: random.Random) -> None:
        self._url = url
        self._lease = lease
        self._figures = figures
        self._rng = rng
        self._number = itertools.count()
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._resuming: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        number = next(self._number)
        name = f"{'careless' if number % 2 else 'careful'}-{number}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.locks_contender"),
            *(self._url, name, str(self._lease)),
            stdin=asyncio.subprocess.PIPE,  # its end is the contender's
            stdout=asyncio.subprocess.PIPE,
        )
        self._running[name] = process
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), _READY_WITHIN) == b"ready\n"

    async def disturb(self, pause: float) -> None:
        """Kill or suspend one."""
        accepted = self._figures.resource.accepted
        name = self._rng.choice(sorted(self._running))
        if self._rng.random() < 0.7 and accepted and accepted[-1][1] in self._running:
            name = accepted[-1][1]
        process = self._running.pop(name)
        if self._rng.random() < 0.4:
            self._figures.killed += 1
            process.kill()
            await process.wait()
            await self.start()
            return
        self._figures.pauses += 1
        self._figures.paused.add(name)
        process.send_signal(signal.SIGSTOP)
        task = asyncio.create_task(self._resume(name, process, pause))
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def _resume(self, name: str, process: asyncio.subprocess.Process, pause: float) -> None:
        await asyncio.sleep(pause)
        process.send_signal(signal.SIGCONT)
        self._running[name] = process

    async def end_all(self) -> None:
        await asyncio.gather(*self._resuming)
        for name, process in self._running.items():
            if process.returncode is not None:
                self._figures.resource.wrong.append(f"{name} ended by itself")
                continue
            process.kill()
            await process.wait()


async def run(
    seconds: float,
    *,
    contenders: int = CONTENDERS,
    lease: float = 3.0,
    every: float = 2.0,
    pause: float = 10.0,
    ttl: bool = True,
    seed: int = 0,
) -> Figures:
    """So long. `ttl`: whether the server removes records of the dead, too."""
    figures, rng = Figures(), random.Random(seed)
    resource = figures.resource
    with NatsServer(name="chaos") as server:
        async with jetspark.connect(server.url) as nc:
            await nc.jetstream().create_bucket(BUCKET, limit_marker_ttl=60 if ttl else None)

            async def serve(message: jetspark.Message) -> None:
                token, who = json.loads(message.data)
                if message.subject == "resource.write":
                    await message.respond(b"1" if resource.write(token, who) else b"0")
                else:
                    resource.acquired(token, who)
                    await message.respond(b"1")

            nc.subscribe("resource.*", callback=serve)
            them = Contenders(server.url, lease, figures, rng)
            try:
                await asyncio.gather(*(them.start() for _ in range(contenders)))
                resource.at = begun = time.monotonic()
                while time.monotonic() - begun < seconds:
                    await asyncio.sleep(every)
                    await them.disturb(pause)
                figures.seconds = time.monotonic() - begun
            finally:
                await them.end_all()
    resource.judge()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--contenders", type=int, default=CONTENDERS)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--pause", type=float, default=10.0)
    parser.add_argument("--without-ttl", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    figures = asyncio.run(
        run(
            options.seconds,
            contenders=options.contenders,
            lease=options.lease,
            every=options.every,
            pause=options.pause,
            ttl=not options.without_ttl,
            seed=options.seed,
        )
    )
    print(figures)
    for wrong in figures.resource.wrong:
        print(wrong, file=sys.stderr)
    return 1 if figures.resource.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
