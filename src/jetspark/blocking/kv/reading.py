"""Many entries of a bucket, without async: history, keys, changes; removal of old delete markers.

Contract: that of `jetspark.kv.reading`.
"""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.blocking.kv.live import ChangeCallback, LiveBucket
from jetspark.blocking.kv.watch import EntryCallback, Watcher
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.entries import Entry
from jetspark.kv.live import RESYNC
from jetspark.kv.reading import MARKER_AGE
from jetspark.kv.watch import HEARTBEAT
from jetspark.timestamps import Seconds


class ReadingCalls:
    """The part of a bucket that reads many entries."""

    _thread: LoopThread
    _inner: AsyncBucket

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
            self._inner._js.client,
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

    def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove deleted keys with their history; returns how many.

        Of those deleted less than `older_than` ago the marker stays, so that watchers that are
        away for a while learn of it. A key that is written meanwhile keeps what is new.
        """
        return self._thread.run(self._inner.purge_deletes, keys, older_than=older_than)
