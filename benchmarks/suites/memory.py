"""Peak memory of a bulk read: does it grow with the number of messages?

The same read of the first N / 5 and of all N messages of one stream. A reader that keeps anything
for each message needs more for the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.measure import Job
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites import read
from benchmarks.turns import Contestant, take_turns

_PART = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=5_000_000, rounds=3)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options.messages, options.warm_up, options.size) as url:
        whole = Job(
            url=url, messages=options.messages, size=options.size, warm_messages=options.warm_up
        )
        jobs = [replace(whole, messages=options.messages // _PART), whole]
        contestants = [
            Contestant(
                label=f"jetspark bulk, {job.messages:,}",
                suite=read.__name__,
                function=read.jetspark_bulk.__name__,
                job=job,
            )
            for job in jobs
        ]
        yield Section(
            f"Peak memory of a bulk read, messages of {options.size:,} bytes, "
            f"medians of {options.rounds} rounds",
            take_turns(contestants, options.rounds, options.timeout),
            (),
        )
