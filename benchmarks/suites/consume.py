"""Consuming a stream: each client's endless pull with its own defaults, against fetching.

Consumers, messages, the raw drain and what is looked at are those of `read`. nats-py has no endless
pull: its fetch is the base.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import islice

from benchmarks import clients, nats_go
from benchmarks.measure import Job, Measure, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.reading import (
    JETSPARK,
    NATS_PY,
    NATSIO,
    Look,
    equal_consumers,
    look_at,
    look_at_first,
)
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites.read import (
    BATCH,
    Bind,
    jetspark_consumer,
    nats_core_consumer,
    natsio_consumer,
)

# Contestants here too.
from benchmarks.suites.read import jetspark_fetch as jetspark_fetch
from benchmarks.suites.read import nats_py_fetch as nats_py_fetch
from benchmarks.suites.read import raw_drain as raw_drain
from benchmarks.trial import Plain, in_one_loop, timed_reading

_LABELS = {
    "raw_drain": "raw drain",
    "jetspark_consume": "jetspark consume",
    "jetspark_blocking": "jetspark consume, blocking",
    "jetspark_fetch": f"jetspark fetch({BATCH})",
    "natsio_consume": "natsio consume",
    "nats_core_messages": "nats-core messages",
    "nats_py_fetch": f"nats-py fetch({BATCH})",
    "nats_go_consume": "nats.go Consume",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as job:
        title = f"Consume {options.messages:,} messages of {options.size:,} bytes"
        bases = "raw_drain", "natsio_consume", "nats_py_fetch"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *bases)


# -- contestants -------------------------------------------------------------------------------


def _consumed(job: Job, plain: Plain, bind: Bind, look: Look) -> Measure:
    consumers = equal_consumers(job)

    @plain
    async def read(stream: str, messages: int) -> Tally:
        consumer = await bind(stream, consumers[stream])
        async with consumer.consume() as arriving:
            return await look_at_first(messages, arriving, look)

    return timed_reading(job, read)


def jetspark_consume(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (client, plain):
        return _consumed(job, plain, partial(jetspark_consumer, client), JETSPARK)


def natsio_consume(job: Job) -> Measure:
    with in_one_loop(clients.natsio(job.url)) as (client, plain):
        return _consumed(job, plain, partial(natsio_consumer, client), NATSIO)


def nats_core_messages(job: Job) -> Measure:
    consumers = equal_consumers(job)
    with in_one_loop(clients.nats_core(job.url)) as (client, plain):

        @plain
        async def read(stream: str, messages: int) -> Tally:
            consumer = await nats_core_consumer(client, stream, consumers[stream])
            arriving = await consumer.messages()
            try:
                return await look_at_first(messages, arriving, NATS_PY)
            finally:
                await arriving.stop()

        return timed_reading(job, read)


def nats_go_consume(job: Job) -> Measure:
    return nats_go.measured(job, "consume", consumers=equal_consumers(job))


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    consumers = equal_consumers(job)
    with connect(job.url) as client:
        context = client.jetstream()

        def read(stream: str, messages: int) -> Tally:
            with context.stream(stream).consumer(consumers[stream]).consume() as arriving:
                return look_at(islice(arriving, messages), JETSPARK)

        return timed_reading(job, read)
