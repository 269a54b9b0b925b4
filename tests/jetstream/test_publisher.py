"""Windowed publishing: the window, results, failures, the link."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conftest import MakeStream, Unique
from tests.jetstream.conftest import Own, numbers, routes
from tests.jetstream.eventually import eventually
from tests.support.proxies import HttpProxy

from jetspark import errors
from jetspark.client.messages import Message
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream.in_flight import sender_of
from jetspark.server import NatsServer


class WithholdingStream:
    """Takes messages as a stream does and acknowledges them when it is told to."""

    def __init__(self, nc: Client, subject: str) -> None:
        self.subject = subject
        self.taken: list[Message] = []
        self.acked = 0
        self.most = 0
        nc.subscribe(subject, callback=self._take)

    def _take(self, msg: Message) -> None:
        self.taken.append(msg)
        self.most = max(self.most, len(self.taken) - self.acked)

    async def holds(self, count: int) -> None:
        """Returns when so many messages have come and not been acknowledged."""
        await eventually(lambda: len(self.taken) - self.acked >= count)

    async def ack(self, count: int = 1, answer: bytes | None = None) -> None:
        for _ in range(count):
            msg = self.taken[self.acked]
            self.acked += 1
            plain = b'{"stream":"S","seq":%d}' % self.acked
            await msg.respond(plain if answer is None else answer)


@pytest.fixture
async def withholding(nc: Client, unique: Unique) -> WithholdingStream:
    stream = WithholdingStream(nc, unique("withheld"))
    await nc.flush()
    return stream


# -- the window --------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "senders"), [(1, 1), (2, 1), (2, 7), (5, 3)])
async def test_the_window_is_never_exceeded(
    js: JetStream, withholding: WithholdingStream, nc: Client, window: int, senders: int
) -> None:
    async with js.publisher(window) as publisher:

        async def send() -> None:
            for _ in range(6):
                await publisher.publish(withholding.subject, b"x")
                assert publisher.pending <= window

        async with asyncio.TaskGroup() as tasks:
            for _ in range(senders):
                tasks.create_task(send())
            while withholding.acked < 6 * senders:
                await withholding.holds(min(window, 6 * senders - withholding.acked))
                await nc.flush()  # one more would have come by now
                await withholding.ack()
    assert withholding.most == window
    assert (publisher.sent, publisher.acked, publisher.pending) == (6 * senders,) * 2 + (0,)


async def test_a_cancelled_sender_gives_way(js: JetStream, withholding: WithholdingStream) -> None:
    async with js.publisher(1) as publisher:
        await publisher.publish(withholding.subject)
        first = asyncio.create_task(publisher.publish(withholding.subject, b"first"))
        second = asyncio.create_task(publisher.publish(withholding.subject, b"second"))
        await eventually(lambda: len(withholding.taken) == 1)
        first.cancel()
        await withholding.ack()
        await second
        await eventually(lambda: len(withholding.taken) == 2)
        await withholding.ack()
    assert [msg.data for msg in withholding.taken] == [b"", b"second"]


async def test_leaving_waits_for_every_ack(js: JetStream, withholding: WithholdingStream) -> None:
    publisher = js.publisher()

    async def run() -> None:
        async with publisher:
            for _ in range(3):
                await publisher.publish(withholding.subject)

    running = asyncio.create_task(run())
    await eventually(lambda: len(withholding.taken) == 3)
    await withholding.ack(2)
    await eventually(lambda: publisher.acked == 2)
    assert not running.done()
    await withholding.ack()
    await running


@pytest.mark.parametrize("seq", [b"007", b"9" * 5000], ids=["zeros", "5000"])
async def test_an_ack_with_no_sequence_fails_its_message_only(
    js: JetStream, withholding: WithholdingStream, seq: bytes
) -> None:
    """Anybody may answer; what looks like the acks before it must still be read."""
    async with js.publisher() as publisher:
        acks = [await publisher.publish_async(withholding.subject) for _ in range(3)]
        await withholding.holds(3)
        await withholding.ack()
        await acks[0]  # the next acks are compared with this one
        await withholding.ack(answer=b'{"stream":"S","seq":%b}' % seq)
        await withholding.ack()
        with pytest.raises(errors.JetStreamError, match="PubAck"):
            await asyncio.wait_for(acks[1], 10)
        assert (await acks[2]).seq == 3
    assert publisher.acked == 2


# -- results -----------------------------------------------------------------------------------


async def test_everything_is_stored_in_order(js: JetStream, stream: str) -> None:
    async with js.publisher(100) as publisher:
        for number in range(2000):
            index = await publisher.publish(f"{stream}.a", b"%d" % number, headers={"N": "x"})
            assert index == number
        await publisher.flush()
        assert publisher.pending == 0
    assert (publisher.acked, publisher.failed) == (2000, [])
    consumer = await js.stream(stream).create_consumer(ack_policy="none")
    assert [int(msg.data) for msg in await consumer.fetch(2000, timeout=5)] == list(range(2000))


async def test_publisher_counts_duplicates(js: JetStream, stream: str) -> None:
    async with js.publisher() as publisher:
        for number in range(10):
            await publisher.publish(f"{stream}.a", msg_id=str(number % 4))
    assert (publisher.acked, publisher.duplicates) == (10, 6)
    assert (await js.stream(stream).info()).state.messages == 4


async def test_one_result_for_one_message(js: JetStream, stream: str) -> None:
    await js.stream(stream).update(max_msg_size=100)
    async with js.publisher() as publisher:
        await publisher.publish(f"{stream}.a")
        good = await publisher.publish_async(f"{stream}.a", b"x")
        again = await publisher.publish_async(f"{stream}.a", b"x", msg_id="m")
        twice = await publisher.publish_async(f"{stream}.a", b"x", msg_id="m")
        bad = await publisher.publish_async(f"{stream}.a", b"x" * 200)
    assert (await good).seq == 2
    assert ((await again).duplicate, (await twice).duplicate) == (False, True)
    with pytest.raises(errors.APIError) as refused:
        await bad
    assert refused.value.err_code == 10054
    assert publisher.failed == []  # its owner has the future


async def test_failures_are_listed_with_index_subject_and_error(js: JetStream, stream: str) -> None:
    await js.stream(stream).update(max_msg_size=100)
    async with js.publisher() as publisher:
        for size in (1, 200, 1, 300):
            await publisher.publish(f"{stream}.{size}", b"x" * size)
        await publisher.flush()
        failed = publisher.failed
    subjects = [(one.index, one.subject) for one in failed]
    assert subjects == [(1, f"{stream}.200"), (3, f"{stream}.300")]
    assert all(isinstance(one.error, errors.APIError) for one in failed)
    assert publisher.acked == 2


async def test_failures_have_the_order_of_the_messages(js: JetStream, stream: str) -> None:
    with pytest.raises(errors.PublishFailedError) as raised:
        async with js.publisher() as publisher:
            for name in "abc":
                await publisher.publish(f"{stream}.{name}")
            for index in (2, 0):
                sender_of(publisher).window.fail(index, errors.ConfigError("late"))
            assert [one.index for one in sender_of(publisher).window.failures] == [2, 0]
    assert [one.index for one in raised.value.failures] == [0, 2]
    assert [one.index for one in publisher.failed] == [0, 2]


async def test_leaving_raises_failures_that_were_not_read(js: JetStream, stream: str) -> None:
    await js.stream(stream).update(max_msg_size=100)
    with pytest.raises(errors.PublishFailedError) as raised:
        async with js.publisher() as publisher:
            await publisher.publish(f"{stream}.a", b"x" * 200)
            await publisher.flush()
            assert len(publisher.failed) == 1
            await publisher.publish(f"{stream}.b", b"x" * 200)
    assert [one.index for one in raised.value.failures] == [1]
    assert f"{stream}.b" in str(raised.value)
    async with js.publisher(raise_failures=False) as publisher:
        await publisher.publish(f"{stream}.a", b"x" * 200)
    assert len(publisher.failed) == 1
    with pytest.raises(KeyError) as noted:
        async with js.publisher() as publisher:
            await publisher.publish(f"{stream}.a", b"x" * 200)
            raise KeyError("mine")
    assert "1 message was not acknowledged" in noted.value.__notes__[0]


async def test_cancelling_the_block_does_not_wait(
    js: JetStream, withholding: WithholdingStream, nc: Client
) -> None:
    publisher = js.publisher(timeout=60)

    async def run() -> None:
        async with publisher:
            await publisher.publish(withholding.subject)
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await eventually(lambda: len(withholding.taken) == 1)
    before = routes(nc)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert routes(nc) == before - 1
    assert len(publisher.failed) == 1


async def test_a_message_refused_by_send_does_not_count_and_gives_its_place_to_the_next(
    js: JetStream, withholding: WithholdingStream, nc: Client
) -> None:
    async with js.publisher(1) as publisher:
        with pytest.raises(errors.BadSubjectError):
            await publisher.publish("a..b")
        with pytest.raises(errors.MaxPayloadError):
            await publisher.publish(withholding.subject, b"x" * (nc.max_payload + 1))
        assert (publisher.sent, publisher.pending) == (0, 0)
        await publisher.publish(withholding.subject)
        bad = asyncio.create_task(publisher.publish("a..b"))
        good = asyncio.create_task(publisher.publish(withholding.subject))
        await withholding.holds(1)
        await withholding.ack()
        with pytest.raises(errors.BadSubjectError):
            await bad
        async with asyncio.timeout(20):
            await good
        await withholding.holds(1)
        await withholding.ack()
    assert (publisher.sent, publisher.acked, publisher.failed) == (2, 2, [])


async def test_headers_may_change_later(js: JetStream, withholding: WithholdingStream) -> None:
    headers = {"N": "1"}
    async with js.publisher() as publisher:
        await publisher.publish(withholding.subject, headers=headers, msg_id="a")
        assert headers == {"N": "1"}
        await eventually(lambda: len(withholding.taken) == 1)
        await withholding.ack()
    sent = withholding.taken[0].headers
    assert sent is not None
    assert sent.to_dict() == {"N": ["1"], "Nats-Msg-Id": ["a"]}


async def test_acks_of_every_form(js: JetStream, withholding: WithholdingStream) -> None:
    acks = (
        b'{"stream":"S","domain":"hub","seq":1}',
        b'{"stream":"S", "seq":1, "moon":1}',
        b'{"seq":1,"stream":"S"}',
    )
    others = (b"+OK", b'{"stream":"S"}', b"")
    async with js.publisher(1) as publisher:
        for answer in (*(ack for ack in acks for _ in range(3)), *others):
            await publisher.publish(withholding.subject)
            await withholding.holds(1)
            await withholding.ack(answer=answer)
        await publisher.flush()
        assert [one.index for one in publisher.failed] == [9, 10, 11]
    assert publisher.acked == 9


# -- time --------------------------------------------------------------------------------------


async def test_an_ack_that_does_not_come_is_a_failure_and_frees_the_window(
    js: JetStream, withholding: WithholdingStream, nc: Client
) -> None:
    begin = nc.loop.time()
    async with js.publisher(1, timeout=0.2) as publisher:
        await publisher.publish(withholding.subject)
        await publisher.publish(withholding.subject)
        assert 0.2 <= nc.loop.time() - begin < 4
        await publisher.flush()
        failed = publisher.failed
        await withholding.ack(2)  # too late
        await nc.flush()
    assert [type(one.error) for one in failed] == [errors.RequestTimeoutError] * 2
    assert publisher.acked == 0


async def test_no_responders_is_retried_a_while(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("nobody")
    before = nc.stats.out_msgs
    begin = nc.loop.time()
    async with js.publisher(retry_for=0.6) as publisher:
        await publisher.publish(subject)
        await publisher.flush()
        (failure,) = publisher.failed
    assert isinstance(failure.error, errors.NoStreamResponseError)
    assert "Not stored" in str(failure.error)
    assert nc.loop.time() - begin >= 0.6
    assert 3 <= nc.stats.out_msgs - before <= 4  # every 250 ms
    before = nc.stats.out_msgs
    async with js.publisher(retry_for=0) as publisher:
        await publisher.publish(subject)
        await publisher.flush()
        assert len(publisher.failed) == 1
    assert nc.stats.out_msgs - before == 1


async def test_publisher_retries_until_the_stream_has_a_leader(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    subject = unique("late")
    async with js.publisher() as publisher:
        first = nc.stats.out_msgs
        await publisher.publish(subject, b"x", headers={"K": "v"})
        await eventually(lambda: nc.stats.out_msgs - first == 2)  # the first retry
        late = WithholdingStream(nc, subject)
        await eventually(lambda: len(late.taken) == 1)
        await late.ack()
    assert publisher.acked == 1
    assert late.taken[0].headers is not None


# -- the link ----------------------------------------------------------------------------------


async def test_closing_the_client_fails_what_waits(
    js: JetStream, withholding: WithholdingStream, nc: Client
) -> None:
    async with js.publisher(1) as publisher:
        future = await publisher.publish_async(withholding.subject)
        stalled = asyncio.create_task(publisher.publish(withholding.subject))
        await eventually(lambda: len(withholding.taken) == 1)
        await nc.close()
        for ended in (future, stalled):
            with pytest.raises(errors.ConnectionClosedError):
                await ended


@pytest.mark.parametrize("policy", ["auto", "fail", "resend"])
async def test_a_lost_connection_fails_or_sends_again_by_policy(
    shared_server: NatsServer, withholding: WithholdingStream, policy: Any
) -> None:
    stream, subject = withholding, withholding.subject
    async with (
        connect(shared_server.url, reconnect_wait=0.05) as nc,
        JetStream(nc).publisher(2, on_disconnect=policy, duplicate_window=120) as publisher,
    ):
        await publisher.publish(subject, b"with id", msg_id="m")
        await publisher.publish(subject, b"without")
        stalled = asyncio.create_task(publisher.publish(subject, b"stalled", msg_id="s"))
        await eventually(lambda: len(stream.taken) == 2)
        await nc.force_reconnect()
        again = {"auto": 1, "fail": 0, "resend": 2}[policy]
        stalled_too = policy != "resend"  # its window is still full
        await eventually(lambda: len(stream.taken) == 2 + again + stalled_too)
        assert publisher.pending == 2 if policy != "fail" else 1
        stream.acked = 2
        await stream.ack(again + stalled_too)
        await stalled
        if not stalled_too:
            await eventually(lambda: len(stream.taken) == 5)
            await stream.ack()
        await publisher.flush()
        failed = publisher.failed
    assert [one.index for one in failed] == {"auto": [1], "fail": [0, 1], "resend": []}[policy]
    assert all(isinstance(one.error, errors.BrokenSocketError) for one in failed)
    assert publisher.acked + len(failed) == publisher.sent == 3


@pytest.mark.parametrize("size", [1, 400_000])
async def test_an_outage_changes_no_order(
    shared_server: NatsServer, nc: Client, unique: Unique, size: int
) -> None:
    """What was on its way, written or not, is sent again before what comes during the outage."""
    stream = WithholdingStream(nc, unique("withheld"))
    await nc.flush()
    numbers = [bytes([number]) * size for number in range(12)]

    async def publish(some: list[bytes]) -> None:
        for one in some:
            await publisher.publish(stream.subject, one, msg_id=str(one[0]))

    with HttpProxy() as proxy:
        async with (
            connect(shared_server.url, proxy=proxy.url, reconnect_wait=0.2) as other,
            JetStream(other).publisher(100, duplicate_window=120) as publisher,
        ):
            await publish(numbers[:2])
            await stream.holds(2)
            first = asyncio.create_task(publish(numbers[2:6]))
            await asyncio.sleep(0)
            proxy.cut()
            await eventually(lambda: not other.is_connected)
            await first
            during = asyncio.create_task(publish(numbers[6:]))
            await eventually(lambda: stream.taken[-1].data == numbers[-1])
            await during
            await stream.ack(len(stream.taken))
            await publisher.flush()
    *before, again = [one.data[0] for one in stream.taken[:-11]]
    assert [again, *(one.data[0] for one in stream.taken[-11:])] == list(range(12))
    assert before == list(range(len(before)))  # what came before the cut


@pytest.mark.full
@pytest.mark.parametrize("identified", [True, False])
async def test_after_kill_9_every_publish_is_stored_or_reported(own: Own, identified: bool) -> None:
    js = own.nc.jetstream(timeout=10)
    async with js.publisher(500, raise_failures=False) as publisher:
        for number in range(15_000):
            msg_id = str(number) if identified else None
            await publisher.publish("s", b"%d" % number, msg_id=msg_id)
            if number % 5000 == 2500:
                await asyncio.to_thread(own.server.kill)
                await asyncio.to_thread(own.server.start)
                await eventually(lambda: own.nc.is_connected)
    consumer = await js.stream("S").create_consumer(ack_policy="none")
    stored: list[int] = []
    count = (await js.stream("S").info()).state.messages
    while len(stored) < count:
        batch = await consumer.fetch(min(count - len(stored), 5000), timeout=5)
        assert batch
        stored += numbers(batch)
    reported = {one.index for one in publisher.failed}
    assert set(stored) | reported == set(range(15_000))
    assert publisher.acked + len(reported) == 15_000
    assert len(stored) == len(set(stored))
    assert not (identified and reported)


async def test_a_publisher_works_only_inside_its_block(js: JetStream) -> None:
    publisher = js.publisher()
    with pytest.raises(errors.ConfigError, match="with block"):
        await publisher.publish("a")
    async with publisher:
        pass
    with pytest.raises(errors.ClosedError, match="with block was left"):
        await publisher.publish("a")
    wrong: list[dict[str, Any]] = [{"window": 0}, {"timeout": 0}, {"retry_for": -1}]
    for arguments in [*wrong, {"on_disconnect": "hope"}]:
        with pytest.raises(errors.ConfigError):
            js.publisher(**arguments)


async def test_any_inbox_prefix(shared_server: NatsServer, make_stream: MakeStream) -> None:
    """Subjects are bytes: a letter outside ASCII has several."""
    name = await make_stream(allow_atomic=True, allow_batched=True)
    async with connect(shared_server.url, inbox_prefix="_é") as nc:
        mine = nc.jetstream(timeout=2)
        async with mine.publisher(retry_for=0) as publisher:
            futures = [await publisher.publish_async(f"{name}.p") for _ in range(3)]
        assert [future.result().seq for future in futures] == [1, 2, 3]
        async with mine.atomic_batch() as batch, mine.fast_ingest() as ingest:
            for _ in range(3):
                await batch.publish(f"{name}.b")
                await ingest.publish(f"{name}.f")
        assert (batch.ack and batch.ack.count, ingest.acked, publisher.acked) == (3, 3, 3)
