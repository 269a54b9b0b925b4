"""A connection to the shared server, and a bucket of one's own on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from jetspark.errors import BucketNotFoundError
from jetspark.kv import Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

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
    """So many entries, within 30 s."""
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]


def shown(entries: Iterable[Entry | None]) -> list[Any]:
    """Key, value and revision of puts; key and operation of deletions; None."""
    return [
        one
        and (
            (one.key, one.value, one.revision)
            if one.operation is Operation.PUT
            else (one.key, str(one.operation))
        )
        for one in entries
    ]


@pytest.fixture
async def filled(bucket: Bucket) -> Bucket:
    """a.1 at 1 and 4, a.2 deleted at 5, b at 3."""
    await bucket.put("a.1", b"1")
    await bucket.put("a.2", b"2")
    await bucket.put("b", b"3")
    await bucket.put("a.1", b"4")
    await bucket.delete("a.2")
    return bucket


ALL = [("b", b"3", 3), ("a.1", b"4", 4), ("a.2", "DEL")]


HISTORY = [("a.1", b"1", 1), ("a.2", b"2", 2), *ALL]
