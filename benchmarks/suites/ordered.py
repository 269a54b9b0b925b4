"""Reading a stream with ordered consumers, each client's own with its own defaults.

Making the consumer is a part of the timed work. What is looked at of each message is that of
`read`. nats-py's is a push consumer with flow control.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.measure import Job, Measure, Stopwatch, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import stage

_LABELS = {
    "jetspark_ordered": "jetspark ordered",
    "jetspark_blocking": "jetspark ordered, blocking",
    "nats_py_ordered": "nats-py ordered",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as job:
        title = f"Read {options.messages:,} messages of {options.size:,} bytes in order"
        yield race(options, __name__, chosen(options, _LABELS), job, title, "nats_py_ordered")


# -- contestants -------------------------------------------------------------------------------


def jetspark_ordered(job: Job) -> Measure:
    from jetspark.face import connect

    async def main() -> Measure:
        async with connect(job.url) as client:
            context = client.jetstream()

            async def read(stream: str, messages: int) -> Tally:
                count = size = sequences = 0
                async for message in context.ordered(stream):
                    count += 1
                    size += len(message.data)
                    sequences += message.seq
                    if count == messages:
                        break
                return Tally(count, size, sequences)

            return await _timed(job, read)

    return asyncio.run(main())


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as client:
        context = client.jetstream()

        def read(stream: str, messages: int) -> Tally:
            count = size = sequences = 0
            for message in context.ordered(stream):
                count += 1
                size += len(message.data)
                sequences += message.seq
                if count == messages:
                    break
            return Tally(count, size, sequences)

        read(job.warm_stream, job.warm_messages)
        with Stopwatch() as watch:
            seen = read(job.stream, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)


def nats_py_ordered(job: Job) -> Measure:
    import nats

    async def main() -> Measure:
        client = await nats.connect(job.url)
        context = client.jetstream()

        async def read(stream: str, messages: int) -> Tally:
            subscription = await context.subscribe(">", stream=stream, ordered_consumer=True)
            count = size = sequences = 0
            async for message in subscription.messages:
                count += 1
                size += len(message.data)
                sequences += message.metadata.sequence.stream
                if count == messages:
                    break
            await subscription.unsubscribe()
            return Tally(count, size, sequences)

        measure = await _timed(job, read)
        await client.close()
        return measure

    return asyncio.run(main())


async def _timed(job: Job, read: Callable[[str, int], Awaitable[Tally]]) -> Measure:
    await read(job.warm_stream, job.warm_messages)
    with Stopwatch() as watch:
        seen = await read(job.stream, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)
