"""Questions whose answers a dying link has swallowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conftest import NeedsServer
from tests.support.frame_proxy import FrameProxy

from jetspark.errors import RequestTimeoutError
from jetspark.full_client import connect
from jetspark.kv import Bucket
from jetspark.server import NatsServer


async def get(bucket: Bucket) -> bytes:
    return (await bucket.get("key")).value


async def watch(bucket: Bucket) -> bytes:
    async with bucket.watch() as changes:
        async for entry in changes:
            if entry is not None:
                return entry.value
    raise AssertionError("no entry")


async def get_many(bucket: Bucket) -> bytes:
    return (await bucket.get_many(["key"]))["key"].value


async def history(bucket: Bucket) -> bytes:
    return [entry.value async for entry in bucket.history("key")][-1]


@pytest.mark.parametrize("read", [get, get_many, watch, history])
async def test_reading_survives_a_link_that_is_cut_at_its_first_answer(
    bucket: Bucket, shared_server: NatsServer, read: Any, needs_server: NeedsServer
) -> None:
    if read is get_many:
        needs_server("2.11")
    await bucket.put("key", b"value")
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect_wait=0.05) as nc,
        asyncio.timeout(50),  # no timeout of a call
    ):
        far = await nc.jetstream(timeout=60).bucket(bucket.name)
        fault = proxy.arm(1, "cut")
        assert await read(far) == b"value"
    assert fault.hit is not None


@pytest.mark.parametrize(("leader", "request_"), [(False, "DIRECT"), (True, "MSG")])
async def test_a_silent_link_costs_one_timeout_and_the_request_is_named(
    bucket: Bucket, shared_server: NatsServer, *, leader: bool, request_: str
) -> None:
    await bucket.put("key", b"value")
    async with FrameProxy(shared_server.port) as proxy, connect(proxy.url) as nc:
        far = await nc.jetstream(timeout=1).bucket(bucket.name)
        proxy.arm(1, "stalled", delay=60)
        with pytest.raises(RequestTimeoutError, match=rf"{request_}\.GET"):
            await far.get("key", leader=leader)


async def test_a_write_without_an_ack_says_that_its_fate_is_unknown(
    bucket: Bucket, shared_server: NatsServer
) -> None:
    async with FrameProxy(shared_server.port) as proxy, connect(proxy.url) as nc:
        far = await nc.jetstream(timeout=0.5).bucket(bucket.name)
        writes: list[Callable[[], Awaitable[object]]] = [
            lambda: far.put("key", b"1"),
            lambda: far.create("other", b"1"),
            lambda: far.update("key", b"2", 1),
            lambda: far.delete("key"),
            lambda: far.purge("key"),
        ]
        for write in writes:
            fault = proxy.arm(1)
            with pytest.raises(RequestTimeoutError, match=r"0\.5 s: it is not known"):
                await write()
            assert fault.hit is not None
    assert (await bucket.status()).values > 0
