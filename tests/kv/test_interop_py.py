"""With nats-py as the other side, for every operation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kv.conftest import take

from jetspark.errors import KeyExistsError, KeyNotFoundError
from jetspark.kv import Bucket, Operation


@pytest.fixture
def their_js(py_peer: Any) -> Any:
    return py_peer.jetstream()


@pytest.fixture
async def theirs(their_js: Any, bucket: Bucket) -> Any:
    """Their object for our bucket."""
    return await their_js.key_value(bucket.name)


async def test_we_read_what_they_write(bucket: Bucket, theirs: Any) -> None:
    assert await theirs.put("a.b", b"1") == 1
    assert (await bucket.get("a.b")).value == b"1"
    assert await theirs.update("a.b", b"2", last=1) == 2
    assert await theirs.create("c", b"3") == 3
    with pytest.raises(KeyExistsError):
        await bucket.create("c", b"")
    await theirs.delete("a.b")
    with pytest.raises(KeyNotFoundError) as caught:
        await bucket.get("a.b")
    assert caught.value.operation == "DEL"
    assert [(one.operation, one.value) for one in await bucket.history("a.b").all()] == [
        (Operation.PUT, b"1"),
        (Operation.PUT, b"2"),
        (Operation.DEL, b""),
    ]
    assert await bucket.keys().all() == ["c"]
    await theirs.purge("a.b")
    assert [one.operation for one in await bucket.history("a.b").all()] == [Operation.PURGE]


async def test_each_sees_the_others_changes(bucket: Bucket, theirs: Any) -> None:
    their_changes = await theirs.watchall()
    assert await their_changes.updates(timeout=5) is None
    # One after the other: a purge removes what a watcher has not yet got.
    async with bucket.watch() as changes:
        assert await take(changes, 1) == [None]
        for write, expected in (
            (theirs.put("k", b"1"), ("k", b"1", 1, "PUT")),
            (bucket.put("k", b"2"), ("k", b"2", 2, "PUT")),
            (theirs.delete("k"), ("k", b"", 3, "DEL")),
            (bucket.purge("k"), ("k", b"", 4, "PURGE")),
        ):
            await write
            [entry] = await take(changes, 1)
            assert entry is not None
            assert (entry.key, entry.value, entry.revision, entry.operation) == expected
            seen = await their_changes.updates(timeout=5)
            assert (seen.key, seen.value or b"", seen.revision) == expected[:3]
            assert (seen.operation or "PUT") == expected[3]
    await their_changes.stop()
