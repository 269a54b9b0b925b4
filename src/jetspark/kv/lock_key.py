"""The key of a lock in its bucket: the holder's record, and how it is read, written and removed."""

from __future__ import annotations

import asyncio
import math
import secrets
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jetspark.errors import CodecError, DocumentError, JetsparkError, KeyNotFoundError
from jetspark.kv.stored import read_entry, write_entry
from jetspark.kv.watch import Wanted, Watcher
from jetspark.kv_rules import Operation
from jetspark.transient import is_transient_for_client
from jetspark.wire.documents import decode_json, encode_document

if TYPE_CHECKING:
    from jetspark.jetstream.context import JetStreamContext
    from jetspark.kv.encoding import BucketEncoding
    from jetspark.kv.entries import Entry

RENEWALS = 3
"""Renewals in a lease: two may fail."""
_PAUSE = 0.25
"""Seconds after a failure that may pass."""


class LockRecord(msgspec.Struct, frozen=True):
    """Who holds a lock: the value of its key, as JSON."""

    id: str
    """Differs for every `Lock`."""
    holder: str
    """As given to `Bucket.lock`."""
    lease: float
    """Seconds."""


class Seen(NamedTuple):
    """The key's last entry. `record`: None when nobody holds the lock."""

    revision: int
    record: LockRecord | None


async def pause(error: JetsparkError) -> None:
    """After a failure that may pass; raises another one."""
    if not is_transient_for_client(error):
        raise error
    await asyncio.sleep(_PAUSE)


class LockKey:
    """`record`: what this contender writes into it."""

    def __init__(
        self, js: JetStreamContext, encoding: BucketEncoding, key: str, holder: str, lease: float
    ) -> None:
        self._js = js
        self._encoding = encoding
        self._key = key
        self.record = LockRecord(secrets.token_hex(8), holder, lease)
        self._value = encode_document(self.record)
        self._ttl = math.ceil(lease) if encoding.ttl else None

    def watch(self) -> Watcher:
        """Its entries from now on, and the last one."""
        return Watcher(self._js, self._encoding, Wanted(self._encoding.filters(self._key)))

    async def look(self) -> Seen:
        """The last entry, from the leader. Raises CodecError, and as every call of a bucket."""
        try:
            return self.seen(await read_entry(self._js, self._encoding, self._key, leader=True))
        except KeyNotFoundError as gone:
            return Seen(gone.revision or 0, None)

    def seen(self, entry: Entry) -> Seen:
        """What an entry says. Raises CodecError when it is not of a lock."""
        if entry.is_deleted:
            return Seen(entry.revision, None)
        try:
            record = decode_json(entry.value, LockRecord, "record")
        except DocumentError:
            raise CodecError(
                f'Key "{self._key}" of bucket "{self._encoding.name}" has no record of a lock: '
                "use another key."
            ) from None
        return Seen(entry.revision, record)

    async def write(self, last: int) -> int:
        """Write the record over the entry `last`; returns its revision.

        Raises WrongLastSequenceError, and RequestTimeoutError after a third of the lease.
        """
        return await write_entry(
            self._js,
            self._encoding,
            self._key,
            self._value,
            last=last,
            ttl=self._ttl,
            timeout=self.record.lease / RENEWALS,
        )

    async def delete(self, last: int) -> None:
        """Delete the entry `last`. Raises WrongLastSequenceError when there is another one."""
        await write_entry(self._js, self._encoding, self._key, last=last, operation=Operation.DEL)
