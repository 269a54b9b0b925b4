"""Locks: one holder, tokens that grow, and a holder that knows when its lease is over."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.chaos.proxy import Proxy
from tests.conftest import NeedsServer, Unique

import jetspark
from jetspark import errors
from jetspark.full_client import JetStream
from jetspark.kv import Bucket, Operation
from jetspark.kv.lock import LockKey
from jetspark.kv.stored import BucketStream
from jetspark.server import NatsServer


async def test_a_lock_is_held_by_one_at_a_time_with_tokens_that_grow(bucket: Bucket) -> None:
    tokens: list[int] = []
    inside = 0

    async def work() -> None:
        nonlocal inside
        for _ in range(5):
            async with bucket.lock("job") as lock:
                inside += 1
                assert inside == 1
                tokens.append(lock.token)
                await bucket.put("elsewhere")  # others could come in between
                inside -= 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(work() for _ in range(6)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 30


async def test_a_lock_says_who_holds_it(bucket: Bucket) -> None:
    lock = bucket.lock("job", holder="ann", lease=timedelta(seconds=20))
    assert await lock.owner() is None
    with pytest.raises(errors.ConfigError, match="acquire it first"):
        _ = lock.token
    async with lock:
        owner = await bucket.lock("job").owner()
        assert owner is not None
        assert (owner.holder, owner.lease) == ("ann", 20)
        assert lock.held
        assert not lock.lost
        with pytest.raises(errors.ConfigError, match="make another one"):
            await lock.acquire()
        with pytest.raises(errors.RequestTimeoutError, match="was held by others"):
            await bucket.lock("job").acquire(timeout=0.05)
    assert not lock.held
    assert await lock.owner() is None
    assert await lock.acquire() > 1
    await lock.release()
    with pytest.raises(errors.ConfigError, match="not held"):
        await lock.release()


async def test_waiting_contenders_wake_when_the_lock_is_released(bucket: Bucket) -> None:
    async with asyncio.timeout(60), bucket.watch("job", updates_only=True) as changes:
        holder, contender = (bucket.lock("job", lease=3600) for _ in range(2))
        token = await holder.acquire()
        waiting = asyncio.create_task(contender.acquire())
        assert await anext(changes) is None
        with pytest.raises(errors.RequestTimeoutError):
            await bucket.lock("job").acquire(timeout=0.5)
        await holder.release()
        assert await waiting > token
        await contender.release()


async def test_a_dead_holder_is_followed_by_another_after_its_lease_and_not_before(
    shared_server: NatsServer, bucket: Bucket
) -> None:
    async with jetspark.connect(shared_server.url) as other:
        dead = (await other.jetstream().bucket(bucket.name)).lock("job", lease=1.5)
        token = await dead.acquire()
    begun = time.monotonic()
    assert dead.lost
    with pytest.raises(errors.LockLostError, match="connection was closed"):
        _ = dead.token
    async with asyncio.timeout(30), bucket.lock("job", lease=60) as lock:
        assert time.monotonic() - begun >= 1.4
        assert lock.token > token


async def test_the_server_removes_what_a_dead_holder_has_left(
    js: JetStream, shared_server: NatsServer, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    bucket = await js.create_bucket(unique("B"), limit_marker_ttl=60, storage="memory")
    async with jetspark.connect(shared_server.url) as other:
        dead = (await other.jetstream().bucket(bucket.name)).lock("job", lease=1)
        token = await dead.acquire()
    async with asyncio.timeout(30), bucket.watch("job") as changes:
        while (entry := await anext(changes)) is None or not entry.is_deleted:
            pass
        assert entry.operation is Operation.PURGE
        assert await bucket.lock("job").acquire() > max(token, entry.revision)
    await js.delete_bucket(bucket.name)


async def test_a_holder_that_is_cut_off_knows_it_before_another_holds_the_lock(
    nats_server: NatsServer,
) -> None:
    with Proxy(nats_server.port) as proxy:
        async with jetspark.connect(nats_server.url) as near, jetspark.connect(proxy.url) as far:
            bucket = await near.jetstream().create_bucket("B", storage="memory")
            lock = (await far.jetstream().bucket("B")).lock("job", lease=2)
            token = await lock.acquire()
            contender = bucket.lock("job")
            order: list[str] = []

            async def learn() -> None:
                await lock.wait_lost()
                order.append("lost")

            async def take() -> None:
                assert await contender.acquire() > token
                order.append("taken")

            both = asyncio.gather(learn(), take())
            proxy.half_open()
            async with asyncio.timeout(60):
                await both
            assert order == ["lost", "taken"]
            with pytest.raises(errors.LockLostError, match="not renewed"):
                _ = lock.token
            await contender.release()


async def test_a_lock_is_renewed_and_lost_when_another_writes_its_key(bucket: Bucket) -> None:
    async with asyncio.timeout(60), bucket.watch("job", updates_only=True) as changes:
        assert await anext(changes) is None
        lock = bucket.lock("job", lease=2)
        with pytest.raises(errors.LockLostError, match="taken it over"):
            async with lock:
                # The second one at a third of the lease, and so on.
                seen = [await anext(changes) for _ in range(4)]
                assert seen[-1] is not None
                assert lock.token < seen[-1].revision
                last = await bucket.put("job", b"something else")
                await lock.wait_lost()
                assert lock.lost
        assert (await bucket.get("job")).revision == last  # only our own record is released
    with pytest.raises(errors.CodecError, match="a lock's record"):
        await bucket.lock("job").acquire()


async def test_an_error_in_the_block_is_raised_rather_than_a_lost_lock(bucket: Bucket) -> None:
    with pytest.raises(KeyError):
        async with asyncio.timeout(30), bucket.lock("job", lease=1) as lock:
            await bucket.purge("job")
            await lock.wait_lost()
            raise KeyError
    assert isinstance(bucket.client.last_error, errors.LockLostError)


@pytest.mark.parametrize("done", [False, True])
async def test_a_release_that_lost_its_link_is_tried_again(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    delete, lost = LockKey.delete, [errors.RequestTimeoutError("No reply.")]

    async def losing(self: LockKey, last: int) -> None:
        if done or not lost:
            await delete(self, last)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(LockKey, "delete", losing)
    async with asyncio.timeout(20):
        async with bucket.lock("job", lease=3600) as lock:
            pass
        assert not lost
        assert not lock.held
        async with bucket.lock("job"):
            pass


async def test_draining_ends_the_wait_for_a_lock(
    bucket: Bucket, js: JetStream, shared_server: NatsServer
) -> None:
    async with bucket.lock("job"), jetspark.connect(shared_server.url) as nc:
        far = await nc.jetstream().bucket(bucket.name)
        waiting = asyncio.create_task(far.lock("job").acquire())
        while not await js.stream(f"KV_{bucket.name}").consumer_names().all():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until it watches the key
        await nc.drain()
        with pytest.raises(errors.ConnectionClosedError):
            await waiting


async def test_emptying_the_bucket_loses_its_locks(bucket: Bucket, js: JetStream) -> None:
    lock = bucket.lock("job", lease=6)
    await lock.acquire()
    await (await js.bucket(bucket.name)).empty()
    async with bucket.lock("job") as other:
        async with asyncio.timeout(5):  # the lease has not ended
            await lock.wait_lost()
        assert other.held
    with pytest.raises(errors.LockLostError):
        await lock.release()


async def test_an_acquisition_that_is_cancelled_leaves_no_record(bucket: Bucket) -> None:
    for steps in range(6):
        lock = bucket.lock("job", lease=3600)
        acquiring = asyncio.create_task(lock.acquire())
        for _ in range(steps):
            await asyncio.sleep(0)
        acquiring.cancel()
        with suppress(asyncio.CancelledError):
            await acquiring
        if lock.held:
            await lock.release()
        async with bucket.lock("job") as again:
            await again.release()
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.get("job", leader=True)


async def test_a_renewal_whose_answer_is_lost_is_found_to_be_our_own(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, write = asyncio.Event(), BucketStream.write

    async def without_answer(*args: Any, **options: Any) -> int:
        revision = await write(*args, **options)
        if not stored.is_set():
            stored.set()
            raise errors.RequestTimeoutError("The answer was lost.")
        return revision

    lock = bucket.lock("job", lease=3)
    async with asyncio.timeout(30), lock:
        monkeypatch.setattr(BucketStream, "write", without_answer)
        first = await bucket.get("job", leader=True)
        async with bucket.watch("job", resume_from=first.revision + 1) as changes:
            seen = 0
            while seen < 3:  # that one, and those after it
                seen += (await anext(changes)) is not None
        assert stored.is_set()
        assert lock.token == first.revision


async def test_impossible_locks_are_refused(js: JetStream, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("B"), ttl=timedelta(seconds=5), storage="memory")
    with pytest.raises(errors.ConfigError, match="keeps values for 5 s"):
        bucket.lock("job")
    with pytest.raises(errors.ConfigError, match="at least 1 second"):
        bucket.lock("job", lease=0.5)
    with pytest.raises(errors.JetsparkError, match="key"):
        bucket.lock("a b", lease=2)
    await js.delete_bucket(bucket.name)
