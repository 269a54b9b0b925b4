"""Reading a stream over one connection, against a raw socket and other clients.

Every contestant that fetches has an equal consumer (ephemeral, ack none, kept in memory; made for
it beforehand) and looks at the payload and at the stream sequence of every message once, since a
client that parses late must pay for it too. The sums are compared with what the stream holds.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.measure import Job, Measure, Stopwatch, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import Drain, RawLink, bounded, make_consumer
from benchmarks.report import Section
from benchmarks.stage import stage

BATCH = 1000
_TIMEOUT = 30.0
_LABELS = {
    "raw_drain": "raw drain",
    "jetspark_bulk": "jetspark bulk, Arrow",
    "jetspark_fetch": f"jetspark fetch({BATCH})",
    "natsrpy_fetch": f"natsrpy fetch({BATCH})",
    "natsio_fetch": f"natsio fetch({BATCH})",
    "nats_py_fetch": f"nats-py fetch({BATCH})",
}

Read = Callable[[str, str, int], Awaitable[Tally]]
"""Reads so many messages: (stream, consumer, messages)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as job:
        title = f"Read {options.messages:,} messages of {options.size:,} bytes"
        bases = "raw_drain", "nats_py_fetch"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *bases)


# -- contestants -------------------------------------------------------------------------------


def raw_drain(job: Job) -> Measure:
    with RawLink(job.url) as link:
        Drain(link, job.url, job.warm_stream, job.warm_messages).run()
    with RawLink(job.url) as link:
        drain = Drain(link, job.url, job.stream, job.messages)
        with Stopwatch() as watch:
            drain.run()
        drain.check()
    return watch.measure(job.messages)


def jetspark_bulk(job: Job) -> Measure:
    read_arrow(job, job.warm_stream, job.warm_messages)
    with Stopwatch() as watch:
        seen = read_arrow(job, job.stream, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)


def read_arrow(job: Job, stream: str, messages: int) -> Tally:
    """A whole stream as record batches, of which none is kept."""
    import pyarrow.compute as pc

    from jetspark.bulk import links
    from jetspark.bulk.ranges import SequenceRange
    from jetspark.bulk.reader import read_range
    from jetspark.bulk.stream_api import StreamAPI
    from jetspark.connection.options import make_options

    options = make_options(job.url)
    link = links.borrow(options)
    created = StreamAPI(link).stream(stream).created
    links.give_back(options, link)
    rows = size = sequences = 0
    for batch in read_range(options, SequenceRange(stream, 1, messages + 1, created)):
        rows += batch.num_rows
        size += pc.sum(pc.binary_length(batch.column("data"))).as_py()
        sequences += pc.sum(batch.column("seq")).as_py()
    return Tally(rows, size, sequences)


def jetspark_fetch(job: Job) -> Measure:
    from jetspark.face import connect

    most = bounded(BATCH, job.size)

    async def main() -> Measure:
        async with connect(job.url) as client:
            context = client.jetstream()

            async def read(stream: str, name: str, messages: int) -> Tally:
                consumer = await context.consumer(stream, name)
                count = size = sequences = 0
                while count < messages:
                    batch = await consumer.fetch(min(most, messages - count), timeout=_TIMEOUT)
                    count += len(batch)
                    for message in batch:
                        size += len(message.data)
                        sequences += message.seq
                return Tally(count, size, sequences)

            return await timed(job, read)

    return asyncio.run(main())


def nats_py_fetch(job: Job) -> Measure:
    import nats

    most = bounded(BATCH, job.size)

    async def main() -> Measure:
        client = await nats.connect(job.url)
        context = client.jetstream()

        async def read(stream: str, name: str, messages: int) -> Tally:
            consumer = await context.pull_subscribe_bind(consumer=name, stream=stream)
            count = size = sequences = 0
            while count < messages:
                batch = await consumer.fetch(min(most, messages - count), timeout=_TIMEOUT)
                count += len(batch)
                for message in batch:
                    size += len(message.data)
                    sequences += message.metadata.sequence.stream
            return Tally(count, size, sequences)

        measure = await timed(job, read)
        await client.close()
        return measure

    return asyncio.run(main())


def natsrpy_fetch(job: Job) -> Measure:
    import natsrpy

    most = bounded(BATCH, job.size)

    async def main() -> Measure:
        client = natsrpy.Nats(addrs=[job.url])
        await client.startup()
        context = await client.jetstream()

        async def read(stream: str, name: str, messages: int) -> Tally:
            consumer = await (await context.streams.get(stream)).consumers.get_pull(name)
            count = size = sequences = 0
            while count < messages:
                batch = await consumer.fetch(min(most, messages - count), timeout=_TIMEOUT)
                count += len(batch)
                for message in batch:
                    size += len(message.payload)
                    sequences += message.stream_sequence
            return Tally(count, size, sequences)

        measure = await timed(job, read)
        await client.shutdown()
        return measure

    return asyncio.run(main())


def natsio_fetch(job: Job) -> Measure:
    import natsio
    import natsio.jetstream  # versions before 1.0 have none

    most = bounded(BATCH, job.size)

    async def main() -> Measure:
        async with await natsio.connect(job.url) as client:
            context = client.jetstream()

            async def read(stream: str, name: str, messages: int) -> Tally:
                consumer = await (await context.stream(stream)).consumer(name)
                count = size = sequences = 0
                while count < messages:
                    batch = await consumer.fetch(min(most, messages - count), timeout=_TIMEOUT)
                    count += len(batch)
                    for message in batch:
                        size += len(message.data)
                        sequences += message.metadata.stream_seq
                return Tally(count, size, sequences)

            return await timed(job, read)

    return asyncio.run(main())


async def timed(job: Job, read: Read) -> Measure:
    """Warm up on the small stream, then the timed part: bind to the consumer and fetch it all."""
    warm_consumer = make_consumer(job.url, job.warm_stream)
    await read(job.warm_stream, warm_consumer, job.warm_messages)
    consumer = make_consumer(job.url, job.stream)
    with Stopwatch() as watch:
        seen = await read(job.stream, consumer, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)
