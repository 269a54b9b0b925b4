"""What users typically write, for type checkers only: see test_types_of_pages.py."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import jetspark
import jetspark.blocking
from jetspark.errors import KeyNotFoundError, StreamNotFoundError
from jetspark.groups import PartitioningFilter
from jetspark.identity import KeyKind, KeyPair, UserClaims, issue_user
from jetspark.jetstream import JsMsg
from jetspark.kv import PathCodec
from jetspark.services import Request


async def publish_and_subscribe(nc: jetspark.Client) -> list[bytes]:
    async with nc.subscribe("orders.*", queue="billing") as orders:
        await nc.publish("orders.eu", b"42 apples", headers={"Source": "shop"})
        message = await orders.next(timeout=2)
        return [bytes(message.data)]


async def answer_requests(nc: jetspark.Client) -> str:
    async def answer(message: jetspark.Message) -> None:
        await message.respond(message.data)

    async with nc.subscribe("echo", callback=answer):
        replies = [reply.subject async for reply in nc.request_many("echo", max_msgs=1)]
        return (await nc.request("echo", b"hi", timeout=timedelta(seconds=1))).subject + replies[0]


async def consume(js: jetspark.JetStream) -> None:
    stream = await js.create_stream(name="ORDERS", subjects=["orders.>"], max_age=3600)
    worker = await stream.create_consumer(name="worker", ack_wait=30, max_deliver=5)
    async with worker.consume(max_messages=100) as messages:
        async for msg in messages:
            print(msg.subject, msg.metadata.pending)
            await msg.ack()


async def fetch(js: jetspark.JetStream) -> list[JsMsg]:
    worker = await js.stream("ORDERS").consumer("worker")
    batch = await worker.fetch(10, timeout=1)
    for msg in batch:
        await msg.ack_sync()
    return list(batch)


async def push(js: jetspark.JetStream, work: asyncio.Queue[JsMsg]) -> None:
    pushing = await js.stream("ORDERS").create_push_consumer(deliver_subject="pushed")
    async with pushing.subscribe() as messages:
        async for msg in messages:
            work.put_nowait(msg)


async def read_in_order(js: jetspark.JetStream) -> dict[str, int]:
    counts: dict[str, int] = {}
    async for msg in js.stream("ORDERS").ordered(subjects=["orders.*"], start_seq=2):
        counts[msg.subject] = counts.get(msg.subject, 0) + 1
        if msg.metadata.pending == 0:
            break
    return counts


async def get_stored(js: jetspark.JetStream) -> list[int]:
    try:
        stream = await js.stream("ORDERS")
    except StreamNotFoundError:
        return []
    await stream.get(last_by_subject="orders.eu")
    return [msg.seq async for msg in stream.get_many(1, max_msgs=10)]


async def publish_many(js: jetspark.JetStream) -> int:
    async with js.publisher(window=100) as publisher:
        await publisher.publish("orders.eu", b"1")
        result = await publisher.publish_async("orders.eu", b"2")
    async with js.atomic_batch() as batch:
        await batch.publish("orders.eu", b"3")
        ack = await batch.commit()
    async with js.fast_ingest() as ingest:
        await ingest.publish("orders.eu", b"4")
    return (await result).seq + ack.seq + ingest.acked


async def use_bucket(js: jetspark.JetStream) -> bytes:
    bucket = await js.create_bucket("settings", history=5, ttl=timedelta(days=1))
    revision = await bucket.put("colour", b"red")
    await bucket.update("colour", b"blue", revision)
    async with bucket.lock("leader"), bucket.live() as settings:
        assert "colour" in settings
    try:
        return (await bucket.with_codecs(keys=PathCodec()).get("/colour")).value
    except KeyNotFoundError:
        return b""


async def watch_bucket(js: jetspark.JetStream) -> None:
    async with (await js.bucket("settings")).watch("colour") as changes:
        async for entry in changes:
            if entry is not None:
                print(entry.key, entry.value, entry.revision)


async def use_objects(js: jetspark.JetStream) -> int:
    store = await js.create_object_store("files")
    await store.put("report", Path("report.csv"), metadata={"run": "17"})
    async with store.watch() as changes:
        first = await changes.next(timeout=1)
    return (await store.info("report")).size + (first.size if first else 0)


async def serve(nc: jetspark.Client) -> float:
    async with await nc.add_service("till", "1.0.0") as service:

        @service.endpoint(subject="till.total")
        async def total(request: Request) -> None:
            await request.respond_json(sum(request.json(list[float])))

        price: float = await nc.services().request_json("till.total", [1.5], type=float)
        return price


async def share_work(js: jetspark.JetStream) -> None:
    groups = js.consumer_groups("ORDERS")
    filters = [PartitioningFilter("orders.*", [1])]
    group = await groups.create_elastic("billing", max_members=4, filters=filters)
    await group.add_members(["m1"])
    async with group.consume("m1", ack_wait=5) as messages:
        async for msg in messages:
            await msg.ack()


def issue(account: KeyPair) -> str:
    may = UserClaims(payload=65536)
    assert KeyKind.ACCOUNT
    return issue_user(account, KeyPair.new().public, claims=may, expires=timedelta(days=1))


def blocking() -> list[str]:
    with jetspark.blocking.connect("nats://127.0.0.1:4222", name="script") as nc:
        js = nc.jetstream(timeout=10)
        stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
        js.publish("orders.eu", b"42 apples", msg_id="order-1")
        worker = stream.create_consumer(name="worker")
        for msg in worker.fetch(10, timeout=1):
            msg.ack()
        with worker.consume() as messages:
            for msg in messages:
                msg.nak(delay=5)
        entry = js.bucket("settings").get("colour")
        return [entry.key, *js.stream_names().all()]
