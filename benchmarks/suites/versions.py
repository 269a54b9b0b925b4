"""The same Spark jobs with several versions of PySpark, in turn.

Each interpreter that is named has another PySpark beside the same jetspark. A batch read to `noop`
is timed in a warm session; `jetspark ingest` into Delta from the return key to the prompt.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator

from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites import backlog, spark
from benchmarks.turns import Contestant, take_turns

_JOBS = {
    "to noop": (spark.__name__, spark.jetspark_noop.__name__),
    "by ingest into Delta": (backlog.__name__, backlog.jetspark_ingest.__name__),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(rounds=3, warm_up=100_000)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter with PySpark")


def run(options: argparse.Namespace) -> Iterator[Section]:
    versions = {_version(python): python for python in options.pythons}
    with stage(options, partitions=os.cpu_count() or 1, payload=0) as job:
        for what, (suite, function) in _JOBS.items():
            contestants = [
                Contestant(
                    label=f"PySpark {version}",
                    suite=suite,
                    function=function,
                    job=job,
                    python=python,
                )
                for version, python in versions.items()
            ]
            yield Section(
                f"{options.messages:,} messages of {options.size:,} bytes {what}, medians of "
                f"{options.rounds} rounds",
                take_turns(contestants, options.rounds, options.timeout),
                (contestants[-1].label,),
            )


def _version(python: str) -> str:
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
