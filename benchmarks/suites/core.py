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
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage

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


@dataclass(frozen=True)
class Peer:
    """A client library: two connections, and how each call is written."""

    publish: Callable[[str, bytes], Awaitable[None]]
    flush: Callable[[], Awaitable[Any]]
    listen: Callable[[str, Callable[[Any], None]], Awaitable[Any]]
    request: Callable[[str, bytes], Awaitable[Any]]
    serve: Callable[[str], Awaitable[Any]]


Connected = Callable[[str], Any]
"""`async with connected(url) as peer`."""


def _pubsub(connected: Connected, job: Job) -> Measure:
    async def main() -> Measure:
        async with connected(job.url) as peer:
            await _stream(peer, _SUBJECT + ".warm", job.warm_messages, job.size)
            with Stopwatch() as watch:
                await _stream(peer, _SUBJECT, job.messages, job.size)
            return watch.measure(job.messages)

    return asyncio.run(main())


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
    for sent in range(1, count + 1):
        await peer.publish(subject, payload)
        if not sent % _YIELD_EVERY:
            await asyncio.sleep(0)
            if sent - seen > LAG:
                go_on.clear()
                go_on_at = sent - LAG // 2
                await go_on.wait()
    await peer.flush()
    await asyncio.wait_for(all_seen.wait(), 60)
    if total != count * size:
        raise AssertionError(f"{total} bytes instead of {count * size}")


def _requests(connected: Connected, job: Job) -> Measure:
    at_once = job.settings["at_once"]
    payload = bytes(job.size)

    async def ask(peer: Peer, count: int) -> None:
        left = iter(range(count))

        async def one_after_the_other() -> None:
            for _ in left:
                reply = await peer.request(_SERVICE, payload)
                if len(reply.data) != job.size:
                    raise AssertionError(len(reply.data))

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))

    async def main() -> Measure:
        async with connected(job.url) as peer:
            await peer.serve(_SERVICE)
            await ask(peer, job.warm_messages // 10)
            with Stopwatch() as watch:
                await ask(peer, job.messages)
            return watch.measure(job.messages)

    return asyncio.run(main())


# -- contestants -------------------------------------------------------------------------------


@asynccontextmanager
async def _jetspark(url: str) -> AsyncIterator[Peer]:
    import jetspark

    tasks = []
    async with jetspark.connect(url) as one, jetspark.connect(url) as other:

        async def read(sub: jetspark.Subscription, take: Callable[[Any], None]) -> None:
            async for message in sub:
                take(message)

        async def listen(subject: str, take: Callable[[Any], None]) -> None:
            tasks.append(asyncio.create_task(read(other.subscribe(subject), take)))
            await other.flush()

        async def serve(subject: str) -> None:
            async def answer(message: Any) -> None:
                await message.respond(message.data)

            other.subscribe(subject, callback=answer)
            await other.flush()

        yield Peer(one.publish, one.flush, listen, one.request, serve)


@asynccontextmanager
async def _nats_py(url: str) -> AsyncIterator[Peer]:
    import nats

    one, other = await nats.connect(url), await nats.connect(url)

    async def listen(subject: str, take: Callable[[Any], None]) -> None:
        async def handle(message: Any) -> None:
            take(message)

        await other.subscribe(subject, cb=handle)
        await other.flush()

    async def serve(subject: str) -> None:
        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await other.subscribe(subject, cb=answer)
        await other.flush()

    async def request(subject: str, payload: bytes) -> Any:
        return await one.request(subject, payload, timeout=10)

    yield Peer(one.publish, one.flush, listen, request, serve)
    await one.close()
    await other.close()


@asynccontextmanager
async def _natsio(url: str) -> AsyncIterator[Peer]:
    import natsio
    import natsio.jetstream  # versions before 1.0 have none, and another interface

    tasks = []
    async with await natsio.connect(url) as one, await natsio.connect(url) as other:

        async def read(sub: Any, take: Callable[[Any], None]) -> None:
            async for message in sub:
                take(message)

        async def listen(subject: str, take: Callable[[Any], None]) -> None:
            tasks.append(asyncio.create_task(read(await other.subscribe(subject), take)))
            await other.flush()

        async def serve(subject: str) -> None:
            async def answer(message: Any) -> None:
                await message.respond(message.data)

            await other.subscribe(subject, cb=answer)
            await other.flush()

        async def request(subject: str, payload: bytes) -> Any:
            return await one.request(subject, payload, timeout=10)

        yield Peer(one.publish, one.flush, listen, request, serve)


def jetspark_pubsub(job: Job) -> Measure:
    return _pubsub(_jetspark, job)


def nats_py_pubsub(job: Job) -> Measure:
    return _pubsub(_nats_py, job)


def natsio_pubsub(job: Job) -> Measure:
    return _pubsub(_natsio, job)


def jetspark_requests(job: Job) -> Measure:
    return _requests(_jetspark, job)


def nats_py_requests(job: Job) -> Measure:
    return _requests(_nats_py, job)


def natsio_requests(job: Job) -> Measure:
    return _requests(_natsio, job)
