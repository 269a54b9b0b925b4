"""Passing entries from the event loop to other threads: the base of the blocking watchers.

One thread switch brings up to `LOT` entries, which have left the asyncio queue and are buffered
here. Several threads may iterate: each entry goes to one of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from jetspark.blocking.generated.watching import GeneratedWatching
from jetspark.blocking.leaving import LeavingLoop
from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import BadTimeoutError, RequestTimeoutError
from jetspark.jetstream.watching import Watching as AsyncWatching
from jetspark.timestamps import Seconds, in_seconds

LOT = 1000
"""Most entries for each thread switch: enough to make its cost negligible."""

EntryT = TypeVar("EntryT")


class Watching(GeneratedWatching[EntryT], LeavingLoop):
    """An iterator over the entries of `_inner`."""

    _inner: AsyncWatching[EntryT]

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._loops = []
        self._taken: deque[EntryT | None] = deque()
        self._turn = threading.Lock()

    # -- entries -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[EntryT | None]:
        return self._loop(self.__next__)

    def __next__(self) -> EntryT | None:
        with self._turn:  # one thread waits for the loop, the others for that thread
            while not self._taken:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return self._taken.popleft()

    def next(self, timeout: Seconds | None = None) -> EntryT | None:
        """The next entry, or None once, as when iterating; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, ConfigError when there is a callback, and the error that ended it.
        """
        seconds = in_seconds(timeout)
        if seconds is not None and seconds < 0:
            raise BadTimeoutError(seconds)
        end = None if seconds is None else time.monotonic() + seconds
        if not self._turn.acquire(timeout=-1 if seconds is None else max(seconds, 0)):
            raise RequestTimeoutError(
                f"No entry within {seconds:g} s, for which another thread was waiting."
            )
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
        # Buffered, not returned: after an interrupt the next call finds them.
        self._taken.append(await self._inner.__anext__())
        self._taken.extend(self._inner.take_ready(LOT - 1))

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def _finish(self) -> None:
        self.stop()
