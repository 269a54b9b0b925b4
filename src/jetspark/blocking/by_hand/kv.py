"""Key-Value buckets without async: watches, live mappings, locks and elections.

See `jetspark.kv`. A callback runs in its own thread and may use the blocking client; a live mapping
waits for it. Any thread may release a lock.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import (
    CallbackIterator,
    CallbackTwin,
    EntryIterator,
    SingleIterator,
)
from jetspark.blocking.twin import AsyncBlock
from jetspark.kv.codecs import Entry
from jetspark.kv.lock import ElectionState
from jetspark.kv.lock import Lock as AsyncLock
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket
from jetspark.kv.watch import Watcher as AsyncWatcher

EntryCallback: TypeAlias = Callable[[Entry | None], None]
ChangeCallback: TypeAlias = Callable[[Entry], None]
StateCallback: TypeAlias = Callable[[ElectionState], None]


@twin_of(AsyncWatcher)
class Watcher(CallbackIterator[Entry | None], EntryIterator[Entry]):
    """The result of `Bucket.watch`: iterate it, or give it a callback."""


class CallbackBlock(CallbackTwin[Any], AsyncBlock):
    """Ends with its block, and the callback's thread with it."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._thread.is_over:
            super().__exit__(exc_type, exc, traceback)
            self._thread.post(self._worker.stop)


class BaseLiveBucket(CallbackBlock, Mapping[str, bytes]):
    """Reading does not switch threads."""

    _inner: AsyncLiveBucket

    def __getitem__(self, key: str) -> bytes:
        return self._inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def entry(self, key: str) -> Entry:
        return self._inner.entry(key)

    def entries(self) -> dict[str, Entry]:
        return self._inner.entries()

    def snapshot(self) -> dict[str, bytes]:
        return self._inner.snapshot()

    def items(self) -> ItemsView[str, bytes]:
        return self._inner.items()

    def values(self) -> ValuesView[bytes]:
        return self._inner.values()


class BaseElection(CallbackBlock, SingleIterator[ElectionState]):
    """Its states come one by one."""


class BaseLock(AsyncBlock):
    """Entering it acquires it."""

    _inner: AsyncLock

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            # Interrupted right after acquiring: nobody would release it.
            self._thread.spawn(partial(self._inner.__aexit__, None, None, None))
            raise
