# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: stored."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.stored.direct_get import StoredMsgs as AsyncStoredMsgs


class GeneratedStoredMsgs:
    """The calls of `StoredMsgs` that hand on to its asyncio twin."""

    __slots__ = ()

    _thread: LoopThread
    _inner: AsyncStoredMsgs

    def all(self) -> list[StoredMsg]:
        """Every message in a list."""
        return self._thread.run(self._inner.all)
