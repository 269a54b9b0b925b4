"""Consuming without acks that is left early: what nobody takes any more is counted and told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.jetstream.test_consume import fill, holds, take

from jetspark.errors import JetsparkError, SequenceMismatchError
from jetspark.full_client import JetStream, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jetspark.full_client import Client
    from jetspark.jetstream import ConsumerMessages, JsMsg, PullConsumer
    from jetspark.server import NatsServer

MESSAGES = 60


@pytest.fixture
async def told() -> asyncio.Queue[JetsparkError]:
    return asyncio.Queue()


@pytest.fixture
async def reading(
    shared_server: NatsServer, told: asyncio.Queue[JetsparkError]
) -> AsyncIterator[Client]:
    """A client whose errors are `told`."""
    async with connect(shared_server.url, error_callback=told.put_nowait) as client:
        yield client


@pytest.fixture
async def consumer(js: JetStream, stream: str, reading: Client) -> PullConsumer:
    """Without acks, of a stream with so many messages."""
    await fill(js, stream, MESSAGES)
    made = await js.create_consumer(stream, durable_name="c", ack_policy="none")
    return await reading.jetstream().consumer(stream, made.name)


async def loss(told: asyncio.Queue[JetsparkError]) -> str:
    error = await asyncio.wait_for(told.get(), 30)
    assert isinstance(error, SequenceMismatchError)
    return str(error)


async def delivered(consumer: PullConsumer) -> int:
    return (await consumer.info()).delivered.consumer_seq


async def test_leaving_the_block_tells_how_many_are_lost(
    consumer: PullConsumer, told: asyncio.Queue[JetsparkError]
) -> None:
    async with consumer.consume() as messages:
        await take(messages, 10)
    assert f"({await delivered(consumer) - 10} messages)" in await loss(told)
    messages.stop()
    await consumer.info()
    assert told.empty()  # once


async def test_those_on_their_way_are_counted(
    consumer: PullConsumer, told: asyncio.Queue[JetsparkError]
) -> None:
    messages = consumer.consume(max_messages=20)
    await take(messages, 1)
    await holds(lambda: messages.pending_msgs == 19)
    await take(messages, 12)  # which requests more, and does not wait for it
    messages.stop()
    told_of = await loss(told)
    assert f"({await delivered(consumer) - 13} messages)" in told_of
    assert [msg async for msg in messages] == []


async def test_a_callback_that_stops_tells_how_many_are_lost(
    consumer: PullConsumer, told: asyncio.Queue[JetsparkError]
) -> None:
    seen: list[JsMsg] = []

    async def handle(msg: JsMsg) -> None:
        seen.append(msg)
        if len(seen) == 10:
            messages.stop()

    messages = consumer.consume(callback=handle)
    told_of = await loss(told)
    assert f"({await delivered(consumer) - 10} messages)" in told_of
    assert len(seen) == 10


@pytest.mark.parametrize("callback", [False, True])
async def test_closing_the_client_tells_what_was_not_taken(
    consumer: PullConsumer, told: asyncio.Queue[JetsparkError], reading: Client, callback: bool
) -> None:
    begun = asyncio.Event()

    async def forever(_: JsMsg) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    messages = consumer.consume(callback=forever if callback else None)
    if callback:
        await begun.wait()
    else:
        await take(messages, 1)
    await holds(lambda: messages.pending_msgs == MESSAGES - 1)
    await reading.close()
    expected = f"(at least {MESSAGES - 1} messages)" if callback else f"{MESSAGES - 1} of the mess"
    assert expected in await loss(told)
    assert reading.last_error is None  # it says why the client was closed
    messages.stop()
    await asyncio.sleep(0)
    assert told.empty()


async def test_nothing_is_told_when_nothing_is_lost(
    js: JetStream,
    stream: str,
    consumer: PullConsumer,
    told: asyncio.Queue[JetsparkError],
    reading: Client,
) -> None:
    near = reading.jetstream()

    async def first(messages: ConsumerMessages) -> None:
        async with messages:
            await take(messages, 1)
            await holds(lambda: messages.pending_msgs > 0)

    acked = await near.create_consumer(stream, durable_name="acked")
    await first(acked.consume())
    await first(near.ordered(stream))
    drained = consumer.consume(max_messages=10)
    await take(drained, 1)
    await drained.drain()
    taken = 1 + len([msg async for msg in drained])
    drained.stop()
    async with consumer.consume() as rest:
        await take(rest, MESSAGES - taken)
    await reading.drain()
    assert told.empty()
