"""Many keys as of one revision."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import NeedsServer
from tests.support.frame_proxy import FrameProxy

from jetspark.errors import DirectGetError
from jetspark.full_client import JetStream, connect
from jetspark.kv import Bucket, ReadOnlyBucket, ZlibCodec
from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def batches(needs_server: NeedsServer) -> None:
    needs_server("2.11")


async def test_many_keys_are_read_as_they_were_at_one_revision(bucket: Bucket) -> None:
    """A writer counts in one key after the other: at each revision they fit together."""
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        await bucket.put(key, b"0")

    async def write() -> None:
        for turn in range(1, 10_000):
            for key in keys:
                await bucket.put(key, b"%d" % turn)

    writing = asyncio.create_task(write())
    try:
        for _ in range(50):
            snapshot = await bucket.get_many(keys)
            assert list(snapshot) == sorted(keys, key=lambda key: snapshot[key].revision)
            found = [snapshot[key].revision for key in snapshot]
            # The last twenty writes are those of twenty different keys.
            assert found == list(range(snapshot.revision - 19, snapshot.revision + 1))
    finally:
        writing.cancel()


async def test_many_keys_have_no_entries_without_a_value(filled: Bucket) -> None:
    snapshot = await filled.get_many(["a.1", "a.2", "b", "b", "c"])
    assert {key: entry.value for key, entry in snapshot.items()} == {"a.1": b"4", "b": b"3"}
    assert snapshot.revision == 5
    assert set(await filled.get_many("a.*")) == {"a.1"}
    nothing = await filled.get_many(["none"])
    assert (len(nothing), nothing.revision) == (0, 0)
    assert await filled.get_many(["c"]) == {}
    last = await filled.put("x", b"0")
    assert (await filled.get_many(["c"], leader=True)).revision == last
    coded = filled.with_codecs(values=ZlibCodec())
    await coded.put("z", b"zzz")
    assert (await coded.get_many(["z"], leader=True))["z"].value == b"zzz"


async def test_more_keys_than_a_server_gives_are_refused(js: JetStream, bucket: Bucket) -> None:
    keys = [f"k{number}" for number in range(1025)]
    too_many = f'More than 1,024 keys of bucket "{bucket.name}" were requested'
    for asked in (keys, [f"{number:0>1000}" for number in range(2000)]):
        with pytest.raises(DirectGetError, match=too_many) as refused:
            await bucket.get_many(asked)
        assert (refused.value.status, "ask for fewer at once" in str(refused.value)) == (413, True)
    assert await bucket.get_many(keys[1:]) == {}
    async with js.publisher() as publisher:
        for key in keys:
            await publisher.publish(f"$KV.{bucket.name}.{key}", b"x")
    with pytest.raises(DirectGetError, match=too_many):
        await bucket.get_many(">")
    assert len(await bucket.get_many(keys[1:])) == 1024


async def test_without_direct_gets_many_keys_are_refused(js: JetStream, bucket: Bucket) -> None:
    await js.stream(bucket.stream).update(allow_direct=False)
    without = await js.bucket(bucket.name)
    with pytest.raises(DirectGetError, match="direct gets"):
        await without.get_many(["a"])


async def test_a_read_only_bucket_reads_and_has_no_calls_that_write(filled: Bucket) -> None:
    bucket = filled.read_only()
    assert type(bucket) is ReadOnlyBucket
    assert await bucket.get_value("b") == b"3"
    assert await bucket.keys().all() == ["b", "a.1"]
    assert repr(bucket).startswith("ReadOnlyBucket(")
    assert type(bucket.with_codecs(values=ZlibCodec())) is ReadOnlyBucket
    writing = {"put", "create", "update", "delete", "purge", "purge_deletes", "revert"}
    assert not [name for name in (*writing, "lock", "election") if hasattr(bucket, name)]


@pytest.mark.parametrize("lost", [1, 2, 3, 4])  # the fourth is the end
async def test_many_keys_are_asked_for_again_when_a_frame_is_lost(
    shared_server: NatsServer, bucket: Bucket, lost: int
) -> None:
    for key in ("a", "b", "c"):
        await bucket.put(key, key.encode())
    async with FrameProxy(shared_server.port) as proxy, connect(proxy.url) as nc:
        far = await nc.jetstream(timeout=1.5).bucket(bucket.name)
        fault = proxy.arm(lost, wanted=lambda frame: b"Nats-Num-Pending" in frame)
        found = await far.get_many(["a", "b", "c"])
        assert fault.hit is not None
    assert {key: entry.value for key, entry in found.items()} == {"a": b"a", "b": b"b", "c": b"c"}
