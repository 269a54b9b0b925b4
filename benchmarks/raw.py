"""NATS by hand over one blocking socket: fills streams, and is the floor that others are held to.

Standard library only, and on purpose no more than the benchmarks need: a server on this machine
without TLS and without credentials.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias
from urllib.parse import urlsplit

SUBJECTS = 100
"""Messages go to so many subjects in turn."""

_TIMEOUT = 60.0
_RECEIVE_BYTES = 1 << 20
_BLOCK_MESSAGES = 1000
_BLOCK_BYTES = 8 << 20
_DRAIN_BATCH = 10_000
_UNDER_WAY_BYTES = 24 << 20
_BLOCKS_UNDER_WAY = 4  # the server refuses more than 10,000 messages that wait to be stored
_PING = b"PING\r\n"


class RawLink:
    """A connection. `with` closes it."""

    def __init__(self, url: str) -> None:
        server = urlsplit(url)
        self.socket = socket.create_connection((server.hostname, server.port), _TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._sids = 1
        self._held = b""
        self._line()  # INFO
        self.send(
            b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
            b'"protocol":1,"lang":"raw","version":"0"}\r\n' + f"SUB {self.inbox}.api 1\r\n".encode()
        )

    def __enter__(self) -> RawLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def subscribe(self, subject: str) -> int:
        self._sids += 1
        self.send(f"SUB {subject} {self._sids}\r\n".encode())
        return self._sids

    def settle(self) -> None:
        """Return when the server has taken all that was sent. Nothing else may be under way."""
        self.send(_PING)
        while self._line() != b"PONG":
            pass

    # -- a little parsing, for answers only ----------------------------------------------------

    def _more(self) -> None:
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._held += chunk

    def _line(self) -> bytes:
        while b"\r\n" not in self._held:
            self._more()
        line, _, self._held = self._held.partition(b"\r\n")
        return line

    def message(self) -> tuple[bytes, bytes]:
        """The next message: its control line and its payload (headers included)."""
        while not (line := self._line()).startswith((b"MSG ", b"HMSG ")):
            if line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())
            if line == b"PING":
                self.send(b"PONG\r\n")
        size = int(line.split()[-1]) + 2
        while len(self._held) < size:
            self._more()
        payload, self._held = self._held[: size - 2], self._held[size:]
        return line, payload

    def api(self, call: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JetStream API call. Nothing else may be under way."""
        body = b"" if document is None else json.dumps(document).encode()
        subject = f"$JS.API.{call} {self.inbox}.api"
        self.send(f"PUB {subject} {len(body)}\r\n".encode() + body + b"\r\n")
        _, payload = self.message()
        answer: dict[str, Any] = json.loads(payload)
        if "error" in answer:
            raise RuntimeError(f"{call}: {answer['error']}")
        return answer


