"""One large object into an object store and out of it, from memory and from a file.

In chunks of 128 KiB, digest included on both ways. A "message" of the table is a chunk: 8 of them
are a MiB. The raw socket sends or receives as many chunks, and computes no digest.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks import clients, raw
from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop

CHUNK = 128 * 1024
_STORE, _OBJECT, _COPY, _RAW = "BENCH", "large", "copy", "RAW"
_LABELS = {
    "jetspark": "jetspark",
    "jetspark_blocking": "jetspark, blocking",
    "natsio": "natsio",
    "nats_py": "nats-py",
    "raw": "raw socket",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)
    parser.set_defaults(messages=1600, size=CHUNK, rounds=3)


def run(options: argparse.Namespace) -> Iterator[Section]:
    from jetspark import blocking

    with tempfile.TemporaryDirectory() as folder, empty_stage(options) as job:
        source = Path(folder) / "source"
        block = random.Random(1).randbytes(job.size)
        with source.open("wb") as file:
            for number in range(job.messages):
                file.write(block[number % 1000 :] + block[: number % 1000])
        with blocking.connect(job.url) as nc:
            store = nc.jetstream().create_object_store(_STORE, allow_batched=True)
            store.put(_OBJECT, source, chunk_size=job.size)
        raw.fill(job.url, _RAW, job.messages, job.size)
        job = replace(job, stream=str(source))
        what = f"{job.messages * job.size / 2**20:,.0f} MiB, chunks of {job.size:,} bytes"
        for place in ("memory", "file"):
            placed = replace(job, settings={"in_memory": int(place == "memory")})
            for way in ("put", "get"):
                labels = chosen(options, _LABELS)
                functions = {f"{name}_{way}": label for name, label in labels.items()}
                title = f"{way.capitalize()} an object of {what}, {place}"
                bases = (f"{name}_{way}" for name in ("raw", "natsio", "nats_py"))
                yield race(options, __name__, functions, placed, title, *bases)


# -- contestants -------------------------------------------------------------------------------


def _put(job: Job, put: Callable[[str, Any], object], delete: Callable[[str], object]) -> Measure:
    with open(job.stream, "rb") as file:
        data = file.read() if job.settings["in_memory"] else file
        with Stopwatch() as watch:
            put(_COPY, data)
    delete(_COPY)
    return watch.measure(job.messages)


def _get(
    job: Job, get_size: Callable[[str], int], get_into: Callable[[str, BinaryIO], object]
) -> Measure:
    if job.settings["in_memory"]:
        with Stopwatch() as watch:
            size = get_size(_OBJECT)
        if size != job.messages * job.size:
            raise AssertionError(f"read {size} bytes")
        return watch.measure(job.messages)
    with tempfile.TemporaryFile() as file, Stopwatch() as watch:
        get_into(_OBJECT, file)
    return watch.measure(job.messages)


def _size_of(get: Callable[[str], Awaitable[bytes]]) -> Callable[[str], Awaitable[int]]:
    """How many bytes it gets: asyncio's runner may write out the whole result of what it ran."""

    async def size(name: str) -> int:
        return len(await get(name))

    return size


def jetspark_put(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        put = partial(plain(store.put), chunk_size=job.size)
        return _put(job, put, plain(store.delete))


def jetspark_get(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        return _get(job, plain(_size_of(store.get_bytes)), plain(store.get_into))


def jetspark_blocking_put(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        store = nc.jetstream().object_store(_STORE)
        return _put(job, partial(store.put, chunk_size=job.size), store.delete)


def jetspark_blocking_get(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        store = nc.jetstream().object_store(_STORE)
        return _get(job, lambda name: len(store.get_bytes(name)), store.get_into)


def nats_py_put(job: Job) -> Measure:
    from nats.js.api import ObjectMeta, ObjectMetaOptions

    with in_one_loop(clients.nats_py(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        meta = ObjectMeta(options=ObjectMetaOptions(max_chunk_size=job.size))
        return _put(job, partial(plain(store.put), meta=meta), plain(store.delete))


def nats_py_get(job: Job) -> Measure:
    with in_one_loop(clients.nats_py(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)

        async def get(name: str) -> bytes:
            content: bytes = (await store.get(name)).data
            return content

        return _get(job, plain(_size_of(get)), plain(store.get))


def natsio_put(job: Job) -> Measure:
    ObjectMeta = import_module("natsio.objectstore").ObjectMeta

    async def blocks(file: BinaryIO) -> AsyncIterator[bytes]:
        while block := file.read(8 * job.size):
            yield block

    with in_one_loop(clients.natsio(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)

        async def put(name: str, data: Any) -> None:
            meta = ObjectMeta(name=name, chunk_size=job.size)
            await store.put(meta, data if isinstance(data, bytes) else blocks(data))

        return _put(job, plain(put), plain(store.delete))


def natsio_get(job: Job) -> Measure:
    with in_one_loop(clients.natsio(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)

        async def get_into(name: str, file: BinaryIO) -> None:
            async with store.get(name) as chunks:
                async for chunk in chunks:
                    file.write(chunk)

        return _get(job, plain(_size_of(store.get_bytes)), plain(get_into))


def raw_put(job: Job) -> Measure:
    content = Path(job.stream).read_bytes()
    subject = f"$O.{_STORE}.C.{_RAW}"
    with raw.RawLink(job.url) as link:
        with Stopwatch() as watch:
            raw.publish_chunks(link, subject, content, job.size)
        link.api(f"STREAM.PURGE.OBJ_{_STORE}", {"filter": subject})
    return watch.measure(job.messages)


def raw_get(job: Job) -> Measure:
    with raw.RawLink(job.url) as link:
        drain = raw.Drain(link, job.url, _RAW, job.messages)
        with Stopwatch() as watch:
            drain.run()
        drain.check()
    return watch.measure(job.messages)
