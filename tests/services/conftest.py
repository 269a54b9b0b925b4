from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from jetspark.full_client import connect

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.server import NatsServer
    from jetspark.services import Service, Services

Start = Callable[..., Awaitable["Service"]]


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
async def start(nc: Client, unique: Callable[[str], str]) -> AsyncIterator[Start]:
    """`await start(**options)`: a service with a name of its own, stopped after the test."""
    async with AsyncExitStack() as stack:

        async def make(version: str = "1.0.0", **options: Any) -> Service:
            name = options.pop("name", None) or unique("svc")
            client = options.pop("client", nc)
            return await stack.enter_async_context(
                await client.add_service(name, version, **options)
            )

        yield make
