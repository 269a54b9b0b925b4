"""Reading a bucket: get keys; list, watch and mirror them (ADR-8).

Contract: a bucket is cheap, holds no state of the server's and needs no closing. Keys are checked
before anything is sent. Reads are direct gets where the bucket allows them, answered by any replica
or mirror, which may lag behind the last write by a moment; `leader=True` reads from the leader,
which has every acknowledged write. Keys of the calls for many entries are filters: * stands for one
token, a last > for the rest; several filters need server 2.10. These calls end with the last entry
that the bucket had at their start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from itertools import combinations
from typing import Self

from jetspark.arguments import MOST_SEQUENCE, check_whole, checked_but
from jetspark.client.client import Client
from jetspark.errors import ConfigError
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.listing import Listing
from jetspark.jetstream.requirements import check_feature
from jetspark.kinds import StreamSequence
from jetspark.kv.codecs import KeyCodec, ValueCodec
from jetspark.kv.encoding import BucketEncoding
from jetspark.kv.entries import Entry, Snapshot
from jetspark.kv.live import RESYNC, ChangeCallback, LiveBucket
from jetspark.kv.status import BucketStatus
from jetspark.kv.stored import bucket_info, read_entry, read_snapshot
from jetspark.kv.watch import HEARTBEAT, EntryCallback, Wanted, Watcher
from jetspark.subjects import subjects_overlap
from jetspark.timestamps import Seconds, in_seconds


@checked_but("get", "get_value")
class ReadOnlyBucket:
    """A Key-Value bucket that can only be read, as returned by `Bucket.read_only`.

    Every call raises as those of `Bucket`. The user of the connection needs no permission to write.
    """

    def __init__(self, js: JetStreamContext, encoding: BucketEncoding) -> None:
        self._js = js
        self._encoding = encoding

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._encoding.name

    @property
    def client(self) -> Client:
        """The connection that it uses."""
        return self._js.client

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._encoding.stream

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        """The same bucket, with keys and values encoded when written and decoded when read.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None: unchanged.
        """
        return type(self)(self._js, self._encoding.with_codecs(keys, values))

    async def status(self) -> BucketStatus:
        """Configuration and state. Raises BucketNotFoundError, and as every API call."""
        return BucketStatus(await bucket_info(self._js, self._encoding))

    # -- reading -------------------------------------------------------------------------------

    async def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: read from the leader, which has every acknowledged write. Raises
        KeyNotFoundError, also for a deleted key, ConfigError for an impossible revision, and as
        every call of a bucket (see `Bucket`).
        """
        if revision is not None:
            check_whole("revision", revision, most=MOST_SEQUENCE)
        return await read_entry(self._js, self._encoding, key, revision, leader=leader)

    async def get_value(
        self, key: str, revision: int | None = None, *, leader: bool = False
    ) -> bytes:
        """The value of `get`. Raises as `get`."""
        return (await self.get(key, revision, leader=leader)).value

    async def get_many(self, keys: str | Iterable[str], *, leader: bool = False) -> Snapshot:
        """The entries of many keys, all as they were at one revision of the bucket.

        `keys`: keys or filters; one without a value is left out. `leader`: not before the last
        write that was acknowledged when it was called. `revision` of the result is 0 when no key
        has an entry and `leader` is not set: a server does not tell it then. At most 1,024 keys and
        32 MiB: otherwise DirectGetError. Needs server 2.11, and a bucket with direct gets. Raises
        RequestTimeoutError when other writers never paused long enough, UnsupportedByServerError,
        and as every call of a bucket (see `Bucket`).
        """
        subjects = list(dict.fromkeys(self._encoding.filters(keys)))
        return await read_snapshot(self._js, self._encoding, subjects, leader=leader)

    # -- many entries --------------------------------------------------------------------------

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match.

        Keys are not collected: a bucket of any size can be listed. Raises ConfigError for filters
        that overlap, UnsupportedByServerError; while iterating, as every call of a bucket (see
        `Bucket`).
        """
        wanted = Wanted(self._subjects(keys), meta_only=True, ignore_deletes=True)
        return Listing(partial(self._keys, wanted))

    async def _keys(self, wanted: Wanted) -> AsyncIterator[str]:
        async for entry in self._initial_data(wanted):
            yield entry.key

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries of a key, or of the keys that match, oldest first. Raises as `keys`."""
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
        if [include_history, updates_only, resume_from is not None].count(True) > 1:
            raise ConfigError("Give one of include_history, updates_only and resume_from.")
        heartbeat = in_seconds(heartbeat)
        if not 0.5 <= heartbeat <= 15:  # at most half of a pull request's 30 s
            raise ConfigError("heartbeat must be from 0.5 to 15 seconds.")
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
        """A mapping of the bucket's keys and values that follows every change, in an `async with`.

        `on_change` is called with each entry, the current ones too. `resync`: seconds between two
        checks for entries that the bucket has removed itself. How it goes on and ends: see
        `jetspark.kv.live`. Raises BadNameError, ConfigError, UnsupportedByServerError; entering it
        raises as every call of a bucket (see `Bucket`).
        """
        resync = in_seconds(resync)
        if not resync > 0:
            raise ConfigError("resync must be more than 0 seconds.")
        wanted = Wanted(self._subjects(keys))
        return LiveBucket(self._js, self._encoding, wanted, on_change, resync)

    def _subjects(self, keys: str | Iterable[str]) -> list[str]:
        subjects = self._encoding.filters(keys)
        if len(subjects) > 1:
            check_feature("several filters", (2, 10), self._js.server_info)
        for one, other in combinations(subjects, 2):
            if subjects_overlap(one, other):
                raise ConfigError(
                    f"The filters for {one!r} and {other!r} overlap: give only one of them."
                )
        return subjects

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
