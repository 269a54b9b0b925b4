"""A table of a suite: who may take part, whom the command line chooses, how they did."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping

from benchmarks.measure import Job
from benchmarks.report import Section
from benchmarks.turns import Contestant, take_turns

_OURS = "jetspark"
_NEWER = ("natsio", "nats_core")
"""They need Python 3.13."""


def contestant_options(parser: argparse.ArgumentParser, functions: Collection[str]) -> None:
    """`--only`, `--against`, and `--newer-python` where a client that needs one takes part."""
    names = [_name(function) for function in functions]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CONTESTANT")
    parser.add_argument(
        "--against",
        metavar="PYTHON",
        help="an interpreter that has another jetspark: ours take turns with those",
    )
    if any(function.startswith(_NEWER) for function in functions):
        parser.add_argument(
            "--newer-python",
            default=sys.executable,
            metavar="PYTHON",
            help="Python 3.13 or newer with natsio, nats-core and nats-jetstream",
        )


def chosen(options: argparse.Namespace, labels: Mapping[str, str]) -> dict[str, str]:
    """Those of the contestants, labels by function, that `--only` names."""
    return {
        function: label for function, label in labels.items() if _name(function) in options.only
    }


def race(
    options: argparse.Namespace,
    suite: str,
    labels: Mapping[str, str],
    job: Job,
    title: str,
    *bases: str,
) -> Section:
    """All of `labels`, labels by function of the suite, do the job in turn.

    They are compared with those functions of `bases` that take part.
    """
    contestants: list[Contestant] = []
    others: dict[str, str] = {}

    def add(function: str, label: str, python: str) -> None:
        contestants.append(
            Contestant(label=label, suite=suite, function=function, job=job, python=python)
        )

    for function, label in labels.items():
        newer = function.startswith(_NEWER)
        add(function, label, options.newer_python if newer else sys.executable)
        against = getattr(options, "against", None)  # some suites have no former version to race
        if against and function.startswith(_OURS):
            others[label] = f"{label} of --against"
            add(function, others[label], against)
    return Section(
        f"{title}, medians of {options.rounds} rounds",
        take_turns(contestants, options.rounds, options.timeout),
        tuple(labels[base] for base in bases if base in labels),
        others,
    )


def _name(function: str) -> str:
    """As it is given on the command line."""
    return function.replace("_", "-")
