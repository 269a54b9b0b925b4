"""The blocking client from scripts and threads, against a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest
from tests.blocking.conftest import open_requests
from tests.conftest import MakeServer, Unique

from jetspark import PreparedMessage, errors
from jetspark.blocking import Client, Message, connect
from jetspark.blocking.loop_thread import current
from jetspark.connection.events import (
    Closed,
    Connected,
    ConnectionEvent,
    ConnectionStatus,
    Disconnected,
    Reconnected,
)
from jetspark.server import NatsServer


def test_publish_subscribe_request(nc: Client, unique: Unique) -> None:
    subject = unique("echo")
    with nc.subscribe(subject) as sub:
        nc.publish(subject, b"one", reply="to.me", headers={"K": "v"})
        message = sub.next(30)
    assert (message.subject, message.data, message.reply) == (subject, b"one", "to.me")
    assert message.headers is not None
    assert message.headers["K"] == "v"
    nc.subscribe(subject, callback=lambda m: m.respond(m.data.upper(), headers={"A": "b"}))
    answer = nc.request(subject, b"two", timeout=5)
    assert answer.data == b"TWO"
    assert answer.headers is not None
    with pytest.raises(errors.ConfigError):
        answer.respond()


def test_errors_are_those_of_the_asyncio_client(nc: Client, unique: Unique) -> None:
    with pytest.raises(errors.NoRespondersError):
        nc.request(unique("nobody"), timeout=5)
    sub = nc.subscribe(unique("silent"))
    with pytest.raises(errors.RequestTimeoutError):
        nc.request(sub.subject, timeout=0.05)
    with pytest.raises(errors.BadSubjectError):
        nc.publish("a b")
    with pytest.raises(errors.MaxPayloadError):
        nc.publish("a", bytes(nc.max_payload + 1))
    with pytest.raises(errors.ConfigError):
        connect(nc.current_server, nmae="x")  # type: ignore[call-arg]
    with pytest.raises(errors.ServerRefusedError):
        connect("nats://127.0.0.1:1")
    assert open_requests(nc) == 0


def test_prepared_messages_and_many_replies(nc: Client, unique: Unique) -> None:
    subject = unique("many")
    for name in (b"a", b"b", b"c"):
        nc.subscribe(subject, callback=lambda m, name=name: m.respond(name))  # type: ignore[misc]
    assert nc.request_msg(PreparedMessage(subject, b"x"), timeout=5).data in (b"a", b"b", b"c")
    replies = nc.request_many(subject, max_msgs=3, timeout=5)
    assert sorted(reply.data for reply in replies) == [b"a", b"b", b"c"]
    stopped = nc.request_many(subject, timeout=5, sentinel=lambda reply: reply.data > b"").all()
    assert stopped == []
    with nc.request_many(subject, timeout=5) as left_early:
        for reply in left_early:
            assert isinstance(reply, Message)
            break
    sub = nc.subscribe(unique("prepared"))
    nc.publish_msg(PreparedMessage(sub.subject, b"y"))
    assert sub.next(30).data == b"y"
    current().call(lambda: None)  # what was left early has ended by now
    assert open_requests(nc) == 0


def test_one_event_loop_thread_for_all_clients(shared_server: NatsServer, nc: Client) -> None:
    with connect(shared_server.url):
        names = [thread.name for thread in threading.enumerate()]
    assert names.count("jetspark-loop") == 1


async def test_inside_a_running_event_loop(shared_server: NatsServer, unique: Unique) -> None:
    """As in a notebook: the caller's loop stands still meanwhile, ours does not."""
    assert asyncio.get_running_loop() is not current().loop
    with connect(shared_server.url) as nc, nc.subscribe(unique("notebook")) as sub:
        nc.publish(sub.subject, b"cell")
        assert sub.next(30).data == b"cell"
        assert nc.rtt() < 5


