# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: bucket."""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.blocking.kv.election import Election, StateCallback
from jetspark.blocking.kv.lock import Lock
from jetspark.blocking.kv.read_only import ReadOnlyBucket
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.publisher import TimeToLive
from jetspark.kv.bucket import MARKER_AGE
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.lock import LEASE
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds


class GeneratedBucket(ReadOnlyBucket):
    """The calls of `Bucket` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncBucket

    def read_only(self) -> ReadOnlyBucket:
        """The same bucket without the calls that write, for who must not."""
        return ReadOnlyBucket(self._thread, self._inner.read_only())

    def lock(self, key: str, *, lease: Seconds = LEASE, holder: str | None = None) -> Lock:
        """A lock that one of all clients holds: `with bucket.lock("job") as lock`.

        `key`: where it is kept, for nothing else. `lease`: seconds, at least 1, after which the
        others take over from a holder that is not heard of; it is renewed every third of that.
        `holder`: what others see of the holder, default: host name and process id. Nothing is
        sent. Where the bucket has `limit_marker_ttl` (2.11), the server removes what a dead holder
        has left. Raises BadNameError, ConfigError for a lease shorter than that or longer than the
        bucket keeps its values, and for a read-only bucket. See `Lock`.
        """
        return Lock(self._thread, self._inner.lock(key, lease=lease, holder=holder))

    def election(
        self,
        key: str,
        *,
        lease: Seconds = LEASE,
        holder: str | None = None,
        callback: StateCallback | None = None,
    ) -> Election:
        """A candidate for leader, from entering `with` to its end: iterate, or a callback.

        One of all candidates holds the lock `key` and leads. `callback` is called in a thread of
        its own with each ElectionState. `lease`, `holder`: as for `lock`, whose errors it raises.
        See `Election`.
        """
        return Election(
            self._thread,
            key,
            lambda forward: self._inner.election(key, lease=lease, holder=holder, callback=forward),
            callback,
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

    def purge(self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None) -> int:
        """Delete a key and its history; returns the marker's revision.

        `ttl`: the marker is removed after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11), or NotEnabledOnStreamError. `revision`: as for `delete`. Raises
        as `delete`.
        """
        return self._thread.run(self._inner.purge, key, revision, ttl=ttl)

    def purge_deletes(
        self, keys: str | Iterable[str] = ">", *, older_than: Seconds = MARKER_AGE
    ) -> int:
        """Remove the history and markers of deleted keys; returns how many keys.

        The marker of a key deleted less than `older_than` ago (default: 30 minutes) stays, so that
        watchers that were disconnected learn of it. A key written meanwhile keeps its new entries.
        Raises ConfigError for a time that is none or negative, and as `keys`.
        """
        return self._thread.run(self._inner.purge_deletes, keys, older_than=older_than)

    def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not have that revision any more, ConfigError
        for an impossible one, and as `put`.
        """
        return self._thread.run(self._inner.revert, key, revision)
