"""The campaign "leaving" in small."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.soak.leaving import KINDS, NOT_LEFT, public_iterators, run

from jetspark import Client, ClosedError, JetStream, RequestTimeoutError, blocking
from jetspark.jetstream import ConsumerMessages
from jetspark.server import NatsServer

Unique = Callable[[str], str]


def test_every_public_iterator_is_left_in_the_campaign() -> None:
    asyncio_ones = public_iterators("jetspark", "__aiter__")
    blocking_ones = public_iterators("jetspark.blocking", "__iter__") - NOT_LEFT.keys()
    assert asyncio_ones == blocking_ones == KINDS.keys()


@pytest.mark.server
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # unclosed, at last
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_an_iterator_that_is_left_in_any_way_leaves_nothing_at_the_server(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.11")  # groups
    figures = await run(1, at_once=True)
    assert figures.wrong == []


async def until_ended(messages: ConsumerMessages) -> None:
    """The end of an asynchronous generator that was left is a task of the loop."""
    while messages.active:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_loop_over_consume_that_was_left_gives_no_message_to_a_dead_buffer(
    js: JetStream, stream: str
) -> None:
    for number in range(200):
        await js.publish(f"{stream}.a", b"%d" % number)
    consumer = await js.stream(stream).create_consumer(name="c", ack_wait=0.2, max_deliver=3)
    kept = consumer.consume(max_messages=100)
    async for message in kept:
        await message.ack_sync()
        break
    await until_ended(kept)
    with pytest.raises(ClosedError, match="loop over it was left"):
        async for _ in kept:
            pass
    await asyncio.sleep(0.5)  # twice ack_wait
    rest = list(await consumer.fetch(199, timeout=30))
    assert len(rest) == 199
    assert max(message.metadata.deliveries for message in rest) == 2


async def test_a_loop_that_is_left_while_another_task_loops_does_not_end_consuming(
    js: JetStream, stream: str
) -> None:
    consumer = await js.stream(stream).create_consumer(name="c")
    messages = consumer.consume()
    got: list[int] = []

    async def take(count: int) -> None:
        async for message in messages:
            got.append(message.seq)
            await message.ack()
            if (count := count - 1) == 0:
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(take(1))
        tasks.create_task(take(4))
        for _ in range(5):
            await js.publish(f"{stream}.a")
    assert sorted(got) == [1, 2, 3, 4, 5]
    await until_ended(messages)


async def test_a_task_that_waits_keeps_its_subscription(nc: Client, unique: Unique) -> None:
    subject, got = unique("waits"), asyncio.Queue[Any]()

    async def wait() -> None:
        async for message in nc.subscribe(subject):
            got.put_nowait(message.data)

    # Nothing refers to the task but what it waits for.
    asyncio.create_task(wait())  # noqa: RUF006
    await nc.flush()
    gc.collect()
    await nc.publish(subject, b"here")
    assert await asyncio.wait_for(got.get(), 10) == b"here"


async def test_a_subscription_that_was_never_read_stays(nc: Client, unique: Unique) -> None:
    nc.subscribe(subject := unique("interest"))
    gc.collect()
    await nc.flush()
    with pytest.raises(TimeoutError):  # not: no responders
        await nc.request(subject, timeout=0.05)


async def test_messages_that_nobody_can_read_are_not_queued(nc: Client, unique: Unique) -> None:
    dropped, kept = nc.subscribe(unique("dropped")), nc.subscribe(unique("kept"))
    subjects, queues = (dropped.subject, kept.subject), (dropped._frames, kept._frames)

    async def publish() -> list[int]:
        for subject in subjects * 2:
            await nc.publish(subject)
        await nc.flush()
        return [len(queue) for queue in queues]

    assert await publish() == [2, 2]
    del dropped
    gc.collect()
    await nc.flush()
    assert await publish() == [0, 4]
    assert (await kept.next(10)).subject == subjects[1]


def test_messages_that_no_thread_can_read_are_not_queued(
    shared_server: NatsServer, unique: Unique
) -> None:
    with blocking.connect(shared_server.url) as nc:
        dropped = nc.subscribe(subject := unique("dropped"))
        queue = dropped._inner._frames
        nc.publish(subject)
        nc.flush()
        assert len(queue) == 1
        del dropped
        gc.collect()
        nc.flush()
        nc.publish(subject)
        nc.flush()
        assert not queue
        with pytest.raises(RequestTimeoutError):  # not: no responders
            nc.request(subject, timeout=0.05)


def test_a_child_process_that_drops_an_iterator_leaves_the_parents_alone(
    shared_server: NatsServer, unique: Unique, tmp_path: Path
) -> None:
    with blocking.connect(shared_server.url) as nc:
        subscription = nc.subscribe(unique("forked"))
        nc.publish(subscription.subject, b"first")
        assert subscription.next(10).data == b"first"
        if (child := os.fork()) == 0:
            del subscription
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        nc.publish(subscription.subject, b"second")
        assert subscription.next(10).data == b"second"
