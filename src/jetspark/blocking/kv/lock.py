"""A lock in a bucket, without async; see `jetspark.kv.lock`. Any thread may release it."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

from jetspark.blocking.generated.kv.lock import GeneratedLock
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.lock import Lock as AsyncLock


class Lock(GeneratedLock):
    """A lock in a bucket, as returned by `Bucket.lock`: held from entering it to leaving it.

    Leaving the block releases it, and raises LockLostError when it was lost before.
    """

    def __init__(self, thread: LoopThread, inner: AsyncLock) -> None:
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._inner.__aenter__)
        except BaseException:
            # Interrupted just when it was acquired: nobody would release it.
            self._thread.spawn(partial(self._inner.__aexit__, None, None, None))
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.leave(exc, self._inner.__aexit__, exc_type, exc, traceback)
