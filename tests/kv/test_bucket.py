"""Keys: get, put, create, update, delete, purge, revert."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import NeedsServer, Unique
from tests.support.cluster import Cluster

from jetspark import err_codes, errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.kv import Bucket, Entry, Operation


async def test_get_returns_what_was_put(bucket: Bucket) -> None:
    before = datetime.now(UTC)
    revision = await bucket.put("eu.apples", b"1.20")
    entry = await bucket.get("eu.apples")
    assert entry == Entry(bucket.name, "eu.apples", b"1.20", revision, entry.created_ns)
    assert abs(entry.created - before) < timedelta(seconds=5)
    assert entry.operation is Operation.PUT
    assert not entry.is_deleted
    for value in (b"", b"\x00\r\n", bytes(range(256)) * 100):
        await bucket.put("k", value)
        assert await bucket.get_value("k") == value


async def test_a_revision_belongs_to_its_key(bucket: Bucket) -> None:
    assert [await bucket.put(key, b"") for key in ("a", "b", "a")] == [1, 2, 3]
    assert (await bucket.get("a")).revision == 3
    assert (await bucket.get("a", 1)).revision == 1
    with pytest.raises(errors.KeyNotFoundError, match="no revision 1") as caught:
        await bucket.get("b", 1)
    assert (caught.value.bucket, caught.value.key, caught.value.revision) == (bucket.name, "b", 1)
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.get("a", 4)


@pytest.mark.parametrize("leader", [False, True])
async def test_a_deleted_key_is_not_found_but_its_history(bucket: Bucket, *, leader: bool) -> None:
    with pytest.raises(errors.KeyNotFoundError) as caught:
        await bucket.get("k", leader=leader)
    assert (caught.value.key, caught.value.operation, caught.value.revision) == ("k", None, None)
    await bucket.put("k", b"1")
    assert await bucket.delete("k") == 2
    with pytest.raises(errors.KeyNotFoundError, match="was deleted") as caught:
        await bucket.get("k", leader=leader)
    assert (caught.value.operation, caught.value.revision) == ("DEL", 2)
    assert (await bucket.get("k", 1, leader=leader)).value == b"1"


async def test_a_purged_key_has_no_history(bucket: Bucket) -> None:
    await bucket.put("k", b"1")
    await bucket.put("other", b"2")
    assert await bucket.purge("k") == 3
    with pytest.raises(errors.KeyNotFoundError) as caught:
        await bucket.get("k")
    assert caught.value.operation == "PURGE"
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.get("k", 1)
    assert (await bucket.status()).values == 2


async def test_create_is_for_keys_without_a_value(bucket: Bucket) -> None:
    assert await bucket.create("k", b"1") == 1
    with pytest.raises(errors.KeyExistsError) as caught:
        await bucket.create("k", b"2")
    assert (caught.value.key, caught.value.revision) == ("k", 1)
    assert isinstance(caught.value, errors.WrongLastSequenceError)
    await bucket.delete("k")
    assert await bucket.create("k", b"3") == 3
    await bucket.purge("k")
    assert await bucket.create("k", b"4") == 5
    assert await bucket.get_value("k") == b"4"


@pytest.mark.parametrize("exists", [False, True])
async def test_one_of_many_updating_a_key_wins(bucket: Bucket, *, exists: bool) -> None:
    revision = await bucket.put("k", b"")
    if not exists:
        await bucket.delete("k")

    async def write(number: int) -> int:
        value = b"%d" % number
        return await (bucket.update("k", value, revision) if exists else bucket.create("k", value))

    results = await asyncio.gather(*map(write, range(20)), return_exceptions=True)
    [winner] = [number for number, one in enumerate(results) if isinstance(one, int)]
    kind = errors.WrongLastSequenceError if exists else errors.KeyExistsError
    assert sum(isinstance(one, kind) for one in results) == 19
    assert results[winner] == revision + (1 if exists else 2)
    assert await bucket.get_value("k") == b"%d" % winner


@pytest.mark.parametrize("operation", ["delete", "purge"])
async def test_delete_and_purge_at_a_revision(bucket: Bucket, operation: str) -> None:
    remove = getattr(bucket, operation)
    first = await bucket.put("k", b"1")
    second = await bucket.put("k", b"2")
    with pytest.raises(errors.WrongLastSequenceError):
        await remove("k", first)
    assert await bucket.get_value("k") == b"2"
    assert await remove("k", second) == second + 1
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.get("k")


async def test_revert_puts_the_old_value(bucket: Bucket) -> None:
    await bucket.put("k", b"1")
    await bucket.put("k", b"2")
    assert await bucket.revert("k", 1) == 3
    assert await bucket.get_value("k") == b"1"
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.revert("k", 17)


async def test_a_bucket_without_direct_gets_asks_the_leader(nc: Client, bucket: Bucket) -> None:
    js = nc.jetstream(timeout=3)
    bucket = await js.bucket(bucket.name)
    await js.stream(bucket.stream).update(allow_direct=False)
    bound = await js.bucket(bucket.name)
    await bound.put("k", b"1")
    assert await bound.get_value("k") == b"1"
    with pytest.raises(errors.KeyNotFoundError):
        await bound.get("nobody")
    # The one that was bound before: nobody answers, which is not "no such key".
    server = nc.server_info
    if server is None or not server.at_least(2, 10):
        with pytest.raises(errors.RequestTimeoutError):
            await bucket.get("k")
        return
    with pytest.raises(errors.DirectGetError, match="unavailable") as caught:
        await bucket.get("k")
    assert caught.value.status == 503


async def test_read_your_write_over_three_servers(nats_cluster: Cluster, unique: Unique) -> None:
    async with connect(nats_cluster.urls[0]) as nc:
        js = nc.jetstream(timeout=15)
        bucket = await js.create_bucket(unique("R3"), replicas=3)
        for number in range(50):
            await bucket.put("k", b"%d" % number)
            assert await bucket.get_value("k", leader=True) == b"%d" % number
        await js.delete_bucket(bucket.name)


async def test_calls_on_a_deleted_bucket_raise(nc: Client, js: JetStream, bucket: Bucket) -> None:
    bucket = await nc.jetstream(timeout=3).bucket(bucket.name)
    await js.delete_bucket(bucket.name)
    for call in (
        bucket.get("k"),
        bucket.get("k", leader=True),
        bucket.get("k", 1),
        bucket.put("k"),
        bucket.create("k"),
        bucket.delete("k"),
        bucket.status(),
    ):
        with pytest.raises(errors.BucketNotFoundError) as caught:
            await call
        assert caught.value.bucket == bucket.name


async def test_a_value_that_is_too_large_raises(js: JetStream, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("B"), max_value_size=100, storage="memory")
    await bucket.put("k", b"x" * 50)
    lock = bucket.lock("lock", holder="x" * 100)
    for key, write in (("k", bucket.put("k", b"x" * 200)), ("lock", lock.acquire(timeout=20))):
        with pytest.raises(errors.APIError, match=f'"{key}": .*max_value_size') as refused:
            await write
        assert refused.value.err_code == err_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM
    await js.delete_bucket(bucket.name)


async def test_a_ttl_needs_limit_markers(bucket: Bucket, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    for call in (bucket.create("k", b"", ttl=5), bucket.purge("k", ttl=5)):
        with pytest.raises(errors.NotEnabledOnStreamError, match="no limit_marker_ttl"):
            await call


async def test_entries_that_other_clients_may_write_are_read(js: JetStream, bucket: Bucket) -> None:
    for headers, operation in (
        ({"KV-Operation": "PUT"}, None),
        ({"X": "KV-Operation: DEL"}, None),
        ({"KV-Operation": "DEL"}, "DEL"),
        ({"KV-Operation": "PURGE"}, "PURGE"),
        ({"KV-Operation": "NEW-KIND"}, None),
        *(({"Nats-Marker-Reason": reason}, "PURGE") for reason in ("MaxAge", "Purge")),
        ({"Nats-Marker-Reason": "Remove"}, "DEL"),
    ):
        await js.publish(f"$KV.{bucket.name}.k", b"v", headers=headers)
        if operation is None:
            assert await bucket.get_value("k") == b"v"
        else:
            with pytest.raises(errors.KeyNotFoundError) as caught:
                await bucket.get("k")
            assert caught.value.operation == operation
