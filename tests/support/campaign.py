"""Figures of a campaign: what it counted, and what was wrong."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

PROGRESS_INTERVAL = 30.0
"""Seconds between two reports of a campaign under way."""
MAX_SENTENCES = 20
"""How many of what is wrong are printed."""


def those_named(only: str, them: Iterable[T], name_of: Callable[[T], str] = str) -> list[T]:
    """Those with `only` in their names. Ends the campaign if there are none."""
    named = [(name_of(one), one) for one in them]
    if chosen := [one for name, one in named if only in name]:
        return chosen
    sys.exit(f"No name has {only!r}; there are {', '.join(sorted({name for name, _ in named}))}.")


@dataclass
class Figures:
    """What a campaign did. Its text names each figure that is not zero."""

    wrong: list[str] = field(default_factory=list)
    """What must not be, a sentence each."""
    runs: int = 0
    _printed: int = field(default=0, repr=False)
    _reported_at: float = field(default_factory=time.monotonic, repr=False)

    def print_wrong(self) -> None:
        """Print what is wrong and not printed yet on standard error."""
        for sentence in self.wrong[self._printed : MAX_SENTENCES]:
            print(sentence, file=sys.stderr, flush=True)
        self._printed = len(self.wrong)

    def count_run(self, count: int = 1) -> None:
        """Add to `runs`; print what is wrong at once, and the figures now and then."""
        self.runs += count
        self.print_wrong()
        if (now := time.monotonic()) - self._reported_at > PROGRESS_INTERVAL:
            self._reported_at = now
            print(self, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        counted = [one for one in fields(self)[2:] if one.repr]
        texts = [_text(one.name.replace("_", " "), getattr(self, one.name)) for one in counted]
        runs = f"{self.runs:,} run{'s' * (self.runs != 1)}"
        return "; ".join([runs, *filter(None, texts), f"{len(self.wrong)} wrong"])


def _text(name: str, value: Any) -> str:
    match value:
        case Counter():
            counts = (f"{count:,} {what}" for what, count in sorted(value.items()))
            return f"{name}: {', '.join(counts)}" if value else ""
        case float():
            return f"{name} {value:.2f}" if value else ""
        case int():
            return f"{value:,} {name}" if value else ""
        case Collection():
            return f"{len(value):,} {name}" if value else ""
    return f"{name}: {value}"
