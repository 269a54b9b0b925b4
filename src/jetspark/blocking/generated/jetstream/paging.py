# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: paging."""

from __future__ import annotations

from typing import Generic

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.paging import ItemT
from jetspark.jetstream.paging import Paged as AsyncPaged


class GeneratedPaged(Generic[ItemT]):
    """The calls of `Paged` that hand on to its asyncio twin."""

    __slots__ = ()

    _thread: LoopThread
    _inner: AsyncPaged[ItemT]

    @property
    def missing(self) -> list[str]:
        """Names of streams or consumers that did not answer, as of the last iteration."""
        return self._inner.missing

    @property
    def offline(self) -> dict[str, str]:
        """Names of streams or consumers that the server cannot run, with its reason (2.12)."""
        return self._inner.offline

    def all(self) -> list[ItemT]:
        """Every item in a list. Raises as iterating."""
        return self._thread.run(self._inner.all)
