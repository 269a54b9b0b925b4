"""Watching a bucket without async.

As `jetspark.kv.watch` and `jetspark.blocking.watching`. A callback runs in its own thread and may
use the blocking client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.watching import LOT, Watching
from jetspark.blocking.worker import Worker, check_callback
from jetspark.client.callbacks import check_no_callback
from jetspark.client.client import Client as AsyncClient
from jetspark.errors import user_error
from jetspark.kv.codecs import Entry
from jetspark.kv.watch import EntryCallback as AsyncEntryCallback
from jetspark.kv.watch import Watcher as AsyncWatcher

EntryCallback: TypeAlias = Callable[[Entry | None], None]


class Watcher(Watching[Entry]):
    """What `Bucket.watch` returns: iterate it, or give it a callback."""

    _inner: AsyncWatcher

    def __init__(
        self,
        thread: LoopThread,
        client: AsyncClient,
        bucket: str,
        watch: Callable[[AsyncEntryCallback | None], AsyncWatcher],
        callback: EntryCallback | None,
    ) -> None:
        check_callback(callback)
        super().__init__(thread)
        self._bucket = bucket
        self._callback = callback
        self._worker = Worker(f"jetspark-watch-{bucket}", client)

        def begin() -> None:
            self._inner = watch(None if callback is None else self._forward)
            if (task := self._inner.callback_task) is not None:
                task.add_done_callback(lambda _: self._worker.stop())

        self._thread.call(begin)

    def __iter__(self) -> Iterator[Entry | None]:
        check_no_callback(self._callback)
        return super().__iter__()

    async def _forward(self, entry: Entry | None) -> None:
        """The asyncio callback: waits until the worker has handled a batch."""
        lot = [entry, *self._inner.take_ready(LOT - 1)]
        await self._worker.run(self._thread, partial(self._call_back, lot))

    def _call_back(self, lot: list[Entry | None]) -> None:
        """In the worker's thread: call the callback for each entry, until `stop`."""
        callback = self._callback
        assert callback is not None  # noqa: S101
        for entry in lot:
            if not self._inner.active:
                break
            try:
                callback(entry)
            except BaseException as error:  # SystemExit would end the thread silently
                report = user_error(f"The callback of a watch on bucket {self._bucket!r}", error)
                self._thread.post(partial(self._inner.report, report))
