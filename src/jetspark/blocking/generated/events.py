# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: events."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.callbacks import EventStream as AsyncEventStream


class GeneratedEventStream:
    """The calls of `EventStream` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncEventStream

    def close(self) -> None:
        """Accept no more events; buffered ones can still be read."""
        self._thread.call(self._inner.close)
