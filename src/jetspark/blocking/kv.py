# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Key-Value buckets without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, Unpack

from jetspark.blocking.by_hand.kv import (
    BaseElection,
    BaseLiveBucket,
    BaseLock,
    ChangeCallback,
    EntryCallback,
    StateCallback,
    Watcher,
)
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import Twin
from jetspark.errors import JetsparkError
from jetspark.jetstream.publish_request import TimeToLive
from jetspark.kv.bucket import MARKER_AGE
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.bucket import ReadOnlyBucket as AsyncReadOnlyBucket
from jetspark.kv.codecs import Entry, KeyCodec, Snapshot, ValueCodec
from jetspark.kv.config import BucketStatus
from jetspark.kv.lock import LEASE, ElectionState, LockRecord
from jetspark.kv.lock import Election as AsyncElection
from jetspark.kv.lock import Lock as AsyncLock
from jetspark.kv.watch import RESYNC, WatchOptions
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds

__all__ = ["Bucket", "Election", "Listing", "LiveBucket", "Lock", "ReadOnlyBucket", "Watcher"]


@twin_of(AsyncLock)
class Lock(BaseLock):
    """A lock in a bucket, returned by `Bucket.lock` and held within its block."""

    _inner: AsyncLock

    @property
    def key(self) -> str:
        """The key of the holder's record."""
        return self._inner.key

    @property
    def held(self) -> bool:
        """Whether this object holds it, and its lease has not ended."""
        return self._inner.held

    @property
    def lost(self) -> bool:
        """Whether it was held, but its lease is over or another client holds it."""
        return self._inner.lost

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every holder before."""
        return self._inner.token

    def wait_lost(self) -> None:
        """Wait until it is lost or released."""
        self._thread.run(self._inner.wait_lost)

    def owner(self) -> LockRecord | None:
        """The holder, from the bucket's leader; None: nobody."""
        return self._thread.run(self._inner.owner)

    def acquire(self, timeout: Seconds | None = None) -> int:
        """Wait until it is held, `timeout` seconds at most, None: for ever; returns the token."""
        return self._thread.run(self._inner.acquire, timeout)

    def release(self) -> None:
        """Release it. Raises LockLostError when it was lost, ConfigError when it is not held."""
        self._thread.run(self._inner.release)


@twin_of(AsyncElection)
class Election(BaseElection):
    """A candidate, returned by `Bucket.election`: enter it, then iterate its states."""

    _inner: AsyncElection

    @property
    def key(self) -> str:
        """The key of the leader's record."""
        return self._inner.key

    @property
    def leading(self) -> bool:
        """Whether this client leads now."""
        return self._inner.leading

    @property
    def token(self) -> int:
        """The fencing token of this leadership, for the resources that the leader changes."""
        return self._inner.token

    @property
    def error(self) -> JetsparkError | None:
        """Why it is no longer a candidate; None while it is one, and after its end."""
        return self._inner.error

    def leader(self) -> LockRecord | None:
        """The leader, from the bucket's leader; None: nobody. Raises the errors of `Lock.owner`."""
        return self._thread.run(self._inner.leader)

    def next(self, timeout: Seconds | None = None) -> ElectionState:
        """The next state; waits `timeout` seconds, None: for ever."""
        return self._thread.run(self._inner.next, timeout)

    def resign(self) -> None:
        """End the candidacy, and let another one lead. Raises as `Lock.release`."""
        self._thread.run(self._inner.resign)


@twin_of(AsyncLiveBucket)
class LiveBucket(BaseLiveBucket):
    """The result of `Bucket.live`: once entered, it is read like a dict of keys and values."""

    _inner: AsyncLiveBucket

    @property
    def error(self) -> JetsparkError | None:
        """Why it can no longer follow; None while it can."""
        return self._inner.error


@twin_of(AsyncReadOnlyBucket)
class ReadOnlyBucket(Twin):
    """A Key-Value bucket that can only be read, returned by `Bucket.read_only`."""

    _inner: AsyncReadOnlyBucket

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._inner.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        """The same bucket, with keys and values encoded when written and decoded when read."""
        return type(self)(self._caller, self._inner.with_codecs(keys=keys, values=values))

    def status(self) -> BucketStatus:
        """Configuration and state."""
        return self._thread.run(self._inner.status)

    def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision."""
        return self._thread.run(self._inner.get, key, revision, leader=leader)

    def get_value(self, key: str, revision: int | None = None, *, leader: bool = False) -> bytes:
        """The value of `get`. Raises as `get`."""
        return self._thread.run(self._inner.get_value, key, revision, leader=leader)

    def get_many(self, keys: str | Iterable[str], *, leader: bool = False) -> Snapshot:
        """The entries of many keys, all as they were at one revision of the bucket."""
        return self._thread.run(self._inner.get_many, keys, leader=leader)

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match, in a bucket of any size."""
        return Listing(self._caller, self._inner.keys(keys))

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries of a key, or of the keys that match, oldest first. Raises as `keys`."""
        return Listing(self._caller, self._inner.history(keys))

    def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        callback: EntryCallback | None = None,
        **options: Unpack[WatchOptions],
    ) -> Watcher:
        """Current entries, then None once, then every change: iterate, or give a callback."""
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
        """A mapping of the bucket's keys and values that follows every change, in its `with`."""
        return LiveBucket(
            self._caller,
            lambda forward: self._inner.live(keys, on_change=forward, resync=resync),
            on_change,
        )


@twin_of(AsyncBucket)
class Bucket(ReadOnlyBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`."""

    _inner: AsyncBucket

    def read_only(self) -> ReadOnlyBucket:
        """The same bucket without the calls that write."""
        return ReadOnlyBucket(self._caller, self._inner.read_only())

    def lock(self, key: str, *, lease: Seconds = LEASE, holder: str | None = None) -> Lock:
        """A lock that one of all clients holds: `with bucket.lock("job") as lock`."""
        return Lock(self._caller, self._inner.lock(key, lease=lease, holder=holder))

    def election(
        self,
        key: str,
        *,
        lease: Seconds = LEASE,
        holder: str | None = None,
        callback: StateCallback | None = None,
    ) -> Election:
        """A candidate for leader within its `with`: iterate it, or give a callback."""
        return Election(
            self._caller,
            lambda forward: self._inner.election(key, lease=lease, holder=holder, callback=forward),
            callback,
        )

    def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value; returns the new revision."""
        return self._thread.run(self._inner.put, key, value)

    def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or was deleted; returns the revision."""
        return self._thread.run(self._inner.create, key, value, ttl=ttl)

    def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry has this revision; returns the new revision."""
        return self._thread.run(self._inner.update, key, value, revision)

    def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key with a marker after its history; returns the marker's revision."""
        return self._thread.run(self._inner.delete, key, revision)

    def purge(self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None) -> int:
        """Delete a key and its history; returns the marker's revision."""
        return self._thread.run(self._inner.purge, key, revision, ttl=ttl)

    def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove the history and markers of deleted keys; returns how many keys."""
        return self._thread.run(self._inner.purge_deletes, keys, older_than=older_than)

    def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision."""
        return self._thread.run(self._inner.revert, key, revision)
