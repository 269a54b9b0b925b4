"""The oracle of faulted runs, and what one came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """How what was found differs from what had to be there: counts, with an example of each."""

    missing: int = 0
    repeated: int = 0
    unexpected: int = 0
    out_of_order: int = 0
    examples: str = ""
    found: int = 0

    def __add__(self, other: Findings) -> Findings:
        return Findings(
            *(one + another for one, another in zip(astuple(self), astuple(other), strict=True))
        )

    def outcome(self, faults: int, expected: int, **more: Any) -> Outcome:
        """What a run came to that found this."""
        return Outcome(faults, expected, *astuple(self)[:4], **more)


def compare(
    found: Iterable[T],
    must: Iterable[T],
    may: Iterable[T] = (),
    *,
    order: Callable[[T], tuple[str, Any]],
) -> Findings:
    """Each of `must` once, those of `may` once at most, nothing else.

    `order`: a group and a place in it; places grow, but for what is repeated.
    """
    counts: Counter[T] = Counter()
    newest: dict[str, Any] = {}
    out_of_order = 0
    for one in found:
        group, place = order(one)
        if not counts[one] and group in newest and place < newest[group]:
            out_of_order += 1
        newest[group] = max(newest.get(group, place), place)
        counts[one] += 1
    wanted = set(must)
    allowed = wanted | set(may)
    missing = wanted - counts.keys()
    unexpected = {one: count for one, count in counts.items() if one not in allowed}
    repeated = {one: n - 1 for one, n in counts.items() if n > 1 and one not in unexpected}
    examples = [
        f"{name}: {next(iter(some))}"
        for name, some in (("missing", missing), ("repeated", repeated), ("unexpected", unexpected))
        if some
    ]
    return Findings(
        missing=len(missing),
        repeated=sum(repeated.values()),
        unexpected=sum(unexpected.values()),
        out_of_order=out_of_order,
        examples="; ".join(examples),
        found=counts.total(),
    )


@dataclass(frozen=True)
class Outcome:
    """Counts of messages, as the oracle of the run found them; all but `faults` should be 0."""

    faults: int
    """How many faults hit; a run without any has proved nothing."""
    expected: int
    """Messages (rows) that had to be there."""
    missing: int = 0
    repeated: int = 0
    unexpected: int = 0
    out_of_order: int = 0
    recovery: float = 0.0
    """Longest seconds from the end of a fault to the next proof of progress."""
    note: str = ""
    """What is worth to be told: how the query ended, for example."""
    failure: str = ""
    """Why the run is no proof: it hung, or ended in another way than it had to."""
    run: int = -1
    kind: str = ""

    @property
    def good(self) -> bool:
        wrong = self.missing or self.repeated or self.unexpected or self.out_of_order
        return not (wrong or self.failure)

    def __str__(self) -> str:
        counts = (
            f"{self.faults} faults, {self.expected} messages, {self.missing} missing, "
            f"{self.repeated} repeated, {self.unexpected} unexpected, "
            f"{self.out_of_order} out of order"
        )
        told = "; ".join(filter(None, (counts, self.note, self.failure)))
        return f"run {self.run} {self.kind}: {'ok' if self.good else 'WRONG'}: {told}"
