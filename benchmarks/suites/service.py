"""Services: requests that one endpoint answers, up to 2,000 of them under way.

They come from a raw socket in the harness, the same for all, with 500 reply subjects in turn; the
answer is the payload of the request. An endpoint is compared with the same client's plain
subscription, whose callback answers, and with nats-py's.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

from benchmarks import clients
from benchmarks.measure import Job, Measure
from benchmarks.peer import ENDPOINT, MORE, requester
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.trial import in_one_loop, timed

_LABELS = {
    "jetspark": "jetspark, endpoint",
    "jetspark_plain": "jetspark, endpoint, plain function",
    "jetspark_concurrent": "jetspark, endpoint, 64 at once",
    "jetspark_uvloop": "jetspark, endpoint, uvloop",
    "jetspark_subscription": "jetspark, subscription",
    "jetspark_blocking": "jetspark, blocking endpoint",
    "jetspark_blocking_subscription": "jetspark, blocking subscription",
    "nats_py": "nats-py, endpoint",
    "nats_py_subscription": "nats-py, subscription",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=200_000)
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options, jetstream=False) as job, requester(job.url, job.size):
        title = f"Answered requests, {options.messages:,} of {options.size:,} bytes"
        bases = "nats_py", "jetspark_subscription"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *bases)


async def _answer(request: Any) -> None:
    await request.respond(request.data)


def _answered(
    job: Job,
    connection: AbstractAsyncContextManager[Any],
    serve: Callable[[Any], Awaitable[object]],
    *,
    uvloop: bool = False,
) -> Measure:
    with in_one_loop(connection, uvloop=uvloop) as (nc, plain):
        plain(serve)(nc)
        plain(nc.flush)()

        @plain
        async def work(count: int) -> None:
            await nc.request(MORE, str(count).encode(), timeout=60)

        return timed(job, work)


def _endpoint(job: Job, handler: Callable[[Any], Any] = _answer, **options: Any) -> Measure:
    uvloop = options.pop("uvloop", False)

    async def serve(nc: Any) -> None:
        service = await nc.add_service("bench", "1.0.0")
        await service.add_endpoint("echo", handler, subject=ENDPOINT, **options)

    return _answered(job, clients.jetspark(job.url), serve, uvloop=uvloop)


def jetspark(job: Job) -> Measure:
    return _endpoint(job)


def jetspark_plain(job: Job) -> Measure:
    return _endpoint(job, lambda request: request.respond_nowait(request.data))


def jetspark_concurrent(job: Job) -> Measure:
    return _endpoint(job, concurrency=64)


def jetspark_uvloop(job: Job) -> Measure:
    return _endpoint(job, uvloop=True)


def jetspark_subscription(job: Job) -> Measure:
    async def serve(nc: Any) -> None:
        nc.subscribe(ENDPOINT, queue="q", callback=_answer)

    return _answered(job, clients.jetspark(job.url), serve)


def _blocking(job: Job, serve: Callable[[Any], object]) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        serve(nc)
        nc.flush()
        return timed(job, lambda count: nc.request(MORE, str(count).encode(), timeout=60))


def jetspark_blocking(job: Job) -> Measure:
    def serve(nc: Any) -> None:
        service = nc.add_service("bench", "1.0.0")
        service.add_endpoint("echo", lambda r: r.respond(r.data), subject=ENDPOINT)

    return _blocking(job, serve)


def jetspark_blocking_subscription(job: Job) -> Measure:
    return _blocking(
        job, lambda nc: nc.subscribe(ENDPOINT, queue="q", callback=lambda m: m.respond(m.data))
    )


def nats_py(job: Job) -> Measure:
    async def serve(nc: Any) -> None:
        micro = import_module("nats.micro")
        service = await micro.add_service(nc, name="bench", version="1.0.0")
        await service.add_endpoint(name="echo", subject=ENDPOINT, handler=_answer)

    return _answered(job, clients.nats_py(job.url), serve)


def nats_py_subscription(job: Job) -> Measure:
    async def serve(nc: Any) -> None:
        await nc.subscribe(ENDPOINT, queue="q", cb=_answer)

    return _answered(job, clients.nats_py(job.url), serve)
