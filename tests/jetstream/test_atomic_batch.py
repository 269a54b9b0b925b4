"""Atomic batches: all or nothing (ADR-50)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.jetstream.eventually import eventually

from jetspark.client.messages import PreparedMessage
from jetspark.errors import (
    BadSubjectError,
    BatchError,
    BrokenSocketError,
    ConfigError,
    JetStreamError,
    MaxPayloadError,
    NoStreamResponseError,
    NotEnabledOnStreamError,
    RequestTimeoutError,
    UnsupportedByServerError,
    WrongLastSequenceError,
)
from jetspark.full_client import JetStream, connect
from jetspark.jetstream import AtomicBatch
from jetspark.wire.documents import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import MakeServer
    from tests.support.cluster import Cluster

    from jetspark.client.messages import Message
    from jetspark.full_client import Client

LIMITED = """
jetstream {
  limits { batch { timeout: "300ms", max_msgs: 5, max_inflight_per_stream: 2 } }
}
"""


@pytest.fixture(autouse=True)
def _batches(needs_server: Callable[[str], None]) -> None:
    needs_server("2.12")


@pytest.fixture
async def atomic(js: JetStream, stream: str) -> str:
    """A stream that takes atomic batches."""
    await js.update_stream(name=stream, allow_atomic=True, allow_msg_ttl=True)
    return stream


def has_failed(batch: AtomicBatch) -> Callable[[], Awaitable[bool]]:
    """And all the refusals that follow have come, too."""

    async def asked() -> bool:
        await batch._sender.client.flush()
        return batch._sender.window.ended is not None

    return asked


async def stored(js: JetStream, stream: str) -> int:
    return (await js.stream_info(stream)).state.messages


async def limited(make_server: MakeServer, needs_server: Callable[[str], None]) -> str:
    """The URL of a server with small limits and a stream S for batches."""
    needs_server("2.14")
    url = make_server(LIMITED).url
    async with connect(url) as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s.>"], allow_atomic=True)
    return url


async def test_leaving_the_block_stores_all_in_order(js: JetStream, atomic: str) -> None:
    await js.publish(f"{atomic}.before")
    async with js.atomic_batch() as batch:
        for number in range(1, 101):
            assert await batch.add(f"{atomic}.{number % 3}", b"%d" % number) == number
        assert batch.ack is None
        assert await stored(js, atomic) == 1
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count, batch.size) == (101, 100, 100)
    consumer = await js.create_consumer(atomic, ack_policy="none")
    messages = await consumer.fetch(101, timeout=5)
    assert [msg.data for msg in messages][1:] == [b"%d" % number for number in range(1, 101)]


async def test_one_message_is_a_batch_too(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        await batch.add(f"{atomic}.a", b"x", headers={"K": "1"}, msg_id="m", ttl=60)
        ack = await batch.commit()
    assert (ack.seq, ack.count, batch.ack) == (1, 1, ack)
    headers = (await js.get_msg(atomic, 1)).headers
    assert headers is not None
    assert (headers["K"], headers["Nats-Msg-Id"], headers["Nats-TTL"]) == ("1", "m", "60")


async def test_exception_in_the_block_abandons_the_atomic_batch(js: JetStream, atomic: str) -> None:
    advisories = js.client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{atomic}")
    with pytest.raises(KeyError):
        async with js.atomic_batch() as batch:
            for _ in range(3):
                await batch.add(f"{atomic}.a")
            raise KeyError("mine")
    async with asyncio.timeout(20):
        assert b'"incomplete"' in (await anext(advisories)).data
    assert (await stored(js, atomic), batch.ack) == (0, None)


async def test_empty_atomic_batch_has_no_ack_and_refuses_commit(js: JetStream, nc: Client) -> None:
    async with js.atomic_batch() as batch:
        with pytest.raises(ConfigError, match="empty"):
            await batch.commit()
    assert batch.ack is None


async def test_expectations_of_a_batch_are_checked_at_its_commit(
    js: JetStream, atomic: str
) -> None:
    await js.publish(f"{atomic}.a")
    async with js.atomic_batch() as batch:
        await batch.add(f"{atomic}.a", expect_last_seq=1, expect_last_subject_seq=1)
        await batch.add(f"{atomic}.b", expect_last_subject_seq=0)
    assert await stored(js, atomic) == 3
    for wrong in ({"expect_last_seq": 2}, {"expect_last_subject_seq": 1}):
        options: Any = wrong
        with pytest.raises(WrongLastSequenceError):
            async with js.atomic_batch() as batch:
                await batch.add(f"{atomic}.a", **options)
                await batch.add(f"{atomic}.c")
    assert await stored(js, atomic) == 3


async def test_commit_after_flush_stores_the_atomic_batch(
    js: JetStream, atomic: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    async with js.atomic_batch() as batch:
        for number in range(3):
            await batch.add(f"{atomic}.{number}")
        await batch.flush()
        await batch.add(f"{atomic}.3")
        await batch.flush()
        assert await stored(js, atomic) == 0
        assert (await batch.commit()).count == 4
    assert await stored(js, atomic) == 4


@pytest.mark.parametrize("known_before_the_commit", [False, True])
async def test_the_first_refusal_is_the_one_that_is_raised(
    js: JetStream, atomic: str, known_before_the_commit: bool
) -> None:
    await js.update_stream(name=atomic, max_msg_size=1000)
    with pytest.raises(JetStreamError) as refused:
        async with js.atomic_batch() as batch:
            await batch.add(f"{atomic}.a")
            await batch.add(f"{atomic}.b", b"x" * 2000)
            for _ in range(5):
                await batch.add(f"{atomic}.c")
            if known_before_the_commit:
                await eventually(has_failed(batch))
    assert getattr(refused.value, "err_code", None) == 10054
    assert await stored(js, atomic) == 0


async def test_batch_on_a_stream_without_batches_is_refused(js: JetStream, stream: str) -> None:
    with pytest.raises(NotEnabledOnStreamError) as refused:
        async with js.atomic_batch() as batch:
            await batch.add(f"{stream}.a")
            await batch.add(f"{stream}.a")
    assert refused.value.option == "allow_atomic"


async def test_atomic_batch_with_a_repeated_message_id_is_refused(
    js: JetStream, atomic: str
) -> None:
    with pytest.raises(BatchError) as refused:
        async with js.atomic_batch() as batch:
            await batch.add(f"{atomic}.a", msg_id="m")
            await batch.add(f"{atomic}.b", msg_id="m")
    assert refused.value.err_code == 10201
    assert await stored(js, atomic) == 0


async def test_atomic_batch_over_the_server_limits_is_refused(
    make_server: MakeServer, needs_server: Callable[[str], None]
) -> None:
    url = await limited(make_server, needs_server)
    async with connect(url) as nc:
        js = nc.jetstream()
        with pytest.raises(BatchError) as refused:
            async with js.atomic_batch() as batch:
                for _ in range(6):
                    await batch.add("s.a")
        assert refused.value.err_code == 10199
        async with js.atomic_batch() as one, js.atomic_batch() as two:
            for batch in (one, two):
                await batch.add("s.a")
                await batch.add("s.a")
            with pytest.raises(BatchError) as refused:
                async with js.atomic_batch() as third:
                    await third.add("s.a")
                    with pytest.raises(BatchError):
                        await third.add("s.a")
                    with pytest.raises(BatchError):  # and stays so
                        await third.add("s.a")
                    assert third.size == 1
            assert refused.value.err_code == 10210
            await one.commit()
            await two.commit()
            with pytest.raises(ConfigError, match="committed already"):
                await two.add("s.a")
        assert await stored(js, "S") == 4


async def test_an_idle_batch_is_refused_by_its_next_message(
    make_server: MakeServer, needs_server: Callable[[str], None]
) -> None:
    url = await limited(make_server, needs_server)
    async with connect(url) as nc:
        js = nc.jetstream()
        advisories = nc.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S")
        with pytest.raises(BatchError) as refused:
            async with js.atomic_batch() as batch:
                await batch.add("s.a")
                await batch.add("s.a")
                async with asyncio.timeout(20):
                    assert b'"timeout"' in (await anext(advisories)).data
        assert refused.value.err_code == 10176
        assert await stored(js, "S") == 0


async def test_atomic_batch_ends_unstored_when_the_connection_is_lost(
    js: JetStream, atomic: str, nc: Client
) -> None:
    with pytest.raises(BrokenSocketError, match="nothing is stored"):
        async with js.atomic_batch() as batch:
            await batch.add(f"{atomic}.a")
            await batch.add(f"{atomic}.a")
            await nc.force_reconnect()
            await batch.add(f"{atomic}.a")
    assert await stored(js, atomic) == 0


async def test_atomic_batch_over_a_leader_change_stores_all_or_nothing(
    nats_cluster: Cluster, unique: Callable[[str], str], needs_server: Callable[[str], None]
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
                    await batch.add(name)
                    if number == 50:
                        await js.stream_leader_stepdown(name)
            outcomes = {100}
        except RequestTimeoutError:  # of the commit, perhaps
            outcomes = {0, 100}
        except (BatchError, NoStreamResponseError):
            pass
        assert await stored(js, name) in outcomes
        await js.delete_stream(name)


async def test_batch_to_a_subject_of_no_stream_raises(
    js: JetStream, nc: Client, atomic: str
) -> None:
    for count in (1, 2):
        with pytest.raises(NoStreamResponseError):
            async with js.atomic_batch(timeout=2) as batch:
                for _ in range(count):
                    await batch.add("nobody.listens")


async def test_an_answer_that_does_not_come_is_a_timeout(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    subject = unique("silent")
    async with nc.subscribe(subject):
        for count, what in ((1, "may be stored or not"), (2, "which is not stored")):
            with pytest.raises(RequestTimeoutError, match=what):
                async with js.atomic_batch(timeout=0.05) as batch:
                    for _ in range(count):
                        await batch.add(subject)


async def test_a_server_that_stores_the_first_message_gets_no_more(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    subject = unique("ordinary")
    taken = []

    async def store(msg: Message) -> None:
        taken.append(msg)
        await msg.respond(b'{"stream":"S","seq":5}')

    nc.subscribe(subject, callback=store)
    with pytest.raises(JetStreamError, match="in S at sequence 5"):
        async with js.atomic_batch() as batch:
            for _ in range(3):
                await batch.add(subject)
    await nc.flush()
    assert len(taken) == 1


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = js.atomic_batch()
    with pytest.raises(ConfigError, match="not open"):
        await batch.add("a")
    with pytest.raises(ConfigError):
        js.atomic_batch(timeout=0)
    async with batch:
        await nc.flush()
        before = nc.stats.out_msgs
        with pytest.raises(BadSubjectError):
            await batch.add("a.*")
        with pytest.raises(TypeError):
            await batch.add("a", "text")  # type: ignore[arg-type]
        with pytest.raises(MaxPayloadError):
            await batch.add("a", b"x" * nc.max_payload)
        await batch.add("a")
        with pytest.raises(ConfigError, match="first message"):
            await batch.add("a", expect_last_seq=1)
        assert batch.size == 1
        batch._sender.window.sent = 0  # nothing to commit
    assert nc.stats.out_msgs == before
    old = ServerInfo(server_id="x", version="2.11.1", headers=True, max_payload=1_000_000)
    monkeypatch.setattr(nc._link, "info", old)
    with pytest.raises(UnsupportedByServerError):
        js.atomic_batch()


async def test_what_came_out_of_a_batch_is_published_on(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        await batch.add(f"{atomic}.a", expect_last_seq=0)
        await batch.add(f"{atomic}.b", headers={"K": "1"})
    consumer = await js.create_consumer(atomic, ack_policy="none")
    received = await consumer.fetch(2, timeout=5)
    assert [(await js.publish_msg(msg)).batch for msg in received] == [None, None]
    prepared = PreparedMessage(f"{atomic}.c", headers=received[1].headers or ())
    async with js.atomic_batch() as batch:
        for _ in range(2):
            await batch.add(prepared.subject, headers=prepared.headers)
    copy = (await js.get_msg(atomic, 4)).headers
    assert copy is not None
    assert copy.to_dict() == {"K": ["1"]}
    assert await stored(js, atomic) == 6


async def test_many_tasks_may_add(js: JetStream, atomic: str) -> None:
    async with js.atomic_batch() as batch:
        numbers = await asyncio.gather(*(batch.add(f"{atomic}.a") for _ in range(50)))
    assert sorted(numbers) == list(range(1, 51))
    assert await stored(js, atomic) == 50


async def test_a_cancelled_add_leaves_the_batch_as_it_was(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    subject = unique("silent")
    taken = nc.subscribe(subject)
    async with taken, js.atomic_batch() as batch:
        await batch.add(subject, b"1")
        adding = asyncio.create_task(batch.add(subject, b"2"))
        first = await anext(taken)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert batch.size == 1
        another = asyncio.create_task(batch.add(subject, b"3"))
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
    routes = len(nc._link.routes)
    async with js.atomic_batch() as batch:
        await batch.add(f"{atomic}.a")
    assert len(nc._link.routes) == routes

    async def gone() -> bool:
        return len(asyncio.all_tasks()) == tasks

    tasks = len(asyncio.all_tasks())
    with pytest.raises(KeyError):
        async with js.atomic_batch() as batch:
            await batch.add(f"{atomic}.a")
            raise KeyError
    await eventually(gone)
