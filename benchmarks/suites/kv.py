"""Buckets: starting on one with many keys, and putting and getting keys one at a time.

To start is to watch until the initial data is complete, or to list the keys.

Key, value and revision of every entry are looked at. The peak of `keys` shows whether listing
holds what it has given out; the live mapping holds all of it, on purpose. nats-py is left out above
500,000 keys: it drops messages there, and its watch never becomes complete. Puts and gets are of
the bucket's first thousand keys, each reply awaited before the next request.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import cycle, islice
from operator import attrgetter
from typing import Any

from benchmarks import clients, nats_go
from benchmarks.measure import Job, Measure, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.reading import look_at
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop, timed, timed_reading
from benchmarks.turns import say

_LABELS = {
    "jetspark_watch": "jetspark watch",
    "jetspark_live": "jetspark live mapping",
    "jetspark_keys": "jetspark keys",
    "jetspark_blocking": "jetspark watch, blocking",
    "nats_py_watch": "nats-py watch",
}
_GET = {
    "jetspark_get": "jetspark",
    "jetspark_get_uvloop": "jetspark, uvloop",
    "jetspark_get_blocking": "jetspark, blocking",
    "nats_py_get": "nats-py",
    "nats_go_get": "nats.go",
}
_PUT = {function.replace("get", "put"): label for function, label in _GET.items()}
_BUCKET, _WARM = "bench", "warm"
_NATS_PY_HOLDS = 500_000
_KEYS = [f"key.{number}" for number in range(1000)]


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, (*_LABELS, *_GET, *_PUT))
    parser.add_argument("--single", type=int, default=20_000, metavar="N")
    parser.set_defaults(rounds=3)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:
        say(f"filling a bucket with {options.messages:,} keys")
        job = replace(job, stream=_BUCKET, warm_stream=_WARM)
        asyncio.run(fill(job.url, job.warm_stream, job.warm_messages, job.size))
        asyncio.run(fill(job.url, job.stream, job.messages, job.size))
        labels = chosen(options, _LABELS)
        if options.messages > _NATS_PY_HOLDS:
            labels.pop("nats_py_watch", None)
        title = f"Start on a bucket of {options.messages:,} keys, values of {options.size:,} bytes"
        if labels:
            yield race(options, __name__, labels, job, title, "nats_py_watch")
        single = replace(job, messages=options.single)
        what = f"{options.single:,} values of {options.size:,} bytes, one at a time"
        for title, functions in ((f"Put {what}", _PUT), (f"Get {what}", _GET)):
            if labels := chosen(options, functions):
                bases = (function for function in labels if function.startswith("nats"))
                yield race(options, __name__, labels, single, title, *bases)


async def fill(url: str, bucket: str, keys: int, size: int) -> None:
    """A new bucket with so many keys."""
    from jetspark.full_client import connect

    value = bytes(size)
    async with connect(url) as client:
        context = client.jetstream()
        await context.create_bucket(bucket)
        async with context.publisher() as publisher:
            for number in range(keys):
                await publisher.publish(f"$KV.{bucket}.key.{number}", value)


# -- contestants -------------------------------------------------------------------------------


async def _initial(entries: AsyncIterable[Any]) -> Tally:
    count = size = revisions = 0
    async for entry in entries:
        if entry is None:
            break
        assert entry.key.startswith("key.")
        count += 1
        size += len(entry.value)
        revisions += entry.revision
    return Tally(count, size, revisions)


def _jetspark(job: Job, read: Callable[[Any], Awaitable[Tally]]) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (client, plain):
        context = client.jetstream()

        @plain
        async def start(name: str, _: int) -> Tally:
            return await read(await context.bucket(name))

        return timed_reading(job, start)


def jetspark_watch(job: Job) -> Measure:
    return _jetspark(job, lambda bucket: _initial(bucket.watch()))


def jetspark_live(job: Job) -> Measure:
    async def read(bucket: Any) -> Tally:
        async with bucket.live() as live:
            return look_at(live.entries().values(), attrgetter("value", "revision"))

    return _jetspark(job, read)


def jetspark_keys(job: Job) -> Measure:
    async def read(bucket: Any) -> Tally:
        count = revisions = 0
        async for key in bucket.keys():
            count += 1
            revisions += int(key.removeprefix("key.")) + 1
        return Tally(count, 0, revisions)

    return _jetspark(replace(job, size=0), read)


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as client:
        context = client.jetstream()

        def read(name: str, _: int) -> Tally:
            count = size = revisions = 0
            for entry in context.bucket(name).watch():
                if entry is None:
                    break
                assert entry.key.startswith("key.")
                count += 1
                size += len(entry.value)
                revisions += entry.revision
            return Tally(count, size, revisions)

        return timed_reading(job, read)


def nats_py_watch(job: Job) -> Measure:
    async def updates(watcher: Any) -> AsyncIterator[Any]:
        while (entry := await watcher.updates(timeout=60)) is not None:
            yield entry

    with in_one_loop(clients.nats_py(job.url)) as (client, plain):
        context = client.jetstream()

        @plain
        async def read(name: str, _: int) -> Tally:
            watcher = await (await context.key_value(name)).watchall()
            seen = await _initial(updates(watcher))
            await watcher.stop()
            return seen

        return timed_reading(job, read)


# -- one at a time -----------------------------------------------------------------------------


def _keys(count: int) -> Iterator[str]:
    return islice(cycle(_KEYS), count)


def _got(
    job: Job, client: AbstractAsyncContextManager[Any], bucket: str, uvloop: bool = False
) -> Measure:
    """`bucket`: the name of the method that opens one."""
    with in_one_loop(client, uvloop=uvloop) as (nc, plain):
        opened = plain(getattr(nc.jetstream(), bucket))(job.stream)

        @plain
        async def get(count: int) -> None:
            for key in _keys(count):
                if len((await opened.get(key)).value) != job.size:
                    raise AssertionError("another value")

        return timed(job, get)


def _put(
    job: Job, client: AbstractAsyncContextManager[Any], bucket: str, uvloop: bool = False
) -> Measure:
    value = bytes(job.size)
    with in_one_loop(client, uvloop=uvloop) as (nc, plain):
        opened = plain(getattr(nc.jetstream(), bucket))(job.stream)

        @plain
        async def put(count: int) -> None:
            for key in _keys(count):
                await opened.put(key, value)

        return timed(job, put)


def jetspark_get(job: Job) -> Measure:
    return _got(job, clients.jetspark(job.url), "bucket")


def jetspark_get_uvloop(job: Job) -> Measure:
    return _got(job, clients.jetspark(job.url), "bucket", uvloop=True)


def jetspark_get_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as client:
        bucket = client.jetstream().bucket(job.stream)

        def get(count: int) -> None:
            for key in _keys(count):
                if len(bucket.get(key).value) != job.size:
                    raise AssertionError("another value")

        return timed(job, get)


def jetspark_put(job: Job) -> Measure:
    return _put(job, clients.jetspark(job.url), "bucket")


def jetspark_put_uvloop(job: Job) -> Measure:
    return _put(job, clients.jetspark(job.url), "bucket", uvloop=True)


def jetspark_put_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    value = bytes(job.size)
    with connect(job.url) as client:
        bucket = client.jetstream().bucket(job.stream)

        def put(count: int) -> None:
            for key in _keys(count):
                bucket.put(key, value)

        return timed(job, put)


def nats_py_get(job: Job) -> Measure:
    return _got(job, clients.nats_py(job.url), "key_value")


def nats_py_put(job: Job) -> Measure:
    return _put(job, clients.nats_py(job.url), "key_value")


def nats_go_get(job: Job) -> Measure:
    return nats_go.measured(job, "get")


def nats_go_put(job: Job) -> Measure:
    return nats_go.measured(job, "put")
