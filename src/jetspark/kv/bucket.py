"""Key-Value buckets: reading, listing, watching, writing; creating and changing them (ADR-8).

Contract: a bucket is cheap, holds no state of the server and needs no closing. Keys are checked
before anything is sent. Reads are direct gets where the bucket allows them; any replica or mirror
answers, which may lag a moment behind the last write. `leader=True` reads from the leader, which
has every acknowledged write. In the calls for many entries keys are filters: * stands for one
token, a last > for the rest; several filters need server 2.10. These calls end with the entry that
was the bucket's last one at their start. Every write returns a revision, and may depend on the
key's last one: the server decides, so one of several writers wins.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Any, Final, Self, TypeVar, Unpack

import jetspark.errors as errors
from jetspark.client.client import CoreClient
from jetspark.client.listing import Listing
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import External, Source, StreamInfo
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.differences import known_as
from jetspark.jetstream.publish_request import TimeToLive
from jetspark.jetstream.stream import Stream
from jetspark.kv.codecs import BucketEncoding, Entry, KeyCodec, Snapshot, ValueCodec
from jetspark.kv.config import (
    BUCKET_OPTIONS,
    NEW_BUCKET,
    BucketConfig,
    BucketOptions,
    BucketSettings,
    BucketStatus,
    Origin,
    bucket_config,
    is_bucket,
    stream_options,
)
from jetspark.kv.lock import LEASE, Election, Lock, StateCallback
from jetspark.kv.stored import BucketStream, about_bucket
from jetspark.kv.watch import (
    RESYNC,
    ChangeCallback,
    EntryCallback,
    LiveBucket,
    Watcher,
    WatchOptions,
    WatchSelection,
)
from jetspark.kv_rules import STREAM_PREFIX, Operation, check_bucket
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.subjects import check_name, subjects_overlap
from jetspark.timestamps import Seconds, duration_to_ns, in_seconds
from jetspark.validation import MAX_SEQUENCE, check_sequence, check_whole

MARKER_AGE: Final = timedelta(minutes=30)
_CREATE_TRIES = 10

OriginT = TypeVar("OriginT", bound="Origin | Source")


class ReadOnlyBucket:
    """A Key-Value bucket that can only be read, returned by `Bucket.read_only`.

    Raises the errors of `Bucket`. The connection's user needs no permission to write.

    Example:
        ```python
        prices = (await js.bucket("settings")).read_only()
        print((await prices.get("colour")).value)  # b'red'
        ```
    """

    def __init__(self, stored: BucketStream) -> None:
        self._stored = stored
        self._js = stored.js
        self._encoding = stored.encoding

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._encoding.name

    @property
    def client(self) -> CoreClient:
        """The client that it uses."""
        return self._js.client

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._encoding.stream

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        """This bucket with keys and values encoded when written and decoded when read.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None: unchanged.
        """
        return type(self)(BucketStream(self._js, self._encoding.with_codecs(keys, values)))

    async def status(self) -> BucketStatus:
        """Configuration and state."""
        return BucketStatus(await self._stored.info())

    # -- reading -------------------------------------------------------------------------------

    async def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: read from the leader, which has every acknowledged write. Raises KeyNotFoundError,
        also for a deleted key.

        Example:
            ```python
            bucket = await js.bucket("settings")
            entry = await bucket.get("colour")
            print(entry.value, entry.revision)  # b'red' 1
            ```
        """
        if revision is not None:
            check_sequence("revision", revision)
        return await self._stored.read(key, revision, leader=leader)

    async def get_value(
        self, key: str, revision: int | None = None, *, leader: bool = False
    ) -> bytes:
        """The value of `get`. Raises as `get`."""
        return (await self.get(key, revision, leader=leader)).value

    async def get_many(self, keys: str | Iterable[str], *, leader: bool = False) -> Snapshot:
        """The entries of many keys, all as they were at one revision of the bucket.

        `keys`: keys or filters; those without a value are left out. `leader`: a revision that
        includes every write acknowledged before the call. Needs server 2.11, and a bucket with
        direct gets. Raises DirectGetError for more than 1,024 keys or 32 MiB, RequestTimeoutError
        when other writers never pause long enough.

        Example:
            ```python
            bucket = await js.bucket("settings")
            await bucket.put("size", b"7")
            snapshot = await bucket.get_many(["colour", "size"])
            print(snapshot["colour"].value, snapshot["size"].value)  # b'red' b'7'
            ```
        """
        subjects = list(dict.fromkeys(self._encoding.filters(keys)))
        return await self._stored.read_together(subjects, leader=leader)

    # -- many entries --------------------------------------------------------------------------

    def keys(self, keys: str | Iterable[str] = ">") -> Listing[str]:
        """The keys that have a value, all or those that match, each once.

        Raises ConfigError for filters that overlap.

        Example:
            ```python
            bucket = await js.bucket("settings")
            print(await bucket.keys().all())  # ['colour']
            ```
        """
        selection = WatchSelection(self._subjects(keys), meta_only=True, ignore_deletes=True)
        return Listing(partial(self._keys, selection))

    async def _keys(self, selection: WatchSelection) -> AsyncIterator[str]:
        keys: set[str] = set()
        async for entry in self._initial_data(selection):
            if entry.key not in keys:  # it may be written meanwhile
                keys.add(entry.key)
                yield entry.key

    def history(self, keys: str | Iterable[str] = ">") -> Listing[Entry]:
        """All entries of a key, or of the keys that match, oldest first. Raises as `keys`."""
        selection = WatchSelection(self._subjects(keys), include_history=True)
        return Listing(partial(self._initial_data, selection))

    async def _initial_data(self, selection: WatchSelection) -> AsyncIterator[Entry]:
        async with Watcher(self._stored, selection) as watcher:
            async for entry in watcher:
                if entry is None:
                    return
                yield entry

    def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        callback: EntryCallback | None = None,
        **options: Unpack[WatchOptions],
    ) -> Watcher:
        """Current entries, then None once, then every change: iterate, or give a callback.

        The current entries are the last one of each key, even a deletion. `include_history`: all
        entries. `updates_only`: only changes. `resume_from`: all from this revision on.
        `meta_only`: without values. `ignore_deletes`: without deletions. `heartbeat`: seconds
        between the server's heartbeats, 0.5 to 15, default 2; after twice as long without one, the
        consumer is recreated. `jetspark.kv.watch` says what it survives and how it ends.

        Example:
            ```python
            bucket = await js.bucket("settings")
            async with bucket.watch() as changes:
                async for entry in changes:
                    print(entry and entry.value)  # b'red' None
            ```
        """
        selection = WatchSelection(self._subjects(keys), **options)
        begins = (
            selection.include_history,
            selection.updates_only,
            selection.resume_from is not None,
        )
        if begins.count(True) > 1:
            raise errors.ConfigError("Give one of include_history, updates_only and resume_from.")
        if selection.resume_from is not None:
            check_sequence("resume_from", selection.resume_from)
        # At most half of a pull request's 30 s.
        if not 0.5 <= in_seconds(selection.heartbeat) <= 15:
            raise errors.ConfigError("heartbeat must be from 0.5 to 15 seconds.")
        return Watcher(self._stored, selection, callback)

    def live(
        self,
        keys: str | Iterable[str] = ">",
        *,
        on_change: ChangeCallback | None = None,
        resync: Seconds = RESYNC,
    ) -> LiveBucket:
        """A mapping of the bucket's keys and values that follows every change, in its block.

        `on_change` is called with each entry, also with the current ones. `resync`: seconds between
        two checks for entries that the bucket itself removed. `jetspark.kv.watch` says what it
        survives and how it ends.

        Example:
            ```python
            bucket = await js.bucket("settings")
            async with bucket.live() as settings:
                print(settings["colour"], len(settings))  # b'red' 1
            ```
        """
        resync = in_seconds(resync)
        if not resync > 0:
            raise errors.ConfigError("resync must be more than 0 seconds.")
        selection = WatchSelection(self._subjects(keys))
        return LiveBucket(self._stored, selection, on_change, resync)

    def _subjects(self, keys: str | Iterable[str]) -> list[str]:
        subjects = self._encoding.filters(keys)
        if len(subjects) > 1:
            check_feature("several filters", (2, 10), self._js.server_info)
        for first, second in combinations(subjects, 2):
            if subjects_overlap(first, second):
                raise errors.ConfigError(
                    f"The filters for {first!r} and {second!r} overlap: give only one of them."
                )
        return subjects

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Bucket(ReadOnlyBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`.

    Every call raises BadNameError for an invalid key, CodecError when a codec cannot encode or
    decode it, BucketNotFoundError when the bucket no longer exists, and the errors of every API
    call (see `JetStream`). While no server with the bucket is available, reads raise DirectGetError
    with status 503 (before server 2.10: RequestTimeoutError), and writes NoStreamResponseError.
    Writes to a read-only bucket raise ConfigError.

    Example:
        ```python
        bucket = await js.bucket("settings")
        revision = await bucket.put("colour", b"blue")
        entry = await bucket.get("colour")
        print(entry.value, entry.revision == revision)  # b'blue' True
        ```
    """

    def read_only(self) -> ReadOnlyBucket:
        """This bucket without the calls that write."""
        return ReadOnlyBucket(self._stored)

    # -- locks ---------------------------------------------------------------------------------

    def lock(self, key: str, *, lease: Seconds = LEASE, holder: str | None = None) -> Lock:
        """A lock that one of all clients holds within its block.

        `key`: used only for the lock's record. `lease`: seconds, at least 1, after which others
        take over from a silent holder, who renews it every third of that. `holder`: the name that
        others see; default: host name and process id. Sends nothing. With `limit_marker_ttl` (2.11)
        in the bucket, the server removes a dead holder's record. Raises ConfigError for a lease
        longer than the bucket keeps its values. See `Lock`.

        Example:
            ```python
            locks = await js.create_bucket("locks", limit_marker_ttl=60)
            async with locks.lock("nightly-report", lease=10) as lock:
                print(lock.token)  # 1
            ```
        """
        return Lock(self._stored, key, lease, holder)

    def election(
        self,
        key: str,
        *,
        lease: Seconds = LEASE,
        holder: str | None = None,
        callback: StateCallback | None = None,
    ) -> Election:
        """A candidate for leader within its block: iterate it, or give a callback.

        The candidate that holds the lock `key` leads. `callback` is called with
        each ElectionState. `lease`, `holder`: as for `lock`. See `Election`.

        Example:
            ```python
            locks = await js.create_bucket("locks", limit_marker_ttl=60)
            async with locks.election("scheduler", holder="node-1") as election:
                async for state in election:
                    print(state.leading)  # False True
            ```
        """
        return Election(self._js.client, self.lock(key, lease=lease, holder=holder), callback)

    # -- writing -------------------------------------------------------------------------------

    async def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value; returns the new revision.

        Raises APIError when the bucket is full or the value too large, MaxPayloadError.

        Example:
            ```python
            bucket = await js.bucket("settings")
            print(await bucket.put("colour", b"blue"))  # 2
            ```
        """
        return await self._stored.write(key, value)

    async def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or was deleted; returns the revision.

        `ttl`: whole seconds until the value is removed; the bucket needs `limit_marker_ttl` (2.11),
        to which a server raises the ttl of a bucket with a history of more than one. Raises
        KeyExistsError, NotEnabledOnStreamError, WrongLastSequenceError when others keep writing the
        key, and as `put`.

        Example:
            ```python
            from jetspark.errors import KeyExistsError

            bucket = await js.bucket("settings")
            try:
                await bucket.create("colour", b"blue")
            except KeyExistsError:
                print("somebody was first")  # somebody was first
            ```
        """
        value = payload_bytes(value)  # encoded once, since every attempt writes the same
        last = 0
        for _ in range(_CREATE_TRIES):
            try:
                return await self._stored.write(key, value, last=last, ttl=ttl)
            except errors.WrongLastSequenceError as error:
                failed = error
            try:
                entry = await self.get(key, leader=True)
            except errors.KeyNotFoundError as gone:
                # The revision of the delete marker, or 0 when it is gone.
                last = gone.revision or 0
            else:
                raise errors.KeyExistsError(self.name, key, entry.revision)
        raise failed

    async def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry has this revision; returns the new revision.

        `revision`: 0 for a key without an entry. Raises WrongLastSequenceError when the key has
        changed, and the errors of `put`.

        Example:
            ```python
            bucket = await js.bucket("settings")
            entry = await bucket.get("colour")
            await bucket.update("colour", b"dark " + entry.value, entry.revision)
            ```
        """
        check_whole("revision", revision, 0, MAX_SEQUENCE)  # None would mean any
        return await self._stored.write(key, value, last=revision)

    async def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key with a marker after its history; returns the marker's revision.

        `revision`: only if the key's last entry has it, otherwise WrongLastSequenceError.
        """
        return await self._stored.write(key, last=revision, operation=Operation.DEL)

    async def purge(
        self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None
    ) -> int:
        """Delete a key and its history; returns the marker's revision.

        `ttl`: whole seconds until the marker is removed; needs `limit_marker_ttl` (2.11) in the
        bucket, otherwise NotEnabledOnStreamError. `revision`: as for `delete`.
        """
        return await self._stored.write(key, last=revision, operation=Operation.PURGE, ttl=ttl)

    async def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove the history and markers of deleted keys; returns how many keys.

        A marker younger than `older_than` (default: 30 minutes) stays, for watchers that were
        disconnected. A key written meanwhile keeps its new entries.
        """
        if (age := duration_to_ns(in_seconds(older_than))) < 0:
            raise errors.ConfigError("older_than cannot be negative: 0 removes every marker.")
        before = time.time_ns() - age
        selection = WatchSelection(self._subjects(keys), meta_only=True)
        markers: dict[str, Entry] = {}
        async for entry in self._initial_data(selection):
            markers.pop(entry.key, None)  # it may be written meanwhile
            if entry.is_deleted:
                markers[entry.key] = entry
        removed = 0
        for marker in markers.values():
            old = marker.created_ns <= before
            removed += old
            # By sequence: entries after the marker stay.
            await self._stored.stream.purge(
                filter=self._encoding.subject(marker.key), seq=marker.revision + old
            )
        return removed

    async def empty(self) -> int:
        """Delete all entries, but not the bucket; returns how many there were.

        Revisions continue. Watchers get no deletions.
        """
        with about_bucket(self.name):
            return await self._stored.stream.purge()

    async def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket no longer has that revision, and the errors of
        `put`.
        """
        check_sequence("revision", revision)
        return await self.put(key, await self.get_value(key, revision, leader=True))


class BucketCalls(JetStreamContext):
    """The calls of JetStream for Key-Value buckets; aggregates and mirrors (ADR-8, ADR-57).

    Options are the fields of BucketConfig, given as one, as keyword arguments, or as both, where
    keyword arguments win. Names and options are checked before anything is sent.
    """

    async def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Create a bucket, or bind to it when it exists with the same configuration.

        Options are the fields of BucketConfig. Raises NameInUseError when it exists with another
        configuration, UnsupportedByServerError, and as every API call (see `JetStream`).

        Example:
            ```python
            bucket = await js.create_bucket("prices", history=5, ttl=3600)
            await bucket.put("apples", b"1.20")
            ```
        """
        bucket, name = bucket_config(config, options), check_bucket(name)
        stream = await self._make_bucket(name, bucket, _origin_options(name, bucket))
        return self._bound(stream.cached_info)

    async def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Change a bucket; options not given keep their values.

        Raises BucketNotFoundError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        bucket = bucket_config(config, options)
        if bucket.mirror_name is not None:
            raise errors.ConfigError("A bucket that exists cannot become a mirror.")
        await self._check_markers(bucket)
        with about_bucket(name):
            stream = (await self._bucket_info(name)).name
            return self._bound(await self.stream(stream).update(**stream_options(bucket)))

    async def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Update a bucket, or create it. Raises as `update_bucket` and `create_bucket`."""
        bucket = bucket_config(config, options)
        if bucket.mirror_name is None:
            try:
                return await self.update_bucket(name, bucket)
            except errors.BucketNotFoundError:
                pass
        try:
            return await self.create_bucket(name, bucket)
        except errors.NameInUseError as error:
            try:
                return await self.update_bucket(name, bucket)  # created in between
            except errors.BucketNotFoundError:
                raise error from None  # another stream has its name

    async def create_bucket_aggregate(
        self,
        name: str,
        origins: Iterable[Origin | Source],
        config: BucketConfig | None = None,
        /,
        *,
        writable: bool = True,
        **options: Unpack[BucketSettings],
    ) -> Bucket:
        """Create a bucket that also takes the entries of other buckets (server 2.10).

        `origins`: buckets, here or in other domains and accounts, or a Source with subject
        transforms: any stream. `writable`: whether it also takes writes of its own. Options are the
        fields of BucketConfig without mirror_name. Raises as `create_bucket`.
        """
        bucket, name = bucket_config(config, options), check_bucket(name)
        sources = [_source(_checked(origin), name) for origin in origins]
        if not sources:
            raise errors.ConfigError("An aggregate needs at least one origin.")
        _no_mirror(bucket)
        origin_options: dict[str, Any] = {"sources": sources}
        if writable:
            # Allows removing an origin's entries here one by one.
            origin_options.update(subjects=[f"$KV.{name}.>"], deny_delete=False)
        stream = await self._make_bucket(name, bucket, origin_options)
        return self._bound(stream.cached_info)

    async def create_bucket_mirror(
        self,
        name: str,
        origin: Origin,
        config: BucketConfig | None = None,
        /,
        **options: Unpack[BucketSettings],
    ) -> Stream:
        """Create a mirror of a bucket, which answers direct gets nearer to some readers.

        It is a stream of this name, not a bucket: `bucket` cannot bind to it, and `delete_stream`
        deletes it. Options are the fields of BucketConfig without mirror_name. Filters of keys need
        server 2.10. Raises as `create_bucket`.
        """
        bucket = bucket_config(config, options)
        _no_mirror(bucket)
        name = check_name("stream", name)
        if name.startswith(STREAM_PREFIX):
            raise errors.ConfigError(f'The name of a mirror cannot begin with "{STREAM_PREFIX}".')
        origin_options = {"mirror": _checked(origin).mirror(), "mirror_direct": True}
        return await self._make_bucket(name, bucket, origin_options, stream=name)

    async def bucket(self, name: str) -> Bucket:
        """Bind to an existing bucket.

        Raises BucketNotFoundError, and as every API call (see `JetStream`).
        """
        return self._bound(await self._bucket_info(name))

    async def delete_bucket(self, name: str) -> None:
        """Delete a bucket and its entries. Raises as `bucket`."""
        with about_bucket(name):
            await self.delete_stream((await self._bucket_info(name)).name)

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets."""
        return Listing(self._bucket_names)

    async def _bucket_names(self) -> AsyncIterator[str]:
        # Read-only aggregates and mirrors have no subjects, so a list by subject would miss them.
        async for name in self.stream_names():
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets."""
        return Listing(self._buckets)

    async def _buckets(self) -> AsyncIterator[BucketStatus]:
        async for info in self.streams():
            if info.name.startswith(STREAM_PREFIX) and is_bucket(info.config):
                yield BucketStatus(info)

    async def _bucket_info(self, name: str) -> StreamInfo:
        """The stream's information. Raises BucketNotFoundError, also for another stream."""
        with suppress(errors.StreamNotFoundError):
            info = await self.stream(STREAM_PREFIX + check_bucket(name)).info()
            if is_bucket(info.config):
                return info
        raise errors.BucketNotFoundError(name)

    def _bound(self, info: StreamInfo) -> Bucket:
        return Bucket(BucketStream(self, BucketEncoding(info.config, self.api_prefix)))

    async def _make_bucket(
        self,
        name: str,
        bucket: BucketConfig,
        origin_options: dict[str, Any],
        *,
        stream: str | None = None,
    ) -> Stream:
        await self._check_markers(bucket)
        options = {**NEW_BUCKET, **stream_options(bucket), **origin_options}
        try:
            return await self.create_stream(name=stream or STREAM_PREFIX + name, **options)
        except errors.NameInUseError as error:
            raise known_as(error, f'Bucket "{name}"', BUCKET_OPTIONS) from None

    async def _check_markers(self, bucket: BucketConfig) -> None:
        """Check the server that would answer: behind a domain it is not the connected one."""
        if bucket.limit_marker_ttl is None:
            return
        stats = (await self.account_info()).api
        if stats is None or stats.level < 1:
            info = self.client.server_info
            version = "older" if info is None else info.version
            raise errors.UnsupportedByServerError("limit_marker_ttl", "2.11", version)


def _origin_options(name: str, bucket: BucketConfig) -> dict[str, Any]:
    if bucket.mirror_name is None:
        return {"subjects": [f"$KV.{name}.>"]}
    external = None if bucket.mirror_domain is None else External.of_domain(bucket.mirror_domain)
    mirror = Source(name=STREAM_PREFIX + bucket.mirror_name, external=external)
    return {"mirror": mirror, "mirror_direct": True}


def _checked(origin: OriginT) -> OriginT:
    """Raise ConfigError for what is no origin, such as a bucket's name."""
    if not isinstance(origin, Origin | Source):
        raise errors.ConfigError(
            "An origin is Origin(bucket), from jetspark.kv, or a Source, not "
            f"{errors.safe_repr(origin)}."
        )
    return origin


def _source(origin: Origin | Source, bucket: str) -> Source:
    if isinstance(origin, Origin):
        return origin.source_of(bucket)
    if not origin.subject_transforms:
        raise errors.ConfigError("A Source needs subject_transforms; for a bucket, use Origin.")
    return origin


def _no_mirror(bucket: BucketConfig) -> None:
    if bucket.mirror_name is not None:
        raise errors.ConfigError("mirror_name goes with create_bucket only.")
