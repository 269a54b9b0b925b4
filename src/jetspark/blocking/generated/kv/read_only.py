# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: read only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from jetspark.blocking.kv.live import ChangeCallback, LiveBucket
from jetspark.blocking.kv.watch import EntryCallback, Watcher
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.bucket import ReadOnlyBucket as AsyncReadOnlyBucket
from jetspark.kv.codecs import Entry, KeyCodec, Snapshot, ValueCodec
from jetspark.kv.config import BucketStatus
from jetspark.kv.watch import HEARTBEAT, RESYNC
from jetspark.timestamps import Seconds


class GeneratedReadOnlyBucket:
    """The calls of `ReadOnlyBucket` that hand on to its asyncio twin."""

    _thread: LoopThread
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
        """The same bucket, with keys and values encoded when written and decoded when read.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None: unchanged.
        """
        raise NotImplementedError

    def status(self) -> BucketStatus:
        """Configuration and state. Raises BucketNotFoundError, and as every API call."""
        return self._thread.run(self._inner.status)

    def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: read from the leader, which has every acknowledged write. Raises
        KeyNotFoundError, also for a deleted key, ConfigError for an impossible revision, and as
        every call of a bucket (see `Bucket`).
        """
        return self._thread.run(self._inner.get, key, revision, leader=leader)

    def get_value(self, key: str, revision: int | None = None, *, leader: bool = False) -> bytes:
        """The value of `get`. Raises as `get`."""
        return self._thread.run(self._inner.get_value, key, revision, leader=leader)

    def get_many(self, keys: str | Iterable[str], *, leader: bool = False) -> Snapshot:
        """The entries of many keys, all as they were at one revision of the bucket.

        `keys`: keys or filters; one without a value is left out. `leader`: not before the last
        write that was acknowledged when it was called. `revision` of the result is 0 when no key
        has an entry and `leader` is not set: a server does not tell it then. At most 1,024 keys and
        32 MiB: otherwise DirectGetError. Needs server 2.11, and a bucket with direct gets. Raises
        RequestTimeoutError when other writers never paused long enough, UnsupportedByServerError,
        and as every call of a bucket (see `Bucket`).
        """
        return self._thread.run(self._inner.get_many, keys, leader=leader)

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match.

        Keys are not collected: a bucket of any size can be listed. Raises ConfigError for filters
        that overlap, UnsupportedByServerError; while iterating, as every call of a bucket (see
        `Bucket`).
        """
        return Listing(self._thread, self._inner.keys(keys))

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries of a key, or of the keys that match, oldest first. Raises as `keys`."""
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
        """Current entries, then None once, then every change: iterate, or give a callback.

        The current entries are the last one of each key, deleted ones too. `include_history`: all
        entries. `updates_only`: none, only changes. `resume_from`: all from this revision on.
        `meta_only`: without values. `ignore_deletes`: without deletions. `heartbeat`: seconds
        between the server's heartbeats, 0.5 to 15; when none comes for twice as long, the consumer
        is recreated. How it goes on and ends: see `jetspark.kv.watch`. Raises BadNameError,
        ConfigError, UnsupportedByServerError; taking entries raises as every call of a bucket
        (see `Bucket`).
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
        """A mapping of the bucket's keys and values that follows every change, in an `with`.

        `on_change` is called with each entry, the current ones too. `resync`: seconds between two
        checks for entries that the bucket has removed itself. How it goes on and ends: see
        `jetspark.kv.watch`. Raises BadNameError, ConfigError, UnsupportedByServerError; entering it
        raises as every call of a bucket (see `Bucket`).
        """
        return LiveBucket(
            self._thread,
            self._inner.name,
            lambda forward: self._inner.live(keys, on_change=forward, resync=resync),
            on_change,
        )

    def __repr__(self) -> str:
        return repr(self._inner)
