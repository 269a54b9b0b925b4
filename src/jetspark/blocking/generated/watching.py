# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: watching."""

from __future__ import annotations

from typing import Generic

from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import JetsparkError
from jetspark.jetstream.watching import EntryT
from jetspark.jetstream.watching import Watching as AsyncWatching
from jetspark.timestamps import Seconds


class GeneratedWatching(Generic[EntryT]):
    """The calls of `Watching` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncWatching[EntryT]

    @property
    def active(self) -> bool:
        """Whether more entries may come."""
        return self._inner.active

    @property
    def complete(self) -> bool:
        """Whether all of the initial data has arrived."""
        return self._inner.complete

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None while it goes on, and after `stop`."""
        return self._inner.error

    def __repr__(self) -> str:
        return repr(self._inner)

    def next(self, timeout: Seconds | None = None) -> EntryT | None:
        """The next entry, or None once, as when iterating; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, ConfigError when there is a callback, and the error that ended it.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """End it now, and discard entries not taken. May be called again.

        A running callback finishes.
        """
        raise NotImplementedError
