"""A bucket as a mapping: it mirrors the bucket, or says that it does not."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually
from tests.kv.conftest import put_at_last

from jetspark import errors
from jetspark.full_client import JetStream, connect
from jetspark.kv import Bucket, Entry, LiveBucket, ZlibCodec
from jetspark.server import NatsServer


async def becomes(live: LiveBucket, wanted: dict[str, bytes]) -> None:
    await eventually(lambda: live.snapshot() == wanted)


async def test_a_live_bucket_is_complete_when_entered_and_follows(bucket: Bucket) -> None:
    for number in range(1200):
        await bucket.put(f"k{number % 600}", b"%d" % number)
    await bucket.delete("k0")
    async with bucket.live() as live:
        wanted = {f"k{number}": b"%d" % (number + 600) for number in range(1, 600)}
        assert dict(live) == live.snapshot() == wanted
        assert len(live) == 599
        assert "k0" not in live
        with pytest.raises(KeyError):
            live["k0"]
        assert live.entry("k1").revision == 602
        revision = await bucket.put("k0", b"back")
        await bucket.purge("k1")
        wanted["k0"] = b"back"
        del wanted["k1"]
        await becomes(live, wanted)
        assert live.entry("k0").revision == revision


async def test_a_live_bucket_is_read_in_its_block_only(bucket: Bucket) -> None:
    await bucket.put("a", b"1")
    seen: list[bytes] = []
    live = bucket.live(on_change=lambda entry: seen.append(live[entry.key]))

    def refuse(error: type[errors.JetsparkError], match: str) -> None:
        for read in (lambda: live.get("a"), lambda: len(live), lambda: "a" in live, live.snapshot):
            with pytest.raises(error, match=match):
                read()
        assert "not followed" in repr(live)

    refuse(errors.ConfigError, "inside its with block")
    async with live, bucket.live("b.*") as other:
        assert live["a"] == b"1"
        assert other.snapshot() == {}
        assert "not followed" not in repr(live)
        with pytest.raises(errors.ConfigError, match="once"):
            await live.__aenter__()
    refuse(errors.ClosedError, "has ended")
    assert seen == [b"1"]
    with pytest.raises(errors.ConfigError, match="resync"):
        bucket.live(resync=0)


async def test_a_value_that_cannot_be_decoded_is_not_the_one_before(bucket: Bucket) -> None:
    packed = bucket.with_codecs(values=ZlibCodec())
    await packed.put("price", b"1.20")
    async with packed.live() as live:
        await bucket.put("price", b"written without the codec")
        await becomes(live, {})
        assert "price" not in live
        for read in (live.__getitem__, live.entry):
            with pytest.raises(errors.CodecError):
                read("price")
        assert live.get("other") is None
        await packed.put("price", b"1.40")
        await becomes(live, {"price": b"1.40"})
        await bucket.put("price", b"written without the codec")
        await becomes(live, {})
        await bucket.delete("price")
        await packed.put("other", b"1")
        await becomes(live, {"other": b"1"})
        assert live.get("price") is None


async def test_items_and_values_of_a_live_bucket_are_snapshots(bucket: Bucket) -> None:
    for number in range(10):
        await bucket.put(f"k{number}", b"1")
    async with bucket.live() as live:
        views = (iter(live), iter(live.items()), iter(live.values()))
        for number in range(10):
            await bucket.purge(f"k{number}")
        await becomes(live, {})
        assert [len(list(view)) for view in views] == [10, 10, 10]


async def test_on_change_gets_every_entry(bucket: Bucket) -> None:
    await bucket.put("k", b"1")
    heard: list[tuple[str, str]] = []

    def on_change(entry: Entry) -> None:
        heard.append((entry.key, str(entry.operation)))
        if entry.operation == "DEL":
            raise ZeroDivisionError

    async with bucket.live(on_change=on_change) as live:
        assert heard == [("k", "PUT")]
        await bucket.delete("k")
        await bucket.put("other", b"")
        await becomes(live, {"other": b""})
        assert heard == [("k", "PUT"), ("k", "DEL"), ("other", "PUT")]
    assert "ZeroDivisionError" in str(bucket.client.last_error)


async def test_a_live_bucket_notices_that_it_was_emptied(js: JetStream, bucket: Bucket) -> None:
    heard: list[tuple[str, str, int]] = []
    for number in range(3):
        await bucket.put(f"k{number}", b"")

    def on_change(entry: Entry) -> None:
        heard.append((entry.key, str(entry.operation), entry.revision))

    async with bucket.live(on_change=on_change, resync=0.05) as live:
        assert len(live) == 3
        await (await js.bucket(bucket.name)).empty()
        await bucket.put("k1", b"new")
        await becomes(live, {"k1": b"new"})
        assert ("k0", "PURGE", 1) in heard
        assert ("k2", "PURGE", 3) in heard
        assert ("k1", "PURGE", 2) not in heard


async def test_a_live_bucket_notices_expired_values(js: JetStream, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("B"), ttl=timedelta(seconds=2), storage="memory")
    await bucket.put("k", b"1")
    async with bucket.live(resync=0.05) as live:
        assert live.snapshot() == {"k": b"1"}
        await becomes(live, {})
    await js.delete_bucket(bucket.name)


async def test_a_live_bucket_catches_up_after_a_restart(nats_server: NatsServer) -> None:
    async with connect(nats_server.url, reconnect_wait=0.05, max_reconnect_attempts=-1) as nc:
        bucket = await nc.jetstream(timeout=5).create_bucket("B")
        await bucket.put("k", b"0")
        async with bucket.live() as live:
            for turn in range(1, 4):
                await asyncio.to_thread(nats_server.kill)
                assert live["k"] == b"%d" % (turn - 1)
                await asyncio.to_thread(nats_server.start)
                await put_at_last(bucket, "k", b"%d" % turn)
                await becomes(live, {"k": b"%d" % turn})


async def test_a_live_bucket_that_cannot_follow_raises(js: JetStream, bucket: Bucket) -> None:
    await bucket.put("k", b"1")
    async with bucket.live() as live:
        await js.delete_bucket(bucket.name)
        await eventually(lambda: live.error is not None)
        for read in (lambda: live["k"], lambda: len(live), live.snapshot, lambda: list(live)):
            with pytest.raises(errors.BucketNotFoundError):
                read()
    with pytest.raises(errors.BucketNotFoundError):
        async with bucket.live():
            pass


async def test_closing_the_client_ends_it(shared_server: NatsServer, bucket: Bucket) -> None:
    await bucket.put("k", b"1")
    nc = await connect(shared_server.url)
    async with (await nc.jetstream().bucket(bucket.name)).live() as live:
        assert live["k"] == b"1"
        await nc.close()
        await eventually(lambda: live.error is not None)
        with pytest.raises(errors.ConnectionClosedError):
            live["k"]


async def test_other_threads_can_read_a_live_bucket(bucket: Bucket) -> None:
    for number in range(100):
        await bucket.put(f"k{number}", b"0")
    stop = False

    def read(live: LiveBucket) -> int:
        turns = 0
        while not stop:
            snapshot = live.snapshot()
            assert set(snapshot) <= {f"k{number}" for number in range(100)}
            for key in live:
                live.get(key)
            assert all(value.isdigit() for _, value in live.items())
            turns += 1
        return turns

    async with bucket.live() as live:
        readers = [asyncio.create_task(asyncio.to_thread(read, live)) for _ in range(2)]
        for turn in range(3):
            await asyncio.gather(*(bucket.put(f"k{n}", b"%d" % turn) for n in range(100)))
            await asyncio.gather(*(bucket.delete(f"k{n}") for n in range(0, 100, 2)))
        stop = True
        assert all(turns > 0 for turns in await asyncio.gather(*readers))
