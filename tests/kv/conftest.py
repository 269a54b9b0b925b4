"""A connection to the shared server, and a bucket of one's own on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jetspark.errors import BucketNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jetspark.full_client import JetStream
    from jetspark.kv import Bucket, Entry, Watcher


@pytest.fixture
async def bucket(js: JetStream, unique: Callable[[str], str]) -> AsyncIterator[Bucket]:
    """In memory, with a history of 5."""
    name = unique("B")
    yield await js.create_bucket(name, history=5, storage="memory")
    try:
        await js.delete_bucket(name)
    except BucketNotFoundError:
        pass


async def take(changes: Watcher, count: int) -> list[Entry | None]:
    """So many entries, within 10 s."""
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]
