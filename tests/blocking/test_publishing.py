"""Publishing from threads: order, wake-ups, back-pressure, outages; errors in the caller."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from queue import Queue
from types import SimpleNamespace
from typing import cast

import pytest
from tests.blocking.conftest import NoteCalls, in_threads, stalled
from tests.conftest import MakeServer, Unique

from jetspark import errors
from jetspark.blocking import Client, connect
from jetspark.blocking.loop_thread import LoopThread, current
from jetspark.blocking.publish_buffer import CROWDED, PublishBuffer
from jetspark.connection.events import ConnectionStatus, Disconnected, Reconnected
from jetspark.connection.outbox import Outbox
from jetspark.connection.supervisor import Supervisor
from jetspark.server import NatsServer
from jetspark.wire.frames import pub


def test_publishes_share_wake_ups(nc: Client, unique: Unique, note_calls: NoteCalls) -> None:
    sub = nc.subscribe(unique("many"), max_msgs=20_000)
    wake_ups = note_calls("post")
    payload = bytes(100)
    for _ in range(20_000):
        nc.publish(sub.subject, payload)
    assert len(wake_ups) < 1000
    assert nc.stats.out_msgs == 20_000
    assert sum(1 for _ in sub) == 20_000


def test_threads_keep_their_own_order(nc: Client, unique: Unique) -> None:
    subject = unique("order")
    sub = nc.subscribe(subject + ".*", max_msgs=8 * 2000)

    def publish(thread: int) -> None:
        for number in range(2000):
            nc.publish(f"{subject}.{thread}", b"%d" % number)

    in_threads(8, publish)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for message in sub:
        seen[message.subject].append(int(message.data))
    assert list(seen.values()) == [list(range(2000))] * 8


def test_publish_before_any_other_call_of_a_thread(nc: Client, unique: Unique) -> None:
    """What is published is on its way before a later request, subscription or flush is."""
    subject = unique("before")
    with connect(nc.current_server) as other, other.subscribe(subject) as sub:
        other.flush()
        for number in range(100):
            nc.publish(subject, b"%d" % number)
            with pytest.raises(errors.RequestTimeoutError):
                nc.request(subject, b"asked", timeout=0.0001)
        nc.flush()
        other.flush()
        seen = [sub.next(30).data for _ in range(sub.pending_msgs)]
    plain = [data for data in seen if data != b"asked"]
    assert plain == [b"%d" % number for number in range(100)]
    assert all(one != b"asked" or seen[at - 1] != b"asked" for at, one in enumerate(seen))


def test_a_publisher_waits_while_the_network_takes_nothing(make_server: MakeServer) -> None:
    server = make_server()
    payload = bytes(100_000)
    progress: list[int] = []
    sizes: list[int] = []
    with connect(server.url, pending_size=64 * 1024 * 1024) as nc:
        server.pause()
        try:

            def publish() -> None:
                for number in range(400):
                    nc.publish("a", payload)
                    progress.append(number)
                    sizes.append(nc._buffer._size)

            publisher = threading.Thread(target=publish)
            publisher.start()
            while not stalled(nc):
                pass
            assert len(progress) < 400
        finally:
            server.resume()
        publisher.join(20)
        nc.flush()
        assert len(progress) == 400
        assert max(sizes) < CROWDED + 2 * len(payload)


def test_publish_nowait_raises_where_publish_waits(make_server: MakeServer) -> None:
    server = make_server()
    with connect(server.url, pending_size=300_000) as nc:
        server.pause()
        try:
            with pytest.raises(errors.OutboundBufferError):
                for _ in range(1000):
                    nc.publish_nowait("a", bytes(100_000))
        finally:
            server.resume()
        nc.flush()
        nc.publish("a")


def test_an_outage_keeps_the_order_and_its_limit(make_server: MakeServer) -> None:
    server = make_server()
    nc = connect(server.url, pending_size=1000, reconnect_wait=0.01, reconnect_jitter=0.0)
    sub = nc.subscribe("a")
    events = nc.events()
    server.kill()
    assert isinstance(next(events), Disconnected)
    taken = 0
    with pytest.raises(errors.OutboundBufferError, match="pending_size is 1000"):
        while True:
            nc.publish("a", b"%d" % taken)
            taken += 1
            if taken % 10 == 0:
                current().call(lambda: None)  # a part is in the outbox by now
    frame = len(b"PUB a 2\r\n10\r\n")
    assert (1000 - 30) // frame <= taken <= 1000 // (frame - 1)
    server.start()
    assert isinstance(next(events), Reconnected)
    assert [int(sub.next(30).data) for _ in range(taken)] == list(range(taken))
    nc.close()


def test_what_was_accepted_when_the_link_broke_is_not_lost() -> None:
    """The buffer may hold more than the outbox takes without a link."""
    thread = current()
    written: list[bytes] = []
    outbox = thread.call(lambda: Outbox(2000, thread.loop))
    outbox.open()
    link = SimpleNamespace(
        status=ConnectionStatus.CONNECTED,
        outbox=outbox,
        require_open=lambda: None,
        present=None,
        info=None,
        on_error=lambda error: None,
    )
    buffer = PublishBuffer(thread, cast(Supervisor, link), 2000)
    frames = [b"%04d" % number for number in range(1000)]
    # In the loop's thread, so that all of it is handed over in one piece.
    thread.call(lambda: list(map(buffer.put, frames)))
    thread.call(lambda: None)  # it was handed over by now, and refused
    assert outbox.size == 0
    link.status = ConnectionStatus.RECONNECTING
    with pytest.raises(errors.OutboundBufferError):
        buffer.put(b"one more")
    link.status = ConnectionStatus.CONNECTED
    buffer.put(b"last")
    thread.call(outbox.attach, written.append)
    thread.call(buffer.link_changed)
    thread.call(outbox.flush)
    assert b"".join(written) == b"".join(frames) + b"last"
    thread.call(outbox.close, None)


def test_a_signal_handler_may_publish_in_the_middle_of_a_publish(
    nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = nc.subscribe(unique("signal"))
    previous = signal.signal(signal.SIGUSR1, lambda *_: nc.publish(sub.subject, b"from handler"))
    post = LoopThread.post

    def interrupted(self: LoopThread, call: Callable[[], object]) -> None:
        """Called with the buffer's lock held."""
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        post(self, call)

    try:
        monkeypatch.setattr(LoopThread, "post", interrupted)
        nc.publish(sub.subject, b"outer")
        assert {sub.next(30).data, sub.next(30).data} == {b"outer", b"from handler"}
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_close_and_drain_send_what_waits(shared_server: NatsServer, unique: Unique) -> None:
    subject = unique("close")
    with connect(shared_server.url) as other, other.subscribe(subject) as sub:
        other.flush()
        for end in (Client.close, Client.drain):
            nc = connect(shared_server.url)
            for _ in range(5000):
                nc.publish(subject, bytes(200))
            end(nc)
            for _ in range(5000):
                sub.next(30)


