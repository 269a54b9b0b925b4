"""Many faulted runs, each derived from (seed, number of the run) alone.

Every round takes each kind of fault once, in an order of its own (when some are costly, the others
thrice), so a kind is run as often as its like, and a run is repeated by its number. Nothing is
shared between runs but what is costly to start (`Shared`): a Spark session, a cluster.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest import mock

from tests.chaos.outcome import Outcome
from tests.support import campaign

RUN_WITHIN = 600
"""Seconds after which a run is given up as hanging."""

T = TypeVar("T")


class Shared:
    """What several runs use, made when first asked for and closed with the campaign."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, ExitStack]] = {}

    def once(self, name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
        """The thing of that name; `make` gives the context manager that makes it."""
        if name not in self._made:
            stack = ExitStack()
            self._made[name] = stack.enter_context(make()), stack
        found: T = self._made[name][0]
        return found

    def drop(self, name: str) -> None:
        """Close one thing, if it was made: the next who asks gets a new one."""
        if name in self._made:
            self._made.pop(name)[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(reversed(self._made)):
            self.drop(name)


@dataclass(frozen=True)
class Run:
    """What a kind of fault gets: its dice, a folder that is removed afterwards, what is shared."""

    number: int
    rng: random.Random
    folder: Path
    shared: Shared


Kind = Callable[[Run], Outcome]
Kinds = Mapping[str, Kind]


@dataclass
class Figures(campaign.Figures):
    kinds: Counter[str] = field(default_factory=Counter)
    """Runs, by the kind of their faults."""
    faults: int = 0
    messages: int = 0
    longest_recovery: float = 0.0
    """Seconds from the end of a fault to the next proof of progress."""

    def add(self, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        self.faults += outcome.faults
        self.messages += outcome.expected
        self.longest_recovery = max(self.longest_recovery, outcome.recovery)
        if not outcome.good:
            self.wrong.append(str(outcome))
        self.count_run()


def kind_of(kinds: Kinds, seed: int, number: int, costly: Collection[str] = ()) -> str:
    """The kind of a run: each kind once a round, or thrice when others are `costly`."""
    order = [
        kind for kind in sorted(kinds) for _ in range(3 if costly and kind not in costly else 1)
    ]
    turn, place = divmod(number, len(order))
    random.Random(f"{seed} round {turn}").shuffle(order)
    return order[place]


def run_one(kind: str, act: Kind, seed: int, number: int, shared: Shared) -> Outcome:
    """One run, whatever it raises."""
    rng = random.Random(f"{seed} run {number} {kind}")
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{number}-"))
    outcome = Outcome(0, 0)
    try:
        with _alarm(RUN_WITHIN):
            outcome = act(Run(number, rng, folder, shared))
        if not outcome.faults and not outcome.failure:
            outcome = replace(outcome, failure="no fault hit")
    except Exception as error:
        traceback.print_exc()
        outcome = replace(outcome, failure=f"{type(error).__name__}: {error}".splitlines()[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return replace(outcome, run=number, kind=kind)


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the block when it takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"the run took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_kinds(
    kinds: Kinds, runs: int, seed: int, first: int = 0, only: str = "", costly: Collection[str] = ()
) -> Figures:
    """So many runs, from number `first` on, of the kinds whose names have `only` in them."""
    # Most of these JVMs live for seconds: what is compiled better costs more than it gives.
    java = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | dict(os.environ)
    campaign.those_named(only, kinds)
    numbered = ((number, kind_of(kinds, seed, number, costly)) for number in count(first))
    figures = Figures()
    with mock.patch.dict(os.environ, java), Shared() as shared:
        for number, kind in islice((one for one in numbered if only in one[1]), runs):
            begun = time.monotonic()
            outcome = run_one(kind, kinds[kind], seed, number, shared)
            if outcome.good:
                print(f"{outcome} ({time.monotonic() - begun:.1f} s)", file=sys.stderr, flush=True)
            figures.add(outcome)
    return figures
