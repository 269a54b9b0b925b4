"""Runs contestants in turn, A B C A B C …, each time in a fresh process.

In turn, because a noisy machine is then noisy for all of them; afresh, because memory, caches and
warmed-up code of one round must not help the next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Job, Measure, session_pids

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who runs: a function `suite.function(job) -> Measure`, under a label for the table."""

    label: str
    suite: str
    function: str
    job: Job
    python: str = sys.executable


@dataclass(frozen=True)
class Results:
    """Measures by label, in the order of the contestants; one for each round."""

    measures: dict[str, list[Measure]]
    skipped: dict[str, str]
    """Why, by label."""
    versions: dict[str, str]
    """What each contestant was made of, in its own words."""


def take_turns(contestants: Sequence[Contestant], rounds: int, timeout: float) -> Results:
    """Raises RuntimeError when one fails or takes longer than `timeout` seconds for a round."""
    results = Results({one.label: [] for one in contestants}, {}, {})
    for number in range(1, rounds + 1):
        for one in contestants:
            if one.label in results.skipped:
                continue
            answer = _run(one, timeout)
            if why := answer.get("skipped"):
                results.skipped[one.label] = why
                del results.measures[one.label]
                say(f"  {one.label}: skipped ({why})")
                continue
            measure = Measure(**answer["measure"])
            results.measures[one.label].append(measure)
            results.versions[one.label] = answer["versions"]
            say(f"  round {number}/{rounds}  {one.label}: {measure.rate:,.0f}/s")
    return results


def say(line: str) -> None:
    """Progress: to standard error, so that standard output is the table alone."""
    print(line, file=sys.stderr, flush=True)


def _run(contestant: Contestant, timeout: float) -> dict[str, Any]:
    """One round of one contestant: its answer."""
    command = [
        contestant.python,
        "-m",
        "benchmarks.contestant",
        contestant.suite,
        contestant.function,
        json.dumps(asdict(contestant.job)),
    ]
    reading_end, lifeline = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="jetspark-benchmark-") as folder,
        tempfile.TemporaryFile() as complaints,
    ):
        # A session of its own: Ctrl-C reaches the harness only, and what the contestant starts
        # (a JVM, Python workers) can be found and ended with it.
        child = subprocess.Popen(
            command,
            stdin=reading_end,
            stdout=subprocess.PIPE,
            stderr=complaints,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_import_path())},
            start_new_session=True,
        )
        os.close(reading_end)
        try:
            output, _ = child.communicate(timeout=timeout)
        except BaseException as error:
            _end(child)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"{contestant.label} took over {timeout:g} s") from None
            raise
        finally:
            os.close(lifeline)
        if child.returncode:
            complaints.seek(0)
            text = complaints.read().decode("utf-8", "replace")
            # Of a Python exception the end says why, of a Java one the beginning.
            shown = text if len(text) < 6000 else f"{text[:4000]}\n[…]\n{text[-2000:]}"
            raise RuntimeError(f"{contestant.label} failed:\n{shown}")
    *said, last = output.decode().splitlines()
    for line in said:
        say(line)
    answer: dict[str, Any] = json.loads(last)
    return answer


def _import_path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "")
    return [str(_ROOT), *filter(None, given.split(os.pathsep))]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a contestant and everything that it started, by process id."""
    for pid in session_pids(child.pid) or [child.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
