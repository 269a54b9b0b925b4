"""Every public iterator is left, in every way.

Each iterator of the asyncio and of the blocking client is made, gives out an item, and is left: by
`break`, `return`, an exception, a cancellation (an interrupt, with the blocking client), by losing
its last reference, and by the end of its event loop (its process). Those of JetStream are also left
by a `break` while the program keeps a reference. Within 10 s the server has no subscription, no
consumer and no waiting pull of it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import pkgutil
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.support import campaign

import jetspark
from jetspark import blocking
from jetspark.server import NatsServer

WITHIN = 10.0
"""Seconds until the server has nothing more of an iterator that was left."""
LOOK = 0.02
KEPT = "break, kept"
"""Left by a `break` while the program refers to it, which must end those of JetStream."""
WAYS = ("break", "return", "exception", "cancel", "del", KEPT)
ENDED = "loop ended"

CONFIG = """
accounts {
  APP { jetstream: enabled, users: [{user: app, password: app}] }
  SYS { users: [{user: sys, password: sys}] }
}
system_account: SYS
"""
USER: dict[str, Any] = {"user": "app", "password": "app"}


class Left(Exception):
    """What a loop raises to leave itself."""


def _then(value: Any, use: Callable[[Any], Any]) -> Any:
    """What `use` makes of the value; each may have to be awaited, with the asyncio client."""
    if not inspect.isawaitable(value):
        return use(value)

    async def later() -> Any:
        made = use(await value)
        return await made if inspect.isawaitable(made) else made

    return later()


def _of_bucket(use: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda nc, js: _then(js.bucket("B"), use)


def _of_store(use: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda nc, js: _then(js.object_store("O"), use)


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "Subscription": lambda nc, js: nc.subscribe("tick"),
    "EventStream": lambda nc, js: nc.events(),
    "Replies": lambda nc, js: nc.request_many("many", timeout=30),
    "ConsumerMessages": lambda nc, js: _then(
        js.stream("LEFT").consumer("work"), lambda consumer: consumer.consume()
    ),
    "OrderedMessages": lambda nc, js: js.stream("LEFT").ordered(subjects="s.>"),
    "PushMessages": lambda nc, js: _then(
        js.stream("LEFT").push_consumer("push"), lambda consumer: consumer.subscribe()
    ),
    "Events": lambda nc, js: js.events(kinds="api_audit"),
    "StoredMsgs": lambda nc, js: js.stream("LEFT").get_many(batch=2),
    "Paged": lambda nc, js: js.streams(),
    "Listing": _of_bucket(lambda bucket: bucket.keys()),
    "Watcher": _of_bucket(lambda bucket: bucket.watch()),
    "ObjectWatcher": _of_store(lambda store: store.watch()),
    "ObjectReader": _of_store(lambda store: store.get("large")),
    "Election": _of_bucket(lambda bucket: bucket.election("leader")),
    "GroupMember": lambda nc, js: _then(
        js.consumer_groups("GROUPED").static("g"), lambda group: group.consume("m", ack_wait=1)
    ),
}
"""By class: how to make one, with a client and its JetStream."""
ENTERED = {"Election", "GroupMember"}
"""They give out nothing before they were entered, and end with their block."""
GO_ON = {"Subscription", "EventStream", "Events"}
"""Core NATS: they go on while the program refers to them."""
NOT_LEFT = {
    "LiveBucket": "a mapping, which ends with its block",
    "StreamWatcher": "the base of the watchers",
    "FetchResult": "a list",
}


def public_iterators(package: str, method: str) -> set[str]:
    """Names of the public classes in the modules of this package that have the method."""
    found = set()
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if (
                inspect.isclass(value)
                and value.__module__ == module.name
                and not name.startswith(("_", "Base"))
                # The bases in client.subscription and blocking.iterators.
                and not name.endswith(("FrameReader", "QueueReader", "MessageReader", "Iterator"))
                and any(method in vars(base) for base in value.__mro__ if base is not dict)
                and not issubclass(value, (dict, tuple, str, Enum))
            ):
                found.add(name)
    return found


# -- leaving -------------------------------------------------------------------------------------


async def leave(nc: Any, name: str, way: str, kept: list[Any]) -> None:
    """Make an iterator with the asyncio client and leave it; with `ENDED` it never ends."""
    looped = asyncio.Event()
    task = asyncio.create_task(_iterate(nc, name, way, looped, kept))
    if way in ("cancel", ENDED):
        has_looped = asyncio.create_task(looped.wait())
        await asyncio.wait({task, has_looped}, return_when=asyncio.FIRST_COMPLETED)
        has_looped.cancel()
    if way == ENDED:
        kept.append(task)
        return
    if way == "cancel":
        task.cancel()
    with suppress(Left, asyncio.CancelledError):
        await task


async def _iterate(nc: Any, name: str, way: str, looped: asyncio.Event, kept: list[Any]) -> None:
    iterator = KINDS[name](nc, nc.jetstream())
    if inspect.isawaitable(iterator) and not hasattr(iterator, "__aiter__"):
        iterator = await iterator
    if way == KEPT:
        kept.append(iterator)
    if name == "EventStream":
        await nc.force_reconnect()
    if name in ENTERED:
        async with iterator:
            await _loop(iterator, way, looped)
    elif way == "del":
        await anext(iterator if hasattr(iterator, "__anext__") else aiter(iterator))
    else:
        await _loop(iterator, way, looped)


async def _loop(iterator: Any, way: str, looped: asyncio.Event) -> None:
    async for _ in iterator:
        looped.set()
        if way == "return":
            return
        if way == "exception":
            raise Left
        if way in ("cancel", ENDED):
            await asyncio.Event().wait()
        break


def leave_blocking(nc: Any, name: str, way: str, kept: list[Any]) -> None:
    """Make an iterator with the blocking client and leave it; with `ENDED` it is kept."""
    iterator = KINDS[name](nc, nc.jetstream())
    if way in (KEPT, ENDED):
        kept.append(iterator)
    if name == "EventStream":
        nc.force_reconnect()
    with suppress(Left, KeyboardInterrupt):
        if name in ENTERED:
            with iterator:
                _loop_blocking(iterator, way)
        elif way in ("del", ENDED):
            items = iterator if hasattr(iterator, "__next__") else iter(iterator)
            next(items)
            kept += [items] * (way == ENDED)
        else:
            _loop_blocking(iterator, way)


def _loop_blocking(iterator: Any, way: str) -> None:
    for _ in iterator:
        if way == "return":
            return
        if way == "exception":
            raise Left
        if way == "cancel":
            raise KeyboardInterrupt
        break


def end_of_loop(url: str) -> None:
    """An event loop ends while tasks iterate; its client is not closed."""

    async def main() -> None:
        kept: list[Any] = []
        nc = await jetspark.connect(url, **USER)
        for name in KINDS:
            await leave(nc, name, ENDED, kept)

    asyncio.run(main())


def end_of_process(url: str) -> None:
    """A process ends with iterators of which it took something; its client is not closed."""
    nc = blocking.connect(url, **USER)
    kept: list[Any] = []
    for name in KINDS:
        leave_blocking(nc, name, ENDED, kept)


# -- what the server has -------------------------------------------------------------------------


class Server:
    """What it has of others, and something for each iterator to give out."""

    def __init__(self, url: str) -> None:
        self._system = blocking.connect(url, user="sys", password="sys")
        self._nc = blocking.connect(url, **USER, name="own")
        self._js = self._nc.jetstream()
        self._over = threading.Event()
        self._ticking = threading.Thread(target=self._tick)
        self._prepare()
        self._nc.subscribe("many", callback=lambda message: message.respond(b"one of many"))
        self._nc.flush()
        self._ticking.start()

    def close(self) -> None:
        self._over.set()
        self._ticking.join()
        self._nc.close()
        self._system.close()

    def _prepare(self) -> None:
        js = self._js
        js.create_stream(name="LEFT", subjects=["s.>"], storage="memory", allow_direct=True)
        for number in range(2000):
            self._nc.publish("s.a", b"%d" % number)
        js.stream("LEFT").create_consumer(name="work", ack_wait=3600, max_ack_pending=-1)
        js.stream("LEFT").create_push_consumer(
            name="push", deliver_subject="pushed", ack_policy="none"
        )
        bucket = js.create_bucket("B", storage="memory")
        for number in range(100):
            bucket.put(f"k{number}", b"x")
        store = js.create_object_store("O", storage="memory")
        store.put("large", bytes(3_000_000), chunk_size=10_000)
        js.create_stream(
            name="GROUPED",
            subjects=["g.*"],
            storage="memory",
            subject_transform={"src": "g.*", "dest": "{{partition(2,1)}}.g.{{wildcard(1)}}"},
        )
        js.consumer_groups("GROUPED").create_static("g", max_members=2, members=["m"])

    def _tick(self) -> None:
        """What comes without end."""
        while not self._over.wait(LOOK):
            for subject in ("tick", "s.tick", "g.1", "g.2"):
                self._nc.publish(subject)
            self._js.account_info()  # of which the server publishes an audit

    def has(self) -> list[str]:
        """Subscriptions of other clients, consumers, pulls that wait."""
        found = []
        for stream in ("LEFT", "KV_B", "OBJ_O", "GROUPED"):
            for info in self._js.stream(stream).consumers():
                found.append(f"consumer of {stream}")
                found += [f"pull of {info.name}"] * info.num_waiting
        server = self._system.server_info
        assert server is not None
        asked = self._system.system().connz(server=server.server_id, subscriptions=True)
        (connz,) = asked.all()
        for connection in connz.data.connections:
            if connection.name != "own" and connection.account == "APP":
                found += [f"subscription {one}" for one in connection.subscriptions_list]
        return sorted(found)


@dataclass
class Figures(campaign.Figures):
    left: int = 0
    slowest: float = 0.0

    def settled(self, server: Server, before: list[str], what: str) -> None:
        """Wait until the server has no more than before."""
        began = time.monotonic()
        gc.collect()
        while (now := server.has()) != before:
            if time.monotonic() - began > WITHIN:
                more = [one for one in now if now.count(one) > before.count(one)]
                self.wrong.append(f"{what}: {more}")
                before[:] = now
                break
            time.sleep(LOOK)
        self.slowest = max(self.slowest, time.monotonic() - began)


async def run(runs: int = 20, seed: int = 0, at_once: bool = False) -> Figures:
    """A run is each iterator in each way, in an order by the seed.

    `at_once`: look at the server after all of them, and not after each.
    """
    with TemporaryDirectory() as folder:
        config = Path(folder) / "server.conf"
        config.write_text(CONFIG, "utf-8")
        with NatsServer(0, host="127.0.0.1", jetstream=True, config=config) as server:
            return await _left_on(server.url, runs, Random(seed), each=not at_once)


async def _left_on(url: str, runs: int, rng: Random, *, each: bool) -> Figures:
    figures = Figures()
    server = await asyncio.to_thread(Server, url)
    nc = await jetspark.connect(url, **USER, reconnect_wait=0.01)
    other = await asyncio.to_thread(blocking.connect, url, **USER, reconnect_wait=0.01)
    try:
        await nc.jetstream().account_info()  # the inbox of requests stays
        await asyncio.to_thread(other.jetstream().account_info)
        group = await nc.jetstream().consumer_groups("GROUPED").static("g")
        async with group.consume("m", ack_wait=1):  # so does its consumer
            await asyncio.sleep(0.5)
        before = await asyncio.to_thread(server.has)

        async def settled(what: str) -> None:
            await asyncio.to_thread(figures.settled, server, before, what)

        async def leave_in_thread(*how: Any) -> None:
            await asyncio.to_thread(leave_blocking, other, *how)

        clients: dict[str, Callable[..., Awaitable[None]]] = {
            "": partial(leave, nc),
            "blocking ": leave_in_thread,
        }
        for _ in range(runs):
            for name in rng.sample([*KINDS], len(KINDS)):
                for way in rng.sample([*WAYS], len(WAYS)):
                    kept: list[Any] = []
                    for client, left in clients.items():
                        await left(name, way, kept)
                        if name in GO_ON:
                            kept.clear()
                        if each:
                            await settled(f"{client}{name}, {way}")
                        figures.left += 1
            await asyncio.to_thread(end_of_loop, url)
            await settled(ENDED)
            code = f"from tests.soak.leaving import end_of_process as end; end({url!r})"
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=True)
            await settled(f"blocking, {ENDED}")
            figures.left += 2 * len(KINDS)
            figures.count_run()
    finally:
        await nc.close()
        await asyncio.to_thread(other.close)
        await asyncio.to_thread(server.close)
    return figures
