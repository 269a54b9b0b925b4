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
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
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
    listings: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def listed(self, what: str, names: list[str], seconds: float) -> None:
        self.count_run()
        self.listings[what] += 1
        self.slowest = max(self.slowest, seconds)
        if missing := sorted({*NAMES} - {*names}):
            self.wrong.append(f"{what}: {missing} are missing")
        if what.endswith(("keys", "objects")) and len(names) != len({*names}):
            twice = sorted(name for name, times in Counter(names).items() if times > 1)
            self.wrong.append(f"{what}: {twice} are there twice")


LISTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], str]]] = {
    "keys": (lambda bucket: bucket.keys(), str),
    "history": (lambda bucket: bucket.history(), lambda entry: str(entry.key)),
    "objects": (lambda store: store.objects(), lambda info: str(info.name)),
}
"""What is listed whole, and the name of one of it."""
KINDS = ("keys", "watch", "history", "live", "objects")


async def _asyncio(what: str, place: Any) -> list[str]:
    if what == "watch":
        names: list[str] = []
        async with place.watch() as watcher:
            async for entry in watcher:
                if entry is None:
                    return names
                names.append(entry.key)
        raise AssertionError("the watch ended")
    if what == "live":
        async with place.live() as entries:
            return list(entries)
    listed, name_of = LISTED[what]
    return [name_of(one) for one in await listed(place).all()]


def _blocking(what: str, place: Any) -> list[str]:
    if what == "watch":
        with place.watch() as watcher:
            return [entry.key for entry in takewhile(lambda entry: entry is not None, watcher)]
    if what == "live":
        with place.live() as entries:
            return list(entries)
    listed, name_of = LISTED[what]
    return [name_of(one) for one in listed(place).all()]


async def run(runs: int = 2000, seed: int = 1, writers: int = 2) -> Figures:
    """A run is a listing, beside so many processes that write."""
    with NatsServer() as server:
        return await run_on(server.url, runs, seed, writers)


async def run_on(url: str, runs: int, seed: int, writers: int) -> Figures:
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
                what, place = chance.choice(KINDS), chance.choice(list(places))
                objects = stores if what == "objects" else places[place]
                begun = nc.loop.time()
                async with asyncio.timeout(60):
                    if chance.random() < 0.7:
                        names, how = await _asyncio(what, objects[0]), f"asyncio {place} {what}"
                    else:
                        names = await asyncio.to_thread(_blocking, what, objects[1])
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
