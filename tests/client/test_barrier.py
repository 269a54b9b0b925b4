"""`Client.barrier`: callbacks have handled what had arrived."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually

from jetspark import Message, blocking
from jetspark.errors import ConfigError, ConnectionClosedError, RequestTimeoutError
from jetspark.full_client import Client, JetStream, connect
from jetspark.server import NatsServer


async def test_a_barrier_waits_for_what_has_arrived_and_for_no_more(
    nc: Client, unique: Unique
) -> None:
    first, second = unique("barrier"), unique("barrier")
    may_go_on = asyncio.Semaphore(0)
    handled: list[bytes] = []

    async def slowly(message: Message) -> None:
        await may_go_on.acquire()
        handled.append(message.data)

    nc.subscribe(first, callback=slowly)
    nc.subscribe(second, callback=lambda message: handled.append(message.data))
    for number in range(3):
        await nc.publish(first, b"%d" % number)
    await nc.publish(second, b"other")
    await nc.flush()
    barrier = asyncio.ensure_future(nc.barrier())
    await asyncio.sleep(0)  # it begins
    await nc.publish(first, b"later")
    await nc.flush()  # the callback never finds its queue empty
    for _ in range(3):
        assert not barrier.done()
        may_go_on.release()
        await nc.flush()
    await asyncio.wait_for(barrier, 30)
    assert sorted(handled) == [b"0", b"1", b"2", b"other"]
    may_go_on.release()
    await nc.barrier()
    assert handled[-1] == b"later"
    await nc.barrier()  # nothing waits


async def test_barriers_of_several_tasks_are_passed_in_order(nc: Client, unique: Unique) -> None:
    subject = unique("barrier")
    may_go_on = asyncio.Semaphore(0)
    handled: list[bytes] = []

    async def slowly(message: Message) -> None:
        await may_go_on.acquire()
        handled.append(message.data)

    nc.subscribe(subject, callback=slowly)
    passed: list[int] = []

    async def wait(number: int) -> None:
        await nc.barrier()
        assert len(handled) >= number
        passed.append(number)

    tasks = []
    for number in range(1, 5):
        await nc.publish(subject, b"%d" % number)
        await nc.flush()
        tasks.append(asyncio.ensure_future(wait(number)))
        await asyncio.sleep(0)  # it begins
    tasks[1].cancel()
    for _ in range(4):
        may_go_on.release()
    await asyncio.wait(tasks)
    assert passed == [1, 3, 4]


async def test_errors_and_unsubscribing_hold_up_no_barrier(nc: Client, unique: Unique) -> None:
    subject, left = unique("barrier"), unique("barrier")

    def fail(message: Message) -> None:
        raise ValueError("on purpose")

    nc.subscribe(subject, callback=fail)
    started, never = asyncio.Event(), asyncio.Event()

    async def stuck(message: Message) -> None:
        started.set()
        await never.wait()

    leaving = nc.subscribe(left, callback=stuck)
    for name in (subject, subject, left, left):
        await nc.publish(name)
    await started.wait()
    barrier = asyncio.ensure_future(nc.barrier())
    await asyncio.sleep(0)
    leaving.unsubscribe()
    never.set()
    await asyncio.wait_for(barrier, 30)
    assert "on purpose" in str(nc.last_error)


async def test_consumers_are_waited_for(js: JetStream, unique: Unique) -> None:
    name = unique("BARRIER")
    await js.create_stream(name=name, subjects=[name])
    for number in range(5):
        await js.publish(name, b"%d" % number)
    consumer = await js.stream(name).create_consumer(name="c")
    handled: list[int] = []
    arrived, may_go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: Any) -> None:
        arrived.set()
        await may_go_on.wait()
        handled.append(message.seq)
        await message.ack()

    async with consumer.consume(callback=handle) as consuming:
        await arrived.wait()

        async def the_others_came() -> bool:
            return consuming.pending_msgs == 4

        await eventually(the_others_came)
        barrier = asyncio.ensure_future(js.client.barrier())
        await asyncio.sleep(0)
        assert not barrier.done()
        may_go_on.set()
        await asyncio.wait_for(barrier, 30)
        assert handled == [1, 2, 3, 4, 5]


async def test_a_barrier_ends_with_its_timeout_or_with_the_client(
    shared_server: NatsServer, unique: Unique
) -> None:
    subject = unique("barrier")
    never, called = asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    async def stuck(message: Message) -> None:
        try:
            await nc.barrier()
        except ConfigError as error:
            refused.append(error)
        called.set()
        await never.wait()

    async with connect(shared_server.url) as nc:
        nc.subscribe(subject, callback=stuck)
        await nc.publish(subject)
        await called.wait()
        assert "another task" in str(refused[0])
        with pytest.raises(RequestTimeoutError, match="1 callbacks"):
            await nc.barrier(0.01)
        barrier = asyncio.ensure_future(nc.barrier())
        await asyncio.sleep(0)
        await nc.close()
        with pytest.raises(ConnectionClosedError):
            await barrier
        with pytest.raises(ConnectionClosedError):
            await nc.barrier()


def test_blocking_barrier_waits_for_callbacks_in_threads(
    shared_server: NatsServer, unique: Unique
) -> None:
    subject = unique("barrier")
    handled: list[bytes] = []
    refused: list[BaseException] = []
    may_go_on, called = threading.Event(), threading.Event()
    with blocking.connect(shared_server.url) as nc:

        def slowly(message: blocking.Message) -> None:
            if message.data == b"0":
                try:
                    nc.barrier()
                except ConfigError as error:
                    refused.append(error)
                called.set()
                assert may_go_on.wait(30)
            handled.append(message.data)

        nc.subscribe(subject, callback=slowly)
        for number in range(2000):  # more than come with one switch of threads
            nc.publish(subject, b"%d" % number)
        nc.flush()
        assert called.wait(30)
        with pytest.raises(RequestTimeoutError):
            nc.barrier(0.01)
        may_go_on.set()
        nc.barrier(30)
        assert handled == [b"%d" % number for number in range(2000)]
        assert "another task or thread" in str(refused[0])