def test_a_frame_larger_than_the_buffer_passes(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("large"))
    nc.publish(sub.subject, bytes(CROWDED * 2))
    nc.publish(sub.subject, b"after")
    assert len(sub.next(30).data) == CROWDED * 2
    assert sub.next(30).data == b"after"


def test_a_blocked_publisher_raises_that_the_connection_is_closed(make_server: MakeServer) -> None:
    server = make_server()
    nc = connect(server.url, pending_size=1 << 30)
    server.pause()
    try:

        def publish() -> None:
            with pytest.raises(errors.ConnectionClosedError):
                while True:
                    nc.publish("a", bytes(100_000))

        publisher = threading.Thread(target=publish)
        publisher.start()
        while not stalled(nc):
            pass
        nc.close()
        publisher.join(30)
        assert not publisher.is_alive()
    finally:
        server.resume()


def test_what_a_server_refuses_takes_no_others(make_server: MakeServer, unique: Unique) -> None:
    first = make_server()
    told: Queue[errors.JetsparkError] = Queue()
    with connect(first.url, error_callback=told.put, reconnect_wait=0.05) as nc:
        port = first.port
        sub = nc.subscribe("a")
        lost = nc.events()
        first.close()
        assert isinstance(next(lost), Disconnected)
        nc.publish("a", b"before")
        for number in range(3):
            nc.publish("a", b"%d" % number + b"x" * 2000)
            nc.publish("a", b"%d" % number)
        make_server("max_payload: 1000", port=port)
        assert isinstance(next(lost), Reconnected)
        nc.publish("a", b"last")
        expected = [b"before", b"0", b"1", b"2", b"last"]
        assert [sub.next(30).data for _ in expected] == expected
        found: list[errors.MaxPayloadError] = []
        while len(found) < 3:
            if isinstance(error := told.get(timeout=30), errors.MaxPayloadError):
                found.append(error)
        assert [(error.size, error.limit) for error in found] == [(2001, 1000)] * 3
        assert nc.stats.reconnects == 1


@pytest.mark.parametrize("alone", [False, True])
def test_what_a_larger_server_took_is_judged_again(make_server: MakeServer, alone: bool) -> None:
    server = make_server("max_payload: 1000")
    told: Queue[errors.JetsparkError] = Queue()
    with connect(server.url, error_callback=told.put) as nc:
        sub = nc.subscribe("a")
        large = pub("a", b"x" * 1001)
        if alone:
            nc._buffer.put(large)
        else:

            def at_once() -> None:  # in the loop's thread: they cross to it together
                for frame in (pub("a", b"1"), large, pub("a", b"2"), large, pub("a", b"3")):
                    nc._buffer.put(frame)

            nc._thread.call(at_once)
        nc.publish("a", b"end")
        expected = [b"end"] if alone else [b"1", b"2", b"3", b"end"]
        assert [sub.next(30).data for _ in expected] == expected
        error = told.get(timeout=30)
        assert isinstance(error, errors.MaxPayloadError)
        assert (error.size, error.limit) == (1001, 1000)
        assert nc.stats.reconnects == 0
