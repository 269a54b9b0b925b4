"""Core subscribe: messages of one subject over one connection, without JetStream.

They come from a raw socket in the harness, the same for all, which sends a block as soon as a
contestant asks for it; two blocks are under way, so that nobody waits and nothing is dropped. The
floor is a blocking raw socket that counts bytes: all messages have one size on the wire. The
others look at subject and payload of each message, in the way that is quicker with each client.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeAlias

from benchmarks import clients
from benchmarks import nats_go as go
from benchmarks.measure import Job, Measure
from benchmarks.peer import BLOCK, FEED, MORE, feed
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import RawLink
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import Plain, in_one_loop, timed

_LABELS = {
    "raw": "raw drain",
    "jetspark": "jetspark, iterated",
    "jetspark_uvloop": "jetspark, iterated, uvloop",
    "jetspark_callback": "jetspark, callback",
    "jetspark_blocking": "jetspark, blocking",
    "natsio": "natsio, iterated",
    "nats_core": "nats-core, iterated",
    "nats_py": "nats-py, callback",
    "nats_go": "nats.go, callback",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job, feed(job.url, job.size):
        title = f"Subscribe, {options.messages:,} messages of {options.size:,} bytes"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "nats_py", "raw")


More: TypeAlias = Callable[[bytes], object]
"""Asks for so many messages, a number in digits, and does not wait."""


class _Blocks:
    """How much to ask for, and when: `next` after each block that has come; 0 for no more."""

    def __init__(self, messages: int) -> None:
        self._left = messages

    def next(self) -> int:
        block = min(self._left, BLOCK)
        self._left -= block
        return block


def raw(job: Job) -> Measure:
    with RawLink(job.url) as link:
        sid = link.subscribe(FEED)
        link.settle()
        frame = len(f"MSG {FEED} {sid} {job.size}\r\n") + job.size + 2
        buffer = bytearray(1 << 20)

        def more(block: int) -> None:
            if block:
                link.send(f"PUB {MORE} {len(str(block))}\r\n{block}\r\n".encode())

        def take(messages: int) -> None:
            blocks = _Blocks(messages)
            more(blocks.next())
            more(blocks.next())
            seen, next_block, end = 0, BLOCK * frame, messages * frame
            while seen < end:
                seen += link.socket.recv_into(buffer)
                if seen >= next_block:
                    next_block += BLOCK * frame
                    more(blocks.next())

        return timed(job, take)


class _Taker:
    """Sees every message of the others, and asks for more in time."""

    def __init__(self, job: Job, messages: int, more: More) -> None:
        self._size = job.size
        self._more = more
        self._blocks = _Blocks(messages)
        self._next = BLOCK
        self._messages = messages
        self._seen = 0
        self._ask()
        self._ask()

    def _ask(self) -> None:
        if block := self._blocks.next():
            self._more(b"%d" % block)

    def take(self, message: Any) -> bool:
        """Whether that was the last one."""
        if message.subject != FEED or len(message.data) != self._size:
            raise AssertionError(message)
        self._seen += 1
        if self._seen == self._next:
            self._next += BLOCK
            self._ask()
        return self._seen == self._messages


class _Callbacks:
    """`take` for a client that calls back."""

    def __init__(self, job: Job, more: More) -> None:
        self._job = job
        self._more = more
        self._taker: _Taker | None = None
        self._done = asyncio.Event()

    def called(self, message: Any) -> None:
        if self._taker is not None and self._taker.take(message):
            self._done.set()

    async def take(self, messages: int) -> None:
        self._done.clear()
        self._taker = _Taker(self._job, messages, self._more)
        await self._done.wait()


def _iterated(job: Job, plain: Plain, sub: Any, more: More) -> Measure:
    @plain
    async def take(messages: int) -> None:
        taker = _Taker(job, messages, more)
        async for message in sub:
            if taker.take(message):
                return

    return timed(job, take)


def _with_tasks(publish: Callable[[str, bytes], Coroutine[Any, Any, None]]) -> More:
    """For a client that cannot publish without waiting."""
    asked = []
    return lambda block: asked.append(asyncio.create_task(publish(MORE, block)))


def jetspark(job: Job, *, uvloop: bool = False) -> Measure:
    with in_one_loop(clients.jetspark(job.url), uvloop=uvloop) as (nc, plain):
        sub = nc.subscribe(FEED)
        plain(nc.flush)()
        return _iterated(job, plain, sub, partial(nc.publish_nowait, MORE))


def jetspark_uvloop(job: Job) -> Measure:
    return jetspark(job, uvloop=True)


def jetspark_callback(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (nc, plain):
        calls = _Callbacks(job, partial(nc.publish_nowait, MORE))

        @plain
        async def subscribe() -> None:  # a callback has a task, which needs a running loop
            nc.subscribe(FEED, callback=calls.called)
            await nc.flush()

        subscribe()
        return timed(job, plain(calls.take))


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        sub = nc.subscribe(FEED)
        nc.flush()

        def take(messages: int) -> None:
            taker = _Taker(job, messages, partial(nc.publish, MORE))
            for message in sub:
                if taker.take(message):
                    return

        return timed(job, take)


def nats_py(job: Job) -> Measure:
    with in_one_loop(clients.nats_py(job.url)) as (nc, plain):
        calls = _Callbacks(job, _with_tasks(nc.publish))

        async def called(message: Any) -> None:
            calls.called(message)

        plain(nc.subscribe)(FEED, cb=called)
        plain(nc.flush)()
        return timed(job, plain(calls.take))


def natsio(job: Job) -> Measure:
    with in_one_loop(clients.natsio(job.url)) as (nc, plain):
        sub = plain(nc.subscribe)(FEED)
        plain(nc.flush)()
        return _iterated(job, plain, sub, _with_tasks(nc.publish))


def nats_core(job: Job) -> Measure:
    with in_one_loop(clients.nats_core(job.url)) as (nc, plain):
        sub = plain(nc.subscribe)(FEED, max_pending_messages=None, max_pending_bytes=None)
        plain(nc.flush)()
        return _iterated(job, plain, sub, _with_tasks(nc.publish))


def nats_go(job: Job) -> Measure:
    return go.measured(job, "subscribe", subject=FEED, more=MORE, block=BLOCK)
