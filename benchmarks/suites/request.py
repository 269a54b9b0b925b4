"""Single requests: one at a time over one connection, each reply awaited before the next request.

The replies come from a raw socket in the harness, the same for all. The floor is a blocking raw
socket that sends a request, receives the reply, and looks at none of it; the others look at the
length of each reply. So the ratio to the floor says what a client costs in a round trip.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from benchmarks import clients
from benchmarks import nats_go as go
from benchmarks.measure import Job, Measure
from benchmarks.peer import ECHO, echo
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import RawLink, round_trips
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop, timed

_LABELS = {
    "raw": "raw, blocking",
    "jetspark": "jetspark",
    "jetspark_uvloop": "jetspark, uvloop",
    "jetspark_blocking": "jetspark, blocking",
    "natsio": "natsio",
    "nats_core": "nats-core",
    "nats_py": "nats-py",
    "nats_go": "nats.go",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=20_000, warm_up=2_000)
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job, echo(job.url):
        title = f"Requests one at a time, {options.messages:,} of {options.size:,} bytes"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "nats_py", "raw")


def raw(job: Job) -> Measure:
    with RawLink(job.url) as link:
        inbox = f"{link.inbox}.reply"
        frame = b"PUB %b %b %d\r\n%b\r\n" % (
            ECHO.encode(),
            inbox.encode(),
            job.size,
            bytes(job.size),
        )
        return timed(job, lambda count: round_trips(link, [frame] * 1000, inbox, count))


def _asked(job: Job, connection: AbstractAsyncContextManager[Any], uvloop: bool = False) -> Measure:
    payload = bytes(job.size)
    with in_one_loop(connection, uvloop=uvloop) as (nc, plain):

        @plain
        async def ask(count: int) -> None:
            for _ in range(count):
                if len((await nc.request(ECHO, payload, timeout=10)).data) != job.size:
                    raise AssertionError("not the reply")

        return timed(job, ask)


def jetspark(job: Job) -> Measure:
    return _asked(job, clients.jetspark(job.url))


def jetspark_uvloop(job: Job) -> Measure:
    return _asked(job, clients.jetspark(job.url), uvloop=True)


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    payload = bytes(job.size)
    with connect(job.url) as nc:

        def ask(count: int) -> None:
            for _ in range(count):
                if len(nc.request(ECHO, payload, timeout=10).data) != job.size:
                    raise AssertionError("not the reply")

        return timed(job, ask)


def nats_py(job: Job) -> Measure:
    return _asked(job, clients.nats_py(job.url))


def natsio(job: Job) -> Measure:
    return _asked(job, clients.natsio(job.url))


def nats_core(job: Job) -> Measure:
    return _asked(job, clients.nats_core(job.url))


def nats_go(job: Job) -> Measure:
    return go.measured(job, "request", subject=ECHO)
