"""Draining and closing come to their end: from inside a callback, after a break, when cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import Unique

import jetspark
from jetspark import (
    Client,
    Closed,
    ConnectionStatus,
    Draining,
    JetsparkError,
    Message,
    blocking,
    errors,
)
from jetspark.jetstream.message import JsMsg
from jetspark.server import NatsServer

SOON = 10  # seconds: much less than draining may take


async def stuck_callback(nc: Client, subject: str) -> tuple[jetspark.Subscription, asyncio.Event]:
    """A subscription whose callback never ends; the event is set when it runs."""
    runs = asyncio.Event()

    async def callback(message: Message) -> None:
        runs.set()
        await asyncio.Event().wait()

    sub = nc.subscribe(subject, callback=callback)
    await nc.publish(subject)
    return sub, runs


async def test_draining_does_not_wait_for_a_loop_that_was_left(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("left"))
    for _ in range(3):
        await nc.publish(sub.subject)
    async for _ in sub:
        break
    await nc.flush()
    assert sub.pending_msgs == 2
    async with asyncio.timeout(SOON):
        await nc.drain()
    assert nc.status is ConnectionStatus.CLOSED


async def test_draining_in_a_callback_goes_on_and_loses_nothing(nc: Client, unique: Unique) -> None:
    seen: list[bytes] = []
    here = asyncio.Event()

    async def callback(message: Message) -> None:
        await here.wait()
        seen.append(message.data)
        if len(seen) == 1:
            await nc.drain()

    sub = nc.subscribe(unique("drains"), callback=callback)
    for number in range(5):
        await nc.publish(sub.subject, b"%d" % number)
    await nc.flush()
    ended = nc.events()
    here.set()
    async with asyncio.timeout(SOON):
        events = [event async for event in ended]
    assert events[-1] == Closed(None)
    assert seen == [b"%d" % number for number in range(5)]


async def test_draining_in_a_callback_of_jetstream_goes_on_by_itself(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    name = unique("D")
    keeper = (await connect(shared_server.url)).jetstream()
    await keeper.create_stream(name=name, subjects=[name], storage="memory")
    for _ in range(3):
        await keeper.publish(name)
    bucket = await keeper.create_bucket(unique("D"), storage="memory")
    await bucket.put("a", b"1")

    async def consume(nc: Client, callback: Any) -> None:
        consumer = await nc.jetstream().stream(name).create_consumer()
        consumer.consume(callback=callback)

    async def watch(nc: Client, callback: Any) -> None:
        (await nc.jetstream().bucket(bucket.name)).watch(callback=callback)

    async def listen(nc: Client, callback: Any) -> None:
        nc.jetstream().events(callback=callback)
        await nc.flush()
        with pytest.raises(errors.StreamNotFoundError):
            await keeper.stream(unique("NONE")).info()
        await keeper.delete_stream((await keeper.create_stream(name=unique("E"))).name)

    for begin in (consume, watch, listen):
        nc = await connect(shared_server.url)
        drained = asyncio.Event()

        async def callback(
            found: object, nc: Client = nc, drained: asyncio.Event = drained
        ) -> None:
            if nc.status is ConnectionStatus.CONNECTED:
                await nc.drain()
                drained.set()

        ended = nc.events()
        await begin(nc, callback)
        async with asyncio.timeout(SOON):
            await drained.wait()
            assert [event async for event in ended][-1] == Closed(None), begin


def test_blocking_drain_after_a_break_is_quick(shared_server: NatsServer, unique: Unique) -> None:
    nc = blocking.connect(shared_server.url)
    sub = nc.subscribe(unique("left"))
    for _ in range(3):
        nc.publish(sub.subject)
    for _ in sub:
        break
    drained = threading.Thread(target=nc.drain)
    drained.start()
    drained.join(SOON)
    assert nc.status is ConnectionStatus.CLOSED


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("end", ["close", "drain"])
async def test_cancelled_close_or_drain_still_closes_client(
    nc: Client, unique: Unique, turns: int, end: str
) -> None:
    sub, running = await stuck_callback(nc, unique("c"))
    await running.wait()
    ended = nc.events()
    ending = asyncio.create_task(getattr(nc, end)())
    for _ in range(turns):
        await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    async with asyncio.timeout(SOON):
        await nc.close()
        assert [event async for event in ended][-1] == Closed(None)
    await nc.drain()  # of a closed client: nothing
    assert nc.status is ConnectionStatus.CLOSED
    assert sub.callback_task is not None
    assert sub.callback_task.done()


async def test_the_slow_consumer_is_reported_again_after_the_queue_was_emptied(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    told: list[JetsparkError] = []
    nc = await connect(shared_server.url, error_callback=told.append)
    sub = nc.subscribe(unique("slow"), pending_msgs_limit=3)
    for episode in (1, 2, 3):
        for _ in range(10):
            await nc.publish(sub.subject)
        await nc.flush()
        await asyncio.sleep(0)
        assert len(told) == episode
        # As the blocking client takes them: nobody ever waits for more.
        assert len(sub.take_queued(3)) == 3
    # One at a time, while more come than are taken: one long story.
    for _ in range(20):
        await nc.publish(sub.subject)
        await nc.publish(sub.subject)
        await nc.flush()
        sub.take_queued(1)
    await asyncio.sleep(0)
    assert len(told) == 4
    assert sub.delivered + sub.dropped + sub.pending_msgs == 70


@pytest.mark.parametrize("what", ["subscription", "consumer", "watch", "events"])
def test_a_callback_that_calls_exit_is_reported_and_the_next_message_comes(
    shared_server: NatsServer, unique: Unique, what: str
) -> None:
    reports: list[JetsparkError] = []
    told, next_came = threading.Event(), threading.Event()

    def tell(error: JetsparkError) -> None:
        reports.append(error)
        told.set()

    def callback(found: JsMsg | object) -> None:
        if told.is_set():
            next_came.set()
        else:
            raise SystemExit(3)

    with blocking.connect(shared_server.url, error_callback=tell) as nc:
        js = nc.jetstream()
        name = unique("X")
        if what == "subscription":
            nc.subscribe(name, callback=callback)
            send: Callable[[], object] = lambda: nc.publish(name)  # noqa: E731
        elif what == "consumer":
            js.create_stream(name=name, subjects=[name], storage="memory")
            js.stream(name).create_consumer().consume(callback=callback)
            send = lambda: js.publish(name)  # noqa: E731
        elif what == "watch":
            bucket = js.create_bucket(name, storage="memory")
            bucket.watch(callback=callback, updates_only=True)
            send = lambda: bucket.put("a", b"1")  # noqa: E731
        else:
            js.events(callback=callback)
            send = lambda: js.delete_stream(js.create_stream(name=unique("E")).name)  # noqa: E731
        nc.flush()
        send()
        assert told.wait(SOON)
        assert "SystemExit" in str(reports[0])
        send()
        assert next_came.wait(SOON)


async def test_a_second_drain_waits_for_the_first_and_a_later_one_does_nothing(
    nc: Client, unique: Unique
) -> None:
    here, go_on = asyncio.Event(), asyncio.Event()

    async def callback(message: Message) -> None:
        here.set()
        await go_on.wait()

    sub = nc.subscribe(unique("twice"), callback=callback)
    await nc.publish(sub.subject)
    async with asyncio.timeout(SOON):
        await here.wait()
        draining = nc.events()
        drains = [asyncio.create_task(nc.drain()) for _ in range(3)]
        assert type(await anext(draining)) is Draining
        with pytest.raises(errors.RequestTimeoutError, match="Draining took"):
            await nc.drain(0.05)
        assert not any(drain.done() for drain in drains)
        go_on.set()
        await asyncio.gather(*drains)
        assert nc.status is ConnectionStatus.CLOSED
        await nc.drain()


async def test_a_second_drain_fails_as_the_first_does(nc: Client, unique: Unique) -> None:
    _, here = await stuck_callback(nc, unique("twice"))
    async with asyncio.timeout(SOON):
        await here.wait()
        drains = [asyncio.create_task(nc.drain(0.05)), asyncio.create_task(nc.drain())]
        ends = await asyncio.gather(*drains, return_exceptions=True)
        assert [type(end) for end in ends] == [errors.RequestTimeoutError] * 2
        assert ends[0] is not ends[1]
        await nc.drain()  # it is closed


async def test_draining_a_cancelled_drain_says_so(nc: Client, unique: Unique) -> None:
    _, here = await stuck_callback(nc, unique("twice"))
    async with asyncio.timeout(SOON):
        await here.wait()
        draining = nc.events()
        first, second = (asyncio.create_task(nc.drain()) for _ in range(2))
        assert type(await anext(draining)) is Draining
        first.cancel()
        with pytest.raises(errors.ConnectionClosedError, match="cancelled"):
            await second


def test_a_second_drain_of_the_blocking_client_waits_for_the_first(
    shared_server: NatsServer, unique: Unique
) -> None:
    nc = blocking.connect(shared_server.url)
    here, go_on = threading.Event(), threading.Event()

    def callback(message: object) -> None:
        here.set()
        go_on.wait(SOON)

    sub = nc.subscribe(unique("twice"), callback=callback)
    nc.publish(sub.subject)
    assert here.wait(SOON)
    with ThreadPoolExecutor(3) as pool:
        drains = [pool.submit(nc.drain) for _ in range(3)]
        go_on.set()
        for drain in drains:
            drain.result(SOON)
    nc.drain()
    assert nc.status is ConnectionStatus.CLOSED


async def test_draining_that_takes_too_long_names_the_subscriptions_it_waits_for(
    nc: Client, unique: Unique
) -> None:
    slow, quick = unique("slow"), unique("quick")
    nc.subscribe(quick, callback=lambda message: None)
    _, began = await stuck_callback(nc, slow)
    await began.wait()
    with pytest.raises(errors.RequestTimeoutError, match=slow) as raised:
        await nc.drain(0.2)
    assert quick not in str(raised.value)
    assert nc.status is ConnectionStatus.CLOSED
