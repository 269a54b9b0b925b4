# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: listing."""

from __future__ import annotations

from typing import Generic

from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.listing import ItemT
from jetspark.client.listing import Listing as AsyncListing


class GeneratedListing(Generic[ItemT]):
    """The calls of `Listing` that hand on to its asyncio twin."""

    __slots__ = ()

    _thread: LoopThread
    _inner: AsyncListing[ItemT]

    def all(self) -> list[ItemT]:
        """Every item in a list. Raises as iterating."""
        return self._thread.run(self._inner.all)
