"""A connection to the shared server, and an object store of one's own on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.errors import ObjectStoreNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jetspark.full_client import JetStream
    from jetspark.objects import ObjectStore


async def messages(store: ObjectStore) -> int:
    """What the store's stream holds: infos, marks and chunks."""
    return (await store.status()).stream_info.state.messages


@pytest.fixture
async def store(js: JetStream, unique: Callable[[str], str]) -> AsyncIterator[ObjectStore]:
    """In memory."""
    name = unique("F")
    yield await js.create_object_store(name, storage="memory")
    try:
        await js.delete_object_store(name)
    except ObjectStoreNotFoundError:
        pass
