"""A connection to the shared server, and an object store of one's own on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.errors import ObjectStoreNotFoundError
from jetspark.full_client import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jetspark.full_client import Client, JetStream
    from jetspark.objects import ObjectStore
    from jetspark.server import NatsServer


@pytest.fixture
async def nc(shared_server: NatsServer) -> AsyncIterator[Client]:
    async with connect(shared_server.url) as client:
        yield client


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream(timeout=20)  # a machine may be slow


@pytest.fixture
async def store(js: JetStream, unique: Callable[[str], str]) -> AsyncIterator[ObjectStore]:
    """In memory."""
    name = unique("F")
    yield await js.create_object_store(name, storage="memory")
    try:
        await js.delete_object_store(name)
    except ObjectStoreNotFoundError:
        pass
