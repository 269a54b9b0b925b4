"""Core subscribe: messages of one subject over one connection, without JetStream.

They come from a raw socket in the harness, the same for all, which sends a block as soon as a
contestant asks for it; two blocks are under way, so that nobody waits and nothing is dropped. The
floor is a blocking raw socket that counts bytes: all messages have one size on the wire. The
others look at subject and payload of each message, in the way that is quicker with each client.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.peer import BLOCK, FEED, MORE, feed
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import RawLink
from benchmarks.report import Section
from benchmarks.stage import empty_stage

_LABELS = {
    "raw": "raw drain",
    "jetspark": "jetspark, iterated",
    "jetspark_uvloop": "jetspark, iterated, uvloop",
    "jetspark_callback": "jetspark, callback",
    "jetspark_blocking": "jetspark, blocking",
    "natsio": "natsio, iterated",
    "nats_py": "nats-py, callback",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job, feed(job.url, job.size):
        title = f"Subscribe, {options.messages:,} messages of {options.size:,} bytes"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "nats_py", "raw")


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

        take(job.warm_messages)
        with Stopwatch() as watch:
            take(job.messages)
        return watch.measure(job.messages)


class _Taker:
    """Sees every message of the others, and asks for more in time."""

    def __init__(self, job: Job, messages: int, more: Callable[[bytes], Any]) -> None:
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

    def __init__(self, job: Job, more: Callable[[bytes], Any]) -> None:
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


Take = Callable[[int], Awaitable[None]]
"""`await take(messages)`."""


def _in_one_loop(job: Job, opened: Callable[[Job], Any], loop: Any = None) -> Measure:
    """`async with opened(job) as take`."""
    with asyncio.Runner(loop_factory=loop) as runner:
        opening = opened(job)
        take: Take = runner.run(opening.__aenter__())
        try:
            runner.run(take(job.warm_messages))
            with Stopwatch() as watch:
                runner.run(take(job.messages))
            return watch.measure(job.messages)
        finally:
            runner.run(opening.__aexit__(None, None, None))


@asynccontextmanager
async def _iterated(job: Job) -> AsyncIterator[Take]:
    from jetspark import connect

    async with connect(job.url) as nc:
        sub = nc.subscribe(FEED)
        await nc.flush()

        async def take(messages: int) -> None:
            taker = _Taker(job, messages, lambda block: nc.publish_nowait(MORE, block))
            async for message in sub:
                if taker.take(message):
                    return

        yield take


@asynccontextmanager
async def _called(job: Job) -> AsyncIterator[Take]:
    from jetspark import connect

    async with connect(job.url) as nc:
        calls = _Callbacks(job, lambda block: nc.publish_nowait(MORE, block))
        nc.subscribe(FEED, callback=calls.called)
        await nc.flush()
        yield calls.take


def jetspark(job: Job) -> Measure:
    return _in_one_loop(job, _iterated)


def jetspark_uvloop(job: Job) -> Measure:
    import uvloop

    return _in_one_loop(job, _iterated, uvloop.new_event_loop)


def jetspark_callback(job: Job) -> Measure:
    return _in_one_loop(job, _called)


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        sub = nc.subscribe(FEED)
        nc.flush()

        def take(messages: int) -> None:
            taker = _Taker(job, messages, lambda block: nc.publish(MORE, block))
            for message in sub:
                if taker.take(message):
                    return

        take(job.warm_messages)
        with Stopwatch() as watch:
            take(job.messages)
        return watch.measure(job.messages)


@asynccontextmanager
async def _nats_py(job: Job) -> AsyncIterator[Take]:
    import nats

    nc = await nats.connect(job.url)
    asked = []
    calls = _Callbacks(
        job, lambda block: asked.append(asyncio.create_task(nc.publish(MORE, block)))
    )

    async def called(message: Any) -> None:
        calls.called(message)

    await nc.subscribe(FEED, cb=called)
    await nc.flush()
    yield calls.take
    await nc.close()


def nats_py(job: Job) -> Measure:
    return _in_one_loop(job, _nats_py)


@asynccontextmanager
async def _natsio(job: Job) -> AsyncIterator[Take]:
    import natsio
    import natsio.jetstream  # versions before 1.0 have none, and another interface

    async with await natsio.connect(job.url) as nc:
        sub = await nc.subscribe(FEED)
        await nc.flush()
        asked = []

        async def take(messages: int) -> None:
            taker = _Taker(
                job,
                messages,
                lambda block: asked.append(asyncio.create_task(nc.publish(MORE, block))),
            )
            async for message in sub:
                if taker.take(message):
                    return

        yield take


def natsio(job: Job) -> Measure:
    return _in_one_loop(job, _natsio)
