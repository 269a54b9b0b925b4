"""Fast ingest: few acks, and every message's fate is known (ADR-50)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import MakeServer, NeedsServer, Unique
from tests.jetstream.conftest import Ordinary, Own, ServerIs
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster

from jetspark import errors
from jetspark.client.messages import Message
from jetspark.documents.streams import PubAck
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream.fast_ingest import BatchFlow, BatchGap, BatchRefusal, parse_reply
from jetspark.jetstream.in_flight import sender_of

BOTH = pytest.mark.parametrize("gaps", ["fail", "ok"])
Gaps = Literal["fail", "ok"]


@pytest.fixture(autouse=True)
def _batches(needs_server: NeedsServer) -> None:
    needs_server("2.14")


@pytest.fixture
async def fast(js: JetStream, stream: str) -> str:
    """A stream that takes fast-ingest batches."""
    await js.stream(stream).update(allow_batched=True)
    return stream


async def payloads(js: JetStream, stream: str) -> list[bytes]:
    consumer = await js.stream(stream).create_consumer(ack_policy="none")
    count = (await js.stream(stream).info()).state.messages
    return [msg.data for msg in await consumer.fetch(count, timeout=10)]


def lose(nc: Client, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Messages with these numbers get lost on their way to the server."""
    outbox = nc.publishing.outbox
    put = outbox.put
    lost = tuple(b".%d.1.$FI" % number for number in numbers)

    def put_others(frame: bytes) -> None:
        if not frame.split()[2].endswith(lost):
            put(frame)

    monkeypatch.setattr(outbox, "put", put_others)


@BOTH
async def test_everything_is_stored_in_order(js: JetStream, fast: str, gaps: Gaps) -> None:
    async with js.fast_ingest(gaps=gaps) as ingest:
        for number in range(5000):
            assert await ingest.publish(f"{fast}.{number % 7}", b"%d" % number) == number
    assert (ingest.sent, ingest.acked, ingest.pending, ingest.failed) == (5000, 5000, 0, [])
    assert ingest.ack is not None
    assert (ingest.ack.seq, ingest.ack.count) == (5000, 5000)
    assert await payloads(js, fast) == [b"%d" % number for number in range(5000)]


@pytest.mark.parametrize(("ack_every", "outstanding"), [(1, 1), (10, 1), (10, 3), (500, 2)])
async def test_no_more_is_outstanding_than_agreed(
    js: JetStream, fast: str, ack_every: int, outstanding: int
) -> None:
    most = 0
    async with js.fast_ingest(ack_every=ack_every, outstanding=outstanding) as ingest:

        async def add() -> None:
            nonlocal most
            for _ in range(1000):
                await ingest.publish(f"{fast}.a")
                most = max(most, ingest.pending)

        await asyncio.gather(*(add() for _ in range(3)))
    assert ingest.acked == 3000
    assert most <= ack_every * outstanding
    assert most > ack_every * (outstanding - 1)


async def test_many_publishers_slow_down_for_each_other(js: JetStream, fast: str) -> None:
    async def ingest() -> int:
        async with js.fast_ingest() as ingest:
            for _ in range(500):
                await ingest.publish(f"{fast}.a")
        return ingest.acked

    assert await asyncio.gather(*(ingest() for _ in range(20))) == [500] * 20
    assert (await js.stream(fast).info()).state.messages == 10_000


async def test_one_message_and_none(js: JetStream, fast: str) -> None:
    async with js.fast_ingest() as ingest:
        await ingest.publish(f"{fast}.a", headers={"K": "1"}, msg_id="m")
    assert (ingest.acked, ingest.ack and ingest.ack.count) == (1, 1)
    async with js.fast_ingest() as ingest:
        assert await ingest.commit() is None
        with pytest.raises(errors.ClosedError, match="it was committed"):
            await ingest.publish(f"{fast}.a")
    assert (ingest.acked, ingest.ack) == (0, None)


