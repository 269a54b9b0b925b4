"""Streams for tests: made and filled through a blocking link, in few round trips."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import NoRespondersError
from jetspark.links.link import BlockingLink, connect
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.wire import frames
from jetspark.wire.headers import Headers, encode_headers

# From 2.11 on a server drops what it has no room to queue: 10,000 messages for a stream.
_WAIT_EVERY = 2000

_LOOK_EVERY = 0.05  # seconds

Row = tuple[str, bytes] | tuple[str, bytes, list[tuple[str, str]]]


@contextmanager
def answered(options: ConnectOptions, subject: str, answers: list[bytes]) -> Iterator[None]:
    """Gives these answers to requests to a subject, in the place of a stream's leader.

    Each of them has to be asked for.
    """
    with connect(options) as leader:
        leader.subscribe(subject)
        leader.check()  # it is known to the server

        def answer() -> None:
            while answers:
                for frame in leader.messages(time.monotonic() + 30):
                    assert frame.reply is not None
                    leader.send(frames.pub(frame.reply.decode(), answers.pop(0)))

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


class Admin:
    """Makes, fills and spoils streams on one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.link: BlockingLink = connect(make_options(url))
        self.api = StreamAPI(self.link)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def call(self, subject: str, request: Any = None) -> dict[str, Any]:
        """One API call; fails the test on an error answer."""
        payload = b"" if request is None else msgspec.json.encode(request)
        frame = self.link.request(f"$JS.API.{subject}", payload, 10)
        answer: dict[str, Any] = msgspec.json.decode(frame.payload)
        assert "error" not in answer, answer
        return answer

    def create(self, stream: str, *subjects: str, **config: Any) -> dict[str, Any]:
        return self.call(
            f"STREAM.CREATE.{stream}", {"name": stream, "subjects": list(subjects), **config}
        )

    def stream(self, count: int = 0, *, under: str = "", size: int = 0, **config: Any) -> str:
        """The name of a new stream, whose subject is the name and what comes `under` it.

        `count` messages are on the name itself, as `numbered` makes them.
        """
        name = f"S_{secrets.token_hex(4)}"
        self.create(name, name + under, **config)
        if count:
            self.fill(numbered(name, count, size))
        return name

    def fill(self, rows: Iterable[Row]) -> int:
        """Publish without waiting for each, then wait for the last one's sequence."""
        chunk = b""
        last: Row | None = None
        for count, row in enumerate(rows):
            if last is not None and count % _WAIT_EVERY == 0:
                self.link.send(chunk)
                chunk = b""
                self._store(last)
            elif last is not None:
                chunk += _frame(last)
                if len(chunk) > 1 << 19:
                    self.link.send(chunk)
                    chunk = b""
            last = row
        assert last is not None
        self.link.send(chunk)
        return self._store(last)

    def _store(self, row: Row) -> int:
        """Publish one message and wait for its sequence."""
        answer = self.link.request(row[0], row[1], 30, _headers(row))
        ack = msgspec.json.decode(answer.payload)
        assert "error" not in ack, ack
        return int(ack["seq"])

    def fill_new(self, rows: list[Row]) -> int:
        """The same for a stream that is new in a cluster: not every server may know of it yet."""
        deadline = time.monotonic() + 30
        while True:
            try:
                last = self.fill(rows[:1])
                break
            except NoRespondersError:
                assert time.monotonic() < deadline, f"nobody takes {rows[0][0]}"
                time.sleep(_LOOK_EVERY)
        return self.fill(rows[1:]) if rows[1:] else last

    def delete_messages(self, stream: str, *sequences: int) -> None:
        for sequence in sequences:
            self.call(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})

    def purge(self, stream: str, **how: Any) -> None:
        self.call(f"STREAM.PURGE.{stream}", how)

    def facts(self, stream: str) -> StreamFacts:
        return self.api.stream(stream)


def _frame(row: Row) -> bytes:
    headers = _headers(row)
    if headers is None:
        return frames.pub(row[0], row[1])
    return frames.hpub(row[0], headers, row[1])


def _headers(row: Row) -> bytes | None:
    return encode_headers(Headers(row[2])) if len(row) == 3 else None


def numbered(subject: str, count: int, size: int = 0) -> list[Row]:
    """`count` messages whose payloads are their numbers from 1, padded to `size` bytes."""
    return [
        (subject, b"%d" % number + b"." * (size - len(str(number))))
        for number in range(1, count + 1)
    ]
