"""Taking entries out of the event loop: what the blocking watchers have in common.

Contract: one change of thread brings up to `LOT` of them; they count as taken there, and wait here.
Several threads may take: each entry goes to one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from jetspark.blocking.leaving import LeavingLoop
from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import JetsparkError, RequestTimeoutError
from jetspark.timestamps import Seconds, in_seconds

LOT = 1000
"""Entries taken at a change of thread: enough to hide its cost."""

EntryT = TypeVar("EntryT")


class Source(Protocol[EntryT]):
    """The asyncio class."""

    @property
    def active(self) -> bool:
        """Whether more entries may come."""

    @property
    def complete(self) -> bool:
        """Whether all of the initial data has arrived."""

    @property
    def error(self) -> JetsparkError | None:
        """What has ended it."""

    async def __anext__(self) -> EntryT:
        """The next entry."""

    async def next(self, timeout: Seconds | None = None) -> EntryT:
        """The next entry, in time."""

    def take_ready(self, limit: int) -> list[EntryT]:
        """Entries that are here now."""

    def stop(self) -> None:
        """The end."""


class Watching(LeavingLoop, Generic[EntryT]):
    """An iterator over what `_inner` gives."""

    _inner: Source[EntryT]

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._taken: deque[EntryT] = deque()
        self._turn = threading.Lock()

    # -- what it is ----------------------------------------------------------------------------

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
        """What has ended it; None while it goes on, and after an end that was asked for."""
        return self._inner.error

    # -- entries -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[EntryT]:
        return self._loop(self.__next__)

    def __next__(self) -> EntryT:
        with self._turn:  # one thread waits at the loop, the others for what it brings
            while not self._taken:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return self._taken.popleft()

    def next(self, timeout: Seconds | None = None) -> EntryT:
        """The next entry, or None once, as in iterating; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it has been stopped,
        ConnectionClosedError, and the error that has ended it.
        """
        seconds = in_seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        if not self._turn.acquire(timeout=-1 if seconds is None else max(seconds, 0)):
            raise RequestTimeoutError(f"Another thread has waited for {seconds:g} s.")
        try:
            while not self._taken:
                left = None if end is None else max(end - time.monotonic(), 0)
                self._thread.run(self._fill_within, left)
            return self._taken.popleft()
        finally:
            self._turn.release()

    async def _fill_within(self, timeout: float | None) -> None:
        self._taken.append(await self._inner.next(timeout))
        self._taken.extend(self._inner.take_ready(LOT - 1))

    async def _fill(self) -> None:
        # Left here and not returned: a caller that was interrupted finds them next time.
        self._taken.append(await self._inner.__anext__())
        self._taken.extend(self._inner.take_ready(LOT - 1))

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times.

        A callback that runs is left to finish.
        """
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def _leave(self) -> None:
        self.stop()

    def __repr__(self) -> str:
        return repr(self._inner)
