"""Consuming from real servers: order, bounds, ends, callbacks, restarts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.conftest import NeedsServer, Reported, Unique
from tests.jetstream.conftest import Own, fill, numbers, routes, waits
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster

from jetspark.errors import (
    ConfigError,
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    JetsparkError,
    MissedHeartbeatError,
    PullError,
    RequestTimeoutError,
)
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import ConsumerMessages, JsMsg, PullConsumer, consume


async def take(messages: ConsumerMessages, count: int) -> list[JsMsg]:
    return [await messages.next(10) for _ in range(count)]


# -- what comes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_messages": 1},
        {"max_messages": 2},
        {"max_messages": 7, "threshold_messages": 0},
        {"max_messages": 7, "threshold_messages": 7},
        {"max_bytes": 5000},
        {"max_bytes": 5000, "threshold_bytes": 0},
        {"max_bytes": 5000, "threshold_bytes": 5000},
    ],
    ids=str,
)
async def test_consume_delivers_every_message_once_in_order(
    js: JetStream, stream: str, consumer: PullConsumer, options: dict[str, Any]
) -> None:
    await fill(js, stream, 300)
    async with consumer.consume(**options) as messages:
        seen = await take(messages, 200)
        await fill(js, stream, 1)
        seen += await take(messages, 101)
    assert numbers(seen) == [*range(300), 0]
    assert {msg.metadata.deliveries for msg in seen} == {1}


async def test_consume_without_a_block(js: JetStream, stream: str, consumer: PullConsumer) -> None:
    await fill(js, stream, 3)
    seen = []
    async for msg in consumer.consume():
        seen.append(msg)
        await msg.ack_sync()
        if len(seen) == 3:
            break
    assert numbers(seen) == [0, 1, 2]
    assert (await consumer.info()).num_ack_pending == 0


# -- how much is here --------------------------------------------------------------------------


async def test_a_reader_that_takes_nothing_gets_no_more_than_the_buffer(
    js: JetStream, stream: str, consumer: PullConsumer, reported: Reported
) -> None:
    await fill(js, stream, 200)
    async with consumer.consume(max_messages=20, expires=2, heartbeat=1) as messages:
        await eventually(lambda: messages.pending_msgs == 20)
        await asyncio.sleep(2.3)  # as long as silence would be reported, if it were one
        assert messages.pending_msgs == 20
        assert (await consumer.info()).num_waiting == 0
        await take(messages, 9)
        await asyncio.sleep(0.05)
        assert messages.pending_msgs == 11  # above the threshold
        await take(messages, 1)
        await eventually(lambda: messages.pending_msgs == 20)
        assert numbers(await take(messages, 190))[0] == 10
    assert reported == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "config", "largest"),
    [
        ({}, {}, 6000),  # 8000 in all
        ({}, {"max_batch": 700}, 700),
        ({"max_messages": 500}, {}, 500),
        ({"threshold_messages": 100}, {}, 500),
    ],
)
async def test_a_buffer_that_nobody_has_set_follows_the_reader(
    js: JetStream,
    stream: str,
    monkeypatch: pytest.MonkeyPatch,
    options: Any,
    config: Any,
    largest: int,
) -> None:
    consumer = await js.stream(stream).create_consumer(name="c", ack_policy="none", **config)
    pulls = js.client.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c")

    async def asked() -> list[int]:
        await js.client.flush()
        return [json.loads((await pulls.next()).data)["batch"] for _ in range(pulls.pending_msgs)]

    await fill(js, stream, 13_000)
    async with consumer.consume(**options) as messages:
        monkeypatch.setattr(consume, "QUICK", 60)  # every reader is quick
        assert numbers(await take(messages, 13_000)) == list(range(13_000))
        assert max(await asked()) == largest
        monkeypatch.setattr(consume, "QUICK", 0)
        monkeypatch.setattr(consume, "SLOW", 0)  # and now slow
        await fill(js, stream, 13_000)
        await take(messages, 13_000)
        assert (await asked())[-1] == (400 if "threshold_messages" in options else 250)


async def test_max_bytes_of_the_server(js: JetStream, stream: str, consumer: PullConsumer) -> None:
    await fill(js, stream, 40, size=500)
    async with consumer.consume(max_bytes=6000, expires=1) as messages:
        await eventually(lambda: messages.pending_msgs == 10)  # about 60 are subject and reply
        await asyncio.sleep(0.05)
        assert messages.pending_msgs == 10
        assert numbers(await take(messages, 40)) == list(range(40))


async def test_a_message_larger_than_max_bytes_is_reported_and_waited_for(
    js: JetStream, stream: str, consumer: PullConsumer, reported: Reported
) -> None:
    await js.publish(f"{stream}.a", bytes(5000))
    async with consumer.consume(max_bytes=1000) as messages:
        await eventually(lambda: bool(reported))
        await asyncio.sleep(0.6)  # it was asked for again, and not reported again
        assert len(reported) == 1
        assert isinstance(reported[0], PullError)
        assert "MaxBytes" in reported[0].description
        await js.stream(stream).purge()
        await js.publish(f"{stream}.a", b"small")
        assert (await messages.next(30)).data == b"small"


@pytest.mark.parametrize("limits", [{"max_batch": 5}, {"max_bytes": 300}, {"max_waiting": 1}])
async def test_pull_requests_stay_within_the_consumers_limits(
    js: JetStream, stream: str, reported: Reported, limits: dict[str, Any]
) -> None:
    consumer = await js.stream(stream).create_consumer(durable_name="d", **limits)
    await fill(js, stream, 200)
    options = {"max_bytes": 3000} if "max_bytes" in limits else {"max_messages": 20}
    async with consumer.consume(**options, expires=1) as messages:  # type: ignore[arg-type]
        assert numbers(await take(messages, 200)) == list(range(200))
    if "max_waiting" not in limits:
        assert reported == []


# -- ends --------------------------------------------------------------------------------------


async def test_stop_acknowledges_nothing_and_the_server_delivers_again(
    js: JetStream, stream: str
) -> None:
    consumer = await js.stream(stream).create_consumer(durable_name="d", ack_wait=1)
    await fill(js, stream, 10)
    async with consumer.consume() as messages:
        await take(messages, 1)
        await eventually(lambda: messages.pending_msgs == 9)
        messages.stop()
        assert (messages.active, messages.pending_msgs, messages.error) == (False, 0, None)
        assert [msg async for msg in messages] == []
        messages.stop()
    assert (await consumer.info()).num_ack_pending == 10
    again = await consumer.fetch(10, timeout=20)
    assert sorted(msg.seq for msg in again) == list(range(1, 11))
    assert min(msg.metadata.deliveries for msg in again) >= 2


async def test_drain_gives_out_what_has_arrived_and_ends_consuming(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    await fill(js, stream, 100)
    messages = consumer.consume(max_messages=50)
    await take(messages, 1)
    # What the server has not sent when it hears of the drain it does not send any more.
    await eventually(lambda: messages.pending_msgs == 49)
    await messages.drain()
    rest = [msg async for msg in messages]
    assert numbers(rest) == list(range(1, 1 + len(rest)))
    assert len(rest) >= 49
    # Nothing was delivered that we have not seen.
    assert (await consumer.info()).num_ack_pending == 1 + len(rest)
    await messages.drain()


async def test_consume_ends_with_an_error_when_the_consumer_is_deleted_or_does_not_exist(
    js: JetStream, stream: str, consumer: PullConsumer, needs_server: NeedsServer
) -> None:
    await fill(js, stream, 3)
    messages = consumer.consume()
    await eventually(lambda: messages.pending_msgs == 3)
    await consumer.delete()
    await eventually(lambda: not messages.active)
    assert len(await take(messages, 3)) == 3
    with pytest.raises(ConsumerDeletedError):
        await messages.next(30)
    with pytest.raises(ConsumerDeletedError):
        await messages.__anext__()
    assert isinstance(messages.error, ConsumerDeletedError)
    needs_server("2.10")  # older ones say nothing to the pull
    with pytest.raises(ConsumerNotFoundError):
        await consumer.consume().next(30)


async def test_closing_the_client_ends_consume_without_an_error(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    await fill(js, stream, 2)
    messages = consumer.consume()
    await eventually(lambda: messages.pending_msgs == 2)
    await nc.close()
    assert len([msg async for msg in messages]) == 2
    assert messages.error is None
    with pytest.raises(ConnectionClosedError):
        consumer.consume()


async def test_every_end_of_consume_leaves_nothing_behind(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    before = routes(nc), len(asyncio.all_tasks())
    await fill(js, stream, 5)
    async with consumer.consume() as messages:
        await take(messages, 1)
    drained = consumer.consume()
    await drained.drain()
    called = consumer.consume(callback=lambda _: None)
    await called.drain()
    deleted = consumer.consume()
    await fill(js, stream, 1)
    await eventually(lambda: deleted.pending_msgs == 1)
    await consumer.delete()
    await eventually(lambda: not deleted.active)
    assert (routes(nc), len(asyncio.all_tasks())) == before


# -- callbacks ---------------------------------------------------------------------------------


async def test_drain_waits_for_it(js: JetStream, stream: str, consumer: PullConsumer) -> None:
    await fill(js, stream, 30)
    seen, go = [], asyncio.Event()

    async def slow(msg: JsMsg) -> None:
        await go.wait()
        seen.append(msg)

    messages = consumer.consume(callback=slow)
    await eventually(lambda: messages.pending_msgs == 29)
    with pytest.raises(RequestTimeoutError, match="29 messages"):
        await messages.drain(0.05)
    go.set()
    await messages.drain(30)
    assert len(seen) == 30


async def test_a_callback_may_end_it(js: JetStream, stream: str, consumer: PullConsumer) -> None:
    await fill(js, stream, 10)
    seen = []

    async def drain(msg: JsMsg) -> None:
        seen.append(msg)
        await messages.drain()

    messages = consumer.consume(callback=drain)
    await eventually(lambda: len(seen) == 10)

    async def stop(msg: JsMsg) -> None:
        seen.append(msg)
        others.stop()

    await fill(js, stream, 10)
    others = consumer.consume(callback=stop)
    await eventually(lambda: not others.active)
    await others.drain()
    assert len(seen) == 11


async def test_what_ends_a_callback_is_reported(consumer: PullConsumer, reported: Reported) -> None:
    messages = consumer.consume(callback=lambda _: None)
    await waits(consumer)
    await consumer.delete()
    await eventually(lambda: bool(reported))
    assert reported == [messages.error]
    assert isinstance(messages.error, ConsumerDeletedError)


async def test_draining_the_client_finishes_what_has_arrived(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client, reported: Reported
) -> None:
    await fill(js, stream, 40)
    seen = []

    async def answer(msg: JsMsg) -> None:
        await asyncio.sleep(0)
        await msg.ack()
        seen.append(msg)

    called = consumer.consume(callback=answer, max_messages=10)
    async with consumer.consume(max_messages=10) as iterated:
        await eventually(lambda: iterated.pending_msgs == 10)
        await nc.drain()
        rest = [msg async for msg in iterated]
    assert sorted(numbers(rest + seen)) == list(range(len(rest) + len(seen)))
    assert (called.pending_msgs, called.active, reported) == (0, False, [])


# -- outages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_consume_survives_a_server_restart(
    own: Own, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[JetsparkError] = []
    monkeypatch.setattr(own.nc, "report", told.append)
    consumer = await own.js.stream("S").create_consumer(durable_name="c")
    async with consumer.consume(expires=2, heartbeat=1) as messages:
        await own.js.publish("s", b"0")
        assert (await messages.next(30)).data == b"0"
        await asyncio.to_thread(getattr(own.server, how))
        # Longer than twice the heartbeat: its clock stands still meanwhile.
        await asyncio.sleep(2.4)
        await asyncio.to_thread(own.server.start)
        await own.js.publish("s", b"1")
        while (await messages.next(20)).data != b"1":
            pass  # a killed server may not have written down what it delivered
    assert not any(isinstance(error, MissedHeartbeatError) for error in told)


async def test_consume_survives_leader_changes(nats_cluster: Cluster, unique: Unique) -> None:
    name = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = JetStream(nc, timeout=20)
        await js.create_stream(name=name, subjects=[name], num_replicas=3, storage="memory")
        consumer = await js.stream(name).create_consumer(
            durable_name="c", ack_wait=1, max_deliver=-1
        )
        seen: set[int] = set()
        async with consumer.consume(max_messages=20, expires=1, heartbeat=0.5) as messages:
            for end in (30, 60, 90):
                for number in range(end - 30, end):
                    await js.publish(name, b"%d" % number)
                while len(seen) < end:
                    message = await messages.next(20)
                    seen.add(int(message.data))
                    await message.ack()
                await (await js.stream(name).consumer("c")).step_down_leader()
        assert messages.error is None
        await js.delete_stream(name)


async def test_consume_started_during_an_outage_pulls_afterwards(own: Own) -> None:
    await own.js.publish("s", b"0")
    consumer = await own.js.stream("S").create_consumer(durable_name="c")
    await asyncio.to_thread(own.server.stop)
    await eventually(lambda: not own.nc.is_connected)
    async with consumer.consume() as messages:
        await asyncio.to_thread(own.server.start)
        assert (await messages.next(20)).data == b"0"


async def test_after_a_reconnect_messages_come_on_a_new_inbox(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client, reported: Reported
) -> None:
    pulls = nc.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer.name}")
    async with consumer.consume(max_messages=10) as messages:
        before = routes(nc)
        await fill(js, stream, 5)
        assert numbers(await take(messages, 5)) == list(range(5))
        await nc.force_reconnect()
        await fill(js, stream, 30)
        assert numbers(await take(messages, 30)) == list(range(30))
        assert routes(nc) == before
    await pulls.drain()
    assert len({(pull.reply or "").rpartition(".")[0] async for pull in pulls}) == 2
    assert reported == []


# -- arguments ---------------------------------------------------------------------------------


async def test_impossible_consume_options_are_refused(consumer: PullConsumer, nc: Client) -> None:
    before = routes(nc)
    wrong: list[dict[str, Any]] = [
        *({"max_messages": 0}, {"max_bytes": 0}, {"max_messages": 10, "max_bytes": 10}),
        *({"max_bytes": 10, "threshold_messages": 1}, {"threshold_bytes": 1}),
        *({"max_messages": 10, "threshold_messages": 11}, {"threshold_messages": -1}),
        *({"expires": 0.9}, {"heartbeat": 0.4}, {"heartbeat": 31, "expires": 120}),
        *({"heartbeat": 16}, {"group": "jobs"}),
    ]
    for arguments in wrong:
        with pytest.raises(ConfigError):
            consumer.consume(**arguments)
    assert routes(nc) == before
