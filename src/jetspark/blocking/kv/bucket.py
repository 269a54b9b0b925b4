"""A bucket: get, put and delete keys, without async.

Contract: that of `jetspark.kv.bucket`.
"""

from __future__ import annotations

from jetspark.blocking.kv.reading import ReadingCalls
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.kv.bucket import Bucket as AsyncBucket
from jetspark.kv.codecs import KeyCodec, ValueCodec
from jetspark.kv.entries import Entry
from jetspark.kv.status import BucketStatus
from jetspark.payloads import Payload


class Bucket(ReadingCalls):
    """A Key-Value bucket: what `JetStream.bucket` and `JetStream.create_bucket` return."""

    def __init__(self, thread: LoopThread, inner: AsyncBucket) -> None:
        self._thread = thread
        self._inner = inner

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
    ) -> Bucket:
        """The same bucket, with keys and values encoded on the way in and decoded on the way out.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None for as they are.
        """
        return Bucket(self._thread, self._inner.with_codecs(keys=keys, values=values))

    def status(self) -> BucketStatus:
        """What it is and holds now."""
        return self._thread.run(self._inner.status)

    def get(self, key: str, revision: int | None = None, *, leader: bool = False) -> Entry:
        """The latest entry of a key, or the one with this revision.

        `leader`: ask the leader, so that every write that was acknowledged before is seen. Raises
        KeyNotFoundError, for a key that was deleted too, BadNameError, CodecError.
        """
        return self._thread.run(self._inner.get, key, revision, leader=leader)

    def get_value(self, key: str, revision: int | None = None, *, leader: bool = False) -> bytes:
        """Only the value of `get`."""
        return self._thread.run(self._inner.get_value, key, revision, leader=leader)

    def put(self, key: str, value: Payload = b"") -> int:
        """Set a key's value, whatever it was; returns the new revision."""
        return self._thread.run(self._inner.put, key, value)

    def create(self, key: str, value: Payload = b"", *, ttl: TimeToLive | None = None) -> int:
        """Set the value of a key that has none, or whose last value was deleted.

        `ttl`: removed after so long, whole seconds; the bucket needs `limit_marker_ttl` (2.11),
        and with a history of more than one the server makes it at least as long. Raises
        KeyExistsError, NotEnabledOnStreamError.
        """
        return self._thread.run(self._inner.create, key, value, ttl=ttl)

    def update(self, key: str, value: Payload, revision: int) -> int:
        """Set a key's value if its last entry is still this revision; returns the new one.

        `revision`: 0 for a key that never had an entry. Raises WrongLastSequenceError when
        somebody else was faster, ConfigError for what is no revision.
        """
        return self._thread.run(self._inner.update, key, value, revision)

    def delete(self, key: str, revision: int | None = None) -> int:
        """Leave a mark that the key is deleted, behind its history; returns the mark's revision.

        `revision`: only if the key's last entry is still this one, or WrongLastSequenceError.
        """
        return self._thread.run(self._inner.delete, key, revision)

    def purge(self, key: str, revision: int | None = None, *, ttl: TimeToLive | None = None) -> int:
        """`delete`, and its history with it.

        `ttl`: remove the mark, too, after so long, whole seconds; the bucket needs
        `limit_marker_ttl` (2.11).
        """
        return self._thread.run(self._inner.purge, key, revision, ttl=ttl)

    def revert(self, key: str, revision: int) -> int:
        """Put the value that the key had at a revision; returns the new revision.

        Raises KeyNotFoundError when the bucket does not hold that revision any more, ConfigError
        for what is no revision.
        """
        return self._thread.run(self._inner.revert, key, revision)

    def __repr__(self) -> str:
        return repr(self._inner)
