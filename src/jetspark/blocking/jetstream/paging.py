"""Lists that the server answers in pages, as iterators.

Contract: that of `jetspark.jetstream.paging`; items cross to the caller's thread in lots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from jetspark.blocking.listing import take_lot
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.paging import Paged as AsyncPaged

ItemT = TypeVar("ItemT")

LOT = 256  # not more than the smallest page of the server: no page is asked for too early


class Paged(Generic[ItemT]):
    """Iterate it, or `paged.all()` for a list."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: AsyncPaged[ItemT]) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def missing(self) -> list[str]:
        """Names of assets that exist and did not answer, as of the last iteration."""
        return self._inner.missing

    @property
    def offline(self) -> dict[str, str]:
        """Names of assets that the server cannot run, with its reason (2.12)."""
        return self._inner.offline

    def __iter__(self) -> Iterator[ItemT]:
        items = self._inner.__aiter__()
        while lot := self._thread.run(take_lot, items, LOT):
            yield from lot

    def all(self) -> list[ItemT]:
        """Every item in a list."""
        return self._thread.run(self._inner.all)
