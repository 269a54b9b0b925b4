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

from jetspark.arguments import check_whole
from jetspark.errors import (
    BucketNotFoundError,
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
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.kv.codecs import KeyCodec, ValueCodec
from jetspark.kv.encoding import BucketEncoding
from jetspark.kv.entries import Entry
from jetspark.kv.reading import ReadingCalls
from jetspark.kv.status import BucketStatus
from jetspark.kv_rules import OPERATION, Operation
from jetspark.payloads import Payload, payload_bytes

_CREATE_TRIES = 10
_UNAVAILABLE = 503


class Bucket(ReadingCalls):
    """A Key-Value bucket: what `JetStream.bucket` and `JetStream.create_bucket` return."""

    def __init__(self, js: JetStreamContext, info: StreamInfo) -> None:
        self._js = js
        self._encoding = BucketEncoding(info.config, js.api_prefix)

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._encoding.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._encoding.stream

    def with_codecs(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None
    ) -> Bucket:
        """The same bucket, with keys and values encoded on the way in and decoded on the way out.

        `keys`, `values`: codecs of `jetspark.kv` or your own (ADR-54); None for as they are.
        """
        other = object.__new__(Bucket)
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
