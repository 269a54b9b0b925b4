"""One large object into an object store and out of it, against nats-py.

From a file and into a file that keeps nothing (/dev/null), in chunks of 128 KiB, digest included on
both ways. A "message" of the table is a chunk: 8 of them are a MiB.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from benchmarks import clients
from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop

CHUNK = 128 * 1024
_STORE, _OBJECT, _COPY = "BENCH", "large", "copy"
_LABELS = {
    "jetspark": "jetspark",
    "jetspark_blocking": "jetspark, blocking",
    "nats_py": "nats-py",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)
    parser.set_defaults(messages=2048, size=CHUNK, rounds=3)


def run(options: argparse.Namespace) -> Iterator[Section]:
    from jetspark import blocking

    with tempfile.TemporaryDirectory() as folder, empty_stage(options) as job:
        source = Path(folder) / "source"
        block = random.Random(1).randbytes(job.size)
        with source.open("wb") as file:
            for number in range(job.messages):
                file.write(block[number % 1000 :] + block[: number % 1000])
        with blocking.connect(job.url) as nc:
            store = nc.jetstream().create_object_store(_STORE)
            store.put(_OBJECT, source, chunk_size=job.size)
        job = replace(job, stream=str(source))
        what = f"{job.messages * job.size / 2**20:,.0f} MiB, chunks of {job.size:,} bytes"
        for way in ("put", "get"):
            labels = chosen(options, _LABELS)
            functions = {f"{name}_{way}": label for name, label in labels.items()}
            title = f"{way.capitalize()} an object of {what}"
            yield race(options, __name__, functions, job, title, f"nats_py_{way}")


# -- contestants -------------------------------------------------------------------------------


def _put(
    job: Job, put: Callable[[str, BinaryIO], object], delete: Callable[[str], object]
) -> Measure:
    with open(job.stream, "rb") as file, Stopwatch() as watch:
        put(_COPY, file)
    delete(_COPY)
    return watch.measure(job.messages)


def _get(job: Job, get_into: Callable[[str, BinaryIO], object]) -> Measure:
    with open(os.devnull, "wb") as file, Stopwatch() as watch:
        get_into(_OBJECT, file)
    return watch.measure(job.messages)


def jetspark_put(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        put = partial(plain(store.put), chunk_size=job.size)
        return _put(job, put, plain(store.delete))


def jetspark_get(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        return _get(job, plain(store.get_into))


def jetspark_blocking_put(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        store = nc.jetstream().object_store(_STORE)
        return _put(job, partial(store.put, chunk_size=job.size), store.delete)


def jetspark_blocking_get(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        return _get(job, nc.jetstream().object_store(_STORE).get_into)


def nats_py_put(job: Job) -> Measure:
    from nats.js.api import ObjectMeta, ObjectMetaOptions

    with in_one_loop(clients.nats_py(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        meta = ObjectMeta(options=ObjectMetaOptions(max_chunk_size=job.size))
        return _put(job, partial(plain(store.put), meta=meta), plain(store.delete))


def nats_py_get(job: Job) -> Measure:
    with in_one_loop(clients.nats_py(job.url)) as (nc, plain):
        store = plain(nc.jetstream().object_store)(_STORE)
        return _get(job, plain(store.get))
