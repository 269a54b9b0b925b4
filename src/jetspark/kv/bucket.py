"""A bucket: what can be read, and put, create, update and delete; locks and elections (ADR-8).

Contract: that of `jetspark.kv.read_only`. Every write returns a revision, and may depend on the
key's last one: the server decides, so one of several writers wins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from jetspark.arguments import MOST_SEQUENCE, check_whole, checked_but
from jetspark.errors import (
    ConfigError,
    KeyExistsError,
    KeyNotFoundError,
    WrongLastSequenceError,
)
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.kinds import StreamSequence
from jetspark.kv.election import Election, StateCallback
from jetspark.kv.lock import LEASE, Lock
from jetspark.kv.read_only import ReadOnlyBucket
from jetspark.kv.stored import write_entry
from jetspark.kv.watch import Wanted
from jetspark.kv_rules import Operation
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, duration_to_ns

MARKER_AGE: Final = timedelta(minutes=30)
_CREATE_TRIES = 10


@checked_but("put", "create", "update", "delete")
class Bucket(ReadOnlyBucket):
    """A Key-Value bucket, as returned by `JetStream.bucket` and `JetStream.create_bucket`.

    Every call raises BadNameError for a key that cannot be, CodecError when a codec cannot encode
    or decode it, BucketNotFoundError when the bucket does not exist any more, and as every API
    call (see `JetStream`). Reads raise DirectGetError with status 503 while no server with the
    bucket is available (before server 2.10: RequestTimeoutError); writes raise
    NoStreamResponseError, and ConfigError for a read-only bucket.
    """

    def read_only(self) -> ReadOnlyBucket:
        """The same bucket without the calls that write, for who must not."""
        return ReadOnlyBucket(self._js, self._encoding)

    # -- locks ---------------------------------------------------------------------------------

    def lock(self, key: str, *, lease: Seconds = LEASE, holder: str | None = None) -> Lock:
        """A lock that one of all clients holds: `async with bucket.lock("job") as lock`.

        `key`: where it is kept, for nothing else. `lease`: seconds, at least 1, after which the
        others take over from a holder that is not heard of; it is renewed every third of that.
        `holder`: what others see of the holder, default: host name and process id. Nothing is
        sent. Where the bucket has `limit_marker_ttl` (2.11), the server removes what a dead holder
        has left. Raises BadNameError, ConfigError for a lease shorter than that or longer than the
        bucket keeps its values, and for a read-only bucket. See `Lock`.
        """
        return Lock(self._js, self._encoding, key, lease, holder)

    def election(
        self,
        key: str,
        *,
        lease: Seconds = LEASE,
        holder: str | None = None,
        callback: StateCallback | None = None,
    ) -> Election:
        """A candidate for leader, from entering `async with` to its end: iterate, or a callback.

        One of all candidates holds the lock `key` and leads. `callback` (plain or async) is called
        with each ElectionState. `lease`, `holder`: as for `lock`, whose errors it raises. See
        `Election`.
        """
        return Election(self._js, Lock(self._js, self._encoding, key, lease, holder), callback)

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
        return await write_entry(
            self._js, self._encoding, key, value, last=last, operation=operation, ttl=ttl
        )
