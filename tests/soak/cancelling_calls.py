"""The calls that `tests.soak.cancelling` cancels, and the scene in which they are made."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import jetspark
from jetspark import Client, JetsparkError, JetStream
from jetspark.jetstream import PullConsumer
from jetspark.kv import Bucket
from jetspark.objects import ObjectStore
from jetspark.services import Request

Calling = Callable[["Scene", str], Coroutine[Any, Any, object]]
LARGE = 300_000
MESSAGES = 30


class Scene:
    """A client `nc` that is looked at, another one that answers it, and things to call."""

    nc: Client
    js: JetStream
    other: Client
    own: jetspark.Subscription
    consumer: PullConsumer
    bucket: Bucket
    store: ObjectStore
    echo = "echo"
    stream = "CANCELLED"

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def number(self) -> int:
        return next(self._numbers)

    def name(self) -> str:
        return f"N{self.number()}"

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str, reported: Callable[[JetsparkError], None]) -> AsyncIterator[Scene]:
        scene = cls()
        async with (
            jetspark.connect(url) as other,
            jetspark.connect(url, error_callback=reported) as nc,
        ):
            scene.other, scene.nc, scene.js = other, nc, nc.jetstream()
            other.subscribe(scene.echo, callback=lambda message: message.respond(message.data))
            other.subscribe("many", callback=_three_answers)
            called = await other.add_service("called", "1.0.0")
            called.endpoint("called")(lambda request: request.respond_nowait(request.data))
            await other.flush()
            scene.own = nc.subscribe("own")
            js = scene.js
            await js.create_stream(
                name=scene.stream,
                subjects=["s.>"],
                storage="memory",
                allow_direct=True,
                allow_atomic=True,
                allow_batched=True,
                allow_msg_schedules=True,
            )
            await js.create_stream(
                name="COUNTED", subjects=["c.>"], storage="memory", allow_msg_counter=True,
                allow_direct=True,
            )  # fmt: skip
            for number in range(MESSAGES):
                await js.publish("s.fill", b"%d" % number)
            scene.consumer = await js.stream(scene.stream).create_consumer(
                durable_name="WORK",
                filter_subject="s.fill",
                ack_wait=timedelta(seconds=0.2),
                max_ack_pending=10_000,
            )
            scene.bucket = await js.create_bucket("B", storage="memory", history=5)
            for key in "abcde":
                await scene.bucket.put(key, key.encode())
            scene.store = await js.create_object_store("O", storage="memory")
            await scene.store.put("large", bytes(LARGE), chunk_size=10_000)
            await nc.request(scene.echo)  # the inbox of requests stays
            await nc.request("called", b"[]")  # and the endpoint's worker
            yield scene

    async def left_on_the_server(self) -> list[str]:
        """Consumers that nobody will ever remove, and chunks of no object."""
        wrong = []
        js = self.other.jetstream()
        async for stream in js.stream_names():
            async for info in js.stream(stream).consumers():
                config = info.config
                if config.durable_name != "WORK" and not config.inactive_threshold:
                    wrong.append(f"left on the server: consumer {info.name} of {stream}")
        state = (await js.stream("OBJ_O").info(subjects_filter="$O.O.C.*")).state
        known = {f"$O.O.C.{info.nuid}" async for info in self.store.objects(include_deleted=True)}
        for subject in (state.subjects or {}).keys() - known:
            wrong.append(f"left on the server: chunks {subject}")
        return wrong


async def _three_answers(message: jetspark.Message) -> None:
    for number in range(3):
        await message.respond(b"%d" % number)


@dataclass(frozen=True)
class Call:
    """`make` gives the coroutine; `after` puts right at the server what may have been done."""

    name: str
    make: Calling
    after: Calling | None = None
    expected: tuple[type[BaseException], ...] = ()
    may_log: str | None = None

    @asynccontextmanager
    async def prepared(self, scene: Scene) -> AsyncIterator[Coroutine[Any, Any, object]]:
        name = scene.name()
        yield self.make(scene, name)
        if self.after is not None:
            with suppress(JetsparkError):
                await self.after(scene, name)

    def may(self, noticed: str) -> bool:
        """Whether it is in order that this was logged."""
        return self.may_log is not None and self.may_log in noticed


async def first(items: AsyncIterable[object], count: int) -> list[object]:
    """So many; the loop is left then."""
    found = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    return found


# -- core ----------------------------------------------------------------------------------------


async def core_subscribe(scene: Scene, name: str) -> None:
    async with scene.nc.subscribe(name) as sub:
        for number in range(3):
            await scene.nc.publish(name, b"%d" % number)
        assert [(await sub.next(30)).data for _ in range(3)] == [b"0", b"1", b"2"]


async def core_iterate(scene: Scene, name: str) -> None:
    async with scene.nc.subscribe(name, max_msgs=3) as sub:
        for _ in range(3):
            scene.nc.publish_nowait(name)
        assert len([message async for message in sub]) == 3


async def core_drain_subscription(scene: Scene, name: str) -> None:
    seen = []

    async def callback(message: jetspark.Message) -> None:
        await asyncio.sleep(0)
        seen.append(message)

    sub = scene.nc.subscribe(name, callback=callback)
    try:
        for _ in range(3):
            await scene.nc.publish(name)
        await sub.drain(30)
        assert len(seen) == 3
    finally:
        if sub.active:
            sub.unsubscribe()


async def connect_and_close(scene: Scene, name: str) -> None:
    nc = await jetspark.connect(scene.nc.current_server)
    try:
        await nc.request(scene.echo)
    finally:
        await nc.close()


async def connect_and_leave(scene: Scene, name: str) -> None:
    async with jetspark.connect(scene.nc.current_server) as nc:
        await nc.publish("a")


async def connect_and_drain(scene: Scene, name: str) -> None:
    nc = await jetspark.connect(scene.nc.current_server)
    try:
        nc.subscribe(name, callback=lambda message: None)
        await nc.publish(name)
    finally:
        await nc.drain()


async def reconnect(scene: Scene, name: str) -> None:
    async with jetspark.connect(scene.nc.current_server, reconnect_wait=0) as nc:
        sub = nc.subscribe(name)
        await nc.force_reconnect()
        await nc.publish(name)
        await sub.next(30)


async def client_events(scene: Scene, name: str) -> None:
    events = scene.nc.events()
    try:
        async with asyncio.timeout(0.01):
            await anext(events)
    except TimeoutError:
        pass
    finally:
        events.close()


# -- JetStream -----------------------------------------------------------------------------------


async def publisher(scene: Scene, name: str) -> None:
    async with scene.js.publisher(window=5) as pub:
        for _ in range(12):
            await pub.publish("s.x")
        await (await pub.publish_async("s.x"))
        await pub.flush()


async def batch(scene: Scene, name: str) -> None:
    async with scene.js.atomic_batch() as batch:
        for _ in range(3):
            await batch.publish("s.x")
        await batch.commit()


async def ingest(scene: Scene, name: str) -> None:
    async with scene.js.fast_ingest() as ingest:
        for _ in range(20):
            await ingest.publish("s.x")
        await ingest.commit()


async def fetch(scene: Scene, name: str) -> None:
    for message in await scene.consumer.fetch(3, timeout=1):
        await message.nak()


async def next_and_ack(scene: Scene, name: str) -> None:
    message = await scene.consumer.next(timeout=2)
    await message.in_progress()
    await message.nak()


async def consume_callback(scene: Scene, name: str) -> None:
    enough = asyncio.Event()

    async def callback(message: object) -> None:
        await asyncio.sleep(0)
        enough.set()

    async with scene.consumer.consume(max_messages=4, callback=callback) as messages:
        await enough.wait()
        await messages.drain(30)


async def ordered(scene: Scene, name: str) -> None:
    found = await first(scene.js.stream(scene.stream).ordered(subjects="s.fill"), MESSAGES)
    assert len(found) == MESSAGES


async def push(scene: Scene, name: str) -> None:
    consumer = await scene.js.stream(scene.stream).create_push_consumer(
        deliver_subject=f"to.{name}",
        filter_subject="s.fill",
        inactive_threshold=timedelta(seconds=5),
        ack_policy="none",
    )
    async with consumer.subscribe() as messages:
        await first(messages, MESSAGES)


async def ephemeral(scene: Scene, name: str) -> None:
    consumer = await scene.js.stream(scene.stream).create_consumer(filter_subject="s.fill")
    await consumer.info()
    message = next(iter(await consumer.fetch(1, timeout=2)))
    await message.ack_sync()
    await consumer.delete()


async def js_events(scene: Scene, name: str) -> None:
    async with scene.js.events() as events:
        await scene.nc.flush()
        await scene.js.create_stream(name=name, storage="memory")
        await events.next(30)


async def make_stream(scene: Scene, name: str) -> None:
    await scene.js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    await scene.js.stream(name).update(subjects=[f"{name}.>"], storage="memory", description="x")
    await scene.js.stream(name).purge()
    await scene.js.delete_stream(name)


async def delete_stream(scene: Scene, name: str) -> None:
    await scene.other.jetstream().delete_stream(name)


async def count_up(scene: Scene, name: str) -> None:
    await scene.js.increment("c.x")
    await scene.js.stream("COUNTED").get_counter("c.x")


async def schedule(scene: Scene, name: str) -> None:
    await scene.js.schedule(f"s.{name}", b"", target="s.target", every=3600)
    await scene.js.stream(scene.stream).cancel_schedule(f"s.{name}")


# -- buckets and objects -------------------------------------------------------------------------


async def keys_by_hand(scene: Scene, name: str) -> None:
    bucket = scene.bucket
    revision = await bucket.create(name, b"1")
    revision = await bucket.update(name, b"2", revision)
    await bucket.revert(name, revision)
    await bucket.delete(name)
    await bucket.purge(name)


async def watch_callback(scene: Scene, name: str) -> None:
    enough = asyncio.Event()

    async def callback(entry: object) -> None:
        await asyncio.sleep(0)
        if entry is None:
            enough.set()

    async with scene.bucket.watch("*", callback=callback):
        await enough.wait()


async def live_bucket(scene: Scene, name: str) -> None:
    async with scene.bucket.live("a") as live:
        assert live["a"] == b"a"


async def lock(scene: Scene, name: str) -> None:
    async with scene.bucket.lock(name, lease=2):
        pass


async def election(scene: Scene, name: str) -> None:
    async with scene.bucket.election(name, lease=2) as candidate:
        while not (await candidate.next()).leading:
            pass


async def make_bucket(scene: Scene, name: str) -> None:
    await scene.js.create_bucket(name, storage="memory")
    bucket = await scene.js.bucket(name)
    await bucket.status()
    await scene.js.delete_bucket(name)


async def put_object(scene: Scene, name: str) -> None:
    await scene.store.put(name, bytes(50_000), chunk_size=5_000)


async def put_pieces(scene: Scene, name: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            await asyncio.sleep(0)
            yield bytes(7_000)

    await scene.store.put(name, pieces(), chunk_size=5_000)


async def delete_object(scene: Scene, name: str) -> None:
    await scene.store.delete(name)


async def read_object(scene: Scene, name: str) -> None:
    assert len(await scene.store.get_bytes("large")) == LARGE


async def begin_object(scene: Scene, name: str) -> None:
    await first(await scene.store.get("large"), 3)


async def object_calls(scene: Scene, name: str) -> None:
    info = await scene.store.info("large")
    await scene.store.add_link(name, info)
    await scene.store.update_meta(name, description="x")
    await scene.store.delete(name)


async def service(scene: Scene, name: str) -> None:
    async def echo(request: Request) -> None:
        await asyncio.sleep(0)
        await request.respond(request.data)

    async with await scene.nc.add_service(name, "1.0.0") as service:
        await service.add_endpoint("echo", echo, subject=name, concurrency=3)
        reply = await scene.nc.services().request(name, b"x", timeout=30)
        assert reply.data == b"x"


async def service_called(scene: Scene, name: str) -> None:
    assert await scene.nc.services().request_json("called", [1], type=list[int]) == [1]
    assert await scene.nc.services().ping("called").all()


def some(make: Callable[[Scene], Any], count: int) -> Calling:
    async def call(scene: Scene, name: str) -> None:
        async with make(scene) as items:
            await first(items, count)

    return call


def listing(make: Callable[[Scene], Any]) -> Calling:
    async def call(scene: Scene, name: str) -> object:
        return await make(scene).all()

    return call


CALLS = (
    Call("publish", lambda s, n: s.nc.publish("nowhere", b"x")),
    Call("flush", lambda s, n: s.nc.flush()),
    Call("rtt", lambda s, n: s.nc.rtt()),
    Call("request", lambda s, n: s.nc.request("echo", b"x")),
    Call("request to nobody", lambda s, n: s.nc.request(n), expected=(jetspark.NoRespondersError,)),
    Call("request_many", lambda s, n: s.nc.request_many("many", max_msgs=3).all()),
    Call("request_many left", some(lambda s: s.nc.request_many("many"), 2)),
    Call("subscribe, next", core_subscribe),
    Call("subscribe, iterate", core_iterate),
    Call("subscribe, drain", core_drain_subscription),
    Call("connect, close", connect_and_close),
    Call("connect, leave", connect_and_leave),
    Call("connect, drain", connect_and_drain),
    Call("force_reconnect", reconnect),
    Call("events", client_events),
    Call("js.publish", lambda s, n: s.js.publish("s.x", b"x", msg_id=n)),
    Call("publisher", publisher),
    Call("atomic batch", batch),
    Call("fast ingest", ingest),
    Call("fetch", fetch),
    Call("next", next_and_ack),
    Call("consume", some(lambda s: s.consumer.consume(max_messages=4), 6)),
    Call("consume, callback", consume_callback),
    Call("ordered", ordered),
    Call("push", push),
    Call("consumer", ephemeral),
    Call("js.events", js_events, delete_stream),
    Call("stream", make_stream, delete_stream),
    Call("stream_info", lambda s, n: s.js.stream(s.stream).info()),
    Call("account_info", lambda s, n: s.js.account_info()),
    Call("api_request", lambda s, n: s.js.api_request("INFO")),
    Call("stream_names", listing(lambda s: s.js.stream_names())),
    Call("consumers", listing(lambda s: s.js.stream(s.stream).consumers())),
    Call("get_msg", lambda s, n: s.js.stream(s.stream).get(1)),
    Call("get_msg of the leader", lambda s, n: s.js.stream(s.stream).get(1, direct=False)),
    Call(
        "get_msgs", lambda s, n: first(s.js.stream(s.stream).get_many(subject="s.fill"), MESSAGES)
    ),
    Call("get_last_msgs", lambda s, n: first(s.js.stream(s.stream).get_last("s.fill"), 5)),
    Call("increment", count_up),
    Call("schedule", schedule),
    Call("kv get", lambda s, n: s.bucket.get("a")),
    Call("kv put", lambda s, n: s.bucket.put("a", b"a")),
    Call("kv writes", keys_by_hand, lambda s, n: s.bucket.purge(n)),
    Call("kv keys", listing(lambda s: s.bucket.keys())),
    Call("kv history", listing(lambda s: s.bucket.history("a"))),
    Call("kv watch", some(lambda s: s.bucket.watch("*"), 3)),
    Call("kv watch, callback", watch_callback),
    Call("kv live", live_bucket),
    Call("kv lock", lock),
    Call("kv election", election),
    Call("kv purge_deletes", lambda s, n: s.bucket.purge_deletes()),
    Call("bucket", make_bucket, lambda s, n: s.other.jetstream().delete_bucket(n)),
    Call("bucket names", listing(lambda s: s.js.bucket_names())),
    Call("object put", put_object, delete_object),
    Call("object put, pieces", put_pieces, delete_object),
    Call("object get", read_object),
    Call("object get, left", begin_object),
    Call("object calls", object_calls, delete_object),
    Call("object orphans", lambda s, n: s.store.purge_orphans()),
    Call("object list", listing(lambda s: s.store.objects())),
    Call("object watch", some(lambda s: s.store.watch(), 1)),
    Call("service", service),
    Call("service called", service_called),
)
