"""Watching a store, without async.

Contract: that of `jetspark.objects.watch`. Iterating takes up to LOT changes for each change of
thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from jetspark.blocking.loop_thread import LoopThread
from jetspark.objects.info import ObjectInfo
from jetspark.objects.watch import ObjectWatcher as AsyncObjectWatcher

LOT = 1000


class ObjectWatcher:
    """What `ObjectStore.watch` returns: iterate it."""

    def __init__(self, thread: LoopThread, inner: AsyncObjectWatcher) -> None:
        self._thread = thread
        self._inner = inner
        self._taken: deque[ObjectInfo | None] = deque()
        self._turn = threading.Lock()
        self._entered = False

    @property
    def complete(self) -> bool:
        """Whether all of the initial data has arrived."""
        return self._inner.complete

    def __iter__(self) -> Iterator[ObjectInfo | None]:
        try:
            while True:
                try:
                    yield self.__next__()
                except StopIteration:
                    return
        finally:
            # Not waited for: this may be the collector.
            if not (self._entered or self._thread.is_over):
                self._thread.post(self._inner.stop)

    def __next__(self) -> ObjectInfo | None:
        with self._turn:  # one thread waits at the loop, the others for what it brings
            while not self._taken:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return self._taken.popleft()

    async def _fill(self) -> None:
        # Left here and not returned: a caller that was interrupted finds them next time.
        self._taken.append(await self._inner.__anext__())
        self._taken.extend(self._inner.take_ready(LOT - 1))

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times."""
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return repr(self._inner)
