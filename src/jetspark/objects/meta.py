"""The stored infos of a store's objects (its meta messages): read, and replaced atomically.

Contract: infos are read from the stream's leader, which has every acknowledged write. A write
depends on the subject's last sequence: one of several writers wins, and the others decide again
from what it wrote. So a writer knows exactly which object it replaced, and removes that one's
chunks. When an ack is lost, the write is retried with the same Nats-Msg-Id, which stores it once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from jetspark.err_codes import MESSAGE_NOT_FOUND, STREAM_NOT_FOUND
from jetspark.errors import (
    JetsparkError,
    MessageNotFoundError,
    ObjectNotFoundError,
    ObjectStoreNotFoundError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.jetstream.context import JetStreamContext
from jetspark.objects.info import ObjectInfo, info_of_stored, to_stored
from jetspark.objects.names import (
    STREAM_PREFIX,
    chunk_subject,
    info_subject,
    latin_info_subject,
    new_nuid,
)
from jetspark.objects.retry import TransferRetry

_ROLLUP = {"Nats-Rollup": "sub"}


class StoredMeta(NamedTuple):
    """The stored info of a name; without one, sequence 0."""

    info: ObjectInfo | None
    seq: int
    data: bytes
    subject: str
    """Its subject, also when nothing is stored."""


class MetaStore:
    """The infos of one store."""

    __slots__ = ("js", "store", "stream")

    def __init__(self, js: JetStreamContext, store: str) -> None:
        self.js = js
        self.store = store
        self.stream = STREAM_PREFIX + store

    async def find(self, name: str) -> StoredMeta:
        """The current info of a name, a delete marker too; transient errors are retried.

        Raises BadNameError, ObjectStoreNotFoundError, and as every API call.
        """
        retry = TransferRetry()
        while True:
            try:
                return await self._look(name)
            except JetsparkError as error:
                await retry.wait(error)

    async def _look(self, name: str) -> StoredMeta:
        """One attempt of `find`.

        An object that the JavaScript client put under its own encoding of the name is found there,
        and so replaced there.
        """
        found = await self._at(info_subject(self.store, name))
        if found.info is not None and not found.info.deleted:
            return found
        subject = latin_info_subject(self.store, name)
        if subject is None:
            return found
        theirs = await self._at(subject)
        # What is Latin-1 for one name may be UTF-8 for another.
        if theirs.info is None or theirs.info.name != name:
            return found
        if theirs.info.deleted:
            return found._replace(info=found.info or theirs.info)
        return theirs

    async def _at(self, subject: str) -> StoredMeta:
        try:
            stored = await self.js.get_msg(self.stream, last_by_subject=subject, direct=False)
        except MessageNotFoundError:
            return StoredMeta(None, 0, b"", subject)
        except StreamNotFoundError:
            raise no_store(self.store) from None
        return StoredMeta(info_of_stored(stored), stored.seq, stored.data, subject)

    async def replace(
        self, name: str, decide: Callable[[ObjectInfo | None], ObjectInfo]
    ) -> tuple[ObjectInfo, ObjectInfo | None]:
        """Store the info that `decide` makes from the current one; returns both.

        `decide` may be called again, and its errors are raised. Raises ObjectStoreNotFoundError,
        and what `publish` raises once it is not transient.
        """
        message_id = new_nuid()
        retry = TransferRetry()
        unsure: list[tuple[ObjectInfo, ObjectInfo | None]] = []
        while True:
            tried = False
            try:
                found = await self._look(name)
                if unsure and found.data == to_stored(unsure[-1][0]):
                    return unsure[-1]
                new = decide(found.info)
                tried = True
                ack = await self.js.publish(
                    found.subject,
                    to_stored(new),
                    headers=_ROLLUP,
                    msg_id=message_id,
                    expect_last_subject_seq=found.seq,
                )
            except WrongLastSequenceError:
                retry.progress()  # another writer was first
            except JetsparkError as error:
                if tried:
                    unsure.append((new, found.info))
                await retry.wait(error)
            else:
                if ack.duplicate:
                    # Stored by an earlier attempt. If there were several, it is unknown what it
                    # replaced.
                    return unsure[0] if len(unsure) == 1 else (new, None)
                return new.replace(mtime=datetime.now(UTC)), found.info

    async def remove_chunks(self, nuid: str) -> bool:
        """Purge the chunks of an object that does not exist any more; False: some are left.

        Errors are reported, not raised.
        """
        subject = chunk_subject(self.store, nuid)
        retry = TransferRetry()
        try:
            while True:
                try:
                    await self.js.purge_stream(self.stream, filter=subject)
                    return True
                except StreamNotFoundError:
                    return True
                except JetsparkError as error:
                    await retry.wait(error)
        except JetsparkError as error:
            self.js.client.report(error)
            return False


def no_store(name: str) -> ObjectStoreNotFoundError:
    """The error for a store that does not exist."""
    return ObjectStoreNotFoundError(
        404, STREAM_NOT_FOUND, "object store not found", f'Object store "{name}" not found.'
    )


def object_not_found(store: str, name: str, why: str | None = None) -> ObjectNotFoundError:
    """The error for an object that does not exist; `why`: where its link leads instead."""
    what = f'Object "{name}" not found in store "{store}".'
    if why is not None:
        what = f'"{name}" in store "{store}" {why}.'
    return ObjectNotFoundError(404, MESSAGE_NOT_FOUND, "object not found", what)
