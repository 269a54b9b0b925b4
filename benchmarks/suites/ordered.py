"""Reading a stream with ordered consumers, each client's own with its own defaults.

Making the consumer is a part of the timed work. What is looked at of each message is that of
`read`. nats-py's is a push consumer with flow control.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

from benchmarks import clients
from benchmarks.measure import Job, Measure, Tally
from benchmarks.race import chosen, contestant_options, race
from benchmarks.reading import JETSPARK, NATS_PY, look_at, look_at_first
from benchmarks.report import Section
from benchmarks.stage import stage

# A contestant here too.
from benchmarks.suites.read import raw_drain as raw_drain
from benchmarks.trial import in_one_loop, timed_reading

_LABELS = {
    "raw_drain": "raw drain",
    "jetspark_ordered": "jetspark ordered",
    "jetspark_blocking": "jetspark ordered, blocking",
    "nats_py_ordered": "nats-py ordered",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as job:
        title = f"Read {options.messages:,} messages of {options.size:,} bytes in order"
        bases = "raw_drain", "nats_py_ordered"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *bases)


# -- contestants -------------------------------------------------------------------------------


def jetspark_ordered(job: Job) -> Measure:
    with in_one_loop(clients.jetspark(job.url)) as (client, plain):
        context = client.jetstream()

        @plain
        async def read(stream: str, messages: int) -> Tally:
            return await look_at_first(messages, context.stream(stream).ordered(), JETSPARK)

        return timed_reading(job, read)


def jetspark_blocking(job: Job) -> Measure:
    from jetspark.blocking import connect

    with connect(job.url) as client:
        context = client.jetstream()

        def read(stream: str, messages: int) -> Tally:
            return look_at(islice(context.stream(stream).ordered(), messages), JETSPARK)

        return timed_reading(job, read)


def nats_py_ordered(job: Job) -> Measure:
    with in_one_loop(clients.nats_py(job.url)) as (client, plain):
        context = client.jetstream()

        @plain
        async def read(stream: str, messages: int) -> Tally:
            subscription = await context.subscribe(">", stream=stream, ordered_consumer=True)
            seen = await look_at_first(messages, subscription.messages, NATS_PY)
            await subscription.unsubscribe()
            return seen

        return timed_reading(job, read)
