"""Elections: one leader, states in order, callbacks."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import Reported

from jetspark import errors
from jetspark.full_client import JetStream
from jetspark.kv import Bucket, ElectionState
from jetspark.kv.lock import Lock


async def test_one_candidate_leads_and_another_follows_when_it_resigns(bucket: Bucket) -> None:
    async with asyncio.timeout(60):
        one, other = (bucket.election("leader", holder=name) for name in ("one", "other"))
        async with one:
            assert await anext(one) == (False, None)
            first = await anext(one)
            assert first.leading
            assert one.leading
            assert first.token == one.token
            async with other:
                assert await other.next() == (False, None)
                leader = await other.leader()
                assert leader is not None
                assert leader.holder == "one"
                await one.resign()
                assert not one.leading
                second = await anext(other)
                assert second.leading
                assert (second.token or 0) > (first.token or 0)
    with pytest.raises(errors.ClosedError):
        await other.next(1)
    assert await one.leader() is None


async def test_another_leads_at_once_after_one_whose_leaving_was_cancelled(bucket: Bucket) -> None:
    async with asyncio.timeout(20):
        one, other = (bucket.election("leader", lease=60) for _ in range(2))
        async with one:
            while not (await anext(one)).leading:
                pass
            leaving = asyncio.create_task(one.resign())
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            async with other:
                while not (await anext(other)).leading:
                    pass


async def test_a_leader_that_is_replaced_becomes_a_candidate_again(bucket: Bucket) -> None:
    states: asyncio.Queue[ElectionState] = asyncio.Queue()
    election = bucket.election("leader", lease=3, callback=states.put)
    async with asyncio.timeout(60), election:
        assert not (await states.get()).leading
        first = await states.get()
        await bucket.purge("leader")  # somebody else decides so
        assert await states.get() == (False, None)
        second = await states.get()
        assert (second.token or 0) > (first.token or 0)
        with pytest.raises(errors.ConfigError, match="callback"):
            await election.next()


async def test_a_candidate_is_told_that_the_election_is_gone(js: JetStream, bucket: Bucket) -> None:
    async with asyncio.timeout(60), bucket.election("leader", lease=3) as election:
        assert [(await anext(election)).leading for _ in range(2)] == [False, True]
        await js.delete_bucket(bucket.name)
        assert not (await anext(election)).leading
        with pytest.raises(errors.BucketNotFoundError):
            await anext(election)
    assert isinstance(election.error, errors.BucketNotFoundError)


async def test_a_failure_to_resign_does_not_take_the_place_of_what_ends_the_block(
    bucket: Bucket, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = errors.RequestTimeoutError("no answer")

    async def unanswered(_: Lock) -> None:
        raise failure

    monkeypatch.setattr(Lock, "release", unanswered)
    with pytest.raises(asyncio.CancelledError):
        async with bucket.election("leader", lease=3) as election:
            while not (await anext(election)).leading:
                pass
            raise asyncio.CancelledError
    assert reported == [failure]
