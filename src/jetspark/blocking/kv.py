"""Key-Value buckets without async: watches, live mappings, locks and elections.

See `jetspark.kv`. A callback runs in its own thread and may use the blocking client; a live mapping
waits for it. Any thread may release a lock.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from functools import partial
from typing import Any, Self

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import (
    CallbackIterator,
    CallbackTwin,
    EntryIterator,
    Listing,
    SingleIterator,
)
from jetspark.blocking.twin import AsyncBlock, Read, Twin, awaits, makes, receives
from jetspark.errors import JetsparkError
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.bucket import ReadOnlyBucket as AsyncReadOnlyBucket
from jetspark.kv.codecs import Entry, KeyCodec, ValueCodec
from jetspark.kv.lock import Election as AsyncElection
from jetspark.kv.lock import ElectionState
from jetspark.kv.lock import Lock as AsyncLock
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket
from jetspark.kv.watch import Watcher as AsyncWatcher

__all__ = ["Bucket", "Election", "Listing", "LiveBucket", "Lock", "ReadOnlyBucket", "Watcher"]


@twin_of(AsyncWatcher)
class Watcher(CallbackIterator[Entry | None], EntryIterator[Entry]):
    """The result of `Bucket.watch`: iterate it, or give it a callback."""


class CallbackBlock(CallbackTwin[Any], AsyncBlock):
    """Ends with its block, and the callback's thread with it."""

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        if not self._thread.is_over:
            super().__exit__(exc_type, exc, traceback)
            self._thread.post(self._worker.stop)


@twin_of(AsyncLiveBucket)
class LiveBucket(CallbackBlock, Mapping[str, bytes]):
    """The result of `Bucket.live`: once entered, it is read like a dict of keys and values."""

    _inner: AsyncLiveBucket
    # Reading does not switch threads.
    error = Read[JetsparkError | None]()

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


@twin_of(AsyncElection)
class Election(CallbackBlock, SingleIterator[ElectionState]):
    """A candidate, returned by `Bucket.election`: enter it, then iterate its states."""

    key = Read[str]()
    leading = Read[bool]()
    token = Read[int]()
    error = Read[JetsparkError | None]()
    leader = awaits(AsyncElection.leader)
    next = awaits(AsyncElection.next)
    resign = awaits(AsyncElection.resign)


@twin_of(AsyncLock)
class Lock(AsyncBlock):
    """A lock in a bucket, returned by `Bucket.lock` and held within its block."""

    _inner: AsyncLock
    key = Read[str]()
    held = Read[bool]()
    lost = Read[bool]()
    token = Read[int]()
    wait_lost = awaits(AsyncLock.wait_lost)
    owner = awaits(AsyncLock.owner)
    acquire = awaits(AsyncLock.acquire)
    release = awaits(AsyncLock.release)

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            # Interrupted right after acquiring: nobody would release it.
            self._thread.spawn(partial(self._inner.__aexit__, None, None, None))
            raise


@twin_of(AsyncReadOnlyBucket)
class ReadOnlyBucket(Twin):
    """A Key-Value bucket that can only be read, returned by `Bucket.read_only`."""

    _inner: AsyncReadOnlyBucket
    name = Read[str]()
    stream = Read[str]()
    status = awaits(AsyncReadOnlyBucket.status)
    get = awaits(AsyncReadOnlyBucket.get)
    get_value = awaits(AsyncReadOnlyBucket.get_value)
    get_many = awaits(AsyncReadOnlyBucket.get_many)
    keys = makes(AsyncReadOnlyBucket.keys, Listing)
    history = makes(AsyncReadOnlyBucket.history, Listing)
    watch = receives(AsyncReadOnlyBucket.watch, Watcher)
    live = receives(AsyncReadOnlyBucket.live, LiveBucket, "on_change")

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        return type(self)(self._caller, self._inner.with_codecs(keys=keys, values=values))


@twin_of(AsyncBucket)
class Bucket(ReadOnlyBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`."""

    _inner: AsyncBucket
    read_only = makes(AsyncBucket.read_only, ReadOnlyBucket)
    lock = makes(AsyncBucket.lock, Lock)
    election = receives(AsyncBucket.election, Election)
    put = awaits(AsyncBucket.put)
    create = awaits(AsyncBucket.create)
    update = awaits(AsyncBucket.update)
    delete = awaits(AsyncBucket.delete)
    purge = awaits(AsyncBucket.purge)
    purge_deletes = awaits(AsyncBucket.purge_deletes)
    revert = awaits(AsyncBucket.revert)
