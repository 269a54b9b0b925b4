"""Many faulted runs, each derived from (seed, number of the run) alone.

Every round takes each kind of fault once, in an order of its own (when some are costly, the others
thrice), so a kind is run as often as its like, and a run is repeated by its number. Nothing is
shared between runs but what is costly to start (`Shared`): a Spark session, a cluster.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.chaos.outcome import Outcome

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


def campaign(
    kinds: Kinds,
    seed: int,
    numbers: Collection[int],
    wanted: Collection[str] = (),
    costly: Collection[str] = (),
    results: Path | None = None,
) -> list[Outcome]:
    """The runs of these numbers; of the `wanted` kinds only, if any are given.

    `results`: a file of outcomes, one a line; runs that it has are not run again, others are
    added, so a campaign can be made in pieces.
    """
    done: dict[int, Outcome] = {}
    if results is not None and results.exists():
        known = map(Outcome.from_json, results.read_text("utf-8").splitlines())
        done = {outcome.run: outcome for outcome in known}
    with Shared() as shared:
        for number in numbers:
            kind = kind_of(kinds, seed, number, costly)
            if number in done or (wanted and kind not in wanted):
                continue
            began = time.monotonic()
            outcome = run_one(kind, kinds[kind], seed, number, shared)
            done[number] = outcome
            print(f"{outcome} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
            if results is not None:
                with results.open("a", encoding="utf-8") as file:
                    file.write(outcome.to_json() + "\n")
    return list(done.values())
