# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: bucket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from jetspark.arguments import spelt
from jetspark.blocking.kv.live import ChangeCallback, LiveBucket
from jetspark.blocking.kv.watch import EntryCallback, Watcher
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.kinds import StreamSequence
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

    @spelt
    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match.

        Keys are not collected: a bucket of any size can be listed. Raises ConfigError for filters
        that overlap, UnsupportedByServerError; while iterating, as every call of a bucket (see
        `Bucket`).
        """
        return Listing(self._thread, self._inner.keys(keys))

    @spelt
    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries of a key, or of the keys that match, oldest first. Raises as `keys`."""
        return Listing(self._thread, self._inner.history(keys))

    @spelt
    def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        include_history: bool = False,
        meta_only: bool = False,
        ignore_deletes: bool = False,
        updates_only: bool = False,
        resume_from: StreamSequence | None = None,
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

    @spelt
    def live(
        self,
        keys: str | Iterable[str] = ">",
        *,
        on_change: ChangeCallback | None = None,
        resync: Seconds = RESYNC,
    ) -> LiveBucket:
        """A mapping of the bucket's keys and values that follows every change, once entered.

        `on_change` is called with each entry, the current ones too. `resync`: seconds between two
        checks for entries that the bucket has removed itself. How it goes on and ends: see
        `jetspark.kv.live`. Raises BadNameError, ConfigError, UnsupportedByServerError; entering it
        raises as every call of a bucket (see `Bucket`).
        """
        return LiveBucket(
            self._thread,
            self._inner.name,
            lambda forward: self._inner.live(keys, on_change=forward, resync=resync),
            on_change,
        )

    def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value; returns the new revision.

        Raises APIError when the bucket is full or the value too large, MaxPayloadError, and as
        every call of a bucket (see `Bucket`).
        """
        return self._thread.run(self._inner.put, key, value)

    def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or was deleted; returns the revision.

        `ttl`: the value is removed after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11), and with a history of more than one the server makes the ttl at
        least as long as that. Raises KeyExistsError, NotEnabledOnStreamError,
        UnsupportedByServerError, WrongLastSequenceError when others kept writing the key, and as
        `put`.
        """
        return self._thread.run(self._inner.create, key, value, ttl=ttl)

    def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry has this revision; returns the new revision.

        `revision`: 0 for a key without an entry. Raises WrongLastSequenceError when the key has
        changed, ConfigError for an impossible revision, and as `put`.
        """
        return self._thread.run(self._inner.update, key, value, revision)

    def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key by a delete marker after its history; returns the marker's revision.

        `revision`: only if the key's last entry has it, otherwise WrongLastSequenceError. Raises
        as every call of a bucket (see `Bucket`).
        """
        return self._thread.run(self._inner.delete, key, revision)

    @spelt
    def purge(self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None) -> int:
        """Delete a key and its history; returns the marker's revision.

        `ttl`: the marker is removed after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11), or NotEnabledOnStreamError. `revision`: as for `delete`. Raises
        as `delete`.
        """
        return self._thread.run(self._inner.purge, key, revision, ttl=ttl)

    @spelt
    def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove the history and markers of deleted keys; returns how many keys.

        The marker of a key deleted less than `older_than` ago (default: 30 minutes) stays, so that
        watchers that were disconnected learn of it. A key written meanwhile keeps its new entries.
        Raises ConfigError for a time that is none or negative, and as `keys`.
        """
        return self._thread.run(self._inner.purge_deletes, keys, older_than=older_than)

    @spelt
    def revert(self, key: str, revision: StreamSequence) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not have that revision any more, ConfigError
        for an impossible one, and as `put`.
        """
        return self._thread.run(self._inner.revert, key, revision)

    def __repr__(self) -> str:
        return repr(self._inner)
