"""A server that is connected and silent: calls end within the context's timeout, transfers last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.conftest import MakeServer

from jetspark import blocking
from jetspark.errors import RequestTimeoutError
from jetspark.full_client import Client, connect
from jetspark.objects import reader
from jetspark.objects.reader import TransferRetry
from jetspark.server import NatsServer

TIMEOUT = 0.5
CONTENT = b"content" * 30_000


@pytest.fixture
def server(make_server: MakeServer) -> NatsServer:
    return make_server()


@pytest.fixture
async def nc(server: NatsServer) -> AsyncIterator[Client]:
    async with connect(server.url) as client:
        yield client
        server.resume()


async def test_calls_end_within_the_timeout(nc: Client, server: NatsServer, tmp_path: Path) -> None:
    store = await nc.jetstream(timeout=TIMEOUT).create_object_store("O")
    info = await store.put("a", CONTENT)
    server.pause()
    calls = [
        *(store.info("a"), store.get("a"), store.get_bytes("a")),
        store.get_into("a", tmp_path / "a"),
        *(store.delete("a"), store.update_meta("a", description="d")),
        *(store.update_meta("a", new_name="b"), store.add_link("l", info)),
        *(store.add_store_link("s", "P"), store.status(), store.seal(), store.purge_orphans()),
        *(store.objects().all(), store.watch().next()),
    ]
    async with asyncio.timeout(8):
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [RequestTimeoutError] * len(calls)


async def test_blocking_calls_end_within_the_timeout(server: NatsServer, tmp_path: Path) -> None:
    with blocking.connect(server.url) as nc:
        store = nc.jetstream(timeout=TIMEOUT).create_object_store("O")
        store.put("a", CONTENT)
        calls: list[Callable[[], object]] = [
            *(lambda: store.info("a"), lambda: store.get("a"), lambda: store.get_bytes("a")),
            *(lambda: store.get_into("a", tmp_path / "a"), lambda: store.delete("a")),
            *(lambda: store.update_meta("a", new_name="b"), lambda: store.add_store_link("s", "P")),
        ]
        server.pause()
        try:
            threads = (asyncio.to_thread(call) for call in calls)
            async with asyncio.timeout(8):
                ends = await asyncio.gather(*threads, return_exceptions=True)
        finally:
            server.resume()
    assert [type(end) for end in ends] == [RequestTimeoutError] * len(calls)


async def test_chunks_are_read_when_the_server_goes_on(nc: Client, server: NatsServer) -> None:
    store = await nc.jetstream(timeout=TIMEOUT).create_object_store("O")
    await store.put("a", CONTENT)
    reader = await store.get("a")
    server.pause()
    reading = asyncio.create_task(reader.all())
    await asyncio.wait({reading}, timeout=3 * TIMEOUT)
    assert not reading.done()
    server.resume()
    async with asyncio.timeout(20):
        assert await reading == CONTENT


async def test_reading_ends_after_a_while_without_progress(
    nc: Client, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TransferRetry", lambda: TransferRetry(2 * TIMEOUT))
    store = await nc.jetstream(timeout=TIMEOUT).create_object_store("O")
    await store.put("a", CONTENT)
    chunks = await store.get("a")
    server.pause()
    async with asyncio.timeout(10):
        with pytest.raises(RequestTimeoutError):
            await chunks.all()
