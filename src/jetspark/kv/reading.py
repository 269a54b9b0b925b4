"""Many entries of a bucket: history, keys, changes; and the removal of old delete markers.

Contract: keys are filters here, in which * stands for one token and a last > for the rest; several
filters need server 2.10. What is read ends with the entries that were there when it began.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from functools import partial
from itertools import combinations

from jetspark.errors import ConfigError
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.listing import Listing
from jetspark.jetstream.requirements import check_feature
from jetspark.kv.encoding import BucketEncoding
from jetspark.kv.entries import Entry
from jetspark.kv.live import RESYNC, ChangeCallback, LiveBucket
from jetspark.kv.watch import HEARTBEAT, EntryCallback, Wanted, Watcher
from jetspark.subjects import subjects_overlap
from jetspark.timestamps import Seconds, duration_to_ns, in_seconds

MARKER_AGE = timedelta(minutes=30)


class ReadingCalls:
    """The part of a bucket that reads many entries."""

    _js: JetStreamContext
    _encoding: BucketEncoding

    def _subjects(self, keys: str | Iterable[str]) -> list[str]:
        subjects = self._encoding.filters(keys)
        if len(subjects) > 1:
            check_feature("several filters", (2, 10), self._js.server_info)
        for one, other in combinations(subjects, 2):
            if subjects_overlap(one, other):
                raise ConfigError(
                    f"The filters for {one!r} and {other!r} overlap: give one of them."
                )
        return subjects

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match.

        None of them is held here: a bucket of any size can be listed.
        """
        wanted = Wanted(self._subjects(keys), meta_only=True, ignore_deletes=True)
        return Listing(partial(self._keys, wanted))

    async def _keys(self, wanted: Wanted) -> AsyncIterator[str]:
        async for entry in self._initial_data(wanted):
            yield entry.key

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries that the bucket holds of a key, oldest first; of several with a filter."""
        wanted = Wanted(self._subjects(keys), include_history=True)
        return Listing(partial(self._initial_data, wanted))

    async def _initial_data(self, wanted: Wanted) -> AsyncIterator[Entry]:
        async with Watcher(self._js, self._encoding, wanted) as watcher:
            async for entry in watcher:
                if entry is None:
                    return
                yield entry

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
        if [include_history, updates_only, resume_from is not None].count(True) > 1:
            raise ConfigError("Give one of include_history, updates_only and resume_from.")
        heartbeat = in_seconds(heartbeat)
        if not 0.5 <= heartbeat <= 15:  # what pulls of 30 s allow
            raise ConfigError("heartbeat is from 0.5 to 15 seconds.")
        if resume_from is not None and resume_from < 1:
            raise ConfigError("resume_from begins at 1.")
        wanted = Wanted(
            self._subjects(keys),
            include_history=include_history,
            meta_only=meta_only,
            ignore_deletes=ignore_deletes,
            updates_only=updates_only,
            resume_from=resume_from,
            heartbeat=heartbeat,
        )
        return Watcher(self._js, self._encoding, wanted, callback)

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
        resync = in_seconds(resync)
        if not resync > 0:
            raise ConfigError("resync must be more than 0 seconds.")
        wanted = Wanted(self._subjects(keys))
        return LiveBucket(self._js, self._encoding, wanted, on_change, resync)

    async def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove deleted keys with their history; returns how many.

        Of those deleted less than `older_than` ago the marker stays, so that watchers that are
        away for a while learn of it. A key that is written meanwhile keeps what is new.
        """
        before = time.time_ns() - duration_to_ns(older_than)
        wanted = Wanted(self._subjects(keys), meta_only=True)
        markers = [entry async for entry in self._initial_data(wanted) if entry.is_deleted]
        removed = 0
        for marker in markers:
            old = marker.created_ns <= before
            removed += old
            # By sequence: what was written behind the marker is not touched.
            await self._js.purge_stream(
                self._encoding.stream,
                filter=self._encoding.subject(marker.key),
                seq=marker.revision + old,
            )
        return removed
