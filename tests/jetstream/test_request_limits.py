"""Pull requests that a server will never serve: smaller ones follow, or the reader is told."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import MakeServer

import jetspark
from jetspark import blocking
from jetspark.errors import JetsparkError, PullError
from jetspark.full_client import JetStream
from jetspark.server import NatsServer

WITHIN = 30.0
VALUES = [b"%d" % number for number in range(250)]
LARGE = bytes(2_000_000)


@pytest.fixture
async def limited(make_server: MakeServer) -> NatsServer:
    """A server that delivers 100 messages for one request at most."""
    server = make_server("jetstream { limits { max_request_batch: 100 } }")
    await asyncio.to_thread(server.start)
    async with jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"], storage="memory")
        bucket = await js.create_bucket("b", storage="memory")
        async with js.publisher() as publisher:
            for value in VALUES:
                await publisher.publish("s", value)
        await asyncio.gather(*(bucket.put(f"k{value.decode()}", value) for value in VALUES))
        store = await js.create_object_store("o", storage="memory")
        await store.put("large", LARGE, chunk_size=8_000)
    return server


async def test_readers_stay_within_the_servers_own_limit(limited: NatsServer) -> None:
    told: list[JetsparkError] = []
    async with (
        asyncio.timeout(WITHIN),
        jetspark.connect(limited.url, error_callback=told.append) as nc,
    ):
        js = nc.jetstream()
        async with js.stream("S").ordered() as messages:
            assert [(await messages.next()).data for _ in VALUES] == VALUES
        async with js.stream("S").ordered(max_bytes=10_000) as messages:
            assert [(await messages.next()).data for _ in VALUES] == VALUES
        bucket = await js.bucket("b")
        assert len(await bucket.keys().all()) == len(VALUES)
        assert len(await bucket.history().all()) == len(VALUES)
        async with bucket.watch() as entries:
            found = [await entries.next() for _ in range(len(VALUES) + 1)]
            assert found[-1] is None
        async with bucket.live() as values:
            assert values["k7"] == b"7"
        store = await js.object_store("o")
        assert [info.name for info in await store.objects().all()] == ["large"]
        assert await store.get_bytes("large") == LARGE
    assert told == []


async def test_blocking_readers_stay_within_the_servers_own_limit(limited: NatsServer) -> None:
    def read() -> None:
        with blocking.connect(limited.url) as nc:
            js = nc.jetstream()
            with js.stream("S").ordered() as messages:
                assert [messages.next(WITHIN).data for _ in VALUES] == VALUES
            assert len(js.bucket("b").keys().all()) == len(VALUES)
            assert js.object_store("o").get_bytes("large") == LARGE

    await asyncio.wait_for(asyncio.to_thread(read), WITHIN)


async def test_consume_learns_of_a_limit_that_was_set_later(js: JetStream, stream: str) -> None:
    consumer = await js.stream(stream).create_consumer(durable_name="d")
    await (await js.stream(stream).consumer("d")).update(max_batch=7)
    for value in VALUES[:20]:
        await js.publish(f"{stream}.a", value)
    async with asyncio.timeout(WITHIN), consumer.consume() as messages:
        assert [(await messages.next()).data for _ in range(20)] == VALUES[:20]


async def test_ordered_raises_for_a_message_larger_than_max_bytes_and_what_is_not_understood(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.publish(f"{stream}.a", b"small")
    await js.publish(f"{stream}.a", bytes(5000))
    async with asyncio.timeout(WITHIN), js.stream(stream).ordered(max_bytes=1000) as messages:
        assert (await messages.next()).data == b"small"
        with pytest.raises(PullError, match="Message Size Exceeds MaxBytes"):
            await messages.next()
        assert isinstance(messages.error, PullError)
    # No request that can be asked for is one; so one that cannot.
    monkeypatch.setattr("jetspark.wire.pull.PullRequest.encode", lambda self: b'{"batch":')
    async with asyncio.timeout(WITHIN), js.stream(stream).ordered() as messages:
        with pytest.raises(PullError, match="Bad Request"):
            await messages.next()
