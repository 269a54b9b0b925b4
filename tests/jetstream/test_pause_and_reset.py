"""Consumers are paused, resumed and reset; leaders of streams and consumers step down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import NeedsServer, Unique
from tests.jetstream.conftest import fill
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import PullConsumer


async def taken(consumer: PullConsumer, count: int, *, ack: bool = True) -> list[int]:
    messages = await consumer.fetch(count, timeout=5)
    for message in messages:
        if ack:
            await message.ack()
    return [message.seq for message in messages]


async def test_a_paused_consumer_delivers_when_it_is_resumed(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await fill(js, stream, 2)
    consumer = await js.stream(stream).create_consumer(durable_name="c")
    until = datetime.now(UTC) + timedelta(hours=1)
    state = await consumer.pause(until)
    assert (state.paused, state.pause_until) == (True, until)
    assert state.pause_remaining is not None
    assert timedelta(minutes=59) < state.pause_remaining <= timedelta(hours=1)
    info = await consumer.info()
    assert (info.paused, info.config.pause_until) == (True, until)
    assert await consumer.fetch(2) == []
    state = await (await js.stream(stream).consumer("c")).resume()
    assert (state.paused, state.pause_until, state.pause_remaining) == (False, None, None)
    assert await taken(consumer, 2) == [1, 2]
    assert (await (await js.stream(stream).consumer("c")).pause(until)).paused
    assert not (await consumer.resume()).paused
    past = await consumer.pause(datetime.now(UTC) - timedelta(seconds=1))
    assert not past.paused


async def test_a_reset_consumer_delivers_again(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    await fill(js, stream, 5)
    consumer = await js.stream(stream).create_consumer(
        durable_name="c", ack_wait=timedelta(hours=1)
    )
    assert await taken(consumer, 5, ack=False) == [1, 2, 3, 4, 5]
    assert await consumer.fetch(1) == []
    info = await consumer.reset()
    assert (info.num_ack_pending, info.num_pending, info.delivered.stream_seq) == (0, 5, 0)
    messages = await consumer.fetch(2, timeout=5)
    await messages[0].ack_sync()
    info = await (
        await js.stream(stream).consumer("c")
    ).reset()  # back to behind what is acknowledged
    assert info.extra["reset_seq"] == 2
    assert await taken(consumer, 4) == [2, 3, 4, 5]
    assert (await consumer.reset(4)).num_pending == 2
    assert await taken(consumer, 2) == [4, 5]
    assert (await (await js.stream(stream).consumer("c")).reset(1)).num_pending == 5
    assert await taken(consumer, 5) == [1, 2, 3, 4, 5]


async def test_a_reset_does_not_go_before_the_start(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    await fill(js, stream, 5)
    late = await js.stream(stream).create_consumer(
        durable_name="late", deliver_policy="by_start_sequence", opt_start_seq=3
    )
    assert (await late.reset(4)).num_pending == 2
    with pytest.raises(errors.APIError, match="below start seq"):
        await late.reset(2)
    new = await js.stream(stream).create_consumer(durable_name="new", deliver_policy="new")
    with pytest.raises(errors.APIError, match="not allowed"):
        await new.reset(2)


async def test_pausing_and_resetting_what_does_not_exist_raises(
    js: JetStream, stream: str, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    gone = await js.stream(stream).create_consumer(name="nobody")
    await gone.delete()
    for call in (gone.pause(datetime.now(UTC)), gone.resume(), gone.reset()):
        with pytest.raises(errors.ConsumerNotFoundError, match="nobody"):
            await call
    with pytest.raises(errors.StreamNotFoundError):
        await (await js.stream(unique("S")).consumer("nobody")).reset()


async def test_wrong_pause_options_are_refused_before_anything_is_sent(
    js: JetStream, stream: str, nc: Client, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    consumer = await js.stream(stream).create_consumer()
    before = nc.stats.out_msgs
    now = datetime.now(UTC)
    with pytest.raises(errors.ConfigError, match="zone"):
        await consumer.pause(now.replace(tzinfo=None))
    with pytest.raises(errors.ConfigError, match="seq"):
        await consumer.reset(0)
    assert nc.stats.out_msgs == before


async def test_pause_and_reset_are_refused_for_older_servers(
    js: JetStream, stream: str, nc: Client
) -> None:
    info = nc.server_info
    assert info is not None
    consumer = await js.stream(stream).create_consumer()
    before = nc.stats.out_msgs
    if not info.at_least(2, 11):
        with pytest.raises(errors.UnsupportedByServerError, match=r"2\.11"):
            await consumer.pause(datetime.now(UTC))
        with pytest.raises(errors.UnsupportedByServerError, match=r"2\.11"):
            await js.stream(stream).step_down_leader(preferred="n1")
    if not info.at_least(2, 14):
        with pytest.raises(errors.UnsupportedByServerError, match=r"2\.14"):
            await consumer.reset()
    assert nc.stats.out_msgs == before


# -- leaders step down -------------------------------------------------------------------------


async def test_leaders_step_down(
    nats_cluster: Cluster, unique: Unique, needs_server: NeedsServer
) -> None:
    stream = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream()
        brief = nc.jetstream(timeout=0.5)  # between two leaders nobody answers
        await js.create_stream(name=stream, subjects=[stream], num_replicas=3)
        await js.stream(stream).create_consumer(durable_name="c")
        before = (await js.stream(stream).info()).cluster
        assert before is not None
        await js.stream(stream).step_down_leader()

        async def led_by_another() -> bool:
            try:
                cluster = (await brief.stream(stream).info()).cluster
            except errors.RequestTimeoutError:
                return False
            return cluster is not None and cluster.leader not in (None, "", before.leader)

        async def consumer_stepped_down() -> bool:
            try:
                await (await brief.stream(stream).consumer("c")).step_down_leader()
            except (errors.RequestTimeoutError, errors.APIError):
                return False
            return True

        await eventually(led_by_another)
        await eventually(consumer_stepped_down)
        await js.delete_stream(stream)


async def test_a_single_server_has_no_leader_to_step_down(js: JetStream, stream: str) -> None:
    with pytest.raises(errors.APIError, match="cluster"):
        await js.stream(stream).step_down_leader()
