"""A whole stream into Arrow: by a consumer, through a snapshot, and out of a backup's folder.

The first table has our own CPU, beside a raw drain of a pull consumer; the second one the server's
CPU for the same work. Every batch is looked at, and none is kept. The backup is made before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import raw
from benchmarks.flights import RepeatedPayloads, flights
from benchmarks.measure import Job, Measure, Stopwatch, Tally, pid_cpu
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.suites import read
from benchmarks.trial import timed_reading

_LABELS = {
    "raw_drain": "raw drain",
    "jetspark_bulk": "jetspark bulk, Arrow",
    "jetspark_snapshot": "through a snapshot, Arrow",
    "jetspark_backup": "a backup's folder, Arrow",
}
_OF_SERVER = {
    "server_bulk": "jetspark bulk, Arrow",
    "server_snapshot": "through a snapshot, Arrow",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)
    parser.add_argument(
        "--flights", action="store_true", help="the payloads are the demo's flights as JSON"
    )


def run(options: argparse.Namespace) -> Iterator[Section]:
    with _stage(options) as job:
        kind = "flights as JSON" if options.flights else "messages"
        what = f"{options.messages:,} {kind} of {job.size:,} bytes"
        title = f"Backfill: {what}"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "raw_drain")
        title = f"CPU of the server: {what}"
        yield race(options, __name__, _OF_SERVER, job, title, "server_bulk")


@contextmanager
def _stage(options: argparse.Namespace) -> Iterator[Job]:
    """A server with both streams, and a folder with a backup of each, where contestants run."""
    from jetspark import blocking
    from jetspark.server import NatsServer

    payloads = RepeatedPayloads(flights()) if options.flights else None
    with NatsServer(name="benchmarks") as server, tempfile.TemporaryDirectory() as folder:
        job = Job(
            url=server.url,
            messages=options.messages,
            size=payloads.size if payloads else options.size,
            warm_messages=options.warm_up,
        )
        for stream, messages in (
            (job.warm_stream, job.warm_messages),
            (job.stream, job.messages),
        ):
            raw.fill(job.url, stream, messages, job.size, payloads)
            with blocking.connect(job.url) as nc:
                nc.jetstream().backup_stream(stream, Path(folder, stream))
        # The contestants' environment: `settings` has numbers only.
        os.environ["BACKUPS"] = folder
        yield replace(job, settings={"server": server.pid})


# -- contestants -------------------------------------------------------------------------------

raw_drain = read.raw_drain
jetspark_bulk = read.jetspark_bulk


def jetspark_snapshot(job: Job) -> Measure:
    return timed_reading(job, partial(read.read_arrow, job, snapshot=True))


def jetspark_backup(job: Job) -> Measure:
    from jetspark.ranges.backup import open_backup

    def read_backup(stream: str, messages: int) -> Tally:
        return read.tally(open_backup(Path(os.environ["BACKUPS"], stream)).read())

    return timed_reading(job, read_backup)


def server_bulk(job: Job) -> Measure:
    return _of_server(job, snapshot=False)


def server_snapshot(job: Job) -> Measure:
    return _of_server(job, snapshot=True)


def _of_server(job: Job, *, snapshot: bool) -> Measure:
    read.read_arrow(job, job.warm_stream, job.warm_messages, snapshot=snapshot)
    with Stopwatch(partial(pid_cpu, job.settings["server"])) as watch:
        seen = read.read_arrow(job, job.stream, job.messages, snapshot=snapshot)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)
