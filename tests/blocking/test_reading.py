"""Ordered and push consumers without async."""

from __future__ import annotations

import threading

import pytest
from tests.blocking.eventually import eventually

from jetspark import errors
from jetspark.blocking import Client, JetStream
from jetspark.blocking.jetstream import JsMsg

pytestmark = pytest.mark.server


@pytest.fixture
def filled(js: JetStream, stream: str) -> str:
    """A stream with 3000 messages."""
    with js.publisher() as publisher:
        for number in range(1, 3001):
            publisher.publish(f"{stream}.a", b"%d" % number)
    return stream


def until_gone(js: JetStream, stream: str) -> None:
    eventually(lambda: js.stream(stream).consumer_names().all() == [])


def test_an_ordered_consumer_is_iterated(js: JetStream, filled: str) -> None:
    with js.stream(filled).ordered(max_messages=300, heartbeat=0.5) as messages:
        assert [messages.next(30).seq for _ in range(3)] == [1, 2, 3]
        for msg in messages:
            if msg.seq == 1000:
                break
        js.stream(filled).delete_consumer(messages.name)
        for seq in range(1001, 3001):
            assert next(messages).seq == seq
        assert messages.last_error is not None
        assert messages.info().name == messages.name
        assert messages.stream == filled
        with pytest.raises(errors.RequestTimeoutError):
            messages.next(0.01)
    assert not messages.active
    until_gone(js, filled)


def test_leaving_a_loop_ends_an_ordered_consumer(js: JetStream, filled: str) -> None:
    for msg in js.stream(filled).ordered(start_seq=7):
        assert msg.seq == 7
        break
    until_gone(js, filled)
    with pytest.raises(errors.StreamNotFoundError):
        next(iter(js.stream("nothing").ordered()))


def test_an_ordered_consumer_calls_back(js: JetStream, filled: str) -> None:
    got: list[int] = []
    done = threading.Event()

    def take(msg: JsMsg) -> None:
        got.append(msg.seq)
        if msg.seq == 3000:
            done.set()

    messages = js.stream(filled).ordered(callback=take)
    assert done.wait(30)
    assert got == list(range(1, 3001))
    messages.stop()
    until_gone(js, filled)


def test_a_push_consumer_is_iterated(js: JetStream, nc: Client, filled: str) -> None:
    consumer = js.stream(filled).create_push_consumer(
        durable_name="p", deliver_subject=nc.new_inbox(), max_ack_pending=3000
    )
    with consumer.subscribe() as messages:
        for seq, msg in enumerate(messages, 1):
            assert msg.seq == seq
            msg.ack()
            if seq == 2999:
                break
        messages.next(30).ack_sync()
        assert (messages.pending_msgs, messages.dropped) == (0, 0)
        with pytest.raises(errors.RequestTimeoutError):
            messages.next(0.01)
    assert not messages.active
    assert consumer.info().num_ack_pending == 0


def test_a_push_consumer_calls_back(js: JetStream, nc: Client, filled: str) -> None:
    done = threading.Event()
    got: list[int] = []

    def take(msg: JsMsg) -> None:
        got.append(msg.seq)
        if msg.seq == 3000:
            messages.drain()  # in the callback itself: does not wait
            done.set()

    consumer = js.stream(filled).create_push_consumer(
        deliver_subject=nc.new_inbox(), ack_policy="none", deliver_policy="all"
    )
    messages = consumer.subscribe(callback=take)
    assert done.wait(30)
    assert got == list(range(1, 3001))
