"""Watching an object store without async; see `jetspark.objects.reader`."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.watching import Watching
from jetspark.objects.info import ObjectInfo
from jetspark.objects.reader import ObjectWatcher as AsyncObjectWatcher


class ObjectWatcher(Watching[ObjectInfo]):
    """What `ObjectStore.watch` returns: iterate it."""

    _inner: AsyncObjectWatcher

    def __init__(self, thread: LoopThread, inner: AsyncObjectWatcher) -> None:
        super().__init__(thread)
        self._inner = inner
