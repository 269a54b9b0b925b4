"""A bucket: get, put and delete keys; list, watch and mirror them (ADR-8).

Contract: a bucket is cheap, holds no state of the server's and needs no closing. Keys are checked
before anything is sent. Every write returns a revision, and may depend on the key's last one: the
server decides, so one of several writers wins. Reads are direct gets where the bucket allows them,
answered by any replica or mirror, which may lag behind the last write by a moment; `leader=True`
reads from the leader, which has every acknowledged write. Keys of the calls for many entries are
filters: * stands for one token, a last > for the rest; several filters need server 2.10. These
calls end with the last entry that the bucket had at their start.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Final, Self

from jetspark.arguments import MOST_SEQUENCE, check_flag, check_whole, checked_but
from jetspark.client.client import Client
from jetspark.errors import (
    BucketNotFoundError,
    ConfigError,
    DirectGetError,
    KeyExistsError,
    KeyNotFoundError,
    MessageNotFoundError,
    NoStreamResponseError,
    RequestTimeoutError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.documents import StoredMsg, StreamInfo
from jetspark.jetstream.listing import Listing
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.jetstream.requirements import check_feature
from jetspark.kinds import StreamSequence
from jetspark.kv.codecs import KeyCodec, ValueCodec
from jetspark.kv.encoding import BucketEncoding
from jetspark.kv.entries import Entry
from jetspark.kv.live import RESYNC, ChangeCallback, LiveBucket
from jetspark.kv.status import BucketStatus
from jetspark.kv.watch import HEARTBEAT, EntryCallback, Wanted, Watcher
from jetspark.kv_rules import OPERATION, Operation
from jetspark.payloads import Payload, payload_bytes
from jetspark.subjects import subjects_overlap
from jetspark.timestamps import Seconds, duration_to_ns, in_seconds

MARKER_AGE: Final = timedelta(minutes=30)
_CREATE_TRIES = 10
_UNAVAILABLE = 503


@checked_but("get", "get_value", "put", "create", "update", "delete")
class Bucket:
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`.

    Every call raises BadNameError for a key that cannot be, CodecError when a codec cannot encode
    or decode it, BucketNotFoundError when the bucket does not exist any more, and as every API
    call (see `JetStream`). Reads raise DirectGetError with status 503 while no server with the
    bucket is available (before server 2.10: RequestTimeoutError); writes raise
    NoStreamResponseError, and ConfigError for a read-only bucket.
    """

    def __init__(self, js: JetStreamContext, info: StreamInfo) -> None:
        self._js = js
        self._encoding = BucketEncoding(info.config, js.api_prefix)

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
        other = object.__new__(type(self))
        other._js = self._js
        other._encoding = self._encoding.with_codecs(keys, values)
        return other

    async def status(self) -> BucketStatus:
        """Configuration and state. Raises BucketNotFoundError, and as every API call."""
        try:
            return BucketStatus(await self._js.stream_info(self.stream))
        except StreamNotFoundError:
            raise BucketNotFoundError(self.name) from None

    # -- reading -------------------------------------------------------------------------------

    async def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: read from the leader, which has every acknowledged write. Raises
        KeyNotFoundError, also for a deleted key, ConfigError for an impossible revision, and as
        every call of a bucket (see `Bucket`).
        """
        subject = self._encoding.subject(key)
        try:
            if revision is None:
                stored = await self._stored(None, subject, leader=leader)
            else:
                check_whole("revision", revision, most=MOST_SEQUENCE)
                stored = await self._stored(revision, None, leader=leader)
        except MessageNotFoundError:
            raise KeyNotFoundError(self.name, key, revision=revision) from None
        if stored.subject != subject:
            raise KeyNotFoundError(self.name, key, revision=revision)
        entry = self._encoding.entry_of(stored, key)
        if entry.is_deleted:
            raise KeyNotFoundError(
                self.name, key, revision=entry.revision, operation=entry.operation
            )
        return entry

    async def get_value(
        self, key: str, revision: int | None = None, *, leader: bool = False
    ) -> bytes:
        """The value of `get`. Raises as `get`."""
        return (await self.get(key, revision, leader=leader)).value

    async def _stored(self, seq: int | None, subject: str | None, *, leader: bool) -> StoredMsg:
        leader = check_flag("leader", leader)
        direct = self._encoding.direct and not leader
        try:
            return await self._js.get_msg(self.stream, seq, last_by_subject=subject, direct=direct)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.name) from None
        except RequestTimeoutError:
            # Servers before 2.10 do not answer where others answer 503.
            await self.status()
            raise
        except DirectGetError as error:
            if error.status != _UNAVAILABLE:
                raise
            raise DirectGetError(
                error.status,
                error.description,
                f'Bucket "{self.name}" is unavailable: no server with it answered.',
            ) from None

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
        """A mapping of the bucket's keys and values that follows every change, once entered.

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

    # -- writing -------------------------------------------------------------------------------

    async def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value; returns the new revision.

        Raises APIError when the bucket is full or the value too large, MaxPayloadError, and as
        every call of a bucket (see `Bucket`).
        """
        return await self._write(key, value)

    async def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or was deleted; returns the revision.

        `ttl`: the value is removed after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11), and with a history of more than one the server makes the ttl at
        least as long as that. Raises KeyExistsError, NotEnabledOnStreamError,
        UnsupportedByServerError, WrongLastSequenceError when others kept writing the key, and as
        `put`.
        """
        value = payload_bytes(value)  # once: every attempt writes the same
        last = 0
        for _ in range(_CREATE_TRIES):
            try:
                return await self._write(key, value, last=last, ttl=ttl)
            except WrongLastSequenceError as error:
                failed = error
            try:
                entry = await self.get(key, leader=True)
            except KeyNotFoundError as gone:
                # The delete marker, or nothing any more.
                last = gone.revision or 0
            else:
                raise KeyExistsError(self.name, key, entry.revision)
        raise failed

    async def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry has this revision; returns the new revision.

        `revision`: 0 for a key without an entry. Raises WrongLastSequenceError when the key has
        changed, ConfigError for an impossible revision, and as `put`.
        """
        check_whole("revision", revision, 0, MOST_SEQUENCE)
        return await self._write(key, value, last=revision)

    async def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key by a delete marker after its history; returns the marker's revision.

        `revision`: only if the key's last entry has it, otherwise WrongLastSequenceError. Raises
        as every call of a bucket (see `Bucket`).
        """
        return await self._write(key, last=revision, operation=Operation.DEL)

    async def purge(
        self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None
    ) -> int:
        """Delete a key and its history; returns the marker's revision.

        `ttl`: the marker is removed after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11), or NotEnabledOnStreamError. `revision`: as for `delete`. Raises
        as `delete`.
        """
        return await self._write(key, last=revision, operation=Operation.PURGE, ttl=ttl)

    async def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove the history and markers of deleted keys; returns how many keys.

        The marker of a key deleted less than `older_than` ago (default: 30 minutes) stays, so that
        watchers that were disconnected learn of it. A key written meanwhile keeps its new entries.
        Raises ConfigError for a time that is none or negative, and as `keys`.
        """
        if (age := duration_to_ns(older_than)) < 0:
            raise ConfigError("older_than cannot be negative: 0 removes every marker.")
        before = time.time_ns() - age
        wanted = Wanted(self._subjects(keys), meta_only=True)
        markers = [entry async for entry in self._initial_data(wanted) if entry.is_deleted]
        removed = 0
        for marker in markers:
            old = marker.created_ns <= before
            removed += old
            # By sequence: entries after the marker stay.
            await self._js.purge_stream(
                self._encoding.stream,
                filter=self._encoding.subject(marker.key),
                seq=marker.revision + old,
            )
        return removed

    async def revert(self, key: str, revision: StreamSequence) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not have that revision any more, ConfigError
        for an impossible one, and as `put`.
        """
        return await self.put(key, await self.get_value(key, revision, leader=True))

    async def _write(
        self,
        key: str,
        value: Payload = b"",
        *,
        last: int | None = None,
        operation: Operation | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        if last is not None:
            check_whole("revision", last, 0, MOST_SEQUENCE)
        headers = None
        if operation is not None:
            headers = {OPERATION: str(operation)}
            if operation is Operation.PURGE:
                headers["Nats-Rollup"] = "sub"
        try:
            ack = await self._js.publish(
                self._encoding.write_subject(key),
                value if operation is not None else self._encoding.stored_value(value),
                headers=headers,
                expect_last_subject_seq=last,
                ttl=ttl,
            )
        except NoStreamResponseError:
            # The bucket does not exist any more, or has no leader at the moment.
            await self.status()
            raise
        return ack.seq

    def __repr__(self) -> str:
        return f"Bucket({self.name!r})"
