"""The stage: a real nats-server in a temporary folder, and the job that is to be done there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks import raw
from benchmarks.measure import Job
from benchmarks.turns import say


@contextmanager
def empty_stage(options: argparse.Namespace, *, jetstream: bool = True) -> Iterator[Job]:
    """A server without streams; gone with all its data afterwards."""
    # Imported late: suites import this module also under a Python that has no jetspark.
    from jetspark.server import NatsServer

    with NatsServer(name="benchmarks", jetstream=jetstream) as server:
        yield Job(
            url=server.url,
            messages=options.messages,
            size=options.size,
            warm_messages=options.warm_up,
        )


@contextmanager
def stage(
    options: argparse.Namespace, payloads: raw.Payloads | None = None, **settings: int
) -> Iterator[Job]:
    """A server with both streams of the job, which has the settings."""
    with empty_stage(options) as job:
        raw.fill(job.url, job.warm_stream, job.warm_messages, job.size, payloads)
        before = time.perf_counter()
        raw.fill(job.url, job.stream, job.messages, job.size, payloads)
        seconds = time.perf_counter() - before
        say(f"  filled {job.messages:,} messages of {job.size:,} bytes in {seconds:.1f} s")
        yield replace(job, settings=settings)
