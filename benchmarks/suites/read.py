"""Reading a stream over one connection, against a raw socket and other clients.

Every contestant that fetches has an equal consumer (ephemeral, ack none, kept in memory; made for
it beforehand) and looks at the payload and at the stream sequence of every message once, since a
client that parses late must pay for it too. The sums are compared with what the stream holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from benchmarks import clients, nats_go
from benchmarks.measure import Job, Measure, Stopwatch, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import Drain, RawLink, bounded
from benchmarks.reading import JETSPARK, NATS_PY, NATSIO, NATSRPY, Look, equal_consumers, look_at
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.trial import Plain, in_one_loop, timed_reading

BATCH = 1000
_TIMEOUT = 30.0
_LABELS = {
    "raw_drain": "raw drain",
    "jetspark_bulk": "jetspark bulk, Arrow",
    "jetspark_polars": "jetspark.read, Polars",
    "jetspark_polars_by_consumer": "the same by a consumer",
    "nats_py_polars": f"nats-py fetch({BATCH}), Polars",
    "jetspark_fetch": f"jetspark fetch({BATCH})",
    "natsrpy_fetch": f"natsrpy fetch({BATCH})",
    "natsio_fetch": f"natsio fetch({BATCH})",
    "nats_core_fetch": f"nats-core fetch({BATCH})",
    "nats_py_fetch": f"nats-py fetch({BATCH})",
    "nats_go_fetch": f"nats.go Fetch({BATCH})",
}


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
    return timed_reading(job, partial(read_arrow, job))


def read_arrow(job: Job, stream: str, messages: int, *, snapshot: bool = False) -> Tally:
    """A whole stream as record batches, of which none is kept."""
    return tally(arrow_batches(job, stream, messages, snapshot=snapshot))


def arrow_batches(job: Job, stream: str, messages: int, *, snapshot: bool = False) -> Iterator[Any]:
    """A whole stream as record batches."""
    from jetspark.connection.options import make_options
    from jetspark.links.leaders import Leaders
    from jetspark.ranges.reader import read_range
    from jetspark.ranges.sequence_range import SequenceRange

    options = make_options(job.url)
    created = Leaders(options, _TIMEOUT).call(lambda api: api.stream(stream).created)
    wanted = SequenceRange(stream, 1, messages + 1, created, snapshot=snapshot)
    return read_range(options, wanted)


def tally(batches: Iterable[Any]) -> Tally:
    """What record batches hold."""
    import pyarrow.compute as pc

    rows = size = sequences = 0
    for batch in batches:
        rows += batch.num_rows
        size += pc.sum(pc.binary_length(batch.column("data"))).as_py()
        sequences += pc.sum(batch.column("seq")).as_py()
    return Tally(rows, size, sequences)


def jetspark_polars(job: Job) -> Measure:
    return timed_reading(job, partial(_read_polars, job))


def jetspark_polars_by_consumer(job: Job) -> Measure:
    return timed_reading(job, partial(_read_polars, job, backfill="consumer"))


def _read_polars(job: Job, stream: str, _: int, **how: Any) -> Tally:
    import jetspark

    return _of_frame(jetspark.read(stream, servers=job.url, **how).to_polars())


def _of_frame(frame: Any) -> Tally:
    size = frame["data"].bin.size().sum()
    return Tally(frame.height, size, frame["seq"].cast(int).sum())


Bind: TypeAlias = Callable[[str, str], Awaitable[Any]]
"""(stream, consumer) -> what has `fetch(batch, timeout=seconds)`."""


def _fetched(job: Job, plain: Plain, bind: Bind, look: Look) -> Measure:
    most = bounded(BATCH, job.size)
    consumers = equal_consumers(job)

    @plain
    async def read(stream: str, messages: int) -> Tally:
        consumer = await bind(stream, consumers[stream])
        seen = Tally(0, 0, 0)
        while seen.messages < messages:
            batch = await consumer.fetch(min(most, messages - seen.messages), timeout=_TIMEOUT)
            seen += look_at(batch, look)
        return seen

    return timed_reading(job, read)


def jetspark_fetch(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (client, plain):
        return _fetched(job, plain, partial(jetspark_consumer, client), JETSPARK)


def nats_py_fetch(job: Job) -> Measure:
    with in_one_loop(clients.nats_py(job.url)) as (client, plain):
        js = client.jetstream()
        return _fetched(
            job, plain, lambda stream, name: js.pull_subscribe_bind(name, stream), NATS_PY
        )


def nats_py_polars(job: Job) -> Measure:
    """What a user of nats-py writes: rows of subject, sequence, time and payload."""
    import polars

    most = bounded(BATCH, job.size)
    consumers = equal_consumers(job)
    with in_one_loop(clients.nats_py(job.url)) as (client, plain):

        @plain
        async def read(stream: str, messages: int) -> Tally:
            consumer = await client.jetstream().pull_subscribe_bind(consumers[stream], stream)
            rows: list[tuple[Any, ...]] = []
            while len(rows) < messages:
                count = min(most, messages - len(rows))
                for message in await consumer.fetch(count, timeout=_TIMEOUT):
                    metadata = message.metadata
                    sequence = metadata.sequence.stream
                    rows.append((message.subject, sequence, metadata.timestamp, message.data))
            names = ["subject", "seq", "timestamp", "data"]
            return _of_frame(polars.DataFrame(rows, names, orient="row"))

        return timed_reading(job, read)


def natsrpy_fetch(job: Job) -> Measure:
    with in_one_loop(clients.natsrpy(job.url)) as (client, plain):

        async def bind(stream: str, name: str) -> Any:
            context = await client.jetstream()
            return await (await context.streams.get(stream)).consumers.get_pull(name)

        return _fetched(job, plain, bind, NATSRPY)


def natsio_fetch(job: Job) -> Measure:
    with in_one_loop(clients.natsio(job.url)) as (client, plain):
        return _fetched(job, plain, partial(natsio_consumer, client), NATSIO)


def nats_core_fetch(job: Job) -> Measure:
    with in_one_loop(clients.nats_core(job.url)) as (client, plain):

        async def bind(stream: str, name: str) -> NatsCoreConsumer:
            return NatsCoreConsumer(await nats_core_consumer(client, stream, name))

        return _fetched(job, plain, bind, NATS_PY)


def nats_go_fetch(job: Job) -> Measure:
    most = bounded(BATCH, job.size)
    return nats_go.measured(job, "fetch", consumers=equal_consumers(job), batch=most)


class NatsCoreConsumer:
    """`fetch` as the others have it: theirs returns before the messages are there."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def fetch(self, batch: int, *, timeout: float) -> list[Any]:
        arriving = await self._consumer.fetch(max_messages=batch, max_wait=timeout)
        return [message async for message in arriving]


async def nats_core_consumer(client: Any, stream: str, name: str) -> Any:
    return await import_module("nats.jetstream").new(client).get_consumer(stream, name)


async def jetspark_consumer(client: Any, stream: str, name: str) -> Any:
    return await client.jetstream().stream(stream).consumer(name)


async def natsio_consumer(client: Any, stream: str, name: str) -> Any:
    return await (await client.jetstream().stream(stream)).consumer(name)
