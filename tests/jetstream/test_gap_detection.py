"""A frame of the server is lost: noticed within twice the heartbeat, and made good or told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import NeedsServer, Reported
from tests.jetstream.conftest import fill_thirds, has_consumers, waits
from tests.jetstream.eventually import eventually
from tests.support.frame_proxy import FrameProxy

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.server import NatsServer

BEAT = 0.5
SLACK = 10.0
"""Seconds that a slow machine may add; the loss of a frame went unnoticed for minutes."""


@pytest.fixture
async def proxy(shared_server: NatsServer) -> AsyncIterator[FrameProxy]:
    async with FrameProxy(shared_server.port) as proxy:
        yield proxy


@pytest.fixture
def reported() -> list[errors.JetsparkError]:
    return []


@pytest.fixture
async def far(proxy: FrameProxy, reported: Reported) -> AsyncIterator[Client]:
    """A client behind the proxy."""
    async with connect(proxy.url, error_callback=reported.append) as client:
        yield client


def is_delivery(frame: bytes) -> bool:
    return b" $JS.ACK." in frame.partition(b"\r\n")[0]


def is_request_timeout(frame: bytes) -> bool:
    return b"NATS/1.0 408" in frame


async def publish_three(js: JetStream, stream: str) -> None:
    for data in (b"1", b"2", b"3"):
        await js.publish(f"{stream}.a", data)


async def told(reported: Reported) -> list[str]:
    """What was reported, once anything was."""
    await eventually(lambda: reported)
    assert {type(error) for error in reported} == {errors.SequenceMismatchError}
    return [str(error) for error in reported]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_an_ordered_consumer_reads_a_lost_delivery_again_even_the_last(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client, reported: Reported, lost: int
) -> None:
    await fill_thirds(js, stream, 12)
    fault = proxy.arm(lost, wanted=is_delivery)
    async with (
        far.jetstream()
        .stream(stream)
        .ordered(subjects=f"{stream}.1", start_seq=2, heartbeat=BEAT) as messages
    ):
        start = time.monotonic()
        assert [(await messages.next(60)).seq for _ in range(3)] == [4, 7, 10]
        assert time.monotonic() - start < 2 * BEAT + SLACK
        assert fault.hit is not None
        (said,) = await told(reported)
        assert ("after sequence 0", "after sequence 4", "did not come")[lost - 1] in said
        assert str(messages.last_error) == said
        await has_consumers(js, stream, messages.name)


async def test_a_lost_last_delivery_of_a_request_is_noticed_by_silence(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client
) -> None:
    await publish_three(js, stream)
    proxy.arm(3, wanted=is_delivery)
    async with far.jetstream().stream(stream).ordered(heartbeat=BEAT, max_messages=1) as messages:
        start = time.monotonic()
        assert [(await messages.next(60)).data for _ in range(3)] == [b"1", b"2", b"3"]
        assert time.monotonic() - start < 2.25 * BEAT + SLACK
        assert isinstance(messages.last_error, errors.MissedHeartbeatError)


async def test_consume_goes_on_when_the_last_status_of_a_request_is_lost(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client
) -> None:
    consumer = await far.jetstream().stream(stream).create_consumer(name="c")
    fault = proxy.arm(1, wanted=is_request_timeout)
    async with consumer.consume(expires=1, heartbeat=BEAT, max_messages=1) as messages:
        await eventually(lambda: fault.hit is not None)
        start = time.monotonic()
        await js.publish(f"{stream}.a", b"x")
        assert (await messages.next(60)).data == b"x"
        assert time.monotonic() - start < 2.25 * BEAT + SLACK


@pytest.mark.parametrize("lost", [2, 3])
@pytest.mark.parametrize("ack_policy", ["explicit", "none"])
async def test_consume_reports_a_lost_delivery(
    js: JetStream,
    stream: str,
    proxy: FrameProxy,
    far: Client,
    reported: Reported,
    ack_policy: str,
    lost: int,
) -> None:
    consumer = await far.jetstream().stream(stream).create_consumer(name="c", ack_policy=ack_policy)
    proxy.arm(lost, wanted=is_delivery)
    async with consumer.consume(heartbeat=BEAT) as messages:
        start = time.monotonic()
        await publish_three(js, stream)
        assert [(await messages.next(60)).data for _ in range(2)] == [
            b"%d" % number for number in (1, 2, 3) if number != lost
        ]
        (said,) = await told(reported)
        assert time.monotonic() - start < 2 * BEAT + SLACK
        assert said.startswith("1 message sent by consumer 'c' did not come")
        assert ("ack_wait" in said) is (ack_policy == "explicit")


async def test_consume_reports_no_deliveries_that_other_clients_got(
    js: JetStream, stream: str, nc: Client, far: Client, reported: Reported
) -> None:
    await js.stream(stream).create_consumer(name="c", ack_policy="none")
    clients = [await client.jetstream().stream(stream).consumer("c") for client in (nc, far)]
    got = 0

    def count(_: object) -> None:
        nonlocal got
        got += 1

    readers = [one.consume(heartbeat=BEAT, callback=count) for one in clients]
    await waits(clients[0], 2)
    for _ in range(3):
        await publish_three(js, stream)
        await asyncio.sleep(2 * BEAT)  # heartbeats, and the time to doubt
    assert got == 9
    assert reported == []
    for reader in readers:
        reader.stop()


async def test_an_abandoned_pull_request_does_not_count_as_another_client(
    js: JetStream, stream: str, nc: Client, proxy: FrameProxy, far: Client, reported: Reported
) -> None:
    consumer = await far.jetstream().stream(stream).create_consumer(name="c", ack_policy="none")
    async with consumer.consume(heartbeat=BEAT) as messages:
        await js.publish(f"{stream}.a", b"0")
        await messages.next(60)
        proxy.arm(1, wanted=is_delivery)
        await waits(consumer)
        # As one of ours that the server has not given up yet; it ends by itself.
        inbox = nc.new_inbox()
        async with nc.subscribe(inbox):
            request = b'{"batch": 1, "expires": 1500000000}'
            await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", request, reply=inbox)
            await nc.flush()
            await js.publish(f"{stream}.a", b"1")  # the oldest pull gets it
            (said,) = await told(reported)
    assert said.endswith("they are lost.")


@pytest.mark.parametrize(("lost", "batch"), [(1, 5), (3, 5), (3, 3)])
async def test_a_fetch_reports_a_lost_delivery(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client, lost: int, batch: int
) -> None:
    await publish_three(js, stream)
    consumer = await far.jetstream().stream(stream).create_consumer(name="c")
    proxy.arm(lost, wanted=is_delivery)
    got = await consumer.fetch(batch, timeout=1)
    assert [msg.data for msg in got] == [b"%d" % number for number in (1, 2, 3) if number != lost]
    # A batch that is complete at the server is followed by no last word of it.
    expected = errors.RequestTimeoutError if batch == 3 else errors.SequenceMismatchError
    assert isinstance(got.error, expected)
    await js.publish(f"{stream}.a", b"the only one")
    proxy.arm(1, wanted=is_delivery)
    with pytest.raises(errors.SequenceMismatchError, match="by consumer 'c'"):
        await consumer.fetch(2, timeout=1)


async def test_next_without_acks_on_a_shared_consumer_reports_nothing(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client, reported: Reported
) -> None:
    one = await js.stream(stream).create_consumer(name="c", ack_policy="none")
    other = await far.jetstream().stream(stream).consumer("c")
    for _ in range(3):
        await publish_three(js, stream)
        assert [(await by.next(20)).data for by in (one, other, one)] == [b"1", b"2", b"3"]
    waiting = asyncio.create_task(one.next(60))
    await waits(one)
    fault = proxy.arm(1, wanted=is_request_timeout)  # so the other one gets no answer
    with pytest.raises(errors.RequestTimeoutError):
        await other.next(0.5)
    assert fault.hit is not None
    await js.publish(f"{stream}.a", b"4")
    assert (await waiting).data == b"4"
    assert not reported
    assert js.client.last_error is None


async def test_fetches_that_share_a_consumer_report_nothing(js: JetStream, stream: str) -> None:
    consumer = await js.stream(stream).create_consumer(name="c", ack_policy="none")
    one, other = (asyncio.create_task(consumer.fetch(9, timeout=3)) for _ in range(2))
    await waits(consumer, 2)
    for number in range(6):  # in turns, so that each has gaps
        await js.publish(f"{stream}.a", b"%d" % number)
    found = [await one, await other]
    assert sum(map(len, found)) == 6
    assert [result.error for result in found] == [None, None]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_push_consumer_reports_a_lost_delivery(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client, reported: Reported, lost: int
) -> None:
    options: dict[str, Any] = {"idle_heartbeat": timedelta(seconds=BEAT), "ack_policy": "none"}
    consumer = (
        await far.jetstream()
        .stream(stream)
        .create_push_consumer(deliver_subject=far.new_inbox(), **options)
    )
    proxy.arm(lost, wanted=is_delivery)
    got: list[bytes] = []
    async with consumer.subscribe(callback=lambda msg: got.append(msg.data)):
        await far.flush()
        await publish_three(js, stream)
        (said,) = await told(reported)
        assert said.endswith("did not come: they are lost.")
    assert got == [b"%d" % number for number in (1, 2, 3) if number != lost]


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
async def test_a_batch_of_direct_gets_is_complete_whatever_is_lost(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client, needs_server: NeedsServer, lost: int
) -> None:
    needs_server("2.11")
    await js.stream(stream).update(allow_direct=True)
    await publish_three(js, stream)
    near = far.jetstream(timeout=1)
    assert (await near.stream(stream).get(1)).data == b"1"  # it knows about direct gets now

    def of_batch(frame: bytes) -> bool:
        return b"Nats-Num-Pending" in frame

    proxy.arm(lost, wanted=of_batch)
    assert [msg.seq async for msg in near.stream(stream).get_many(1)] == [1, 2, 3]
    fault = proxy.arm(min(lost, 2), wanted=of_batch)
    assert [msg.seq async for msg in near.stream(stream).get_last(f"{stream}.>")] == [3]
    assert fault.hit is not None


def is_created(frame: bytes) -> bool:
    return b"consumer_create_response" in frame


async def test_an_ordered_consumer_whose_creation_was_not_answered_is_deleted(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client
) -> None:
    await publish_three(js, stream)
    fault = proxy.arm(1, wanted=is_created)
    with pytest.raises(errors.RequestTimeoutError):
        async with far.jetstream(timeout=0.5).stream(stream).ordered():
            pass
    assert fault.hit is not None
    await has_consumers(js, stream)
    async with far.jetstream(timeout=0.5).stream(stream).ordered() as messages:
        assert (await messages.next(60)).data == b"1"
        fault = proxy.arm(1, wanted=is_created)
        await far.force_reconnect()
        await js.publish(f"{stream}.a", b"4")
        assert [(await messages.next(60)).data for _ in range(3)] == [b"2", b"3", b"4"]
        assert fault.hit is not None
        await has_consumers(js, stream, messages.name)
    await has_consumers(js, stream)


async def test_stopping_while_the_consumer_is_created_leaves_none(
    js: JetStream, stream: str, proxy: FrameProxy, far: Client
) -> None:
    await publish_three(js, stream)
    fault = proxy.arm(1, wanted=is_created)
    messages = far.jetstream().stream(stream).ordered()
    taking = asyncio.create_task(messages.next())
    await eventually(lambda: fault.hit is not None)
    messages.stop()
    with pytest.raises(errors.JetsparkError):
        await taking
    await has_consumers(js, stream)
