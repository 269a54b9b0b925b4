"""As `tests.jetstream.eventually`, without async."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], *, within: float = 20.0) -> None:
    """Returns when it holds; asks every 10 ms."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not so within {within:g} s"
        time.sleep(0.01)  # the server tells nobody when it is so far
