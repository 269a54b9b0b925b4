"""Publishing into a stream in files over one connection, every message acknowledged.

First many without waiting for each ack, as each client does it best, against a raw socket that
sends ahead of its acks; then one at a time, each ack awaited. The same payloads, random and never
the same twice in a thousand, go to the same hundred subjects. Every contestant has a new stream,
and the count of messages in it is compared at the end.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import clients, nats_go
from benchmarks.measure import Job, Measure
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import SUBJECTS, RawLink, make_stream, publish, round_trips
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop, timed

if TYPE_CHECKING:
    from jetspark import JetStream

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
    "nats_go_window": f"nats.go PublishAsync({WINDOW})",
}
_SINGLE = {
    "raw_single": "raw, blocking",
    "jetspark_single": "jetspark",
    "jetspark_single_uvloop": "jetspark, uvloop",
    "jetspark_single_blocking": "jetspark, blocking",
    "natsrpy_single": "natsrpy",
    "natsio_single": "natsio",
    "nats_core_single": "nats-core",
    "nats_py_single": "nats-py",
    "nats_go_single": "nats.go",
}


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

Messages: TypeAlias = Iterator[tuple[str, bytes]]
"""Subjects and payloads."""


def _new_stream(link: RawLink, job: Job) -> None:
    make_stream(link, job.stream)
    config = link.api(f"STREAM.INFO.{job.stream}")["config"]
    # A server that does not know them ignores them; the contestants who need them say so.
    link.api(f"STREAM.UPDATE.{job.stream}", config | {"allow_batched": True, "allow_atomic": True})


def _counted(job: Job, store: Callable[[int], object]) -> Measure:
    """`store` publishes so many messages."""
    return _checked(job, lambda: timed(job, store))


def _checked(job: Job, publish: Callable[[], Measure]) -> Measure:
    """`publish` publishes those of the warm-up and of the job."""
    with RawLink(job.url) as link:
        _new_stream(link, job)
        try:
            measure = publish()
            held = link.api(f"STREAM.INFO.{job.stream}")["state"]["messages"]
            if held != job.warm_messages + job.messages:
                raise AssertionError(f"the stream holds {held} messages")
        finally:
            link.api(f"STREAM.DELETE.{job.stream}")
        return measure


def _thousand(job: Job) -> list[tuple[str, bytes]]:
    dice = random.Random(job.size)
    return [(f"{job.stream}.{n % SUBJECTS:02}", dice.randbytes(job.size)) for n in range(1000)]


def _stored(job: Job, store: Callable[[Messages], object]) -> Measure:
    """`store` publishes the messages that it is given."""
    thousand = _thousand(job)
    return _counted(job, lambda count: store(islice(cycle(thousand), count)))


def _in_one_loop(
    job: Job,
    connection: AbstractAsyncContextManager[Any],
    store: Callable[[Any, Messages], Awaitable[None]],
    *,
    uvloop: bool = False,
    **settings: Any,
) -> Measure:
    """`await store(context, messages)`, where `settings` are those of the context."""
    with in_one_loop(connection, uvloop=uvloop) as (nc, plain):
        return _stored(job, plain(partial(store, nc.jetstream(**settings))))


async def _each(messages: Messages, send: Callable[[str, bytes], Awaitable[Any]]) -> None:
    for subject, payload in messages:
        await send(subject, payload)


async def _single(js: Any, messages: Messages) -> None:
    await _each(messages, js.publish)


# -- raw ---------------------------------------------------------------------------------------


def raw_pipelined(job: Job) -> Measure:
    with RawLink(job.url) as link:
        return _counted(job, lambda count: publish(link, job.stream, count, job.size))


def raw_single(job: Job) -> Measure:
    with RawLink(job.url) as link:
        inbox = f"{link.inbox}.ack"
        frames = [
            b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), job.size, payload)
            for subject, payload in _thousand(job)
        ]
        return _counted(job, lambda count: round_trips(link, frames, inbox, count))


# -- jetspark ----------------------------------------------------------------------------------


async def _publisher(js: JetStream, messages: Messages) -> None:
    async with js.publisher(WINDOW) as publisher:
        await _each(messages, publisher.publish)


async def _ingest(js: JetStream, messages: Messages) -> None:
    async with js.fast_ingest() as batch:
        await _each(messages, batch.publish)


async def _atomic(js: JetStream, messages: Messages) -> None:
    while some := list(islice(messages, 1000)):
        async with js.atomic_batch() as batch:
            await _each(iter(some), batch.publish)


def jetspark_window(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _publisher)


def jetspark_window_uvloop(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _publisher, uvloop=True)


def jetspark_ingest(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _ingest)


def jetspark_atomic(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _atomic)


def jetspark_single(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _single)


def jetspark_single_uvloop(job: Job) -> Measure:
    return _in_one_loop(job, clients.jetspark(job.url), _single, uvloop=True)


def jetspark_window_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        js = nc.jetstream()

        def store(messages: Messages) -> None:
            with js.publisher(WINDOW) as publisher:
                for subject, payload in messages:
                    publisher.publish(subject, payload)

        return _stored(job, store)


def jetspark_single_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        js = nc.jetstream()

        def store(messages: Messages) -> None:
            for subject, payload in messages:
                js.publish(subject, payload)

        return _stored(job, store)


# -- other clients -----------------------------------------------------------------------------


def nats_py_window(job: Job) -> Measure:
    async def store(js: Any, messages: Messages) -> None:
        await _each(messages, js.publish_async)
        await js.publish_async_completed()

    connection = clients.nats_py(job.url)
    return _in_one_loop(job, connection, store, publish_async_max_pending=WINDOW)


def nats_py_single(job: Job) -> Measure:
    return _in_one_loop(job, clients.nats_py(job.url), _single)


def nats_core_single(job: Job) -> Measure:
    with in_one_loop(clients.nats_core(job.url)) as (nc, plain):
        js = import_module("nats.jetstream").new(nc)
        return _stored(job, plain(partial(_single, js)))


def nats_go_window(job: Job) -> Measure:
    return _checked(job, lambda: nats_go.measured(job, "window", window=WINDOW))


def nats_go_single(job: Job) -> Measure:
    return _checked(job, lambda: nats_go.measured(job, "publish"))


def natsio_window(job: Job) -> Measure:
    async def store(js: Any, messages: Messages) -> None:
        await _each(messages, js.publish_async)
        await js.publish_async_complete()

    settings: dict[str, Any] = {"publish_async_max_pending": WINDOW, "publish_async_stall_wait": 30}
    return _in_one_loop(job, clients.natsio(job.url), store, **settings)


def natsio_single(job: Job) -> Measure:
    return _in_one_loop(job, clients.natsio(job.url), _single)


def _natsrpy(job: Job, window: int) -> Measure:
    with in_one_loop(clients.natsrpy(job.url)) as (nc, plain):

        @plain
        async def store(messages: Messages) -> None:
            js = await nc.jetstream()
            waiting: deque[Any] = deque()
            for subject, payload in messages:
                waiting.append(js.publish(subject, payload, wait=True))
                if len(waiting) >= window:
                    await waiting.popleft()
            while waiting:
                await waiting.popleft()

        return _stored(job, store)


def natsrpy_window(job: Job) -> Measure:
    return _natsrpy(job, WINDOW)


def natsrpy_single(job: Job) -> Measure:
    return _natsrpy(job, 1)
