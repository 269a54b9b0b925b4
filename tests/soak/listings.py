"""Listings beside writers.

Writers in processes of their own overwrite some keys, and infos of objects, without a pause, so
that each of these always has a value. Meanwhile keys, watches, histories, live mappings and the
names of objects are listed, with the asyncio and the blocking client, from buckets with a history
of one and of several. Each listing must have every name, `keys` and `objects` each of them once.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support import campaign

import jetspark
from jetspark import blocking
from jetspark.server import NatsServer

HOT = ("a", "m", "z")
"""Names that are overwritten."""
NAMES = (*HOT, *(f"k{number}" for number in range(100)))
HISTORIES = {"ONE": 1, "FIVE": 5}

WRITER = """
import asyncio, random, sys
from jetspark import connect
from tests.soak.listings import HISTORIES, HOT
from jetspark.objects.info import ObjectInfo, info_subject, to_stored

async def write(url, seed):
    chance = random.Random(seed)
    async with connect(url) as nc:
        js = nc.jetstream()
        buckets = [await js.bucket(name) for name in HISTORIES]
        infos = {name: to_stored(ObjectInfo(name=name, bucket="S", nuid=name)) for name in HOT}

        async def one():
            while True:
                for _ in range(chance.randrange(1, 200)):
                    name = chance.choice(HOT)
                    if chance.random() < 0.7:
                        await chance.choice(buckets).put(name, bytes(50))
                    else:
                        headers = {"Nats-Rollup": "sub"}
                        await js.publish(info_subject("S", name), infos[name], headers=headers)
                await asyncio.sleep(chance.choice((0, 0, 0.002)))

        await asyncio.gather(*(one() for _ in range(chance.randrange(1, 9))))

asyncio.run(write(sys.argv[1], int(sys.argv[2])))
"""


@dataclass
class Figures(campaign.Figures):
    """What was listed."""

    listings: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def listed(self, what: str, names: list[str], seconds: float) -> None:
        """A listing has these names."""
        self.count_run()
        self.listings[what] += 1
        self.slowest = max(self.slowest, seconds)
        if missing := sorted({*NAMES} - {*names}):
            self.wrong.append(f"{what}: {missing} are missing")
        if what.endswith(("keys", "objects")) and len(names) != len({*names}):
            twice = sorted(name for name, times in Counter(names).items() if times > 1)
            self.wrong.append(f"{what}: {twice} are there twice")


async def _watched(bucket: Any) -> list[str]:
    async with bucket.watch() as watcher:
        names: list[str] = []
        async for entry in watcher:
            if entry is None:
                return names
            names.append(entry.key)
    raise AssertionError("the watch ended")


def _watched_blocking(bucket: Any) -> list[str]:
    names: list[str] = []
    with bucket.watch() as watcher:
        for entry in watcher:
            if entry is None:
                break
            names.append(entry.key)
    return names


async def _live(bucket: Any) -> list[str]:
    async with bucket.live() as entries:
        return list(entries)


def _live_blocking(bucket: Any) -> list[str]:
    with bucket.live() as entries:
        return list(entries)


async def _keys(bucket: Any) -> list[str]:
    keys: list[str] = await bucket.keys().all()
    return keys


async def _history(bucket: Any) -> list[str]:
    return [entry.key for entry in await bucket.history().all()]


async def _objects(store: Any) -> list[str]:
    return [info.name for info in await store.objects().all()]


ASYNCIO: dict[str, Callable[[Any], Awaitable[list[str]]]] = {
    "keys": _keys,
    "watch": _watched,
    "history": _history,
    "live": _live,
    "objects": _objects,
}
BLOCKING: dict[str, Callable[[Any], list[str]]] = {
    "keys": lambda bucket: bucket.keys().all(),
    "watch": _watched_blocking,
    "history": lambda bucket: [entry.key for entry in bucket.history().all()],
    "live": _live_blocking,
    "objects": lambda store: [info.name for info in store.objects().all()],
}


async def run(runs: int = 2000, seed: int = 1, writers: int = 2) -> Figures:
    """A run is a listing, beside so many processes that write."""
    with NatsServer() as server:
        return await run_on(server.url, runs, seed, writers)


async def run_on(url: str, runs: int, seed: int, writers: int) -> Figures:
    """`run` on a server."""
    figures, chance = Figures(), random.Random(seed)
    async with jetspark.connect(url) as nc:
        js, places = nc.jetstream(), dict[str, tuple[Any, Any]]()
        other = await asyncio.to_thread(blocking.connect, url)
        for name, history in HISTORIES.items():
            bucket = await js.create_bucket(name, history=history, storage="memory")
            await asyncio.gather(*(bucket.put(key, b"x") for key in NAMES))
            places[name] = bucket, await asyncio.to_thread(other.jetstream().bucket, name)
        store = await js.create_object_store("S", storage="memory")
        await asyncio.gather(*(store.put(name, b"") for name in NAMES))
        stores = store, await asyncio.to_thread(other.jetstream().object_store, "S")
        writing = [
            await asyncio.to_thread(
                subprocess.Popen, [sys.executable, "-c", WRITER, url, str(seed + number)]
            )
            for number in range(writers)
        ]
        try:
            for _ in range(runs):
                what, place = chance.choice(list(ASYNCIO)), chance.choice(list(places))
                objects = stores if what == "objects" else places[place]
                begun = nc.loop.time()
                async with asyncio.timeout(60):
                    if chance.random() < 0.7:
                        names, how = await ASYNCIO[what](objects[0]), f"asyncio {place} {what}"
                    else:
                        names = await asyncio.to_thread(BLOCKING[what], objects[1])
                        how = f"blocking {place} {what}"
                figures.listed(how, names, nc.loop.time() - begun)
            if dead := [one.pid for one in writing if one.poll() is not None]:
                figures.wrong.append(f"writers {dead} have ended")
        finally:
            for one in writing:
                one.kill()
                one.wait()
            await asyncio.to_thread(other.close)
            for name in HISTORIES:
                await js.delete_bucket(name)
            await js.delete_object_store("S")
    return figures
