"""JetStream of the blocking client, against a real server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.blocking.conftest import NoteCalls, stalled
from tests.blocking.eventually import eventually
from tests.conftest import MakeServer, Unique
from tests.support.proxies import HttpProxy

from jetspark import errors
from jetspark.blocking import Client, JetStream, connect
from jetspark.server import NatsServer


def test_blocking_streams_are_created_updated_and_deleted(js: JetStream, stream: str) -> None:
    assert js.publish(f"{stream}.a", b"one").seq == 1
    assert js.publish(f"{stream}.b", b"two", msg_id="2").duplicate is False
    assert js.publish(f"{stream}.b", b"two", msg_id="2").duplicate is True
    assert js.stream(stream).get(1).data == b"one"
    assert js.stream(stream).update(max_msgs=10).config.max_msgs == 10
    assert js.create_or_update_stream(name=stream, max_msgs=11).cached_info.config.max_msgs == 11
    js.stream(stream).delete_msg(1)
    with pytest.raises(errors.MessageNotFoundError):
        js.stream(stream).get(1)
    assert js.stream(stream).info().state.messages == 1
    assert js.stream(stream).purge() == 1
    names = js.stream_names(f"{stream}.a")
    assert (list(names), names.all(), names.missing, names.offline) == ([stream], [stream], [], {})
    assert [info.config.name for info in js.streams(f"{stream}.a")] == [stream]
    assert js.account_info().streams >= 1
    with pytest.raises(errors.StreamNotFoundError):
        js.stream("NONE").info()


def test_fetch_is_one_change_of_thread_and_acks_are_none(
    js: JetStream, stream: str, note_calls: NoteCalls
) -> None:
    with js.publisher() as publisher:
        for number in range(1000):
            publisher.publish(f"{stream}.x", b"%d" % number)
    worker = js.stream(stream).create_consumer(name="worker", max_ack_pending=5000)
    changes = note_calls("run")
    messages = worker.fetch(1000, timeout=5)
    for message in messages:
        message.ack()
    assert len(changes) == 1
    assert [message.data for message in messages] == [b"%d" % number for number in range(1000)]
    assert (messages.error, messages[9].seq, messages[9].is_acked) == (None, 10, True)
    with pytest.raises(errors.MessageAlreadyAckedError):
        messages[0].nak()
    eventually(lambda: worker.info().num_ack_pending == 0)
    assert worker.fetch(10) == []


def test_blocking_messages_are_acknowledged_in_every_way(js: JetStream, stream: str) -> None:
    for number in range(5):
        js.publish(f"{stream}.x", b"%d" % number)
    worker = js.stream(stream).create_consumer(name="worker")
    sync, nak, term, progress, late = worker.fetch(5, timeout=5)
    sync.ack_sync(timeout=30)
    assert sync.is_acked
    progress.in_progress()
    assert not progress.is_acked
    progress.ack()
    term.term()
    late.nak(delay=60)
    nak.nak()
    again = worker.next(30)
    assert (again.data, again.metadata.deliveries) == (b"1", 2)
    again.ack_sync()
    with pytest.raises(errors.RequestTimeoutError):
        worker.next(0.05)


def test_publisher_from_many_threads(js: JetStream, stream: str) -> None:
    with js.publisher(window=50) as publisher:

        def send(thread: int) -> list[int]:
            return [publisher.publish(f"{stream}.{thread}") for _ in range(500)]

        with ThreadPoolExecutor(8) as pool:
            indexes = [index for some in pool.map(send, range(8)) for index in some]
        publisher.flush()
        assert (publisher.pending, publisher.sent, publisher.acked) == (0, 4000, 4000)
        assert publisher.failed == []
    assert sorted(indexes) == list(range(4000))
    assert js.stream(stream).info().state.messages == 4000


def test_publisher_s_window_is_kept(js: JetStream, stream: str) -> None:
    with js.publisher(window=1) as publisher:
        for _ in range(100):
            publisher.publish(f"{stream}.x")
            assert publisher.pending <= 1
        futures = [publisher.publish_async(f"{stream}.x", msg_id=f"{n // 2}") for n in range(10)]
        assert [future.result(30).seq for future in futures] == [
            101, 101, 102, 102, 103, 103, 104, 104, 105, 105,
        ]  # fmt: skip
        assert publisher.duplicates == 5


def test_publisher_tells_failures(js: JetStream, stream: str) -> None:
    with pytest.raises(errors.PublishFailedError), js.publisher(retry_for=0) as publisher:
        publisher.publish("nobody.listens")
        refused = publisher.publish_async("nobody.listens")
        with pytest.raises(errors.NoStreamResponseError):
            refused.result(30)
        with pytest.raises(errors.BadSubjectError):
            publisher.publish("a b")
        publisher.publish(f"{stream}.x")
    assert publisher.acked == 1
    with pytest.raises(errors.ClosedError, match="publisher has ended"):
        publisher.publish("a")


def test_publisher_over_an_outage(make_server: MakeServer) -> None:
    server = make_server()
    with connect(server.url, reconnect_wait=0.02, reconnect_jitter=0.0) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"])
        with js.publisher(window=10) as publisher:
            for number in range(300):
                if number in (100, 200):
                    server.kill()
                    server.start()
                publisher.publish("s", msg_id=f"{number}")
            publisher.flush()
            assert publisher.failed == []
        assert js.stream("S").info().state.messages == 300


@pytest.mark.parametrize("identified", [True, False])
def test_an_outage_keeps_the_order_of_what_waits(make_server: MakeServer, identified: bool) -> None:
    """Without identities it fails, and is not written later either."""
    server = make_server()
    payload = bytes(100_000)
    with (
        HttpProxy() as proxy,
        connect(server.url, proxy=proxy.url, reconnect_wait=0.01, pending_size=1 << 26) as nc,
        connect(server.url) as direct,
    ):
        direct.jetstream().create_stream(name="S", subjects=["s.*"])

        def publish() -> None:
            for number in range(200):
                msg_id = f"{number}" if identified else None
                publisher.publish(f"s.{number}", payload, msg_id=msg_id)

        with nc.jetstream().publisher(400, raise_failures=False) as publisher:
            server.pause()
            try:
                sender = threading.Thread(target=publish)
                sender.start()
                while not stalled(nc):
                    pass
                proxy.cut()
                eventually(lambda: not nc.is_connected)
            finally:
                server.resume()
            sender.join(60)
            publisher.flush()
            failed = [one.index for one in publisher.failed]
        count = direct.jetstream().stream("S").info().state.messages
        with direct.jetstream().stream("S").ordered(headers_only=True) as messages:
            stored = [int(next(messages).subject[2:]) for _ in range(count)]
        # What failed may come later, from the old connection.
        waited = [number for number in stored if number not in failed]
        assert waited == sorted(waited)
        assert len(stored) + len(failed) >= 200
        assert bool(failed) is not identified
        assert not failed or failed[-1] not in stored


def test_a_message_between_the_check_for_space_and_its_sending_keeps_its_place(
    shared_server: NatsServer, nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link breaks just then: the messages before it are sent again, and before it."""
    subject = unique("withheld")
    sub = nc.subscribe(subject)
    nc.flush()
    with (
        HttpProxy() as proxy,
        connect(shared_server.url, proxy=proxy.url, reconnect_wait=0.01) as other,
        other.jetstream().publisher(duplicate_window=120) as publisher,
    ):
        for number in range(3):
            publisher.publish(subject, msg_id=f"{number}")
        taken = [sub.next() for _ in range(3)]
        put = publisher._sender.put

        def put_during_the_loss(*args: Any) -> int:
            proxy.cut()
            eventually(lambda: publisher._window.full)
            return put(*args)

        with monkeypatch.context() as patch:
            patch.setattr(publisher._sender, "put", put_during_the_loss)
            publisher.publish(subject, msg_id="3")
        publisher.publish(subject, msg_id="4")
        taken += [sub.next() for _ in range(5)]
        assert [msg.headers and msg.headers["Nats-Msg-Id"] for msg in taken] == list("01201234")
        for msg in taken:
            msg.respond(b'{"stream":"S","seq":1}')
