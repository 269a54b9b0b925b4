"""The bounds of what a comparison of schemas may cost.

A few hundred bytes of a schema can name each part of it twice, again and again, so that the whole
is larger than any memory. Whoever compares schemas counts what is looked at.
"""

from __future__ import annotations

import time
from typing import Final

MAX_STEPS: Final = 200_000
"""Steps of a comparison."""
MAX_SECONDS: Final = 3.0
"""Processor time of a comparison's thread: some steps are long, and others wait."""


class TooComplex(Exception):
    """A comparison took more steps than it may."""


class Effort:
    """Counts the steps of a comparison."""

    def __init__(self) -> None:
        self._remaining_steps = MAX_STEPS
        self._end = time.thread_time() + MAX_SECONDS

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises TooComplex."""
        self._remaining_steps -= steps
        if self._remaining_steps < 0 or time.thread_time() > self._end:
            raise TooComplex
