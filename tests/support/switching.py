"""Threads that change places as often as they can."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def switching(interval: float = 1e-6) -> Iterator[None]:
    """Whatever two threads do to the same thing meets in the middle."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
