"""Single requests: one at a time over one connection, each reply awaited before the next request.

The replies come from a raw socket in the harness, the same for all. The floor is a blocking raw
socket that sends a request, receives the reply, and looks at none of it; the others look at the
length of each reply. So the ratio to the floor says what a client costs in a round trip.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.peer import ECHO, echo
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import RawLink, round_trips
from benchmarks.report import Section
from benchmarks.stage import empty_stage

_LABELS = {
    "raw": "raw, blocking",
    "jetspark": "jetspark",
    "jetspark_uvloop": "jetspark, uvloop",
    "jetspark_blocking": "jetspark, blocking",
    "natsio": "natsio",
    "nats_py": "nats-py",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=20_000, warm_up=2_000)
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job, echo(job.url):
        title = f"Requests one at a time, {options.messages:,} of {options.size:,} bytes"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "nats_py", "raw")


def _measured(job: Job, ask: Callable[[int], None]) -> Measure:
    ask(job.warm_messages)
    with Stopwatch() as watch:
        ask(job.messages)
    return watch.measure(job.messages)


def raw(job: Job) -> Measure:
    with RawLink(job.url) as link:
        inbox = f"{link.inbox}.reply"
        frame = b"PUB %b %b %d\r\n%b\r\n" % (
            ECHO.encode(),
            inbox.encode(),
            job.size,
            bytes(job.size),
        )
        return _measured(job, lambda count: round_trips(link, [frame] * 1000, inbox, count))


async def _ask(job: Job, count: int, request: Callable[[bytes], Awaitable[Any]]) -> None:
    payload = bytes(job.size)
    for _ in range(count):
        if len((await request(payload)).data) != job.size:
            raise AssertionError("not the reply")


def jetspark(job: Job, loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Measure:
    from jetspark import connect

    with asyncio.Runner(loop_factory=loop) as runner:
        opening = connect(job.url)
        nc = runner.run(opening.__aenter__())
        try:
            return _measured(
                job, lambda count: runner.run(_ask(job, count, lambda p: nc.request(ECHO, p)))
            )
        finally:
            runner.run(opening.__aexit__(None, None, None))


def jetspark_uvloop(job: Job) -> Measure:
    import uvloop

    return jetspark(job, uvloop.new_event_loop)


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    payload = bytes(job.size)
    with connect(job.url) as nc:

        def ask(count: int) -> None:
            for _ in range(count):
                if len(nc.request(ECHO, payload).data) != job.size:
                    raise AssertionError("not the reply")

        return _measured(job, ask)


def nats_py(job: Job) -> Measure:
    import nats

    with asyncio.Runner() as runner:
        nc = runner.run(nats.connect(job.url))
        try:
            return _measured(
                job, lambda count: runner.run(_ask(job, count, lambda p: nc.request(ECHO, p, 10)))
            )
        finally:
            runner.run(nc.close())


def natsio(job: Job) -> Measure:
    import natsio
    import natsio.jetstream  # versions before 1.0 have none, and another interface

    async def connected() -> Any:
        return await natsio.connect(job.url)

    with asyncio.Runner() as runner:
        nc = runner.run(connected())
        try:
            return _measured(
                job,
                lambda count: runner.run(
                    _ask(job, count, lambda p: nc.request(ECHO, p, timeout=10))
                ),
            )
        finally:
            runner.run(nc.close())
