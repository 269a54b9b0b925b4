from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from tests.support.scripted_server import ScriptedServer

import jetspark
from jetspark.server import NatsServer

Connect = Callable[..., Awaitable[jetspark.Client]]
Kind = TypeVar("Kind")


async def next_of(events: AsyncIterator[object], kind: type[Kind]) -> Kind:
    """The next event of this kind."""
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, kind):
                return event
    pytest.fail(f"no {kind.__name__} came")


async def discovered(client: jetspark.Client, url: str) -> None:
    """Return as soon as the servers have named this one."""
    events = client.events()
    while url not in client.servers:
        await next_of(events, jetspark.ServersDiscovered)


def localhost(server: NatsServer, scheme: str = "tls") -> str:
    return f"{scheme}://localhost:{server.port}"


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(url, **options)`: clients that are closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(*args: Any, **options: Any) -> jetspark.Client:
            options = {"reconnect_wait": 0.05, "reconnect_jitter": 0.0} | options
            client = await jetspark.connect(*args, **options)
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def nc(shared_server: NatsServer, connect: Connect) -> jetspark.Client:
    return await connect(shared_server.url)


@pytest.fixture
async def own(nats_server: NatsServer, connect: Connect) -> jetspark.Client:
    """A client of a server that only this test has."""
    return await connect(nats_server.url)
