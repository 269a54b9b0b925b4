"""Atomic batches: all or nothing (ADR-50)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conftest import MakeServer, NeedsServer, Unique
from tests.jetstream.conftest import Ordinary, ServerIs, routes
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster

from jetspark import errors
from jetspark.client.messages import PreparedMessage
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import AtomicBatch
from jetspark.jetstream.in_flight import sender_of

LIMITED = """
jetstream {
  limits { batch { timeout: "300ms", max_msgs: 5, max_inflight_per_stream: 2 } }
}
"""


@pytest.fixture(autouse=True)
def _batches(needs_server: NeedsServer) -> None:
    needs_server("2.12")


@pytest.fixture
async def atomic(js: JetStream, stream: str) -> str:
    """A stream that takes atomic batches."""
    await js.stream(stream).update(allow_atomic=True, allow_msg_ttl=True)
    return stream


async def fails(batch: AtomicBatch) -> None:
    """And all the refusals that follow have come, too."""

    async def has_failed() -> bool:
        await sender_of(batch).client.flush()
        return sender_of(batch).window.ended is not None

    await eventually(has_failed)


async def stored(js: JetStream, stream: str) -> int:
    return (await js.stream(stream).info()).state.messages


@pytest.fixture
async def limited(make_server: MakeServer, needs_server: NeedsServer) -> AsyncIterator[JetStream]:
    """A server with small limits, and a stream S for batches."""
    needs_server("2.14")
    async with connect(make_server(LIMITED).url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_atomic=True)
        yield js


async def test_leaving_the_block_stores_all_in_order(js: JetStream, atomic: str) -> None:
    await js.publish(f"{atomic}.before")
    async with js.atomic_batch() as batch:
        for number in range(1, 101):
            assert await batch.publish(f"{atomic}.{number % 3}", b"%d" % number) == number
        assert batch.ack is None
        assert await stored(js, atomic) == 1
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count, batch.size) == (101, 100, 100)
    consumer = await js.stream(atomic).create_consumer(ack_policy="none")
    messages = await consumer.fetch(101, timeout=5)
    assert [msg.data for msg in messages][1:] == [b"%d" % number for number in range(1, 101)]


async def test_many_tasks_may_add(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        numbers = await asyncio.gather(*(batch.publish(f"{atomic}.a") for _ in range(50)))
    assert sorted(numbers) == list(range(1, 51))


async def test_one_message_is_a_batch_too_and_none_is_not(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        with pytest.raises(errors.ConfigError, match="empty"):
            await batch.commit()
    assert batch.ack is None
    async with js.atomic_batch() as batch:
        await batch.publish(f"{atomic}.a", b"x", headers={"K": "1"}, msg_id="m", ttl=60)
        ack = await batch.commit()
    assert (ack.seq, ack.count, batch.ack) == (1, 1, ack)
    headers = (await js.stream(atomic).get(1)).headers
    assert headers is not None
    assert (headers["K"], headers["Nats-Msg-Id"], headers["Nats-TTL"]) == ("1", "m", "60")


async def test_exception_in_the_block_abandons_the_atomic_batch(js: JetStream, atomic: str) -> None:
    advisories = js.client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{atomic}")
    with pytest.raises(KeyError):
        async with js.atomic_batch() as batch:
            for _ in range(3):
                await batch.publish(f"{atomic}.a")
            raise KeyError("mine")
    async with asyncio.timeout(20):
        assert b'"incomplete"' in (await anext(advisories)).data
    assert (await stored(js, atomic), batch.ack) == (0, None)


async def test_expectations_of_a_batch_are_checked_by_commit(js: JetStream, atomic: str) -> None:
    await js.publish(f"{atomic}.a")
    async with js.atomic_batch() as batch:
        await batch.publish(f"{atomic}.a", expect_last_seq=1, expect_last_subject_seq=1)
        await batch.publish(f"{atomic}.b", expect_last_subject_seq=0)
    wrong: tuple[Any, ...] = ({"expect_last_seq": 2}, {"expect_last_subject_seq": 1})
    for options in wrong:
        with pytest.raises(errors.WrongLastSequenceError):
            async with js.atomic_batch() as batch:
                await batch.publish(f"{atomic}.a", **options)
                await batch.publish(f"{atomic}.c")
    with pytest.raises(errors.BatchError) as refused:
        async with js.atomic_batch() as batch:
            await batch.publish(f"{atomic}.a", msg_id="m")
            await batch.publish(f"{atomic}.b", msg_id="m")
    assert refused.value.err_code == 10201
    assert await stored(js, atomic) == 3


async def test_commit_after_flush_stores_the_atomic_batch(
    js: JetStream, atomic: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    async with js.atomic_batch() as batch:
        for number in range(3):
            await batch.publish(f"{atomic}.{number}")
        await batch.flush()
        await batch.publish(f"{atomic}.3")
        await batch.flush()
        assert await stored(js, atomic) == 0
        assert (await batch.commit()).count == 4
    assert await stored(js, atomic) == 4


@pytest.mark.parametrize("known_before_the_commit", [False, True])
async def test_the_first_refusal_is_the_one_that_is_raised(
    js: JetStream, atomic: str, known_before_the_commit: bool
) -> None:
    await js.stream(atomic).update(max_msg_size=1000)
    with pytest.raises(errors.APIError) as refused:
        async with js.atomic_batch() as batch:
            await batch.publish(f"{atomic}.a")
            await batch.publish(f"{atomic}.b", b"x" * 2000)
            for _ in range(5):
                await batch.publish(f"{atomic}.c")
            if known_before_the_commit:
                await fails(batch)
    assert refused.value.err_code == 10054
    assert await stored(js, atomic) == 0


async def test_batch_on_a_stream_without_batches_is_refused(js: JetStream, stream: str) -> None:
    with pytest.raises(errors.NotEnabledOnStreamError) as refused:
        async with js.atomic_batch() as batch:
            await batch.publish(f"{stream}.a")
            await batch.publish(f"{stream}.a")
    assert refused.value.option == "allow_atomic"
    for count in (1, 2):
        with pytest.raises(errors.NoStreamResponseError):
            async with js.atomic_batch(timeout=2) as batch:
                for _ in range(count):
                    await batch.publish("nobody.listens")


async def test_atomic_batch_over_the_server_limits_is_refused(limited: JetStream) -> None:
    with pytest.raises(errors.BatchError) as refused:
        async with limited.atomic_batch() as batch:
            for _ in range(6):
                await batch.publish("s.a")
    assert refused.value.err_code == 10199
    async with limited.atomic_batch() as one, limited.atomic_batch() as two:
        for batch in (one, two):
            await batch.publish("s.a")
            await batch.publish("s.a")
        with pytest.raises(errors.BatchError) as refused:
            async with limited.atomic_batch() as third:
                await third.publish("s.a")
                for _ in range(2):  # and stays so
                    with pytest.raises(errors.BatchError):
                        await third.publish("s.a")
                assert third.size == 1
        assert refused.value.err_code == 10210
        await one.commit()
        await two.commit()
        with pytest.raises(errors.ClosedError, match="it was committed"):
            await two.publish("s.a")
    assert await stored(limited, "S") == 4


async def test_an_idle_batch_is_refused_by_its_next_message(limited: JetStream) -> None:
    advisories = limited.client.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S")
    with pytest.raises(errors.BatchError) as refused:
        async with limited.atomic_batch() as batch:
            await batch.publish("s.a")
            await batch.publish("s.a")
            async with asyncio.timeout(20):
                assert b'"timeout"' in (await anext(advisories)).data
    assert refused.value.err_code == 10176
    assert await stored(limited, "S") == 0


async def test_a_lost_link_ends_an_atomic_batch(js: JetStream, atomic: str, nc: Client) -> None:
    with pytest.raises(errors.BrokenSocketError, match="nothing is stored"):
        async with js.atomic_batch() as batch:
            await batch.publish(f"{atomic}.a")
            await batch.publish(f"{atomic}.a")
            await nc.force_reconnect()
            await batch.publish(f"{atomic}.a")
    assert await stored(js, atomic) == 0


async def test_atomic_batch_over_a_leader_change_stores_all_or_nothing(
    nats_cluster: Cluster, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.15")  # 2.14.6 can never delete the stream after that
    name = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream(timeout=10)
        await js.create_stream(name=name, subjects=[name], num_replicas=3, allow_atomic=True)
        outcomes = {0}
        try:
            async with js.atomic_batch(timeout=2) as batch:
                for number in range(100):
                    await batch.publish(name)
                    if number == 50:
                        await js.stream(name).step_down_leader()
            outcomes = {100}
        except errors.RequestTimeoutError:  # of the commit, perhaps
            outcomes = {0, 100}
        except (errors.BatchError, errors.NoStreamResponseError):
            pass
        assert await stored(js, name) in outcomes
        await js.delete_stream(name)


async def test_a_missing_answer_is_a_timeout(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("silent")
    async with nc.subscribe(subject):
        for count, what in ((1, "may be stored or not"), (2, "which is not stored")):
            with pytest.raises(errors.RequestTimeoutError, match=what):
                async with js.atomic_batch(timeout=0.05) as batch:
                    for _ in range(count):
                        await batch.publish(subject)


async def test_an_ordinary_stream_gets_only_one(js: JetStream, ordinary: Ordinary) -> None:
    with pytest.raises(errors.JetStreamError, match="in S at sequence 5"):
        async with js.atomic_batch() as batch:
            for _ in range(3):
                await batch.publish(ordinary.subject)
    await js.client.flush()
    assert len(ordinary.taken) == 1


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, server_is: ServerIs
) -> None:
    batch = js.atomic_batch()
    with pytest.raises(errors.ConfigError, match="not open"):
        await batch.publish("a")
    with pytest.raises(errors.ConfigError):
        js.atomic_batch(timeout=0)
    with pytest.raises(KeyError):
        async with batch:
            await nc.flush()
            before = nc.stats.out_msgs
            with pytest.raises(errors.BadSubjectError):
                await batch.publish("a.*")
            with pytest.raises(TypeError):
                await batch.publish("a", "text")  # type: ignore[arg-type]
            with pytest.raises(errors.MaxPayloadError):
                await batch.publish("a", b"x" * nc.max_payload)
            await batch.publish("a")
            with pytest.raises(errors.ConfigError, match="first message"):
                await batch.publish("a", expect_last_seq=1)
            assert batch.size == 1
            raise KeyError
    assert nc.stats.out_msgs == before
    server_is("2.11.1")
    with pytest.raises(errors.UnsupportedByServerError):
        js.atomic_batch()


async def test_what_came_out_of_a_batch_is_published_on(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        await batch.publish(f"{atomic}.a", expect_last_seq=0)
        await batch.publish(f"{atomic}.b", headers={"K": "1"})
    consumer = await js.stream(atomic).create_consumer(ack_policy="none")
    received = await consumer.fetch(2, timeout=5)
    assert [(await js.publish_msg(msg)).batch for msg in received] == [None, None]
    prepared = PreparedMessage(f"{atomic}.c", headers=received[1].headers or ())
    async with js.atomic_batch() as batch:
        for _ in range(2):
            await batch.publish(prepared.subject, headers=prepared.headers)
    copy = (await js.stream(atomic).get(4)).headers
    assert copy is not None
    assert copy.to_dict() == {"K": ["1"]}
    assert await stored(js, atomic) == 6


async def test_a_cancelled_add_changes_nothing(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("silent")
    taken = nc.subscribe(subject)
    async with taken, js.atomic_batch() as batch:
        await batch.publish(subject, b"1")
        adding = asyncio.create_task(batch.publish(subject, b"2"))
        first = await anext(taken)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert batch.size == 1
        another = asyncio.create_task(batch.publish(subject, b"3"))
        await nc.flush()
        assert not another.done()  # the first is still without an answer
        await first.respond(b"")
        assert await another == 2
        committing = asyncio.create_task(batch.commit())
        last = await anext(taken)
        assert last.data == b"3"
        await last.respond(b'{"stream":"S","seq":2,"batch":"b","count":2}')
        assert (await committing).count == 2


async def test_nothing_is_left_behind(js: JetStream, nc: Client, atomic: str) -> None:
    before = routes(nc)
    async with js.atomic_batch() as batch:
        await batch.publish(f"{atomic}.a")
    assert routes(nc) == before
    tasks = len(asyncio.all_tasks())
    with pytest.raises(KeyError):
        async with js.atomic_batch() as batch:
            await batch.publish(f"{atomic}.a")
            raise KeyError
    await eventually(lambda: len(asyncio.all_tasks()) == tasks)
