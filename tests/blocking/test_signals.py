"""Exceptions of a signal handler, as of Ctrl-C, at any moment: what goes on afterwards works."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.blocking import Client
from jetspark.connection.locks import locked
from jetspark.errors import JetsparkError

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here"),
    # Python swallows what is raised while it forgets an object.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


Interrupt = Callable[[Callable[[], object]], bool]


class Interrupted(BaseException):
    """Raised by the signal handler."""


@pytest.fixture
def interrupted() -> Iterator[Interrupt]:
    """Calls a function, and interrupts it at a random moment; returns whether it was."""
    moments = random.Random(1)
    armed = False

    def handler(*_: object) -> None:
        if armed:
            raise Interrupted

    def call(function: Callable[[], object]) -> bool:
        nonlocal armed
        armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.random() * 0.0006 + 1e-6)
            function()
            armed = False
        except Interrupted:
            armed = False
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, handler)
    yield call
    signal.signal(signal.SIGALRM, before)


@contextmanager
def flood(nc: Client, subject: str) -> Iterator[None]:
    """Messages on `subject`, one after the other."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.0005):
            nc.publish(subject, b"x")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_lock_that_others_have_is_left_to_them() -> None:
    lock = threading.RLock()
    results = []

    def other() -> None:
        results.append(locked(lock, lambda: "work", missed="missed"))
        results.append(locked(lock, lambda: "work", missed="missed", timeout=0.01))

    with lock:
        assert locked(lock, lambda: "again", missed="missed") == "again"
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert results == ["missed", "missed"]
    assert locked(lock, lambda: "work", missed="missed") == "work"


def test_requests_go_on(nc: Client, interrupted: Interrupt, unique: Unique) -> None:
    subject = unique("echo")
    nc.subscribe(subject, callback=lambda message: message.respond(message.data))

    def ask() -> None:
        for _ in range(30):
            nc.request(subject, b"x", timeout=10)

    assert sum(interrupted(ask) for _ in range(800)) > 250
    assert nc.request(subject, b"y", timeout=10).data == b"y"


@pytest.mark.parametrize("kind", ["subscribe", "consume", "ordered"])
def test_next_goes_on(nc: Client, interrupted: Interrupt, unique: Unique, kind: str) -> None:
    name, js = unique("S"), nc.jetstream()
    js.create_stream(name=name, subjects=[name], storage="memory", max_msgs=10)
    messages: Any
    if kind == "subscribe":
        messages = nc.subscribe(name, pending_msgs_limit=50)
    elif kind == "consume":
        messages = js.stream(name).create_consumer(name="c", ack_policy="none").consume()
    else:
        messages = js.stream(name).ordered()

    def take() -> None:
        for _ in range(10):
            messages.next(timeout=10)

    with flood(nc, name):
        assert sum(interrupted(take) for _ in range(300)) > 100
        assert messages.next(timeout=10).data == b"x"


@pytest.mark.parametrize("window", [10, 1000])
def test_acks_stay_apart(nc: Client, interrupted: Interrupt, unique: Unique, window: int) -> None:
    name, js = unique("S"), nc.jetstream()
    js.create_stream(name=name, subjects=[name], storage="memory")
    acks = []
    interrupts = 0
    with js.publisher(window, timeout=5, retry_for=0, raise_failures=False) as publisher:
        for number in range(200):

            def submit(number: int = number) -> None:
                for place in range(30):
                    data = b"%d-%d" % (number, place)
                    future = publisher.publish_async(name, data)
                    acks.append((data, future))

            interrupts += interrupted(submit)
    assert interrupts > 20
    stored = {message.seq: message.data for message in messages_of(js, name)}
    assert [stored[future.result(10).seq] for _, future in acks] == [data for data, _ in acks]
    assert publisher.pending == 0
    assert publisher.acked == len(stored)
    assert publisher.sent - publisher.acked <= interrupts


def messages_of(js: Any, name: str) -> Iterator[Any]:
    for message in js.stream(name).ordered():
        yield message
        if message.metadata.pending == 0:
            return


def test_a_fast_ingest_goes_on_or_ends(nc: Client, interrupted: Interrupt, unique: Unique) -> None:
    name, js = unique("S"), nc.jetstream()
    js.create_stream(name=name, subjects=[name], storage="memory", allow_batched=True)
    whole = 0
    for _ in range(20):

        def add(ingest: Any) -> None:
            for _ in range(100):
                ingest.publish(name, b"x")

        with suppress(JetsparkError), js.fast_ingest(ack_every=5, timeout=5) as ingest:
            for _ in range(3):
                interrupted(partial(add, ingest))
            ack = ingest.commit()
            # Without a failure everything is stored.
            whole += not ingest.failed
            assert ingest.failed or (ack is not None and ingest.acked == ack.count)
    assert whole > 0
    assert nc.rtt() > 0
