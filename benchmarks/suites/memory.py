"""Memory and time of a bulk read: how do they grow with the number of messages?

The same read of the first N / 5 and of all N messages of one stream, or of other parts of it
(`--parts 16 4 1`). A reader that keeps anything for each message needs more for the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites import read
from benchmarks.turns import Contestant, take_turns


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=5_000_000, rounds=3)
    parser.add_argument(
        "--parts", type=int, nargs="+", default=[5, 1], metavar="N", help="an Nth of all messages"
    )


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options) as whole:
        jobs = [replace(whole, messages=options.messages // part) for part in options.parts]
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
            f"Memory and time of a bulk read, messages of {options.size:,} bytes, "
            f"medians of {options.rounds} rounds",
            take_turns(contestants, options.rounds, options.timeout),
            (contestants[0].label,),
        )
