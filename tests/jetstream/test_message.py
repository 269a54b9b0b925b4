"""Acknowledgements: what the server does with each kind, and that there is only one."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.jetstream.eventually import eventually

from jetspark.errors import (
    ConfigError,
    ConnectionClosedError,
    MessageAlreadyAckedError,
    NoRespondersError,
    NotJetStreamMessageError,
    RequestTimeoutError,
    UnsupportedByServerError,
)
from jetspark.jetstream import JsMsg
from jetspark.wire.kernel import MessageFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream import PullConsumer


@pytest.fixture
async def consumer(js: JetStream, stream: str) -> PullConsumer:
    await js.publish(f"{stream}.a", b"hello")
    return await js.create_consumer(stream, durable_name="c", ack_wait=timedelta(seconds=1))


async def nothing_unacked(consumer: PullConsumer) -> bool:
    return (await consumer.info()).num_ack_pending == 0


async def test_metadata_of_a_delivery(consumer: PullConsumer, stream: str) -> None:
    msg = await consumer.next()
    metadata = msg.metadata
    assert (metadata.stream, metadata.consumer) == (stream, "c")
    assert (metadata.stream_seq, metadata.consumer_seq) == (1, 1)
    assert (metadata.deliveries, metadata.pending) == (1, 0)
    assert msg.seq == 1
    assert metadata.timestamp == msg.timestamp


async def test_ack_sync_is_confirmed(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    assert (await consumer.info()).num_ack_pending == 1
    await msg.ack_sync()
    info = await consumer.info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 1)
    assert msg.is_acked


async def test_an_acked_message_is_not_delivered_again(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    await msg.ack()
    await eventually(lambda: nothing_unacked(consumer))


async def test_nak_delivers_again_at_once(consumer: PullConsumer) -> None:
    await (await consumer.next()).nak()
    assert (await consumer.next(30)).metadata.deliveries == 2


@pytest.mark.parametrize("delay", [0.2, timedelta(milliseconds=200)])
async def test_nak_with_delay_delivers_later(
    consumer: PullConsumer, nc: Client, delay: timedelta | float
) -> None:
    message = await consumer.next()
    begin = nc.loop.time()
    await message.nak(delay)
    assert (await consumer.next(30)).metadata.deliveries == 2
    assert nc.loop.time() - begin >= 0.2


async def test_in_progress_restarts_ack_wait(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    for _ in range(15):  # far below ack_wait, which a slow machine may stretch
        with pytest.raises(RequestTimeoutError):
            await consumer.next(0.1)
        await msg.in_progress()
    await msg.ack_sync()


async def test_a_terminated_message_is_not_delivered_again_and_has_its_reason(
    consumer: PullConsumer, nc: Client, stream: str
) -> None:
    assert nc.server_info is not None
    if not nc.server_info.at_least(2, 10, 4):
        with pytest.raises(UnsupportedByServerError):
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
    with pytest.raises(RequestTimeoutError):
        await consumer.next(0.1)


async def test_term_without_reason(consumer: PullConsumer) -> None:
    await (await consumer.next()).term()
    await eventually(lambda: nothing_unacked(consumer))


async def test_a_second_ack_is_refused_and_not_sent(consumer: PullConsumer, nc: Client) -> None:
    msg = await consumer.next()
    await msg.ack()
    sent = nc.stats.out_msgs
    for again in (msg.ack, msg.ack_sync, msg.nak, msg.term, msg.in_progress):
        with pytest.raises(MessageAlreadyAckedError):
            await again()
    assert nc.stats.out_msgs == sent


async def test_an_ack_that_was_not_confirmed_may_be_repeated(
    consumer: PullConsumer, nc: Client, unique: Callable[[str], str]
) -> None:
    reply = unique("ack")
    msg = JsMsg(nc, MessageFrame(1, b"a", reply.encode(), None, b""))
    with pytest.raises(NoRespondersError):
        await msg.ack_sync()
    assert not msg.is_acked
    async with nc.subscribe(reply) as acks:
        with pytest.raises(RequestTimeoutError):
            await msg.ack_sync(timeout=0.05)
        await msg.nak(timedelta(seconds=2))
        seen = []
        async for ack in acks:
            seen.append(ack.data)
            if len(seen) == 2:
                break
    assert seen == [b"+ACK", b'-NAK {"delay":2000000000}']


async def test_an_ack_after_the_connection_was_closed_raises(
    consumer: PullConsumer, nc: Client
) -> None:
    msg = await consumer.next()
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await msg.ack()
    assert not msg.is_acked


async def test_a_plain_message_cannot_be_acked(nc: Client) -> None:
    msg = JsMsg(nc, MessageFrame(1, b"a", None, None, b""))
    for answer in (msg.ack, msg.ack_sync, msg.nak, msg.term, msg.in_progress):
        with pytest.raises(NotJetStreamMessageError):
            await answer()
    with pytest.raises(NotJetStreamMessageError):
        _ = msg.metadata


async def test_impossible_ack_options_are_refused(consumer: PullConsumer) -> None:
    msg = await consumer.next()
    with pytest.raises(ConfigError):
        await msg.nak(-1)
    with pytest.raises(ConfigError):
        await msg.term("two\nlines")
    assert not msg.is_acked
    await msg.ack_sync()
