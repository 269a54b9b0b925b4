"""A large object goes up and comes down: `python -m tests.soak.objects --gigabytes 2`.

Once with asyncio and once without, and with asyncio while the server is killed and started again
(`--kills` each way). The content is made while it is sent and compared by its digest, so nothing
large is ever in this process: its memory has to stay below MOST_MEMORY. Of what was put first
nothing may be left when it is replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from tests.soak.quiet import resident

import jetspark
from jetspark import blocking
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer

MOST_MEMORY = 100_000_000
"""Bytes of this process."""

_BLOCK = 1_000_003  # no multiple of anything


@dataclass
class Figures:
    """What happened, one way with `how`."""

    how: str
    size: int
    up: float = 0.0
    """Seconds."""
    down: float = 0.0
    kills: int = 0
    peak: int = 0
    """Bytes of memory of this process."""

    def __str__(self) -> str:
        megabytes = self.size / 1e6
        return (
            f"{self.how}: {megabytes:,.0f} MB up in {self.up:.1f} s ({megabytes / self.up:.0f} "
            f"MB/s), down in {self.down:.1f} s ({megabytes / self.down:.0f} MB/s), "
            f"{self.kills} kills, at most {self.peak / 1e6:.0f} MB of memory"
        )


class Content:
    """`size` bytes that are never all here, and their digest."""

    def __init__(self, size: int, figures: Figures) -> None:
        self._size = size
        self._figures = figures
        self._base = random.Random(size).randbytes(_BLOCK)
        self.digest = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        left, number = self._size, 0
        while left:
            block = (b"%d " % number + self._base)[: min(left, _BLOCK)]
            self.digest.update(block)
            yield block
            left -= len(block)
            number += 1
            self._figures.peak = max(self._figures.peak, resident())


async def with_asyncio(server: NatsServer, size: int, kills: int = 0, seed: int = 0) -> Figures:
    """Put, get, replace; the server is killed `kills` times on the way up and down."""
    figures = Figures(f"asyncio, {kills} kills each way" if kills else "asyncio", size)
    dice = random.Random(seed)

    def moments() -> list[int]:
        return sorted(dice.randrange(size) for _ in range(kills))

    async def perhaps_kill(done: int, at: list[int]) -> None:
        if at and done >= at[0]:
            at.pop(0)
            figures.kills += 1
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    async with jetspark.connect(server.url, reconnect_wait=0.05, max_reconnect_attempts=-1) as nc:
        store = await nc.jetstream().create_object_store("LARGE")
        content = Content(size, figures)

        async def disturbed() -> AsyncIterator[bytes]:
            at, done = moments(), 0
            for block in content:
                await perhaps_kill(done, at)
                yield block
                done += len(block)

        begin = time.perf_counter()
        info = await store.put("large", disturbed() if kills else content)
        figures.up = time.perf_counter() - begin
        assert info.size == size
        await check_messages(store, info.chunks + 1)
        begin = time.perf_counter()
        digest, at, done = hashlib.sha256(), moments(), 0
        async for chunk in await store.get("large"):
            digest.update(chunk)
            done += len(chunk)
            await perhaps_kill(done, at)
            figures.peak = max(figures.peak, resident())
        figures.down = time.perf_counter() - begin
        assert digest.digest() == content.digest.digest()
        await store.put("large", b"small")
        await check_messages(store, 2)
        await nc.jetstream().delete_object_store("LARGE")
    return figures


async def check_messages(store: ObjectStore, count: int) -> None:
    """Nothing else is in the store."""
    found = (await store.status()).stream_info.state.messages
    assert found == count, f"{found} messages in place of {count}"


def without_asyncio(server: NatsServer, size: int) -> Figures:
    """The same with the blocking client."""
    figures = Figures("blocking", size)
    with blocking.connect(server.url) as nc:
        store = nc.jetstream().create_object_store("LARGE")
        content = Content(size, figures)
        begin = time.perf_counter()
        store.put("large", content)
        figures.up = time.perf_counter() - begin
        begin = time.perf_counter()
        digest = hashlib.sha256()
        for chunk in store.get("large"):
            digest.update(chunk)
            figures.peak = max(figures.peak, resident())
        figures.down = time.perf_counter() - begin
        assert digest.digest() == content.digest.digest()
        nc.jetstream().delete_object_store("LARGE")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    size = int(options.gigabytes * 1e9)
    with NatsServer(name="soak-objects") as server:
        for figures in (
            asyncio.run(with_asyncio(server, size)),
            without_asyncio(server, size),
            asyncio.run(with_asyncio(server, size, options.kills, options.seed)),
        ):
            print(figures, flush=True)
            assert figures.peak < MOST_MEMORY, "too much memory"


if __name__ == "__main__":
    main()
