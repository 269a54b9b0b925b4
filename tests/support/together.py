"""Threads that do something at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(work: Callable[[T], object], each: Collection[T]) -> None:
    """`work` in a thread for each of them. Raises what the first of them raised."""
    with ThreadPoolExecutor(len(each)) as pool:
        list(pool.map(work, each))
