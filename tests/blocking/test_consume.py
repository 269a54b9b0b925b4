"""Consuming without async."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest
from tests.blocking.conftest import callback_ends
from tests.conftest import NeedsServer, Unique

from jetspark import errors
from jetspark.blocking import Client, connect
from jetspark.blocking.jetstream import JsMsg, PullConsumer
from jetspark.server import NatsServer

Filled = Callable[[int], PullConsumer]


@pytest.fixture
def filled(nc: Client, unique: Unique) -> Filled:
    """A consumer of a stream with so many messages."""

    def make(count: int) -> PullConsumer:
        js, name = nc.jetstream(), unique("S")
        js.create_stream(name=name, subjects=[name], storage="memory")
        with js.publisher() as publisher:
            for number in range(count):
                publisher.publish(name, b"%d" % number)
        return js.stream(name).create_consumer(durable_name="c")

    return make


def test_all_messages_in_order_and_acknowledged(filled: Filled) -> None:
    consumer = filled(3000)
    with consumer.consume(max_messages=700) as messages:
        for number in range(3000):
            message = next(messages)
            assert message.data == b"%d" % number
            message.ack()
        with pytest.raises(errors.RequestTimeoutError, match=r"within 0\.05 s"):
            messages.next(0.05)
    assert (messages.active, messages.pending_msgs, messages.error) == (False, 0, None)
    with pytest.raises(errors.ClosedError):
        messages.next(1)
    assert list(messages) == []


def test_what_is_held_is_bounded(filled: Filled) -> None:
    consumer = filled(1000)
    with consumer.consume(max_messages=100) as messages:
        held = 0
        for _ in range(500):
            messages.next(30)
            held = max(held, messages.pending_msgs)
    assert 50 <= held <= 150


def test_several_threads_share_the_messages(filled: Filled) -> None:
    with filled(300).consume(max_messages=20) as messages, ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(lambda _: int(messages.next(30).data), range(300)))
    assert sorted(seen) == list(range(300))


def test_drain_gives_what_has_arrived(filled: Filled) -> None:
    consumer = filled(100)
    messages = consumer.consume(max_messages=50)
    messages.next(30)
    # What the server sends at the very moment at which it hears of the drain may be lost, and
    # comes again after the ack_wait: let all that was asked for come first.
    deadline = time.monotonic() + 30
    info = consumer.info()
    while info.num_waiting or info.num_ack_pending != 1 + messages.pending_msgs:
        assert time.monotonic() < deadline
        info = consumer.info()
    messages.drain(30)
    rest = [int(message.data) for message in messages]
    assert rest == list(range(1, 1 + len(rest)))
    assert consumer.info().num_ack_pending == 1 + len(rest)


def test_a_callback_may_use_the_client_raise_and_drain(filled: Filled, nc: Client) -> None:
    seen: Queue[tuple[int, str]] = Queue()
    assigned = threading.Event()

    def callback(message: JsMsg) -> None:
        message.ack_sync(timeout=30)
        seen.put((int(message.data), threading.current_thread().name))
        if message.data == b"3":
            raise ValueError("three is too many")
        if message.data == b"19":
            assert assigned.wait(30)
            messages.drain()

    consumer = filled(20)
    messages = consumer.consume(callback=callback)
    assigned.set()
    name = "jetspark consumer 'c'"
    assert [seen.get(timeout=30) for _ in range(20)] == [(number, name) for number in range(20)]
    assert "three is too many" in str(nc.last_error)
    with pytest.raises(errors.ConfigError):
        iter(messages)
    with pytest.raises(errors.ConfigError):
        messages.next()
    callback_ends("consumer 'c'")
    assert not messages.active
    assert consumer.info().num_ack_pending == 0


def test_a_callback_may_drain_the_client(shared_server: NatsServer, filled: Filled) -> None:
    consumer = filled(20)
    seen: Queue[int] = Queue()
    with connect(shared_server.url) as other:

        def callback(message: JsMsg) -> None:
            message.ack()
            if message.data == b"4":
                other.drain()
            seen.put(int(message.data))

        bound = other.jetstream().stream(consumer.stream).consumer("c")
        bound.consume(callback=callback)
        assert [seen.get(timeout=30) for _ in range(20)] == list(range(20))
        callback_ends("consumer 'c'")


def test_its_end_reaches_the_thread_that_iterates(filled: Filled) -> None:
    consumer = filled(2)
    with consumer.consume() as messages:
        messages.next(30)
        messages.next(30)
        consumer.delete()
        with pytest.raises(errors.ConsumerDeletedError):
            next(messages)
        assert isinstance(messages.error, errors.ConsumerDeletedError)


def test_closing_the_client_ends_the_iteration(shared_server: NatsServer, filled: Filled) -> None:
    consumer = filled(1)
    with connect(shared_server.url) as other, ThreadPoolExecutor(1) as pool:
        bound = other.jetstream().stream(consumer.stream).consumer("c")
        messages = bound.consume()
        assert messages.next(30).data == b"0"
        waiting = pool.submit(list, messages)
        other.close()
        assert waiting.result(30) == []
        messages.stop()


def test_blocking_consumer_pulls_with_a_priority_group(
    nc: Client, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    js, name = nc.jetstream(), unique("S")
    js.create_stream(name=name, subjects=[name], storage="memory")
    consumer = js.stream(name).create_consumer(
        durable_name="c", priority_groups=["jobs"], priority_policy="pinned_client"
    )
    for number in range(3):
        js.publish(name, b"%d" % number)
    assert [message.data for message in consumer.fetch(1, timeout=5, group="jobs")] == [b"0"]
    consumer.unpin("jobs")
    assert consumer.next(5, group="jobs").data == b"1"
    with consumer.consume(group="jobs") as messages:
        assert messages.next(30).data == b"2"
    with pytest.raises(errors.ConfigError, match="'jobs'"):
        consumer.consume()