def test_use_in_the_loop_thread_is_refused(nc: Client) -> None:
    """It would wait for itself. No callback runs there; an option's function does."""

    def use(call: Callable[[], object]) -> None:
        with pytest.raises(errors.ConfigError, match="own event loop's thread"):
            current().call(call)

    use(nc.flush)
    use(nc.connect)
    use(lambda: nc.request("a"))
    use(lambda: nc.subscribe("a"))
    nc._buffer.crowded = True
    use(lambda: nc.publish("a"))
    nc._buffer.crowded = False
    nc.flush()


def test_events_and_callbacks_may_use_the_client(make_server: MakeServer) -> None:
    server = make_server()
    seen: Queue[ConnectionEvent] = Queue()
    reported: Queue[Exception] = Queue()

    def on_event(event: ConnectionEvent) -> None:
        if isinstance(event, Reconnected):
            nc.flush()
        seen.put(event)

    nc = connect(
        server.url,
        event_callback=on_event,
        error_callback=reported.put,
        reconnect_wait=0.05,
        reconnect_jitter=0.0,
    )
    events = nc.events()
    assert isinstance(seen.get(timeout=30), Connected)
    assert nc.status is ConnectionStatus.CONNECTED
    server.kill()
    assert isinstance(next(events), Disconnected)
    assert isinstance(reported.get(timeout=30), errors.JetsparkError)
    server.start()
    assert isinstance(next(events), Reconnected)
    assert isinstance(seen.get(timeout=30), Disconnected)
    assert isinstance(seen.get(timeout=30), Reconnected)
    nc.report(errors.JetsparkError("ours"))
    assert str(nc.last_error) == "ours"
    nc.close()
    assert [type(event) for event in events] == [Closed]
    assert isinstance(seen.get(timeout=30), Closed)
    stats = nc.stats
    assert (stats.reconnects, nc.is_connected, nc.current_server) == (1, False, None)


def test_close_ends_what_waits(shared_server: NatsServer, unique: Unique) -> None:
    nc = connect(shared_server.url)
    silent = nc.subscribe(unique("silent"))
    iterated = nc.subscribe(unique("iterated"))

    def ask() -> object:
        with pytest.raises(errors.ConnectionClosedError):
            nc.request(silent.subject, timeout=30)
        return "asked"

    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask)
        listed = pool.submit(lambda: list(iterated))
        silent.next(30)  # the request is on its way
        nc.close()
        assert asked.result(30) == "asked"
        assert listed.result(30) == []
    nc.close()
    for call in (nc.flush, nc.rtt, lambda: nc.publish("a"), lambda: nc.request("a")):
        with pytest.raises(errors.ConnectionClosedError):
            call()


def test_drain_lets_callbacks_finish_and_answer(shared_server: NatsServer, unique: Unique) -> None:
    subject = unique("drain")
    go = threading.Event()
    nc = connect(shared_server.url)

    def answer(message: Message) -> None:
        assert go.wait(30)
        message.respond(message.data)

    with connect(shared_server.url) as other, other.subscribe(other.new_inbox()) as inbox:
        nc.subscribe(subject, callback=answer)
        nc.flush()
        for number in range(100):
            other.publish(subject, b"%d" % number, reply=inbox.subject)
        other.flush()
        nc.flush()
        with ThreadPoolExecutor(1) as pool:
            drained = pool.submit(nc.drain)
            while nc.status is ConnectionStatus.CONNECTED:
                assert not drained.done()
            go.set()
            drained.result(30)
        assert [inbox.next(30).data for _ in range(100)] == [b"%d" % n for n in range(100)]
    assert nc.status is ConnectionStatus.CLOSED


def test_drain_in_a_callback_does_not_wait(shared_server: NatsServer, unique: Unique) -> None:
    nc = connect(shared_server.url)
    events = nc.events()
    seen: Queue[bytes] = Queue()

    def last(message: Message) -> None:
        if message.data == b"0":
            nc.drain()
        seen.put(message.data)

    sub = nc.subscribe(unique("last"), callback=last)
    for number in range(3):
        nc.publish(sub.subject, b"%d" % number)
    assert isinstance(list(events)[-1], Closed)
    assert [seen.get(timeout=30) for _ in range(3)] == [b"0", b"1", b"2"]
    assert nc.last_error is None
