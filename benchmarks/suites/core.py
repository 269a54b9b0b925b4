"""Core NATS from one process: publish to subscribe, and requests, against other clients.

Two connections of one client library, in one event loop: one publishes or asks, the other one
takes what comes (iterated or by callback, whichever is quicker with that client), or answers from
a callback. Subject and payload of every message are looked at. The publisher is held back when
`LAG` messages are on their way, for all contestants in the same way: without that, some drop
messages.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from benchmarks import clients
from benchmarks.measure import Job, Measure
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop, timed

LAG = 20_000
_YIELD_EVERY = 500
_SUBJECT, _SERVICE = "bench.core", "bench.service"
_LABELS = {"jetspark": "jetspark", "nats_py": "nats-py", "natsio": "natsio"}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)
    parser.add_argument("--requests", type=int, default=50_000, metavar="N")
    parser.add_argument("--at-once", type=int, default=64, metavar="N", dest="at_once")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job:

        def section(what: str, function: str, messages: int, **settings: int) -> Section:
            part = replace(
                job,
                messages=messages,
                warm_messages=min(job.warm_messages, messages),
                settings=settings,
            )
            labels = chosen(options, _LABELS)
            functions = {f"{name}_{function}": label for name, label in labels.items()}
            bases = f"nats_py_{function}", f"natsio_{function}"
            title = f"{what}, {options.size:,} bytes"
            return race(options, __name__, functions, part, title, *bases)

        yield section(
            f"Publish to subscribe, {options.messages:,} messages", "pubsub", options.messages
        )
        one = f"Requests one at a time, {options.requests:,}"
        yield section(one, "requests", options.requests, at_once=1)
        many = f"Requests, {options.at_once} at once, {options.requests:,}"
        yield section(many, "requests", options.requests, at_once=options.at_once)


# -- what the clients have in common -----------------------------------------------------------

Take: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True)
class Peer:
    """Two connections of a client library, and how the second one is subscribed."""

    one: Any
    """Publishes and asks."""
    other: Any
    """Takes and answers."""
    listen: Callable[[str, Take], Awaitable[Any]]
    serve: Callable[[str], Awaitable[Any]]


async def _answer(message: Any) -> None:
    await message.respond(message.data)


async def _iterate(sub: Any, take: Take) -> None:
    async for message in sub:
        take(message)


def _pubsub(job: Job, connected: AbstractAsyncContextManager[Peer]) -> Measure:
    subjects = iter((f"{_SUBJECT}.warm", _SUBJECT))
    with in_one_loop(connected) as (peer, plain):
        return timed(job, plain(lambda count: _stream(peer, next(subjects), count, job.size)))


async def _stream(peer: Peer, subject: str, count: int, size: int) -> None:
    payload = bytes(size)
    seen = total = 0
    go_on_at = count
    go_on, all_seen = asyncio.Event(), asyncio.Event()

    def take(message: Any) -> None:
        nonlocal seen, total
        total += len(message.data)
        if message.subject != subject:
            raise AssertionError(message.subject)
        seen += 1
        if seen >= go_on_at:
            go_on.set()
        if seen == count:
            all_seen.set()

    await peer.listen(subject, take)
    await peer.other.flush()
    for sent in range(1, count + 1):
        await peer.one.publish(subject, payload)
        if not sent % _YIELD_EVERY:
            await asyncio.sleep(0)
            if sent - seen > LAG:
                go_on.clear()
                go_on_at = sent - LAG // 2
                await go_on.wait()
    await peer.one.flush()
    await asyncio.wait_for(all_seen.wait(), 60)
    if total != count * size:
        raise AssertionError(f"{total} bytes instead of {count * size}")


def _requests(job: Job, connected: AbstractAsyncContextManager[Peer]) -> Measure:
    payload = bytes(job.size)
    with in_one_loop(connected) as (peer, plain):

        async def one_after_the_other(left: Iterator[int]) -> None:
            for _ in left:
                reply = await peer.one.request(_SERVICE, payload, timeout=10)
                if len(reply.data) != job.size:
                    raise AssertionError(len(reply.data))

        @plain
        async def ask(count: int) -> None:
            left = iter(range(count))
            await asyncio.gather(
                *(one_after_the_other(left) for _ in range(job.settings["at_once"]))
            )

        plain(peer.serve)(_SERVICE)
        plain(peer.other.flush)()
        return timed(replace(job, warm_messages=job.warm_messages // 10), ask)


# -- contestants -------------------------------------------------------------------------------


@asynccontextmanager
async def _jetspark(url: str) -> AsyncIterator[Peer]:
    tasks = []
    async with clients.jetspark(url) as one, clients.jetspark(url) as other:

        async def listen(subject: str, take: Take) -> None:
            tasks.append(asyncio.create_task(_iterate(other.subscribe(subject), take)))

        async def serve(subject: str) -> None:
            other.subscribe(subject, callback=_answer)

        yield Peer(one, other, listen, serve)


@asynccontextmanager
async def _nats_py(url: str) -> AsyncIterator[Peer]:
    async with clients.nats_py(url) as one, clients.nats_py(url) as other:

        async def listen(subject: str, take: Take) -> None:
            async def handle(message: Any) -> None:
                take(message)

            await other.subscribe(subject, cb=handle)

        yield Peer(one, other, listen, partial(other.subscribe, cb=_answer))


@asynccontextmanager
async def _natsio(url: str) -> AsyncIterator[Peer]:
    tasks = []
    async with clients.natsio(url) as one, clients.natsio(url) as other:

        async def listen(subject: str, take: Take) -> None:
            tasks.append(asyncio.create_task(_iterate(await other.subscribe(subject), take)))

        yield Peer(one, other, listen, partial(other.subscribe, cb=_answer))


def jetspark_pubsub(job: Job) -> Measure:
    return _pubsub(job, _jetspark(job.url))


def nats_py_pubsub(job: Job) -> Measure:
    return _pubsub(job, _nats_py(job.url))


def natsio_pubsub(job: Job) -> Measure:
    return _pubsub(job, _natsio(job.url))


def jetspark_requests(job: Job) -> Measure:
    return _requests(job, _jetspark(job.url))


def nats_py_requests(job: Job) -> Measure:
    return _requests(job, _nats_py(job.url))


def natsio_requests(job: Job) -> Measure:
    return _requests(job, _natsio(job.url))
