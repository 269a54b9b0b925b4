"""Lists that the server sends in pages, as iterators.

As `jetspark.jetstream.paging`; items are passed to the caller's thread in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from jetspark.blocking.generated.jetstream.paging import GeneratedPaged
from jetspark.blocking.listing import take_lot
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.paging import Paged as AsyncPaged

ItemT = TypeVar("ItemT")

LOT = 256  # at most the server's smallest page, so that no page is requested early


class Paged(GeneratedPaged[ItemT]):
    """Iterate it, or `paged.all()` for a list."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: AsyncPaged[ItemT]) -> None:
        self._thread = thread
        self._inner = inner

    def __iter__(self) -> Iterator[ItemT]:
        items = self._inner.__aiter__()
        while lot := self._thread.run(take_lot, items, LOT):
            yield from lot