def bounded(batch: int, size: int) -> int:
    """`batch`, or fewer messages of `size` bytes where so many would be too much under way.

    The server ends a connection for which more than 64 MB wait.
    """
    return max(1, min(batch, _UNDER_WAY_BYTES // (size + 128)))


def round_trips(link: RawLink, frames: list[bytes], inbox: str, count: int) -> None:
    """Send one message after the other, each when the answer to the one before is here.

    The floor of single requests: an answer is known by its end, and nothing of it is looked at.
    `frames` are whole ones, sent in turn, whose answers come to `inbox`.
    """
    sid = link.subscribe(inbox)
    link.settle()
    send, receive = link.socket.sendall, link.socket.recv
    left = count
    while left:
        for frame in frames[: min(left, len(frames))]:
            send(frame)
            answer = receive(_RECEIVE_BYTES)
            while not answer.endswith(b"\r\n") or answer == _PING:
                answer += receive(_RECEIVE_BYTES)
            if b"error" in answer or b"-ERR" in answer or b" 503" in answer:
                raise RuntimeError(f"request failed: {answer[-300:]!r}")
        left -= min(left, len(frames))
    link.send(f"UNSUB {sid}\r\n".encode())


# -- streams and consumers ---------------------------------------------------------------------


def make_consumer(url: str, stream: str) -> str:
    """A consumer from the first message on; returns its name, which always has one length.

    Every contestant that fetches gets one of these, so that all have equal settings.
    """
    name = f"c{secrets.token_hex(6)}"
    config = {
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "inactive_threshold": 600 * 10**9,
    }
    with RawLink(url) as link:
        link.api(
            f"CONSUMER.CREATE.{stream}.{name}",
            {"stream_name": stream, "config": config, "action": "create"},
        )
    return name


def make_stream(link: RawLink, stream: str) -> None:
    link.api(
        f"STREAM.CREATE.{stream}",
        {"name": stream, "subjects": [f"{stream}.*"], "storage": "file", "num_replicas": 1},
    )


Payloads: TypeAlias = Callable[[int], bytes]
"""The next so many payloads, one behind the other."""


def fill(url: str, stream: str, messages: int, size: int, payloads: Payloads | None = None) -> None:
    """A new stream in files with messages, every one acknowledged. As `publish`."""
    with RawLink(url) as link:
        make_stream(link, stream)
        publish(link, stream, messages, size, payloads)
        stored = link.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
        if stored != messages:
            raise RuntimeError(f"stream {stream} holds {stored} of {messages} messages")


def publish(
    link: RawLink, stream: str, messages: int, size: int, payloads: Payloads | None = None
) -> None:
    """Publish in blocks, a few of them ahead of their acks.

    `payloads` have `size` bytes each. Without them they are random bytes, which are never the same:
    whoever writes the messages somewhere cannot compress them away.
    """
    inbox = f"{link.inbox}.ack"
    sid = link.subscribe(inbox)
    lines = [f"PUB {stream}.{n:02} {inbox} {size}\r\n".encode() for n in range(SUBJECTS)]
    dice = random.Random(size)
    block = max(1, min(_BLOCK_MESSAGES, _BLOCK_BYTES // (size + 64)))
    acks = _Acks(link)
    sent = 0
    while sent < messages:
        count = min(block, messages - sent)
        block_of = payloads(count) if payloads else dice.randbytes(count * size)
        link.send(
            b"".join(
                b"%b%b\r\n" % (lines[(sent + i) % SUBJECTS], block_of[i * size : (i + 1) * size])
                for i in range(count)
            )
        )
        sent += count
        acks.wait(sent - _BLOCKS_UNDER_WAY * block)
    acks.wait(messages)
    link.send(f"UNSUB {sid}\r\n".encode())


def publish_chunks(link: RawLink, subject: str, content: bytes, size: int) -> None:
    """Publish a content in chunks, all on one subject, with about as many bytes under way."""
    inbox = f"{link.inbox}.ack"
    sid = link.subscribe(inbox)
    acks, view, send = _Acks(link), memoryview(content), link.socket.sendall
    ahead = max(1, _BLOCK_BYTES // size)
    begins = range(0, len(content), size)
    for number, begin in enumerate(begins):
        chunk = view[begin : begin + size]
        send(f"PUB {subject} {inbox} {len(chunk)}\r\n".encode())
        send(chunk)
        send(b"\r\n")
        acks.wait(number - ahead)
    acks.wait(len(begins))
    link.send(f"UNSUB {sid}\r\n".encode())


def publish_chained(link: RawLink, stream: str, messages: int, size: int) -> None:
    """Publish in atomic batches, each held to where the one before ended: one after the other.

    The floor of writing exactly once, which needs such a chain and a ledger beside it. Needs a
    stream of its own with allow_atomic.
    """
    inbox = f"{link.inbox}.batch"
    sid = link.subscribe(inbox)
    dice = random.Random(size)
    last = sent = 0
    while sent < messages:
        count = min(_BLOCK_MESSAGES, messages - sent)
        payloads, batch = dice.randbytes(count * size), secrets.token_hex(8)
        frames = []
        for number in range(1, count + 1):
            headers = f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {number}\r\n"
            if number == 1:
                headers += f"Nats-Expected-Last-Sequence: {last}\r\n"
            if number == count:
                headers += "Nats-Batch-Commit: 1\r\n"
            block = f"{headers}\r\n".encode()
            target = f"{stream}.{(sent + number) % SUBJECTS:02}"
            if number == count:
                target += f" {inbox}"
            line = f"HPUB {target} {len(block)} {len(block) + size}\r\n".encode()
            frames.append(
                b"%b%b%b\r\n" % (line, block, payloads[(number - 1) * size : number * size])
            )
        link.send(b"".join(frames))
        answer = json.loads(link.message()[1].rpartition(b"\r\n\r\n")[2])
        if "error" in answer:
            raise RuntimeError(f"publish failed: {answer}")
        last, sent = answer["seq"], sent + count
    link.send(f"UNSUB {sid}\r\n".encode())


class _Acks:
    """Counts acks by their text; an ack is never parsed unless something is wrong."""

    _MARK = b"}\r\n"  # the very end of an ack, so that nothing is left behind after the last one

    def __init__(self, link: RawLink) -> None:
        self._link = link
        self._count = 0
        self._tail = b""

    def wait(self, count: int) -> None:
        while self._count < count:
            data = self._tail + self._link.socket.recv(_RECEIVE_BYTES)
            if len(data) == len(self._tail):
                raise ConnectionError("the server closed the connection")
            if b'"error"' in data or b"-ERR" in data:
                raise RuntimeError(f"publish failed: {data[-300:]!r}")
            self._count += data.count(self._MARK)
            # A mark may be cut in two; a whole one must not be counted twice.
            self._tail = data[-(len(self._MARK) - 1) :]


# -- the floor ---------------------------------------------------------------------------------


class Drain:
    """Takes all messages of a stream out of the socket and looks at none of them.

    How does it know when to ask for more, and when to stop, without looking? All messages of a
    stream have one size and subjects of one length, so a delivery differs from the next one only
    in the digits of its two sequences and of the pending count. One delivery, pulled beforehand
    through a consumer with a name of the same length, gives the rest: after that the bytes of any
    number of deliveries are known to the last one, and counting is an addition per recv. Scanning
    for a marker with bytes.count would cost a pass over all data, and the floor would be too high.
    """

    def __init__(self, link: RawLink, url: str, stream: str, messages: int) -> None:
        self._link = link
        self._stream = stream
        self._inbox = f"{link.inbox}.pull"
        link.subscribe(self._inbox)
        self._buffer = bytearray(_RECEIVE_BYTES)
        frame = self._sample(make_consumer(url, stream))
        fixed = frame - len("1") - len("1") - len(str(messages - 1))
        batch = bounded(_DRAIN_BATCH, frame)
        self._counts = [*range(batch, messages, batch), messages]
        self._bytes = [_bytes_of(count, messages, fixed) for count in self._counts]
        self._consumer = make_consumer(url, stream)
        self._extra = 0

    def _pull(self, consumer: str, batch: int) -> bytes:
        body = json.dumps({"batch": batch, "expires": round(_TIMEOUT * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
        return f"PUB {subject} {self._inbox} {len(body)}\r\n".encode() + body + b"\r\n"

    def _sample(self, consumer: str) -> int:
        self._link.send(self._pull(consumer, 1))
        line, payload = self._link.message()
        self._link.api(f"CONSUMER.DELETE.{self._stream}.{consumer}")
        return len(line) + 2 + len(payload) + 2

    def run(self) -> None:
        """The timed part: two pull requests are always under way."""
        take = self._link.socket.recv_into
        buffer = self._buffer
        batches = [b - a for a, b in pairwise([0, *self._counts])]
        requests = [self._pull(self._consumer, batch) for batch in batches]
        self._link.send(b"".join(requests[:2]))
        received = 0
        for target, request in zip(self._bytes, [*requests[2:], b"", b""], strict=False):
            while received < target:
                count = take(buffer)
                if not count:
                    raise ConnectionError("the server closed the connection")
                received += count
            if request:
                self._link.send(request)
        self._extra = received - self._bytes[-1]

    def check(self) -> None:
        """Whether that was all. Raises AssertionError."""
        info = self._link.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        if info["delivered"]["consumer_seq"] != self._counts[-1] or info["num_pending"]:
            raise AssertionError(f"the drain ended early: {info}")
        # The only other bytes that may come are PINGs; a server bears two without an answer.
        if self._extra % len(_PING):
            raise AssertionError(f"{self._extra} bytes more than expected")


def _bytes_of(count: int, messages: int, fixed: int) -> int:
    """Bytes of the first `count` deliveries of `messages`."""
    pending = _digits_to(messages - 1) - _digits_to(messages - count - 1)
    if count == messages:
        pending += len("0")
    return count * fixed + 2 * _digits_to(count) + pending


def _digits_to(number: int) -> int:
    """Digits of 1, 2, … `number` together."""
    total, first = 0, 1
    while first <= number:
        total += number - first + 1  # each of these has one more digit
        first *= 10
    return total
