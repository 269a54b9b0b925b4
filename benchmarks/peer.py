"""The other side of a conversation, by hand over a raw socket: it serves all contestants alike.

Standard library only. A peer runs in a thread of the harness, which does nothing else while a
contestant runs; its end is the end of the connection.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.raw import RawLink

ECHO = "bench.echo"
"""Requests to it are answered with their own payload."""

MORE, FEED = "bench.more", "bench.feed"
"""A number published to the first brings so many messages of the second."""

ENDPOINT = "bench.endpoint"
"""Where the harness asks; a number requested of `MORE` is answered when so many were."""

BLOCK = 50_000
"""Messages to ask for at a time: two of these under way keep a reader busy and no buffer full."""

_PIECE = 500
_WINDOW = 2_000  # requests that wait for an answer
# Reply subjects, in turn: as many as a server remembers the way of. With more of them the server is
# slower than any client, and what is measured is the server.
_REPLIES = 500


@contextmanager
def echo(url: str) -> Iterator[None]:
    """Answers requests."""

    def answer(link: RawLink) -> None:
        while True:
            line, payload = link.message()
            reply = line.split()[3]
            link.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(payload), payload))

    with _serving(url, ECHO, answer):
        yield


@contextmanager
def feed(url: str, size: int) -> Iterator[None]:
    """Publishes what is asked for, all at once."""
    piece = b"PUB %b %d\r\n%b\r\n" % (FEED.encode(), size, bytes(size)) * _PIECE

    def publish(link: RawLink) -> None:
        while True:
            _, wanted = link.message()
            whole, rest = divmod(int(wanted), _PIECE)
            for _ in range(whole):
                link.send(piece)
            link.send(piece[: len(piece) // _PIECE * rest])

    with _serving(url, MORE, publish):
        yield


@contextmanager
def requester(url: str, size: int) -> Iterator[None]:
    """Asks `ENDPOINT` as often as it is told to, with 500 reply subjects in turn."""
    payload = bytes(size)

    def ask(link: RawLink) -> None:
        prefix = f"{link.inbox}.r.".encode()
        link.subscribe(f"{link.inbox}.r.*")
        link.settle()
        mark = b"MSG %b" % prefix
        requests = [
            b"PUB %b %b%d %d\r\n%b\r\n" % (ENDPOINT.encode(), prefix, number, size, payload)
            for number in range(_REPLIES)
        ]
        piece = b"".join(requests)
        while True:
            line, wanted = link.message()
            count, sent, answered, held = int(wanted), 0, 0, b""
            while answered < count:
                while sent < count and sent + _REPLIES - answered <= _WINDOW:
                    rest = min(_REPLIES, count - sent)
                    link.send(piece if rest == _REPLIES else b"".join(requests[:rest]))
                    sent += rest
                if not (came := link.socket.recv(1 << 20)):
                    raise ConnectionError("the server closed the connection")
                held += came
                answered += held.count(mark)
                held = held[1 - len(mark) :]  # perhaps the beginning of one
            link.send(b"PUB %b 0\r\n\r\n" % line.split()[3])

    with _serving(url, MORE, ask):
        yield


@contextmanager
def _serving(url: str, subject: str, serve: Callable[[RawLink], None]) -> Iterator[None]:
    def run() -> None:
        try:
            serve(link)
        except OSError:
            pass  # closed below

    with RawLink(url) as link:
        link.subscribe(subject)
        link.socket.settimeout(None)
        link.settle()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            link.socket.shutdown(socket.SHUT_RDWR)
            thread.join(5)
