"""A connection to the shared server, and a bucket of one's own on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.errors import BucketNotFoundError, JetsparkError
from jetspark.full_client import JetStream
from jetspark.kv import Bucket, Entry, Operation, Watcher


@pytest.fixture
async def bucket(js: JetStream, unique: Unique) -> AsyncIterator[Bucket]:
    """In memory, with a history of 5."""
    name = unique("B")
    yield await js.create_bucket(name, history=5, storage="memory")
    with suppress(BucketNotFoundError):
        await js.delete_bucket(name)


async def take(changes: Watcher, count: int) -> list[Entry | None]:
    """So many entries, within 30 s."""
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]


async def put_at_last(bucket: Bucket, key: str, value: bytes) -> int:
    """The revision of a put that is tried until it succeeds."""
    while True:
        with suppress(JetsparkError):
            return await bucket.put(key, value)
        await asyncio.sleep(0.02)


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
