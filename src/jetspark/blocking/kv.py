"""Key-Value buckets without async: watches, live mappings, locks and elections.

See `jetspark.kv`. A callback runs in its own thread and may use the blocking client; a live mapping
waits for it. Any thread may release a lock.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Self, TypeAlias, Unpack

from jetspark.blocking.iterators import (
    CallbackIterator,
    CallbackTwin,
    EntryIterator,
    Listing,
    SingleIterator,
)
from jetspark.blocking.twin import AsyncBlock, Read, Twin, awaits, makes, twin_of
from jetspark.errors import JetsparkError
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.bucket import ReadOnlyBucket as AsyncReadOnlyBucket
from jetspark.kv.codecs import Entry, KeyCodec, ValueCodec
from jetspark.kv.lock import LEASE, ElectionState
from jetspark.kv.lock import Election as AsyncElection
from jetspark.kv.lock import Lock as AsyncLock
from jetspark.kv.watch import RESYNC, WatchOptions
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket
from jetspark.kv.watch import Watcher as AsyncWatcher
from jetspark.timestamps import Seconds

__all__ = ["Bucket", "Election", "Listing", "LiveBucket", "Lock", "ReadOnlyBucket", "Watcher"]


EntryCallback: TypeAlias = Callable[[Entry | None], None]
ChangeCallback: TypeAlias = Callable[[Entry], None]
StateCallback: TypeAlias = Callable[[ElectionState], None]


@twin_of(AsyncWatcher)
class Watcher(CallbackIterator[Entry | None], EntryIterator[Entry]):
    pass


@twin_of(AsyncLiveBucket)
class LiveBucket(CallbackTwin[Entry], AsyncBlock, Mapping[str, bytes]):
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
class Election(CallbackTwin[ElectionState], SingleIterator[ElectionState], AsyncBlock):
    key = Read[str]()
    leading = Read[bool]()
    token = Read[int]()
    error = Read[JetsparkError | None]()
    leader = awaits(AsyncElection.leader)
    next = awaits(AsyncElection.next)
    resign = awaits(AsyncElection.resign)


@twin_of(AsyncLock)
class Lock(AsyncBlock):
    _inner: AsyncLock
    key = Read[str]()
    held = Read[bool]()
    lost = Read[bool]()
    token = Read[int]()
    wait_lost = awaits(AsyncLock.wait_lost)
    owner = awaits(AsyncLock.owner)
    acquire = awaits(AsyncLock.acquire)
    release = awaits(AsyncLock.release)


@twin_of(AsyncReadOnlyBucket)
class ReadOnlyBucket(Twin):
    _inner: AsyncReadOnlyBucket
    name = Read[str]()
    stream = Read[str]()
    status = awaits(AsyncReadOnlyBucket.status)
    get = awaits(AsyncReadOnlyBucket.get)
    get_value = awaits(AsyncReadOnlyBucket.get_value)
    get_many = awaits(AsyncReadOnlyBucket.get_many)
    keys = makes(AsyncReadOnlyBucket.keys, Listing)
    history = makes(AsyncReadOnlyBucket.history, Listing)

    def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        callback: EntryCallback | None = None,
        **options: Unpack[WatchOptions],
    ) -> Watcher:
        return Watcher(
            self._caller,
            lambda forward: self._inner.watch(keys, callback=forward, **options),
            callback,
        )

    def live(
        self,
        keys: str | Iterable[str] = ">",
        *,
        on_change: ChangeCallback | None = None,
        resync: Seconds = RESYNC,
    ) -> LiveBucket:
        return LiveBucket(
            self._caller,
            lambda forward: self._inner.live(keys, on_change=forward, resync=resync),
            on_change,
        )

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        return type(self)(self._caller, self._inner.with_codecs(keys=keys, values=values))


@twin_of(AsyncBucket)
class Bucket(ReadOnlyBucket):
    _inner: AsyncBucket
    read_only = makes(AsyncBucket.read_only, ReadOnlyBucket)
    lock = makes(AsyncBucket.lock, Lock)
    put = awaits(AsyncBucket.put)
    create = awaits(AsyncBucket.create)
    update = awaits(AsyncBucket.update)
    delete = awaits(AsyncBucket.delete)
    purge = awaits(AsyncBucket.purge)
    purge_deletes = awaits(AsyncBucket.purge_deletes)
    empty = awaits(AsyncBucket.empty)
    revert = awaits(AsyncBucket.revert)

    def election(
        self,
        key: str,
        *,
        lease: Seconds = LEASE,
        holder: str | None = None,
        callback: StateCallback | None = None,
    ) -> Election:
        return Election(
            self._caller,
            lambda forward: self._inner.election(key, lease=lease, holder=holder, callback=forward),
            callback,
        )
