"""Acknowledgements: what the server does with each kind, and that there is only one."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually

from jetspark import errors
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import JsMsg, PullConsumer
from jetspark.wire.kernel import MessageFrame


@pytest.fixture
async def consumer(js: JetStream, stream: str) -> PullConsumer:
    await js.publish(f"{stream}.a", b"hello")
    return await js.stream(stream).create_consumer(durable_name="c", ack_wait=1)


async def nothing_unacked(consumer: PullConsumer) -> bool:
    return (await consumer.info()).num_ack_pending == 0


async def test_ack_sync_is_confirmed(consumer: PullConsumer, stream: str) -> None:
    msg = await consumer.next()
    metadata = msg.metadata
    assert (metadata.stream, metadata.consumer) == (stream, "c")
    assert (metadata.stream_seq, metadata.consumer_seq, msg.seq) == (1, 1, 1)
    assert (metadata.deliveries, metadata.pending) == (1, 0)
    assert metadata.timestamp == msg.timestamp
    assert (await consumer.info()).num_ack_pending == 1
    await msg.ack_sync()
    info = await consumer.info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 1)
    assert msg.is_acked


async def test_an_acked_message_is_not_delivered_again(
    js: JetStream, consumer: PullConsumer, stream: str
) -> None:
    await (await consumer.next()).ack()
    await js.publish(f"{stream}.a", b"another")
    await (await consumer.next()).term()
    await eventually(lambda: nothing_unacked(consumer))


@pytest.mark.parametrize("delay", [None, 0.2, timedelta(milliseconds=200)])
async def test_nak_with_delay_delivers_later(
    consumer: PullConsumer, nc: Client, delay: timedelta | float | None
) -> None:
    message = await consumer.next()
    begin = nc.loop.time()
    await message.nak(delay)
    assert (await consumer.next(30)).metadata.deliveries == 2
    assert nc.loop.time() - begin >= (0.2 if delay else 0)


async def test_in_progress_restarts_ack_wait(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    for _ in range(15):  # far below ack_wait, which a slow machine may stretch
        with pytest.raises(errors.RequestTimeoutError):
            await consumer.next(0.1)
        await msg.in_progress()
    await msg.ack_sync()


async def test_a_terminated_message_is_not_delivered_again_and_has_its_reason(
    consumer: PullConsumer, nc: Client, stream: str
) -> None:
    assert nc.server_info is not None
    if not nc.server_info.at_least(2, 10, 4):
        with pytest.raises(errors.UnsupportedByServerError):
            await (await consumer.next()).term("poison pill")
        return
    async with nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>") as advisories:
        await (await consumer.next()).term("poison pill")
        async for advisory in advisories:
            document = json.loads(advisory.data)
            if document["stream"] == stream:
                assert document["reason"] == "poison pill"
                break
    await eventually(lambda: nothing_unacked(consumer))
    with pytest.raises(errors.RequestTimeoutError):
        await consumer.next(0.1)


async def test_a_second_ack_is_refused_and_not_sent(consumer: PullConsumer, nc: Client) -> None:
    msg = await consumer.next()
    await msg.ack()
    sent = nc.stats.out_msgs
    for again in (msg.ack, msg.ack_sync, msg.nak, msg.term, msg.in_progress):
        with pytest.raises(errors.MessageAlreadyAckedError):
            await again()
    assert nc.stats.out_msgs == sent


async def test_an_ack_may_be_repeated(consumer: PullConsumer, nc: Client, unique: Unique) -> None:
    reply = unique("ack")
    msg = JsMsg(nc, MessageFrame(1, b"a", reply.encode(), None, b""))
    with pytest.raises(errors.NoRespondersError):
        await msg.ack_sync()
    assert not msg.is_acked
    async with nc.subscribe(reply) as acks:
        with pytest.raises(errors.RequestTimeoutError):
            await msg.ack_sync(timeout=0.05)
        await msg.nak(timedelta(seconds=2))
        seen = [(await acks.next(20)).data for _ in range(2)]
    assert seen == [b"+ACK", b'-NAK {"delay":2000000000}']


async def test_an_ack_on_a_closed_connection_raises(consumer: PullConsumer, nc: Client) -> None:
    msg = await consumer.next()
    await nc.close()
    with pytest.raises(errors.ConnectionClosedError):
        await msg.ack()
    assert not msg.is_acked


async def test_a_plain_message_cannot_be_acked(nc: Client) -> None:
    msg = JsMsg(nc, MessageFrame(1, b"a", None, None, b""))
    for answer in (msg.ack, msg.ack_sync, msg.nak, msg.term, msg.in_progress):
        with pytest.raises(errors.NotJetStreamMessageError):
            await answer()
    with pytest.raises(errors.NotJetStreamMessageError):
        _ = msg.metadata


async def test_impossible_ack_options_are_refused(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    with pytest.raises(errors.ConfigError):
        await msg.nak(-1)
    with pytest.raises(errors.ConfigError):
        await msg.term("two\nlines")
    assert not msg.is_acked
    await msg.ack_sync()
