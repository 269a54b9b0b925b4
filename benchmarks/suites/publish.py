"""Publishing into a stream in files over one connection, every message acknowledged.

First many without waiting for each ack, as each client does it best, against a raw socket that
sends ahead of its acks; then one at a time, each ack awaited. The same payloads, random and never
the same twice in a thousand, go to the same hundred subjects. Every contestant has a new stream,
and the count of messages in it is compared at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import SUBJECTS, RawLink, make_stream, publish, round_trips
from benchmarks.report import Section
from benchmarks.stage import empty_stage

WINDOW = 4000
"""Most messages without an ack, where a client lets one say it."""

_LABELS = {
    "raw_pipelined": "raw pipelined",
    "jetspark_window": f"jetspark publisher({WINDOW})",
    "jetspark_window_uvloop": f"jetspark publisher({WINDOW}), uvloop",
    "jetspark_window_blocking": f"jetspark publisher({WINDOW}), blocking",
    "jetspark_ingest": "jetspark fast ingest",
    "jetspark_atomic": "jetspark atomic batches(1000)",
    "natsrpy_window": f"natsrpy publish(wait), {WINDOW} at a time",
    "natsio_window": f"natsio publish_async({WINDOW})",
    "nats_py_window": f"nats-py publish_async({WINDOW})",
}
_SINGLE = {
    "raw_single": "raw, blocking",
    "jetspark_single": "jetspark",
    "jetspark_single_uvloop": "jetspark, uvloop",
    "jetspark_single_blocking": "jetspark, blocking",
    "natsrpy_single": "natsrpy",
    "natsio_single": "natsio",
    "nats_py_single": "nats-py",
}

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop] | None


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, (*_LABELS, *_SINGLE))
    parser.add_argument("--single", type=int, default=20_000, metavar="N")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:

        def section(what: str, labels: dict[str, str], messages: int, *bases: str) -> Section:
            title = f"{what}, {messages:,} messages of {options.size:,} bytes"
            part = replace(job, messages=messages, warm_messages=min(job.warm_messages, messages))
            return race(options, __name__, chosen(options, labels), part, title, *bases)

        many, one = ("nats_py_window", "raw_pipelined"), ("nats_py_single", "raw_single")
        yield section("Publish, acks later", _LABELS, options.messages, *many)
        yield section("Publish, one at a time", _SINGLE, options.single, *one)


# -- what the contestants have in common ---------------------------------------------------------


def _new_stream(link: RawLink, job: Job) -> None:
    make_stream(link, job.stream)
    config = link.api(f"STREAM.INFO.{job.stream}")["config"]
    # A server that does not know them ignores them; the contestants who need them say so.
    link.api(f"STREAM.UPDATE.{job.stream}", config | {"allow_batched": True, "allow_atomic": True})


def _measured(job: Job, store: Callable[[int], None]) -> Measure:
    """`store` publishes so many messages; it is called twice, to warm up and for good."""
    with RawLink(job.url) as link:
        _new_stream(link, job)
        try:
            store(job.warm_messages)
            with Stopwatch() as watch:
                store(job.messages)
            held = link.api(f"STREAM.INFO.{job.stream}")["state"]["messages"]
            if held != job.warm_messages + job.messages:
                raise AssertionError(f"the stream holds {held} messages")
        finally:
            link.api(f"STREAM.DELETE.{job.stream}")
        return watch.measure(job.messages)


def _subjects_and_payloads(job: Job) -> tuple[list[str], list[bytes]]:
    dice = random.Random(job.size)
    subjects = [f"{job.stream}.{number:02}" for number in range(SUBJECTS)]
    return subjects, [dice.randbytes(job.size) for _ in range(1000)]


def raw_pipelined(job: Job) -> Measure:
    with RawLink(job.url) as link:
        return _measured(job, lambda count: publish(link, job.stream, count, job.size))


def raw_single(job: Job) -> Measure:
    subjects, payloads = _subjects_and_payloads(job)
    with RawLink(job.url) as link:
        inbox = f"{link.inbox}.ack"
        frames = [
            b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), job.size, payload)
            for subject, payload in zip(subjects * 10, payloads, strict=True)
        ]
        return _measured(job, lambda count: round_trips(link, frames, inbox, count))


def _in_one_loop(job: Job, publisher: Callable[[Job], Any], loop: LoopFactory = None) -> Measure:
    """`async with publisher(job) as store`, and `await store(count)` publishes and awaits acks."""
    with asyncio.Runner(loop_factory=loop) as runner:
        context = publisher(job)
        store = runner.run(context.__aenter__())
        try:
            return _measured(job, lambda count: runner.run(store(count)))
        finally:
            runner.run(context.__aexit__(None, None, None))


# -- jetspark ----------------------------------------------------------------------------------


def _jetspark(how: str) -> Callable[[Job], Any]:
    @asynccontextmanager
    async def opened(job: Job) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        import jetspark

        subjects, payloads = _subjects_and_payloads(job)
        async with jetspark.connect(job.url) as nc:
            js = nc.jetstream()

            async def window(count: int) -> None:
                async with js.publisher(WINDOW) as publisher:
                    for n in range(count):
                        await publisher.send(subjects[n % SUBJECTS], payloads[n % 1000])

            async def ingest(count: int) -> None:
                async with js.fast_ingest() as batch:
                    for n in range(count):
                        await batch.add(subjects[n % SUBJECTS], payloads[n % 1000])

            async def atomic(count: int) -> None:
                for first in range(0, count, 1000):
                    async with js.atomic_batch() as batch:
                        for n in range(first, min(first + 1000, count)):
                            await batch.add(subjects[n % SUBJECTS], payloads[n % 1000])

            async def single(count: int) -> None:
                for n in range(count):
                    await js.publish(subjects[n % SUBJECTS], payloads[n % 1000])

            yield {"window": window, "ingest": ingest, "atomic": atomic, "single": single}[how]

    return opened


def jetspark_window(job: Job) -> Measure:
    return _in_one_loop(job, _jetspark("window"))


def jetspark_window_uvloop(job: Job) -> Measure:
    import uvloop

    return _in_one_loop(job, _jetspark("window"), uvloop.new_event_loop)


def jetspark_ingest(job: Job) -> Measure:
    return _in_one_loop(job, _jetspark("ingest"))


def jetspark_atomic(job: Job) -> Measure:
    return _in_one_loop(job, _jetspark("atomic"))


def jetspark_single(job: Job) -> Measure:
    return _in_one_loop(job, _jetspark("single"))


def jetspark_single_uvloop(job: Job) -> Measure:
    import uvloop

    return _in_one_loop(job, _jetspark("single"), uvloop.new_event_loop)


def jetspark_window_blocking(job: Job) -> Measure:
    import jetspark.blocking

    subjects, payloads = _subjects_and_payloads(job)
    with jetspark.blocking.connect(job.url) as nc:
        js = nc.jetstream()

        def window(count: int) -> None:
            with js.publisher(WINDOW) as publisher:
                for n in range(count):
                    publisher.send(subjects[n % SUBJECTS], payloads[n % 1000])

        return _measured(job, window)


def jetspark_single_blocking(job: Job) -> Measure:
    import jetspark.blocking

    subjects, payloads = _subjects_and_payloads(job)
    with jetspark.blocking.connect(job.url) as nc:
        js = nc.jetstream()

        def single(count: int) -> None:
            for n in range(count):
                js.publish(subjects[n % SUBJECTS], payloads[n % 1000])

        return _measured(job, single)


# -- nats-py -----------------------------------------------------------------------------------


@asynccontextmanager
async def _nats_py_window(job: Job) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    import nats

    subjects, payloads = _subjects_and_payloads(job)
    nc = await nats.connect(job.url)
    js = nc.jetstream(publish_async_max_pending=WINDOW)

    async def store(count: int) -> None:
        for n in range(count):
            await js.publish_async(subjects[n % SUBJECTS], payloads[n % 1000])
        await js.publish_async_completed()

    yield store
    await nc.close()


@asynccontextmanager
async def _nats_py_single(job: Job) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    import nats

    subjects, payloads = _subjects_and_payloads(job)
    nc = await nats.connect(job.url)
    js = nc.jetstream()

    async def store(count: int) -> None:
        for n in range(count):
            await js.publish(subjects[n % SUBJECTS], payloads[n % 1000])

    yield store
    await nc.close()


def nats_py_window(job: Job) -> Measure:
    return _in_one_loop(job, _nats_py_window)


def nats_py_single(job: Job) -> Measure:
    return _in_one_loop(job, _nats_py_single)


# -- natsio ------------------------------------------------------------------------------------


def _natsio(how: str) -> Callable[[Job], Any]:
    @asynccontextmanager
    async def opened(job: Job) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        import natsio
        import natsio.jetstream  # versions before 1.0 have none, and another interface

        subjects, payloads = _subjects_and_payloads(job)
        async with await natsio.connect(job.url) as nc:
            js = nc.jetstream(publish_async_max_pending=WINDOW, publish_async_stall_wait=30)

            async def window(count: int) -> None:
                for n in range(count):
                    await js.publish_async(subjects[n % SUBJECTS], payloads[n % 1000])
                await js.publish_async_complete()

            async def single(count: int) -> None:
                for n in range(count):
                    await js.publish(subjects[n % SUBJECTS], payloads[n % 1000])

            yield {"window": window, "single": single}[how]

    return opened


def natsio_window(job: Job) -> Measure:
    return _in_one_loop(job, _natsio("window"))


def natsio_single(job: Job) -> Measure:
    return _in_one_loop(job, _natsio("single"))


# -- natsrpy -----------------------------------------------------------------------------------


def _natsrpy(window: int) -> Callable[[Job], Any]:
    @asynccontextmanager
    async def opened(job: Job) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        import natsrpy

        subjects, payloads = _subjects_and_payloads(job)
        nc = natsrpy.Nats(addrs=[job.url])
        await nc.startup()
        js = await nc.jetstream()

        async def store(count: int) -> None:
            waiting: deque[Any] = deque()
            for n in range(count):
                sent = js.publish(subjects[n % SUBJECTS], payloads[n % 1000], wait=True)
                waiting.append(sent)
                if len(waiting) >= window:
                    await waiting.popleft()
            while waiting:
                await waiting.popleft()

        yield store
        await nc.shutdown()

    return opened


def natsrpy_window(job: Job) -> Measure:
    return _in_one_loop(job, _natsrpy(WINDOW))


def natsrpy_single(job: Job) -> Measure:
    return _in_one_loop(job, _natsrpy(1))
