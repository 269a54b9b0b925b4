"""Results of unbounded number, without async: an iterator, or a list of all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from jetspark.blocking.generated.listing import GeneratedListing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.listing import Listing as AsyncListing

ItemT = TypeVar("ItemT")

_LOT = 1000


class Listing(GeneratedListing[ItemT]):
    """Iterate it, or `listing.all()` for a list.

    The first request is sent when iteration begins; each iteration starts anew. Items are passed to
    the caller's thread in batches.
    """

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: AsyncListing[ItemT]) -> None:
        self._thread = thread
        self._inner = inner

    def __iter__(self) -> Iterator[ItemT]:
        items = self._inner.__aiter__()
        try:
            while lot := self._thread.run(take_lot, items, _LOT):
                yield from lot
        finally:
            # Not waited for: after an interrupt it may still be running, and ends itself.
            close = getattr(items, "aclose", None)
            if close is not None and not self._thread.is_over:
                self._thread.spawn(close)


async def take_lot(items: AsyncIterator[ItemT], limit: int) -> list[ItemT]:
    """The next items; none when the iterator has ended."""
    lot: list[ItemT] = []
    async for item in items:
        lot.append(item)
        if len(lot) == limit:
            break
    return lot
