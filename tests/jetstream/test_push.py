"""Push consumers through subscriptions: flow control, heartbeats, groups."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import Reported
from tests.jetstream.conftest import fill, routes
from tests.jetstream.eventually import eventually
from tests.support.raw_client import RawClient

from jetspark import errors
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import PushConsumer, consumers
from jetspark.server import NatsServer
from jetspark.wire import frames


async def controlled(js: JetStream, stream: str, heartbeat: float = 5) -> PushConsumer:
    return await js.stream(stream).create_push_consumer(
        name="p",
        deliver_subject=js.client.new_inbox(),
        ack_policy="none",
        flow_control=True,
        idle_heartbeat=heartbeat,
    )


async def test_the_user_acknowledges_push_messages(js: JetStream, nc: Client, stream: str) -> None:
    await fill(js, stream, 10)
    consumer = await js.stream(stream).create_push_consumer(
        durable_name="p", deliver_subject=nc.new_inbox()
    )
    async with consumer.subscribe() as messages:
        got = [await messages.next(30) for _ in range(10)]
        assert [msg.seq for msg in got] == list(range(1, 11))
        assert (await consumer.info()).num_ack_pending == 10
        for msg in got[:4]:
            await msg.ack_sync()
        assert (await consumer.info()).num_ack_pending == 6
        with pytest.raises(errors.RequestTimeoutError):
            await messages.next(0.01)
        assert messages.active
    assert not messages.active
    with pytest.raises(errors.ClosedError):
        await messages.next()
    messages.stop()
    assert [msg async for msg in messages] == []


async def test_flow_control_lets_a_slow_reader_get_everything(
    js: JetStream, stream: str, reported: Reported
) -> None:
    count = 8000  # 8 MB; the server's first window is a part of it
    await fill(js, stream, count, 1024)
    consumer = await controlled(js, stream, 60)  # no heartbeat reminds of a forgotten answer
    async with consumer.subscribe() as messages:
        before = -1

        async def nothing_more_comes() -> bool:
            nonlocal before
            await asyncio.sleep(0.1)
            here, before = before, messages.pending_msgs
            return here == before > 0

        await eventually(nothing_more_comes)
        assert messages.pending_msgs < count
        async with asyncio.timeout(60):
            for expected in range(count):
                assert int((await messages.next()).data) == expected
        assert messages.dropped == 0
        assert reported == []


async def test_plain_subscriptions_see_flow_control_and_answer_it(
    js: JetStream, nc: Client, stream: str
) -> None:
    await fill(js, stream, 8000, 1024)
    consumer = await controlled(js, stream, 0.1)
    got, asked, beats = 0, 0, 0
    async with nc.subscribe(consumer.deliver_subject) as sub:
        while got < 8000 or not beats:
            msg = await sub.next(30)
            if msg.flow_control:
                asked += 1
                await msg.respond()
            elif msg.idle_heartbeat:
                beats += 1
            else:
                got += 1
    assert (got, asked > 0, beats > 0) == (8000, True, True)


@pytest.mark.parametrize("heartbeat", [0.1, None])
@pytest.mark.parametrize("what", ["consumer", "stream"])
async def test_push_messages_end_when_their_consumer_or_stream_is_deleted(
    js: JetStream,
    stream: str,
    reported: Reported,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat: float | None,
    what: str,
) -> None:
    monkeypatch.setattr(consumers, "QUIET", 0.2)
    consumer = await js.stream(stream).create_push_consumer(
        name="p", deliver_subject=f"to.{stream}", idle_heartbeat=heartbeat
    )
    called = consumer.subscribe(callback=lambda message: None)
    async with asyncio.timeout(30), consumer.subscribe() as messages:
        await js.publish(f"{stream}.a", b"x")
        assert (await messages.next()).data == b"x"
        await asyncio.sleep(0.5)  # it is looked for, and there
        assert messages.active
        await (consumer.delete() if what == "consumer" else js.delete_stream(stream))
        with pytest.raises(errors.APIError) as raised:
            await anext(messages)
        await eventually(lambda: not called.active)
    missing = errors.ConsumerNotFoundError if what == "consumer" else errors.StreamNotFoundError
    assert type(raised.value) is missing
    silences = [error for error in reported if not isinstance(error, errors.MissedHeartbeatError)]
    assert [type(error) for error in silences] == [missing]  # of the one with a callback
    assert len(reported) - len(silences) == (2 if heartbeat else 0)
    if what == "stream":
        await js.create_stream(name=stream)  # for the fixture


async def test_a_silent_push_consumer_that_is_made_again_goes_on(
    js: JetStream, stream: str, reported: Reported
) -> None:
    consumer = await controlled(js, stream, 0.3)
    async with consumer.subscribe() as messages:
        await eventually(lambda: messages.pending_msgs >= 4)  # heartbeats, which are not given out
        await js.publish(f"{stream}.a", b"x")
        assert (await messages.next(30)).data == b"x"
        assert reported == []
        config = consumer.cached_info.config
        await consumer.delete()
        await js.stream(stream).create_push_consumer(config)
        await js.publish(f"{stream}.a", b"y")
        assert [(await messages.next(30)).data for _ in range(2)] == [b"x", b"y"]
        assert messages.active


async def test_a_lost_flow_control_answer_is_repeated(
    js: JetStream, nc: Client, stream: str, shared_server: NatsServer
) -> None:
    """The server names the request that is still open in its heartbeats."""
    consumer = await controlled(js, stream)
    answers = nc.subscribe(f"{stream}_fc")
    async with consumer.subscribe() as messages:
        await nc.flush()
        stalled = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: %b_fc\r\n\r\n"
        with RawClient(shared_server.url) as raw:
            for block in (stalled % stream.encode(), b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"):
                raw.send(frames.hpub(consumer.deliver_subject, block, b""))
            raw.send(frames.pub(consumer.deliver_subject, b"x"))
            assert (await messages.next(30)).data == b"x"
            answer = await answers.next(30)
            assert (answer.data, answer.reply) == (b"", None)
            with pytest.raises(errors.RequestTimeoutError):
                await answers.next(0.01)


async def test_an_empty_message_is_given_out(js: JetStream, nc: Client, stream: str) -> None:
    await js.publish(f"{stream}.a", headers={"Status": "100", "Description": "Idle Heartbeat"})
    consumer = await js.stream(stream).create_push_consumer(deliver_subject=nc.new_inbox())
    async with consumer.subscribe() as messages:
        msg = await messages.next(30)
        assert msg.headers is not None
        assert msg.headers["Status"] == "100"


async def test_members_of_a_deliver_group_share_the_messages(
    js: JetStream, nc: Client, stream: str, reported: Reported
) -> None:
    consumer = await js.stream(stream).create_push_consumer(
        name="p",
        deliver_subject=nc.new_inbox(),
        deliver_group="g",
        ack_policy="none",
        idle_heartbeat=0.1,
    )
    got: list[list[int]] = [[], []]
    members = [consumer.subscribe(callback=lambda msg: got[0].append(msg.seq))]
    members.append(consumer.subscribe(callback=lambda msg: got[1].append(msg.seq)))
    await fill(js, stream, 200)
    await eventually(lambda: len(got[0] + got[1]) == 200)
    assert sorted(got[0] + got[1]) == list(range(1, 201))
    assert all(got)
    await asyncio.sleep(0.5)  # the heartbeats go to one of them
    assert all(member.active for member in members)
    assert reported == []


async def test_every_end_leaves_nothing_behind(js: JetStream, nc: Client, stream: str) -> None:
    consumer = await controlled(js, stream, 0.1)
    before, tasks = routes(nc), asyncio.all_tasks()
    for callback in (None, lambda _: None):
        consumer.subscribe(callback=callback).stop()
        async with consumer.subscribe(callback=callback) as messages:
            assert "active" in repr(messages)
        await consumer.subscribe(callback=callback).drain()
    await asyncio.sleep(0)
    assert routes(nc) == before
    assert asyncio.all_tasks() == tasks
