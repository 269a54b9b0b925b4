"""Subscriptions of the blocking client: batches, threads, callbacks, endings."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest
from tests.blocking.conftest import NoteCalls, callback_ends
from tests.conftest import Unique

from jetspark import errors
from jetspark.blocking import Client, Message, connect
from jetspark.connection.locks import locked
from jetspark.server import NatsServer


def test_iterating_takes_many_messages_for_a_change_of_thread(
    nc: Client, unique: Unique, note_calls: NoteCalls
) -> None:
    sub = nc.subscribe(unique("batches"), max_msgs=5000)
    for number in range(5000):
        nc.publish(sub.subject, b"%d" % number)
    nc.flush()
    assert (sub.pending_msgs, sub.delivered) == (5000, 0)
    changes = note_calls("run")
    first = sub.next()
    assert (first.data, sub.pending_msgs, sub.delivered) == (b"0", 4999, 1)
    assert sub.pending_bytes == sum(len(b"%d" % number) for number in range(1, 5000))
    assert [message.data for message in sub] == [b"%d" % number for number in range(1, 5000)]
    assert len(changes) <= 10
    assert (sub.pending_msgs, sub.pending_bytes, sub.delivered) == (0, 0, 5000)
    assert not sub.active


def test_several_threads_share_a_subscription(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("shared"), max_msgs=2000)

    def take() -> list[bytes]:
        return [message.data for message in sub]

    with ThreadPoolExecutor(4) as pool:
        takers = [pool.submit(take) for _ in range(4)]
        for number in range(2000):
            nc.publish(sub.subject, b"%d" % number)
        taken = [data for taker in takers for data in taker.result(20)]
    assert sorted(taken, key=int) == [b"%d" % number for number in range(2000)]


def test_waiting_threads_share_messages_that_one_of_them_took(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("brought"))
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(sub.next, 10) for _ in range(3)]
        for number in range(3):  # in one piece: one thread takes all three from the loop
            nc.publish(sub.subject, b"%d" % number)
        assert sorted(future.result(30).data for future in waiting) == [b"0", b"1", b"2"]


def test_next_with_a_timeout(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("next"))
    with pytest.raises(errors.RequestTimeoutError, match=r"within 0\.02 s"):
        sub.next(0.02)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sub.next)
        # Behind a thread that waits for ever, the own timeout still counts.
        while locked(sub._turn, lambda: True, missed=False):
            pass
        with pytest.raises(errors.RequestTimeoutError, match=r"within 0\.02 s"):
            sub.next(0.02)
        nc.publish(sub.subject)
        assert first.result(30).data == b""
    sub.unsubscribe()
    with pytest.raises(errors.ClosedError):
        sub.next(1)
    with pytest.raises(errors.ClosedError):
        sub.unsubscribe()
    assert list(sub) == []


def test_unsubscribe_discards_what_was_taken_ahead(nc: Client, unique: Unique) -> None:
    with nc.subscribe(unique("ahead")) as sub:
        for _ in range(10):
            nc.publish(sub.subject)
        nc.flush()
        sub.next(30)
        assert sub.pending_msgs == 9
    assert (sub.active, sub.pending_msgs) == (False, 0)


def test_unsubscribe_after_messages(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("after"))
    sub.unsubscribe(3)
    for number in range(5):
        nc.publish(sub.subject, b"%d" % number)
    assert [message.data for message in sub] == [b"0", b"1", b"2"]


def test_queue_groups_and_slow_consumers(nc: Client, unique: Unique) -> None:
    subject = unique("queue")
    members = [nc.subscribe(subject, queue="q", pending_msgs_limit=5) for _ in range(2)]
    for _ in range(100):
        nc.publish(subject)
    nc.flush()
    assert members[0].queue == "q"
    assert sum(member.pending_msgs + member.dropped for member in members) == 100
    assert isinstance(nc.last_error, errors.SlowConsumerError)


def test_a_callback_may_use_the_client_and_raise(nc: Client, unique: Unique) -> None:
    seen: Queue[tuple[bytes, str]] = Queue()
    helper = nc.subscribe(unique("helper"), callback=lambda m: m.respond(b"help"))

    def callback(message: Message) -> None:
        if message.data == b"1":
            raise ValueError("one is too many")
        answer = nc.request(helper.subject, timeout=5)
        seen.put((message.data + answer.data, threading.current_thread().name))

    sub = nc.subscribe(unique("callback"), callback=callback)
    for number in range(3):
        nc.publish(sub.subject, b"%d" % number)
    name = f"jetspark subscription {sub.subject!r}"
    assert [seen.get(timeout=30) for _ in range(2)] == [(b"0help", name), (b"2help", name)]
    assert "one is too many" in str(nc.last_error)
    assert sub.active
    with pytest.raises(errors.ConfigError, match="receives every item"):
        iter(sub)
    with pytest.raises(errors.ConfigError, match="receives every item"):
        sub.next(1)


def test_the_callback_s_thread_ends_with_the_subscription(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("ends"), callback=lambda m: None, max_msgs=2)
    nc.publish(sub.subject)
    nc.publish(sub.subject)
    sub.drain(30)
    callback_ends(f"subscription {sub.subject!r}")


def test_drain_waits_for_the_callback(nc: Client, unique: Unique) -> None:
    go, seen = threading.Event(), []

    def callback(message: Message) -> None:
        assert go.wait(30)
        seen.append(message.data)

    sub = nc.subscribe(unique("drained"), callback=callback)
    for number in range(50):
        nc.publish(sub.subject, b"%d" % number)
    with pytest.raises(errors.RequestTimeoutError):
        sub.drain(0.05)
    go.set()
    sub.drain(30)
    assert len(seen) == 50


def test_drain_in_its_own_callback(nc: Client, unique: Unique) -> None:
    seen: Queue[bytes] = Queue()
    published = threading.Event()

    def callback(message: Message) -> None:
        if message.data == b"0":
            assert published.wait(30)
            sub.drain()
        seen.put(message.data)

    sub = nc.subscribe(unique("own"), callback=callback)
    for number in range(3):
        nc.publish(sub.subject, b"%d" % number)
    nc.flush()
    published.set()
    assert [seen.get(timeout=30) for _ in range(3)] == [b"0", b"1", b"2"]


def test_close_leaves_a_running_callback_alone(shared_server: NatsServer, unique: Unique) -> None:
    nc = connect(shared_server.url)
    running, go, seen = threading.Event(), threading.Event(), []

    def callback(message: Message) -> None:
        running.set()
        assert go.wait(30)
        seen.append(message.data)

    sub = nc.subscribe(unique("left"), callback=callback)
    for number in range(3):
        nc.publish(sub.subject, b"%d" % number)
    assert running.wait(30)
    nc.close()
    go.set()
    callback_ends(f"subscription {sub.subject!r}")
    assert seen == [b"0"]