async def test_fast_ingest_ends_at_a_lost_message(
    js: JetStream, nc: Client, fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(nc, monkeypatch, 13)
    with pytest.raises(errors.PublishFailedError) as raised:
        async with js.fast_ingest() as ingest:
            with pytest.raises(errors.NotStoredError, match="ended after 12 messages"):
                for number in range(5000):
                    await ingest.publish(f"{fast}.a", b"%d" % number)
    failures = raised.value.failures
    assert [failure.index for failure in failures] == list(range(12, ingest.sent))
    assert "Message 12 of the batch did not reach" in str(failures[0].error)
    assert all(isinstance(failure.error, errors.NotStoredError) for failure in failures)
    assert (ingest.acked, ingest.ack and ingest.ack.count) == (12, 12)
    assert await payloads(js, fast) == [b"%d" % number for number in range(12)]


async def test_lost_messages_are_listed_and_the_batch_goes_on(
    js: JetStream, nc: Client, fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(nc, monkeypatch, 13, 14, 700, 3000)  # the last one, too
    async with js.fast_ingest(gaps="ok") as ingest:
        for number in range(3000):
            await ingest.publish(f"{fast}.a", b"%d" % number)
        await ingest.commit()
        failed = ingest.failed
    assert [failure.index for failure in failed] == [12, 13, 699, 2999]
    assert (ingest.acked, ingest.pending) == (2996, 0)
    stored = [int(data) for data in await payloads(js, fast)]
    assert stored == [number for number in range(3000) if number not in (12, 13, 699, 2999)]


@BOTH
async def test_ingest_reports_a_failed_expectation(js: JetStream, fast: str, gaps: Gaps) -> None:
    async with js.fast_ingest(gaps=gaps) as ingest:
        for number in range(20):
            expected = 77 if number == 11 else None
            await ingest.publish(f"{fast}.a", b"%d" % number, expect_last_seq=expected)
        await ingest.commit()
        failed = ingest.failed
    assert (failed[0].index, type(failed[0].error)) == (11, errors.WrongLastSequenceError)
    if gaps == "ok":
        assert (len(failed), ingest.acked) == (1, 19)
    else:
        assert [failure.index for failure in failed] == list(range(11, 20))
        assert {type(failure.error) for failure in failed[1:]} == {errors.NotStoredError}
        assert ingest.acked == 11
    assert len(await payloads(js, fast)) == ingest.acked


@BOTH
async def test_ingest_reports_what_the_stream_refuses(js: JetStream, fast: str, gaps: Gaps) -> None:
    await js.stream(fast).update(max_msg_size=100)
    async with js.fast_ingest(gaps=gaps) as ingest:
        for number in range(20):
            await ingest.publish(f"{fast}.{number}", b"x" * (200 if number in (5, 19) else 1))
        await ingest.commit()
        failed = ingest.failed
    refused = [failure for failure in failed if isinstance(failure.error, errors.APIError)]
    assert (refused[0].index, refused[0].subject) == (5, f"{fast}.5")
    indexes = [5, 19] if gaps == "ok" else list(range(5, 20))
    assert [failure.index for failure in failed] == indexes
    assert len(await payloads(js, fast)) == ingest.acked == 20 - len(failed)


async def test_a_window_of_refusals_does_not_stall(js: JetStream, fast: str) -> None:
    await js.stream(fast).update(max_msg_size=100)
    async with js.fast_ingest(gaps="ok", ack_every=10) as ingest:
        for number in range(200):
            expected = None if number in (0, 199) else 5000
            await ingest.publish(f"{fast}.a", expect_last_seq=expected)
        await ingest.commit()
        assert len(ingest.failed) == 198
    assert ingest.acked == 2


@BOTH
async def test_duplicates_are_acknowledged(js: JetStream, fast: str, gaps: Gaps) -> None:
    async with js.fast_ingest(gaps=gaps, ack_every=5) as ingest:
        for number in range(100):
            await ingest.publish(f"{fast}.a", msg_id=str(number // 50))
    assert ingest.acked == 100
    assert (await js.stream(fast).info()).state.messages == 2


@BOTH
async def test_a_stream_without_batches_refuses(js: JetStream, stream: str, gaps: Gaps) -> None:
    async with js.fast_ingest(gaps=gaps) as ingest:
        await ingest.publish(f"{stream}.a")
        with pytest.raises(errors.NotEnabledOnStreamError) as refused:
            await ingest.publish(f"{stream}.a")
        assert [type(one.error) for one in ingest.failed] == [errors.BatchPublishDisabledError]
    assert refused.value.option == "allow_batched"


async def test_batch_to_a_subject_of_no_stream_raises(js: JetStream, fast: str) -> None:
    with pytest.raises(errors.PublishFailedError) as raised:
        async with js.fast_ingest() as ingest:
            await ingest.publish("nobody.listens")
    assert (ingest.sent, ingest.acked) == (1, 0)
    async with js.fast_ingest(gaps="ok") as ingest:
        await ingest.publish(f"{fast}.a")
        await ingest.publish("nobody.listens")
        await ingest.commit()
        [later] = ingest.failed
    for failure in (raised.value.failures[0], later):
        assert isinstance(failure.error, errors.NoStreamResponseError)
        assert failure.error.subject == failure.subject == "nobody.listens"


@pytest.mark.parametrize("waiting", ["for space", "for the end"])
async def test_the_first_message_is_repeated_while_no_stream_has_its_subject(
    js: JetStream, nc: Client, unique: Unique, waiting: str
) -> None:
    """As an ordinary publish: a server of a cluster may not know a new stream yet."""
    name = unique("LATER")
    told = nc.stats.in_msgs
    async with js.fast_ingest() as ingest:
        await ingest.publish(name, b"0", headers={"a": "b"})
        more = asyncio.create_task(
            ingest.publish(name, b"1") if waiting == "for space" else ingest.commit()
        )
        await eventually(lambda: nc.stats.in_msgs > told)
        await js.create_stream(name=name, subjects=[name], allow_batched=True)
        await more
    stored = await js.stream(name).get(1)
    assert stored.headers is not None
    assert (stored.data, stored.headers["a"]) == (b"0", "b")
    assert (ingest.acked, ingest.failed) == (2 if waiting == "for space" else 1, [])


async def test_leaving_raises_failures_that_were_not_read(js: JetStream, fast: str) -> None:
    with pytest.raises(KeyError) as raised:
        async with js.fast_ingest(gaps="ok") as ingest:
            for _ in range(3):
                await ingest.publish(f"{fast}.a", expect_last_seq=0)
            raise KeyError("mine")
    assert "2 messages were not acknowledged" in raised.value.__notes__[0]
    assert ingest.acked == 1


# -- time and the link -------------------------------------------------------------------------


async def test_pings_keep_an_idle_batch_alive(make_server: MakeServer) -> None:
    server = make_server('jetstream { limits { batch { timeout: "500ms" } } }')
    async with connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_batched=True)
        async with js.fast_ingest(timeout=0.4) as ingest:
            await ingest.publish("s.a")
            pinged = nc.stats.out_msgs + 12
            await eventually(lambda: nc.stats.out_msgs >= pinged)
            await ingest.publish("s.a")
    assert (ingest.acked, (ingest.ack and ingest.ack.seq)) == (2, 2)


async def test_a_batch_goes_on_after_a_reconnect(js: JetStream, nc: Client, fast: str) -> None:
    async with js.fast_ingest(ack_every=5) as ingest:
        for number in range(10):
            await ingest.publish(f"{fast}.a", b"%d" % number)
        await eventually(lambda: ingest.pending == 0)
        await nc.force_reconnect()
        for number in range(10, 30):
            await ingest.publish(f"{fast}.a", b"%d" % number)
    assert (ingest.acked, ingest.failed) == (30, [])
    assert await payloads(js, fast) == [b"%d" % number for number in range(30)]


@BOTH
async def test_what_was_lost_with_the_link_is_found_after_the_reconnect(
    js: JetStream, nc: Client, fast: str, monkeypatch: pytest.MonkeyPatch, gaps: Gaps
) -> None:
    lose(nc, monkeypatch, 9, 10)
    async with js.fast_ingest(gaps=gaps, ack_every=100) as ingest:
        for _ in range(10):
            await ingest.publish(f"{fast}.a")
        before = nc.stats.out_msgs
        await nc.force_reconnect()
        assert nc.stats.out_msgs == before + 1  # it asks at once
        await eventually(lambda: [one.index for one in ingest.failed] == [8, 9])
    assert ingest.acked == 8


@BOTH
async def test_after_kill_9_every_message_is_stored_or_reported(own: Own, gaps: Gaps) -> None:
    await own.js.stream("S").update(allow_batched=True)
    with pytest.raises(errors.JetStreamError):
        async with own.nc.jetstream().fast_ingest(gaps=gaps) as ingest:
            for number in range(1_000_000):
                await ingest.publish("s", b"%d" % number)
                if number == 5000:
                    await asyncio.to_thread(own.server.kill)
                    restarting = asyncio.create_task(asyncio.to_thread(own.server.start))
    await restarting
    stored = {int(data) for data in await payloads(own.js, "S")}
    failed = {failure.index for failure in ingest.failed}
    assert ingest.sent == ingest.acked + len(failed)
    assert set(range(ingest.sent)) - failed <= stored
    # Which of the two errors comes depends on what the server answers first.
    certain = {one.index for one in ingest.failed if isinstance(one.error, errors.BatchError)}
    assert failed
    assert not certain & stored


@BOTH
async def test_fast_ingest_over_a_leader_change_reports_every_loss(
    nats_cluster: Cluster, unique: Unique, gaps: Gaps
) -> None:
    name = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream(timeout=10)
        await js.create_stream(name=name, subjects=[name], num_replicas=3, allow_batched=True)
        # Our server of the cluster may not know the subject yet: this is repeated, a batch is not.
        await js.publish(name, b"-1")
        changing = None
        try:
            async with js.fast_ingest(gaps=gaps, ack_every=50) as ingest:
                for number in range(5000):
                    await ingest.publish(name, b"%d" % number)
                    if number == 1000:
                        changing = asyncio.create_task(js.stream(name).step_down_leader())
        except errors.JetStreamError:  # with gaps="fail" it may end there
            pass
        assert changing is not None, ingest.failed
        await changing
        failed = {failure.index: failure.error for failure in ingest.failed}
        assert ingest.sent == ingest.acked + len(failed)
        stored = {int(data) for data in await payloads(js, name)}
        await js.delete_stream(name)
    assert set(range(ingest.sent)) - failed.keys() <= stored
    certain = {n for n, error in failed.items() if isinstance(error, errors.NotStoredError)}
    assert not certain & stored
    if gaps == "ok":
        assert ingest.sent == 5000


async def test_fast_ingest_ends_at_once_when_the_server_lost_the_batch(own: Own) -> None:
    await own.js.stream("S").update(allow_batched=True)
    async with own.nc.jetstream(timeout=60).fast_ingest(ack_every=1) as ingest:
        for _ in range(3):
            await ingest.publish("s")
        await eventually(lambda: ingest.pending == 0)
        await asyncio.to_thread(own.server.kill)
        await asyncio.to_thread(own.server.start)
        async with asyncio.timeout(20):
            assert await ingest.commit() is None
    assert (ingest.acked, ingest.failed) == (3, [])


async def test_a_first_message_without_any_reply(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("silent")
    async with nc.subscribe(subject):
        async with js.fast_ingest() as ingest:
            await ingest.publish(subject)
            await nc.force_reconnect()
            with pytest.raises(errors.BrokenSocketError, match="not known whether"):
                await ingest.publish(subject)
            assert [one.index for one in ingest.failed] == [0]
        async with js.fast_ingest(timeout=0.2) as ingest:
            await ingest.publish(subject)
            with pytest.raises(errors.RequestTimeoutError):
                await ingest.publish(subject)
            assert [type(one.error) for one in ingest.failed] == [errors.RequestTimeoutError]


async def test_a_first_message_that_was_not_written_is_not_written_after_it_failed(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    subject = unique("silent")
    async with nc.subscribe(subject) as sub:
        with suppress(errors.PublishFailedError):
            async with js.fast_ingest() as ingest:
                await ingest.publish(subject)  # written at the end of this turn of the loop
                sender_of(ingest)._on_disconnect()
        assert [type(one.error) for one in ingest.failed] == [errors.BrokenSocketError]
        await nc.publish(subject, b"after it")
        assert (await sub.next()).data == b"after it"


async def test_an_ordinary_stream_gets_only_one(js: JetStream, ordinary: Ordinary) -> None:
    async with js.fast_ingest() as ingest:
        await ingest.publish(ordinary.subject)
        with pytest.raises(errors.JetStreamError, match="in S at sequence 5"):
            await ingest.publish(ordinary.subject)
    await js.client.flush()
    assert (len(ordinary.taken), ingest.acked) == (1, 1)


async def test_a_gap_beyond_the_last_is_ignored(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("odd")

    async def answer(msg: Message) -> None:
        await msg.respond(b'{"type":"gap","last_seq":1,"seq":%d}' % (2**64 - 1))
        await msg.respond(b'{"stream":"S","seq":0,"batch":"b","count":0}')

    nc.subscribe(subject, callback=answer)
    async with js.fast_ingest() as ingest:
        await ingest.publish(subject)
        await ingest.commit()
        assert [type(one.error) for one in ingest.failed] == [errors.NotStoredError]


async def test_cancelling_the_block_does_not_wait(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    subject = unique("silent")
    taken = nc.subscribe(subject)
    ingest = js.fast_ingest()

    async def run() -> None:
        async with ingest:
            await ingest.publish(subject)
            await ingest.publish(subject)

    async with taken:
        running = asyncio.create_task(run())
        await anext(taken)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(ingest.failed) == 1


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, server_is: ServerIs
) -> None:
    bad: Any
    for bad in ({"gaps": "maybe"}, {"ack_every": 0}, {"outstanding": 0}, {"timeout": 0}):
        with pytest.raises(errors.ConfigError):
            js.fast_ingest(**bad)
    with pytest.raises(errors.ConfigError, match="not open"):
        await js.fast_ingest().publish("a")
    async with js.fast_ingest() as ingest:
        await nc.flush()
        before = nc.stats.out_msgs
        text: Any = "text"
        for error, adding in (
            (errors.BadSubjectError, ingest.publish("a.*")),
            (errors.BadSubjectError, ingest.publish("a b")),
            (errors.MaxPayloadError, ingest.publish("a", b"x" * (nc.max_payload + 1))),
            (errors.ConfigError, ingest.publish("a", ttl=0.5)),
            (TypeError, ingest.publish("a", text)),
        ):
            with pytest.raises(error):
                await adding
        assert (ingest.sent, ingest.pending) == (0, 0)
    assert nc.stats.out_msgs == before
    server_is("2.12.8")
    with pytest.raises(errors.UnsupportedByServerError):
        js.fast_ingest()


# -- replies -----------------------------------------------------------------------------------


def test_replies_of_each_kind() -> None:
    assert parse_reply(b'{"type":"ack","seq":10,"msgs":15}') == BatchFlow(10, 15)
    assert parse_reply(b'{"type":"gap","last_seq":10,"seq":15}') == BatchGap(10, 15)
    error = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"}
    refused = json.dumps({"type": "err", "seq": 4, "error": error})
    assert parse_reply(refused.encode()) == BatchRefusal(4, error)
    with pytest.raises(errors.WrongLastSequenceError):
        parse_reply(json.dumps({"stream": "S", "seq": 0, "error": error}).encode())
    last = parse_reply(b'{"stream":"S","seq":9,"batch":"b","count":5}')
    assert last == PubAck(stream="S", seq=9, batch="b", count=5)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(
        st.sampled_from(["type", "seq", "msgs", "last_seq", "error", "batch", "count"]), inner
    ),
)


@given(st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_reply_that_cannot_be_read_is_a_jetstream_error(payload: bytes) -> None:
    wrong = [b'{"type":"%b","seq":"x"}' % kind for kind in (b"ack", b"gap", b"err")]
    for one in (payload, *wrong):
        with suppress(errors.JetStreamError):
            assert isinstance(parse_reply(one), BatchFlow | BatchGap | BatchRefusal | PubAck)
