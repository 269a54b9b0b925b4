"""Consuming a stream: each client's endless pull with its own defaults, against fetching.

Consumers, messages and what is looked at are those of `read`. nats-py has no endless pull: its
fetch is the base.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from benchmarks.measure import Job, Measure, Stopwatch, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import make_consumer
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites import read
from benchmarks.suites.read import jetspark_fetch as jetspark_fetch
from benchmarks.suites.read import nats_py_fetch as nats_py_fetch
from benchmarks.suites.read import timed

_LABELS = {
    "jetspark_consume": "jetspark consume",
    "jetspark_blocking": "jetspark consume, blocking",
    "jetspark_fetch": f"jetspark fetch({read.BATCH})",
    "natsio_consume": "natsio consume",
    "nats_py_fetch": f"nats-py fetch({read.BATCH})",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as job:
        title = f"Consume {options.messages:,} messages of {options.size:,} bytes"
        bases = "natsio_consume", "nats_py_fetch"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *bases)


# -- contestants -------------------------------------------------------------------------------


def jetspark_consume(job: Job) -> Measure:
    from jetspark.face import connect

    async def main() -> Measure:
        async with connect(job.url) as client:
            context = client.jetstream()

            async def consume(stream: str, name: str, messages: int) -> Tally:
                consumer = await context.consumer(stream, name)
                count = size = sequences = 0
                async with consumer.consume() as arriving:
                    async for message in arriving:
                        count += 1
                        size += len(message.data)
                        sequences += message.seq
                        if count == messages:
                            break
                return Tally(count, size, sequences)

            return await timed(job, consume)

    return asyncio.run(main())


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as client:
        context = client.jetstream()

        def consume(stream: str, name: str, messages: int) -> Tally:
            count = size = sequences = 0
            with context.consumer(stream, name).consume() as arriving:
                for message in arriving:
                    count += 1
                    size += len(message.data)
                    sequences += message.seq
                    if count == messages:
                        break
            return Tally(count, size, sequences)

        consume(job.warm_stream, make_consumer(job.url, job.warm_stream), job.warm_messages)
        consumer = make_consumer(job.url, job.stream)
        with Stopwatch() as watch:
            seen = consume(job.stream, consumer, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)


def natsio_consume(job: Job) -> Measure:
    import natsio
    import natsio.jetstream  # versions before 1.0 have none

    async def main() -> Measure:
        async with await natsio.connect(job.url) as client:
            context = client.jetstream()

            async def consume(stream: str, name: str, messages: int) -> Tally:
                consumer = await (await context.stream(stream)).consumer(name)
                count = size = sequences = 0
                async with consumer.consume() as arriving:
                    async for message in arriving:
                        count += 1
                        size += len(message.data)
                        sequences += message.metadata.stream_seq
                        if count == messages:
                            break
                return Tally(count, size, sequences)

            return await timed(job, consume)

    return asyncio.run(main())
