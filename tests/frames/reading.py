"""Scripts that read: through consumers, direct gets, buckets and object stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from tests.frames.scene import BEAT, Scene, retried, settled, until, within

from jetspark.errors import JetsparkError, RequestTimeoutError, SequenceMismatchError
from jetspark.jetstream import FetchResult, JsMsg, PullConsumer
from jetspark.kv import Bucket
from jetspark.ranges.current_values import read_last_per_subject
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange

_SHORT = timedelta(seconds=1)
_LIMITS = ReadLimits(heartbeat=BEAT, timeout=10)
_PUSHED = {b"1", b"2", b"3"}


async def _consumer(scene: Scene, **config: Any) -> tuple[PullConsumer, list[bytes]]:
    """Of a stream with what it holds; frames count from here on."""
    payloads = await scene.filled()
    await scene.near.stream(scene.name).create_consumer(durable_name="c", **config)
    consumer = await scene.js.stream(scene.name).consumer("c")
    scene.begin()
    return consumer, payloads


async def _fetches(
    scene: Scene, seconds: float, fetch: Callable[[PullConsumer, int], Awaitable[FetchResult]]
) -> None:
    """A batch is short only with an error, and acks bring back what was lost."""
    consumer, payloads = await _consumer(scene, ack_wait=_SHORT)
    got: set[bytes] = set()
    async with within(seconds, "fetching until all is here"):
        while got != set(payloads):
            try:
                batch = await fetch(consumer, len(payloads) - len(got))
            except JetsparkError:
                continue
            got |= {msg.data for msg in batch}
            for msg in batch:
                await msg.ack()
            if not batch:
                await asyncio.sleep(0.1)


async def fetch(scene: Scene) -> None:
    await _fetches(scene, 12, lambda consumer, missing: consumer.fetch(missing, timeout=1))


async def fetch_what_is_there(scene: Scene) -> None:
    await _fetches(scene, 15, lambda consumer, _: consumer.fetch(5))


async def next_message(scene: Scene) -> None:
    consumer, payloads = await _consumer(scene, ack_wait=_SHORT)
    got: set[bytes] = set()
    async with within(15, "next until all is here"):
        while got != set(payloads):
            try:
                message = await consumer.next(1)
                got.add(message.data)
                await message.ack_sync(timeout=1)
            except JetsparkError:
                continue


async def consume(scene: Scene) -> None:
    consumer, payloads = await _consumer(scene, ack_wait=_SHORT)
    got: set[bytes] = set()
    async with consumer.consume(heartbeat=BEAT, expires=1) as messages:
        async with within(10, "consuming"):
            while got != set(payloads):
                message = await messages.next()
                got.add(message.data)
                await message.ack()
        last = (await scene.near.publish(scene.subject, b"last")).seq
        async with within(10, "consuming one more"):
            while (message := await messages.next()).seq != last:
                await message.ack()


async def ordered(scene: Scene, **options: Any) -> None:
    payloads = await scene.filled()
    scene.begin()
    async with scene.js.stream(scene.name).ordered(heartbeat=BEAT, **options) as messages:
        async with within(8, "reading in order"):
            assert [(await messages.next()).data for _ in payloads] == payloads
        await scene.near.publish(scene.subject, b"last")
        async with within(8, "reading one more"):
            assert (await messages.next()).data == b"last"


async def ordered_one_by_one(scene: Scene) -> None:
    """Each delivery ends its pull."""
    await ordered(scene, max_messages=1)


async def _pushes(scene: Scene, callback: Any, enough: Callable[[], bool], **config: Any) -> None:
    """To the callback, until there is enough of it."""
    await scene.stream()
    consumer = await scene.js.stream(scene.name).create_push_consumer(
        deliver_subject=scene.nc.new_inbox(), idle_heartbeat=timedelta(seconds=BEAT), **config
    )
    scene.begin()
    async with consumer.subscribe(callback=callback):
        await scene.nc.flush()
        await scene.fill()
        async with within(10, "a push"):
            await until(enough)


async def push(scene: Scene) -> None:
    """Without acks: everything comes, or it is said that something did not."""
    got: set[bytes] = set()
    await _pushes(
        scene,
        lambda message: got.add(message.data),
        lambda: got == _PUSHED or scene.has_reported(SequenceMismatchError),
        ack_policy="none",
        flow_control=True,
    )


async def push_with_acks(scene: Scene) -> None:
    got: set[bytes] = set()

    async def take(message: JsMsg) -> None:
        got.add(message.data)
        await message.ack()

    await _pushes(scene, take, lambda: got == _PUSHED, ack_wait=_SHORT)


# -- stored messages -------------------------------------------------------------------------------


async def direct_get(scene: Scene) -> None:
    payloads = await scene.filled(allow_direct=True)
    scene.begin()
    for seq, payload in enumerate(payloads, 1):
        assert (await scene.js.stream(scene.name).get(seq)).data == payload


async def direct_range(scene: Scene) -> None:
    payloads = await scene.filled(5, allow_direct=True)
    scene.begin()
    got = [msg.data async for msg in scene.js.stream(scene.name).get_many(1, batch=3)]
    assert got == payloads


async def direct_last(scene: Scene) -> None:
    await scene.stream(allow_direct=True)
    for key in "abcde":
        await scene.near.publish(f"{scene.name}.{key}", key.encode())
    scene.begin()
    found = scene.js.stream(scene.name).get_last(f"{scene.name}.>", batch=3)
    assert [msg.data async for msg in found] == [b"a", b"b", b"c", b"d", b"e"]


# -- buckets ---------------------------------------------------------------------------------------


async def _bucket(scene: Scene, history: int = 1) -> tuple[Bucket, Bucket]:
    """The one behind the proxy, and the one beside it."""
    near = await scene.near.create_bucket(scene.name, history=history, storage="memory")
    for key in ("a", "b", "c"):
        await near.put(key, key.encode())
    return await scene.js.bucket(scene.name), near


async def keys(scene: Scene) -> None:
    bucket, _ = await _bucket(scene)
    scene.begin()
    async with within(12, "listing keys"):
        assert sorted(await bucket.keys().all()) == ["a", "b", "c"]


async def history(scene: Scene) -> None:
    bucket, near = await _bucket(scene, history=3)
    await near.put("a", b"2")
    scene.begin()
    async with within(12, "reading history"):
        got = [(entry.key, entry.value) for entry in await bucket.history().all()]
    assert got == [("a", b"a"), ("b", b"b"), ("c", b"c"), ("a", b"2")]


async def watch(scene: Scene) -> None:
    bucket, near = await _bucket(scene)
    scene.begin()
    got: list[str | None] = []
    async with bucket.watch(heartbeat=BEAT) as watcher, within(10, "watching"):
        async for entry in watcher:
            got.append(None if entry is None else entry.key)
            if entry is None:
                await near.put("d", b"d")
            elif entry.key == "d":
                break
    assert got == ["a", "b", "c", None, "d"]


async def live(scene: Scene) -> None:
    bucket, near = await _bucket(scene)
    scene.begin()
    async with within(25, "mirroring"), bucket.live() as mapping:
        assert mapping.snapshot() == {"a": b"a", "b": b"b", "c": b"c"}
        await near.put("a", b"2")
        await until(lambda: mapping["a"] == b"2")


async def bucket_calls(scene: Scene) -> None:
    """A write whose answer was lost is told; a read is right or told."""
    bucket, near = await _bucket(scene)
    scene.begin()
    revision = await retried(lambda: bucket.put("d", b"d"))
    found = await near.get("d")
    assert (found.value, found.revision >= revision) == (b"d", True)
    assert (await retried(lambda: bucket.get("a"))).value == b"a"


# -- object stores ---------------------------------------------------------------------------------

_CONTENT = bytes(range(256)) * 1024


async def object_get(scene: Scene) -> None:
    near = await scene.near.create_object_store(scene.name, storage="memory")
    await near.put("o", _CONTENT, chunk_size=100_000)
    store = await scene.js.object_store(scene.name)
    scene.begin()
    async with within(15, "reading an object"):
        assert await store.get_bytes("o") == _CONTENT


async def object_put(scene: Scene) -> None:
    """An object is there and whole, or the caller was told; chunks of failed puts go."""
    near = await scene.near.create_object_store(scene.name, storage="memory")
    store = await scene.js.object_store(scene.name)
    scene.begin()
    async with within(15, "putting an object"):
        try:
            await store.put("o", _CONTENT, chunk_size=100_000)
        except JetsparkError:
            await retried(lambda: store.put("o", _CONTENT, chunk_size=100_000), 2)
    assert await near.get_bytes("o") == _CONTENT
    async with within(10, "removing chunks of puts that failed"):
        # There are three chunks and one info.
        await settled(near.status, lambda status: status.stream_info.state.messages == 4)


# -- the blocking reader ---------------------------------------------------------------------------


async def _range(scene: Scene, stream: str, **options: object) -> SequenceRange:
    info = await scene.near.api_request(f"STREAM.INFO.{stream}")
    last: int = info["state"]["last_seq"]
    return SequenceRange(stream, 1, last + 1, info["created"], **options)  # type: ignore[arg-type]


async def _reads_range(scene: Scene, **options: object) -> None:
    payloads = await scene.fill()
    wanted, link = await _range(scene, scene.name, **options), scene.bulk_options()

    def read() -> list[bytes]:
        batches = read_range(link, wanted, _LIMITS)
        return [data for batch in batches for data in batch.column("data").to_pylist()]

    scene.begin()
    async with within(15, "reading a range"):
        assert await asyncio.to_thread(read) == payloads


async def bulk_range(scene: Scene) -> None:
    await scene.stream()
    await _reads_range(scene)


async def bulk_direct(scene: Scene) -> None:
    await scene.stream(retention="workqueue", allow_direct=True)
    await _reads_range(scene, direct=True)


async def snapshot(scene: Scene) -> None:
    await _bucket(scene)
    wanted = await _range(scene, f"KV_{scene.name}", subjects=(f"$KV.{scene.name}.>",))
    options = scene.bulk_options()

    def read() -> list[str]:
        batches = read_last_per_subject(
            options, wanted, _LIMITS, columns=["key", "value", "revision"]
        )
        return [key for batch in batches for key in batch.column("key").to_pylist()]

    scene.begin()
    async with within(15, "reading a bucket's snapshot"):
        assert sorted(await asyncio.to_thread(read)) == ["a", "b", "c"]


# -- requests --------------------------------------------------------------------------------------


async def request(scene: Scene) -> None:
    async def answer(message: object) -> None:
        await message.respond(b"re: " + message.data)  # type: ignore[attr-defined]

    async with scene.near.client.subscribe(scene.name, callback=answer):
        await scene.near.client.flush()
        scene.begin()
        for number in (b"1", b"2", b"3"):
            try:
                reply = await scene.nc.request(scene.name, number, timeout=1)
            except RequestTimeoutError:
                continue
            assert reply.data == b"re: " + number


async def request_many(scene: Scene) -> None:
    """How many answer nobody knows: it ends in time, and each reply is one that was given."""

    async def answer(message: object) -> None:
        for number in (b"1", b"2", b"3"):
            await message.respond(number)  # type: ignore[attr-defined]

    async with scene.near.client.subscribe(scene.name, callback=answer):
        await scene.near.client.flush()
        scene.begin()
        async with within(4, "gathering replies"):
            replies = await scene.nc.request_many(scene.name, timeout=2, max_msgs=3).all()
    assert {reply.data for reply in replies} <= {b"1", b"2", b"3"}


async def drain(scene: Scene) -> None:
    got: list[bytes] = []
    scene.nc.subscribe(scene.name, callback=lambda message: got.append(message.data))
    await scene.nc.flush()
    scene.begin()
    for number in (b"1", b"2", b"3"):
        await scene.near.client.publish(scene.name, number)
    await scene.near.client.flush()
    async with within(8, "draining"):
        await scene.nc.drain(5)
    assert set(got) <= {b"1", b"2", b"3"}


SCRIPTS = [
    *(fetch, fetch_what_is_there, next_message, consume),
    *(ordered, ordered_one_by_one, push, push_with_acks, direct_get, direct_range, direct_last),
    *(keys, history, watch, live, bucket_calls, object_get, object_put),
    *(bulk_range, bulk_direct, snapshot, request, request_many, drain),
]
