"""What metrics cost: the same work with `hooks=observe()` and without, by turns in one process.

Turns are short, so that both see the same machine: the cost is the median of the ratios of
neighbours. A third connection, without hooks like the second, shows how far noise goes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from benchmarks.measure import Job, Measure
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import empty_stage

_LABELS = {
    "publish": "JetStream publish, each ack awaited",
    "publisher": "JetStream publisher",
    "core": "publish",
    "fetch": "fetch(500)",
    "request": "request",
}
_TURN = 500
Turn = Callable[[Any], Awaitable[None]]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=100_000, warm_up=2_000, rounds=1)
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:
        title = f"Cost of metrics, {options.messages // _TURN} turns of {_TURN:,}"
        yield race(options, __name__, chosen(options, _LABELS), job, title)


def _compared(job: Job, turn: Turn, prepare: Turn | None = None) -> Measure:
    return asyncio.run(_by_turns(job, turn, prepare))


async def _by_turns(job: Job, turn: Turn, prepare: Turn | None) -> Measure:
    import jetspark

    async def taken(nc: Any) -> tuple[float, float]:
        if prepare is not None:
            await prepare(nc)
        begin, cpu = time.perf_counter(), time.process_time()
        await turn(nc)
        return time.perf_counter() - begin, time.process_time() - cpu

    async with (
        jetspark.connect(job.url, hooks=jetspark.observe()) as on,
        jetspark.connect(job.url) as off,
        jetspark.connect(job.url) as same,
    ):
        js = off.jetstream()
        await js.create_stream(name="COST", subjects=["cost"], storage="memory", max_msgs=100_000)
        clients = [on, off, same]
        begin, cpu, found = time.perf_counter(), time.process_time(), []
        for number in range(job.messages // _TURN):
            clients.append(clients.pop(0))  # each is the first one as often as the others
            times = {client: await taken(client) for client in clients}
            if number >= job.warm_messages // _TURN:
                found.append([times[client] for client in (on, off, same)])
        await js.delete_stream("COST")
    return Measure(
        job.messages,
        time.perf_counter() - begin,
        time.process_time() - cpu,
        None,
        _figures([tuple(one[0] for one in times) for times in found], "")
        | _figures([tuple(one[1] for one in times) for times in found], "CPU "),
    )


def _figures(turns: list[tuple[float, ...]], what: str) -> dict[str, float]:
    off = statistics.median(off for _, off, _ in turns)
    return {
        f"{what}µs": off / _TURN * 1e6,
        f"{what}on, %": 100 * (statistics.median(on / off for on, off, _ in turns) - 1),
        f"{what}off, %": 100 * (statistics.median(same / off for _, off, same in turns) - 1),
    }


def publish(job: Job) -> Measure:
    async def turn(nc: Any) -> None:
        js = nc.jetstream()
        for _ in range(_TURN):
            await js.publish("cost", bytes(job.size))

    return _compared(job, turn)


def publisher(job: Job) -> Measure:
    async def turn(nc: Any) -> None:
        async with nc.jetstream().publisher() as many:
            for _ in range(_TURN):
                await many.publish("cost", bytes(job.size))

    return _compared(job, turn)


def core(job: Job) -> Measure:
    async def turn(nc: Any) -> None:
        for _ in range(_TURN):
            await nc.publish("nobody", bytes(job.size))
        await nc.flush()

    return _compared(job, turn)


def request(job: Job) -> Measure:
    async def turn(nc: Any) -> None:
        async def answer(message: Any) -> None:
            await message.respond(b"1")

        async with nc.subscribe("asked", callback=answer):
            for _ in range(_TURN):
                await nc.request("asked", bytes(job.size))

    return _compared(job, turn)


def fetch(job: Job) -> Measure:
    consumers: dict[Any, Any] = {}

    async def prepare(nc: Any) -> None:
        js = nc.jetstream()
        async with js.publisher() as many:
            for _ in range(_TURN):
                await many.publish("cost", bytes(job.size))
        if nc not in consumers:
            consumers[nc] = await js.stream("COST").create_consumer(ack_policy="none")

    async def turn(nc: Any) -> None:
        got = 0
        while got < _TURN:
            got += len(await consumers[nc].fetch(_TURN - got, timeout=10))

    return _compared(job, turn, prepare)
