"""What a block reads begins when the block is entered: nothing written from then on is missed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any

import pytest
from tests.conftest import MakeServer, Unique
from tests.jetstream.eventually import eventually

from jetspark import blocking
from jetspark.errors import JetsparkError, JetStreamError, RequestTimeoutError, StreamNotFoundError
from jetspark.full_client import JetStream, connect
from jetspark.jetstream import OrderedMessages
from jetspark.kv.watch import WatchOptions
from jetspark.server import NatsServer


async def test_readers_begin_with_their_blocks(js: JetStream, stream: str, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("B"), history=5, storage="memory")
    store = await js.create_object_store(unique("O"), storage="memory")
    await js.publish(f"{stream}.a", b"before")
    await bucket.put("k", b"before")
    async with (
        js.stream(stream).ordered(deliver_policy="new") as messages,
        bucket.watch(updates_only=True) as changes,
        store.watch(updates_only=True) as objects,
    ):
        assert messages.name
        await js.publish(f"{stream}.a", b"after")
        await bucket.put("k", b"after")
        await store.put("o", b"after")
        assert (await messages.next(10)).data == b"after"
        entries = [await changes.next(10), await changes.next(10)]
        infos = [await objects.next(10), await objects.next(10)]
    assert [entry and entry.value for entry in entries] == [None, b"after"]
    assert [info and info.name for info in infos] == [None, "o"]


@pytest.mark.parametrize("options", [{}, {"updates_only": True}, {"include_history": True}])
@pytest.mark.parametrize("before", [False, True])
async def test_an_entered_watch_has_each_change_of_a_bucket_that_keeps_one(
    js: JetStream, unique: Unique, options: WatchOptions, before: bool
) -> None:
    bucket = await js.create_bucket(unique("B"), storage="memory")
    if before:
        await bucket.put("k", b"before")
    async with bucket.watch(**options) as changes:
        assert await js.stream(bucket.stream).consumer_names().all()
        values = [b"before"] if before and "updates_only" not in options else []
        for number in range(10):
            values.append(b"%d" % number)
            await bucket.put("k", values[-1])
            # The server may overwrite one that it has not delivered yet.
            await eventually(partial(delivered, js, bucket.stream, len(values)))
        entries = [await changes.next(10) for _ in range(len(values) + 1)]
    assert [entry.value for entry in entries if entry is not None] == values


async def delivered(js: JetStream, stream: str, count: int) -> bool:
    """Whether the only consumer of a stream has sent so many messages."""
    [info] = await js.stream(stream).consumers().all()
    return info.delivered.consumer_seq == count


async def test_events_begin_too(js: JetStream, shared_server: NatsServer, unique: Unique) -> None:
    name = unique("EVENT")
    other = await asyncio.to_thread(blocking.connect, shared_server.url)
    async with js.events(kinds="stream_action", stream=name) as events:
        await asyncio.to_thread(other.jetstream().create_stream, name=name, subjects=[name])
        event: Any = await events.next(10)
    assert event.stream == name
    await asyncio.to_thread(other.close)


async def test_what_cannot_begin_raises_when_it_is_entered(js: JetStream, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("B"), storage="memory")
    store = await js.create_object_store(unique("O"), storage="memory")
    await js.delete_bucket(bucket.name)
    await js.delete_object_store(store.name)
    for begins in (js.stream("nowhere").ordered(), bucket.watch(), store.watch()):
        with pytest.raises(StreamNotFoundError):
            async with begins:
                pytest.fail("it was entered")
        assert not begins.active


async def test_a_silent_server_ends_it_within_the_timeout(make_server: MakeServer) -> None:
    server = make_server()
    reported: list[JetsparkError] = []

    async def iterated(messages: OrderedMessages) -> None:
        async for _ in messages:
            pytest.fail("a message came")

    async def entered(block: AbstractAsyncContextManager[Any]) -> None:
        async with block:
            pytest.fail("it was entered")

    def entered_blocking(block: AbstractContextManager[Any]) -> None:
        with block:
            pytest.fail("it was entered")

    async with connect(server.url, error_callback=reported.append) as nc:
        with blocking.connect(server.url) as bc:
            js, theirs = nc.jetstream(timeout=0.5), bc.jetstream(timeout=0.5)
            await js.create_stream(name="S", subjects=["s"])
            bucket, store = await js.create_bucket("B"), await js.create_object_store("O")
            blocks: list[Any] = [
                js.stream("S").ordered(),
                bucket.watch(),
                bucket.live(),
                store.watch(),
            ]
            their_bucket, their_store = theirs.bucket("B"), theirs.object_store("O")
            their_blocks: list[Any] = [
                *(theirs.stream("S").ordered(), their_bucket.watch()),
                *(their_bucket.live(), their_store.watch()),
            ]
            server.pause()
            try:
                with_callback = js.stream("S").ordered(callback=print)
                beginnings = [
                    iterated(js.stream("S").ordered()),
                    *(entered(block) for block in blocks),
                    *(asyncio.to_thread(entered_blocking, block) for block in their_blocks),
                ]
                async with asyncio.timeout(8):
                    ends = await asyncio.gather(*beginnings, return_exceptions=True)
                assert [type(end) for end in ends] == [RequestTimeoutError] * 9
                assert not with_callback.active
                assert [type(error) for error in reported] == [RequestTimeoutError]
            finally:
                server.resume()


def test_blocking_ones_begin_with_their_blocks(shared_server: NatsServer, unique: Unique) -> None:
    with blocking.connect(shared_server.url) as nc:
        js, name = nc.jetstream(), unique("BEGIN")
        js.create_stream(name=name, subjects=[name], storage="memory")
        bucket = js.create_bucket(unique("B"), history=5, storage="memory")
        store = js.create_object_store(unique("O"), storage="memory")
        with (
            js.stream(name).ordered(deliver_policy="new") as messages,
            bucket.watch(updates_only=True) as changes,
            store.watch(updates_only=True) as objects,
        ):
            for stream in (bucket.stream, store.stream):
                assert js.stream(stream).consumer_names().all()
            js.publish(name, b"after")
            bucket.put("k", b"after")
            store.put("o", b"after")
            assert messages.next(10).data == b"after"
            entries = [changes.next(10), changes.next(10)]
            infos = [objects.next(10), objects.next(10)]
        assert [entry and entry.value for entry in entries] == [None, b"after"]
        assert [info and info.name for info in infos] == [None, "o"]
        with pytest.raises(JetStreamError):
            js.stream("nowhere").ordered().__enter__()
