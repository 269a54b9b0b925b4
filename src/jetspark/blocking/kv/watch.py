"""Watching a bucket without async.

Contract: that of `jetspark.kv.watch`. Iterating takes up to LOT entries for each change of thread.
A callback runs in a thread of its own and may use the blocking client.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.worker import Worker
from jetspark.errors import ConfigError, JetsparkError
from jetspark.kv.entries import Entry
from jetspark.kv.watch import EntryCallback as AsyncEntryCallback
from jetspark.kv.watch import Watcher as AsyncWatcher
from jetspark.kv.watch import user_error

EntryCallback: TypeAlias = Callable[[Entry | None], None]

LOT = 1000


class Watcher:
    """What `Bucket.watch` returns: iterate it, or give it a callback."""

    _inner: AsyncWatcher

    def __init__(
        self,
        thread: LoopThread,
        bucket: str,
        watch: Callable[[AsyncEntryCallback | None], AsyncWatcher],
        callback: EntryCallback | None,
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise ConfigError("The blocking client calls plain functions, not async ones.")
        self._thread = thread
        self._bucket = bucket
        self._callback = callback
        self._taken: deque[Entry | None] = deque()
        self._turn = threading.Lock()
        self._entered = False
        self._worker = Worker(f"jetspark-watch-{bucket}")

        def begin() -> None:
            self._inner = watch(None if callback is None else self._forward)
            if self._inner._task is not None:
                self._inner._task.add_done_callback(lambda _: self._worker.stop())

        self._thread.call(begin)

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

    def __iter__(self) -> Iterator[Entry | None]:
        if self._callback is not None:
            raise ConfigError("There is a callback; it cannot be iterated as well.")
        return self._entries()

    def _entries(self) -> Iterator[Entry | None]:
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

    def __next__(self) -> Entry | None:
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

    async def _forward(self, entry: Entry | None) -> None:
        """The inner watcher's callback: waits until the worker is done with a lot."""
        lot = [entry, *self._inner.take_ready(LOT - 1)]
        done: asyncio.Future[None] = self._thread.loop.create_future()
        self._worker.post(lambda: self._call_back(lot, done))
        await done

    def _call_back(self, lot: list[Entry | None], done: asyncio.Future[None]) -> None:
        """In the worker's thread: one entry after the other, none after `stop`."""
        callback = self._callback
        assert callback is not None  # noqa: S101
        for entry in lot:
            if not self._inner.active:
                break
            try:
                callback(entry)
            except Exception as error:
                report = user_error("a watch", self._bucket, error)
                self._thread.post(partial(self._inner.report, report))
        self._thread.post(lambda: _set(done))

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times.

        A callback that runs is left to finish.
        """
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


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
