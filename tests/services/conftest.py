"""Services on the shared server, a client that calls them, and handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.client.messages import Message
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer
from jetspark.services import Request, Service, Services

Start = Callable[..., Awaitable["Service"]]


async def echo(request: Request) -> None:
    await request.respond(request.data, request.headers)


def ask(caller: Client, subject: str, count: int) -> list[asyncio.Task[Message]]:
    """So many requests at once."""
    return [asyncio.create_task(caller.request(subject, timeout=30)) for _ in range(count)]


class Held:
    """A handler that holds requests until its gate is opened, then answers with "held"."""

    def __init__(self) -> None:
        self.begun, self.gate, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request) -> None:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await request.respond(b"held")

    async def asked(
        self, caller: Client | Services, subject: str, count: int = 1, timeout: float = 60
    ) -> list[asyncio.Task[Message]]:
        """So many requests, of which this handler has begun the first."""
        ask = [caller.request(subject, timeout=timeout) for _ in range(count)]
        tasks = list(map(asyncio.ensure_future, ask))
        await asyncio.wait_for(self.begun.wait(), 20)
        return tasks


@pytest.fixture
async def other(shared_server: NatsServer) -> AsyncIterator[Client]:
    """A second client of the shared server: that of the requesters."""
    async with connect(shared_server.url) as client:
        yield client


@pytest.fixture
def services(other: Client) -> Services:
    """The services of the shared server, as requesters see them."""
    return other.services()


@pytest.fixture
async def start(nc: Client, unique: Unique) -> AsyncIterator[Start]:
    """`await start(**options)`: a service with a name of its own, stopped after the test."""
    async with AsyncExitStack() as stack:

        async def make(version: str = "1.0.0", **options: Any) -> Service:
            name = options.pop("name", None) or unique("svc")
            client = options.pop("client", nc)
            return await stack.enter_async_context(
                await client.add_service(name, version, **options)
            )

        yield make
