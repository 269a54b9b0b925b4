"""A connection to the shared server, and an object store of one's own on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.conftest import Unique

from jetspark.errors import ObjectStoreNotFoundError
from jetspark.full_client import JetStream
from jetspark.objects import ObjectStore


async def messages(store: ObjectStore) -> int:
    """What the store's stream holds: infos, marks and chunks."""
    return (await store.status()).stream_info.state.messages


@pytest.fixture
async def store(js: JetStream, unique: Unique) -> AsyncIterator[ObjectStore]:
    """In memory."""
    name = unique("F")
    has_batches = js.server_info is not None and js.server_info.at_least(2, 14)
    yield await js.create_object_store(name, storage="memory", allow_batched=has_batches or None)
    with suppress(ObjectStoreNotFoundError):
        await js.delete_object_store(name)
