# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: bucket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from jetspark.blocking.kv.live import ChangeCallback, LiveBucket
from jetspark.blocking.kv.watch import EntryCallback, Watcher
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.kv.bucket import MARKER_AGE
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.codecs import KeyCodec, ValueCodec
from jetspark.kv.entries import Entry
from jetspark.kv.live import RESYNC
from jetspark.kv.status import BucketStatus
from jetspark.kv.watch import HEARTBEAT
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds


class GeneratedBucket:
    """The calls of `Bucket` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncBucket

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
        """The same bucket, with keys and values encoded on the way in and decoded on the way out.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None for as they are.
        """
        raise NotImplementedError

    def status(self) -> BucketStatus:
        """What it is and holds now."""
        return self._thread.run(self._inner.status)

    def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: ask the leader, so that every write that was acknowledged before is seen. Raises
        KeyNotFoundError, for a key that was deleted too, BadNameError, CodecError.
        """
        return self._thread.run(self._inner.get, key, revision, leader=leader)

    def get_value(self, key: str, revision: int | None = None, *, leader: bool = False) -> bytes:
        """Only the value of `get`."""
        return self._thread.run(self._inner.get_value, key, revision, leader=leader)

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match.

        None of them is held here: a bucket of any size can be listed.
        """
        return Listing(self._thread, self._inner.keys(keys))

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries that the bucket holds of a key, oldest first; of several with a filter."""
        return Listing(self._thread, self._inner.history(keys))

    def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        include_history: bool = False,
        meta_only: bool = False,
        ignore_deletes: bool = False,
        updates_only: bool = False,
        resume_from: int | None = None,
        heartbeat: Seconds = HEARTBEAT,
        callback: EntryCallback | None = None,
    ) -> Watcher:
        """The entries of the bucket, then None once, then every change: iterate, or a callback.

        First comes the last entry of each key, deleted ones too. `include_history`: all entries.
        `updates_only`: none, only changes. `resume_from`: all from this revision on. `meta_only`:
        without values. `ignore_deletes`: only values. `heartbeat`: seconds between two signs of
        life of the server; after twice as long without one the watch asks anew. The rest is in
        `jetspark.kv.watch`. Raises BadNameError, ConfigError.
        """
        return Watcher(
            self._thread,
            self._inner.client,
            self._inner.name,
            lambda forward: self._inner.watch(
                keys,
                include_history=include_history,
                meta_only=meta_only,
                ignore_deletes=ignore_deletes,
                updates_only=updates_only,
                resume_from=resume_from,
                heartbeat=heartbeat,
                callback=forward,
            ),
            callback,
        )

    def live(
        self,
        keys: str | Iterable[str] = ">",
        *,
        on_change: ChangeCallback | None = None,
        resync: Seconds = RESYNC,
    ) -> LiveBucket:
        """The bucket as a mapping that follows every change, once it is entered.

        `on_change` is called with each entry, those of the initial data too. `resync`: seconds
        between two looks at what the bucket has removed by itself. The rest is in
        `jetspark.kv.live`. Raises BadNameError, ConfigError.
        """
        return LiveBucket(
            self._thread,
            self._inner.name,
            lambda forward: self._inner.live(keys, on_change=forward, resync=resync),
            on_change,
        )

    def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value, whatever it was; returns the new revision."""
        return self._thread.run(self._inner.put, key, value)

    def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or whose last value was deleted.

        `ttl`: removed after so long, whole seconds; the bucket needs `limit_marker_ttl` (2.11),
        and with a history of more than one the server makes it at least as long. Raises
        KeyExistsError, NotEnabledOnStreamError.
        """
        return self._thread.run(self._inner.create, key, value, ttl=ttl)

    def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry is still this revision; returns the new one.

        `revision`: 0 for a key that never had an entry. Raises WrongLastSequenceError when
        somebody else was faster, ConfigError for what is no revision.
        """
        return self._thread.run(self._inner.update, key, value, revision)

    def delete(self, key: str, revision: int | None = None) -> int:
        """Leave a mark that the key is deleted, behind its history; returns the mark's revision.

        `revision`: only if the key's last entry is still this one, or WrongLastSequenceError.
        """
        return self._thread.run(self._inner.delete, key, revision)

    def purge(self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None) -> int:
        """`delete`, and its history with it.

        `ttl`: remove the mark, too, after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11).
        """
        return self._thread.run(self._inner.purge, key, revision, ttl=ttl)

    def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove deleted keys with their history; returns how many.

        Of those deleted less than `older_than` ago the marker stays, so that watchers that are
        away for a while learn of it. A key that is written meanwhile keeps what is new.
        """
        return self._thread.run(self._inner.purge_deletes, keys, older_than=older_than)

    def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not hold that revision any more, ConfigError
        for what is no revision.
        """
        return self._thread.run(self._inner.revert, key, revision)

    def __repr__(self) -> str:
        return repr(self._inner)
