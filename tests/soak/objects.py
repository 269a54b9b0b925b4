"""A large object goes up and comes down.

With the `asyncio` or the `blocking` client; with asyncio also while the server is killed and
started again (`--kills` each way). The content is made while it is sent and compared by its
digest, so nothing large is ever in this process: its memory has to stay below MOST_MEMORY. Of what
was put first nothing may be left when it is replaced.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated

from tests.soak.quiet import resident
from tests.support import campaign

import jetspark
from jetspark import blocking
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer

MOST_MEMORY = 60_000_000
"""Bytes of this process, beside what it had."""

_BLOCK = 1_000_003  # no multiple of anything


@dataclass
class Figures(campaign.Figures):
    megabytes_up_per_second: float = 0.0
    megabytes_down_per_second: float = 0.0
    kills: int = 0
    bytes_of_memory: int = 0
    """The most, beside those of the beginning."""


class Content:
    """`size` bytes that are never all here, their digest, and the digest of what came back."""

    def __init__(self, size: int, figures: Figures) -> None:
        gc.collect()
        self.size = size
        self._figures = figures
        self._base = random.Random(size).randbytes(_BLOCK)
        self._before = resident()
        self._sent, self._back = hashlib.sha256(), hashlib.sha256()
        self._began = time.perf_counter()

    def __iter__(self) -> Iterator[bytes]:
        left, number = self.size, 0
        while left:
            block = (b"%d " % number + self._base)[: min(left, _BLOCK)]
            self._sent.update(block)
            yield block
            left -= len(block)
            number += 1
            self._look()

    def is_up(self) -> None:
        self._figures.megabytes_up_per_second = self._speed()

    def came(self, chunk: bytes) -> None:
        self._back.update(chunk)
        self._look()

    def is_down(self) -> None:
        self._figures.megabytes_down_per_second = self._speed()
        assert self._back.digest() == self._sent.digest()

    def _look(self) -> None:
        used = resident() - self._before
        self._figures.bytes_of_memory = max(self._figures.bytes_of_memory, used)

    def _speed(self) -> float:
        began, self._began = self._began, time.perf_counter()
        return self.size / 1e6 / (self._began - began)


async def _with_asyncio(server: NatsServer, content: Content, moments: list[int]) -> None:
    """Put, get, replace; the server is killed when so many bytes have gone up, or come down."""
    at = [*moments]

    async def perhaps_kill(done: int) -> None:
        if at and done >= at[0]:
            at.pop(0)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    async def disturbed() -> AsyncIterator[bytes]:
        done = 0
        for block in content:
            await perhaps_kill(done)
            yield block
            done += len(block)

    async with jetspark.connect(server.url, reconnect_wait=0.05, max_reconnect_attempts=-1) as nc:
        store = await nc.jetstream().create_object_store("LARGE")
        info = await store.put("large", disturbed() if moments else content)
        content.is_up()
        assert info.size == content.size
        await _check_messages(store, info.chunks + 1)
        at, done = [*moments], 0
        async for chunk in await store.get("large"):
            content.came(chunk)
            done += len(chunk)
            await perhaps_kill(done)
        content.is_down()
        await store.put("large", b"small")
        await _check_messages(store, 2)


async def _check_messages(store: ObjectStore, count: int) -> None:
    """Nothing else is in the store."""
    found = (await store.status()).stream_info.state.messages
    assert found == count, f"{found} messages in place of {count}"


def _blocking(server: NatsServer, content: Content) -> None:
    with blocking.connect(server.url) as nc:
        store = nc.jetstream().create_object_store("LARGE")
        store.put("large", content)
        content.is_up()
        for chunk in store.get("large"):
            content.came(chunk)
        content.is_down()


def run(
    runs: int = 1,
    seed: int = 0,
    client: Annotated[str, ("asyncio", "blocking")] = "asyncio",
    gigabytes: float = 2.0,
    kills: int = 0,
) -> Figures:
    """A run is an object of so many bytes, on a server of its own."""
    figures, dice = Figures(kills=2 * kills * runs), random.Random(seed)
    for _ in range(runs):
        content = Content(int(gigabytes * 1e9), figures)
        with NatsServer(name="soak-objects") as server:
            if client == "blocking":
                _blocking(server, content)
            else:
                moments = sorted(dice.randrange(content.size) for _ in range(kills))
                asyncio.run(_with_asyncio(server, content, moments))
        figures.count_run()
    if figures.bytes_of_memory > MOST_MEMORY:
        figures.wrong.append("too much memory")
    return figures
