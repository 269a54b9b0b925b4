"""Publishing over a blocking link: every message acknowledged, through faults."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import MakeServer
from tests.support.streams import Admin, answered

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.links.link import BlockingLink
from jetspark.server import NatsServer
from jetspark.stream_writes import publish
from jetspark.stream_writes.encoded_messages import (
    EncodedMessage,
    pack_messages,
    split_into_packs,
    unpack_messages,
)
from jetspark.stream_writes.publish import StreamPublisher
from jetspark.wire.kernel import MessageFrame


def rows(subject: str, count: int) -> list[EncodedMessage]:
    return [(subject.encode(), None, b"%d" % number) for number in range(count)]


def stored(url: str, stream: str) -> list[bytes]:
    """All payloads in order."""
    found = []
    with Admin(url) as admin:
        facts = admin.facts(stream)
        api = admin.api
        for seq in range(facts.first_seq, facts.last_seq + 1):
            message = api.message(stream, seq=seq)
            if message is not None:
                found.append(message.data)
    return found


def test_all_are_stored_in_order_with_their_headers(admin: Admin) -> None:
    stream = admin.stream(under=".>")
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    with StreamPublisher(make_options(admin.url), stream) as publisher:
        publisher.send(rows(f"{stream}.a", 1200))
        publisher.send([(f"{stream}.b".encode(), block, b"last")])
    assert publisher.acked == 1201
    assert stored(admin.url, stream) == [*(b"%d" % n for n in range(1200)), b"last"]
    last = admin.api.message(stream, last_by_subj=f"{stream}.b")
    assert last is not None
    assert last.headers == block


def test_the_window_bounds_what_has_no_ack(admin: Admin) -> None:
    stream = admin.stream(under=".>")
    seen = []
    with StreamPublisher(make_options(admin.url), stream, window=1000) as publisher:
        for number in range(30):
            publisher.send(rows(f"{stream}.{number}", 100))
            seen.append(len(publisher._pending))
    assert max(seen) <= 1000
    assert publisher.acked == 3000


def test_a_refusal_is_raised_with_its_subject(admin: Admin) -> None:
    stream = admin.stream(under=".>", max_msgs=5, discard="new")
    options = make_options(admin.url)
    publisher = StreamPublisher(options, stream)
    with pytest.raises(errors.APIError, match="maximum messages exceeded") as caught, publisher:
        publisher.send(rows(f"{stream}.a", 10))
    assert f"{stream}.a" in caught.value.__notes__[0]
    assert publisher.acked == 5


def test_another_stream_s_ack_is_no_ack(admin: Admin, unique: Callable[[str], str]) -> None:
    stream, other = unique("S"), unique("O")
    admin.create(stream, f"{stream}.>")
    admin.create(other, f"{other}.>")
    publisher = StreamPublisher(make_options(admin.url), stream)
    with pytest.raises(errors.JetStreamError, match=f'belongs to the stream "{other}"'), publisher:
        publisher.send(rows(f"{other}.a", 1))


def test_no_responders_is_retried_and_then_raised(
    admin: Admin, unique: Callable[[str], str]
) -> None:
    stream = unique("S")
    options = make_options(admin.url)
    publisher = StreamPublisher(options, stream, timeout=0.6)
    with pytest.raises(errors.NoStreamResponseError), publisher:
        publisher.send(rows(f"{stream}.a", 1))
    publisher = StreamPublisher(options, stream)
    later = threading.Timer(0.3, lambda: admin.create(stream, f"{stream}.>"))
    later.start()
    with publisher:
        publisher.send(rows(f"{stream}.a", 3))
    later.join()
    assert publisher.acked == 3


def test_an_id_that_the_replicas_are_storing_is_sent_again(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    stream = unique("S")
    options = make_options(shared_server.url)
    answers = [
        b'{"error":{"code":409,"err_code":10158,"description":"id is in process"}}',
        b'{"stream":"%b","seq":1,"duplicate":true}' % stream.encode(),
    ]
    with (
        answered(options, f"{stream}.a", answers),
        StreamPublisher(options, stream) as publisher,
    ):
        publisher.send(rows(f"{stream}.a", 1))
    assert publisher.acked == 1


@pytest.mark.parametrize("in_order", [False, True])
def test_what_is_lost_in_silence_is_published_again(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """As leaders that stop do with messages they have taken."""
    stream = admin.stream(under=".>")
    options = make_options(admin.url)
    with StreamPublisher(options, stream, timeout=4, in_order=in_order) as publisher:
        with monkeypatch.context() as losing:
            losing.setattr(publisher._link, "send", lambda *_: None)
            publisher.send(rows(f"{stream}.a", 700))
        publisher.send(rows(f"{stream}.b", 700))
    assert publisher.acked == 1400
    assert admin.facts(stream).messages >= 1400


def test_refused_login_is_raised_without_a_retry(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = admin.stream(under=".>")
    attempts: list[ConnectOptions] = []

    def refused(options: ConnectOptions) -> BlockingLink:
        attempts.append(options)
        raise errors.AuthorizationError("no")

    publisher = StreamPublisher(make_options(admin.url), stream)
    publisher._link.close()
    monkeypatch.setattr(publish, "connect", refused)
    with pytest.raises(errors.AuthorizationError), publisher:
        publisher.send(rows(f"{stream}.a", 10))
    assert len(attempts) == 1


def test_a_killed_server_costs_no_message(make_server: MakeServer) -> None:
    server = make_server()
    with Admin(server.url) as admin:
        admin.create("S", "s.>")
    count = 30_000
    with StreamPublisher(make_options(server.url), "S", window=2000) as publisher:
        for part in range(3):
            publisher.send(rows(f"s.{part}", count // 3))
            server.kill()
            server.restart()
    assert publisher.acked == count
    with Admin(server.url) as admin:
        facts = admin.facts("S")
        assert facts.messages >= count
        info = admin.call("STREAM.INFO.S", {"subjects_filter": ">"})
        assert all(n >= count // 3 for n in info["state"]["subjects"].values())


def test_packs_hold_what_was_put_in() -> None:
    messages: list[EncodedMessage] = [(b"a", None, b"x" * size) for size in (0, 5, 90, 90, 300, 1)]
    packs = list(split_into_packs(messages, 200))
    assert [len(one) for one in packs] == [3, 1, 1, 1]
    assert [row for one in packs for row in unpack_messages(pack_messages(one))] == messages


class MoodyLink:
    """Stands in for a link to a stream that refuses now and then, and drops links."""

    def __init__(self, dice: random.Random, stored: list[tuple[bytes, bytes]]) -> None:
        self.dice = dice
        self.stored = stored
        self.replies: list[Any] = []
        self.closed = False

    def new_inbox(self) -> str:
        return "_INBOX.x"

    def subscribe(self, subject: str) -> int:
        return 1

    def close(self) -> None:
        self.closed = True

    def send(self, data: bytes, timeout: float | None = None) -> None:
        for line, payload in re.findall(rb"PUB ([^\r]+)\r\n([^\r]*)\r\n", data):
            subject, reply, _ = line.split()
            if self.dice.random() < 0.1:
                block = b"NATS/1.0 503\r\n\r\n"
                self.replies.append(MessageFrame(1, reply, None, block, b""))
            else:
                self.stored.append((subject, payload))
                self.replies.append(MessageFrame(1, reply, None, None, b'{"stream":"S", "seq":1}'))

    def messages(self, deadline: float) -> list[Any]:
        if self.dice.random() < 0.05:
            raise errors.BrokenSocketError("gone", server="s")
        if not self.replies:
            raise errors.RequestTimeoutError("silence")
        count = self.dice.randint(1, len(self.replies))
        taken, self.replies = self.replies[:count], self.replies[count:]
        return taken


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_in_order_the_last_message_of_a_subject_is_the_last_one_sent(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    stored: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(publish, "connect", lambda _: MoodyLink(dice, stored))
    sent = [(b"s.%d" % dice.randrange(5), None, b"%d" % n) for n in range(1500)]
    options = make_options("nats://h")
    with StreamPublisher(options, "S", window=600, in_order=True) as publisher:
        publisher.send(sent)
    assert publisher.acked == len(sent)
    assert {payload for _, payload in stored} == {payload for _, _, payload in sent}
    assert dict(stored) == {subject: payload for subject, _, payload in sent}
