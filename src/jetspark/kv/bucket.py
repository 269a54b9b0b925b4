"""A bucket: get, put and delete keys (ADR-8; row K2).

Contract: a bucket is cheap, holds no state of the server's and needs no closing. Keys are checked
before anything is sent. Every write gives a revision, and may be made to depend on the key's last
one: the server decides, so of several writers one wins. Reads are direct gets where the bucket
allows them, answered by any server that has it, which may lag behind the last write by a moment;
`leader=True` asks the leader, which has every acknowledged write. A bucket that is gone raises
BucketNotFoundError; one that nobody serves at the moment, DirectGetError with status 503 (servers
before 2.10 do not answer: RequestTimeoutError).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Final, Self

from jetspark.arguments import check_flag, check_whole, checked_but
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
    """A Key-Value bucket: what `JetStream.bucket` and `JetStream.create_bucket` return."""

    def __init__(self, js: JetStreamContext, info: StreamInfo) -> None:
        self._js = js
        self._encoding = BucketEncoding(info.config, js.api_prefix)

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._encoding.name

    @property
    def client(self) -> Client:
        """The connection below."""
        return self._js.client

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._encoding.stream

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Self:
        """The same bucket, with keys and values encoded on the way in and decoded on the way out.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None for as they are.
        """
        other = object.__new__(type(self))
        other._js = self._js
        other._encoding = self._encoding.with_codecs(keys, values)
        return other

    async def status(self) -> BucketStatus:
        """What it is and holds now."""
        try:
            return BucketStatus(await self._js.stream_info(self.stream))
        except StreamNotFoundError:
            raise BucketNotFoundError(self.name) from None

    # -- reading -------------------------------------------------------------------------------

    async def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: ask the leader, so that every write that was acknowledged before is seen. Raises
        KeyNotFoundError, for a key that was deleted too, BadNameError, CodecError.
        """
        subject = self._encoding.subject(key)
        try:
            if revision is None:
                stored = await self._stored(None, subject, leader=leader)
            else:
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
        """Only the value of `get`."""
        return (await self.get(key, revision, leader=leader)).value

    async def _stored(self, seq: int | None, subject: str | None, *, leader: bool) -> StoredMsg:
        if leader:
            check_flag("leader", leader)
        direct = self._encoding.direct and not leader
        try:
            return await self._js.get_msg(self.stream, seq, last_by_subject=subject, direct=direct)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.name) from None
        except RequestTimeoutError:
            # Servers before 2.10 are silent where the others say 503.
            await self.status()
            raise
        except DirectGetError as error:
            if error.status != _UNAVAILABLE:
                raise
            raise DirectGetError(
                error.status,
                error.description,
                f'Bucket "{self.name}" is unavailable: no server that has it answered.',
            ) from None

    # -- many entries --------------------------------------------------------------------------

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

    # -- writing -------------------------------------------------------------------------------

    async def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value, whatever it was; returns the new revision."""
        return await self._write(key, value)

    async def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or whose last value was deleted.

        `ttl`: removed after so long, whole seconds; the bucket needs `limit_marker_ttl` (2.11),
        and with a history of more than one the server makes it at least as long. Raises
        KeyExistsError, NotEnabledOnStreamError.
        """
        value = payload_bytes(value)  # once: every try writes the same
        last = 0
        for _ in range(_CREATE_TRIES):
            try:
                return await self._write(key, value, last=last, ttl=ttl)
            except WrongLastSequenceError as error:
                failed = error
            try:
                entry = await self.get(key, leader=True)
            except KeyNotFoundError as gone:
                # The marker of its deletion, or nothing any more.
                last = gone.revision or 0
            else:
                raise KeyExistsError(self.name, key, entry.revision)
        raise failed

    async def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry is still this revision; returns the new one.

        `revision`: 0 for a key that never had an entry. Raises WrongLastSequenceError when
        somebody else was faster, ConfigError for what is no revision.
        """
        check_whole("revision", revision, 0)
        return await self._write(key, value, last=revision)

    async def delete(self, key: str, revision: int | None = None) -> int:
        """Leave a mark that the key is deleted, behind its history; returns the mark's revision.

        `revision`: only if the key's last entry is still this one, or WrongLastSequenceError.
        """
        return await self._write(key, last=revision, operation=Operation.DEL)

    async def purge(
        self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None
    ) -> int:
        """`delete`, and its history with it.

        `ttl`: remove the mark, too, after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11).
        """
        return await self._write(key, last=revision, operation=Operation.PURGE, ttl=ttl)

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

    async def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not hold that revision any more, ConfigError
        for what is no revision.
        """
        check_whole("revision", revision)
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
            # Nobody listens there: it may be gone, or have no leader just now.
            await self.status()
            raise
        return ack.seq

    def __repr__(self) -> str:
        return f"Bucket({self.name!r})"
