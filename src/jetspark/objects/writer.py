"""Writing an object, and removing chunks that belong to none (ADR-20).

Contract
- Chunks are published to the object's own subject without waiting for each ack, about WINDOW_BYTES
  at a time. When all are stored, the info is written, which makes the object visible and replaces
  the one with its name, whose chunks are then removed.
- When an ack is missing (a lost link, a leader change), the chunks after the last good one are
  removed and sent again, as long as there is progress, so their order stays right.
- A failed write removes its chunks, unless the program or the connection has ended.
- A thread computes the digest meanwhile. There is no task.

A program killed during a put, a connection lost for good, and a killed server, which may bring back
purged chunks, leave chunks that belong to no object: orphans.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Final

import jetspark.errors as errors
from jetspark.client.tasks import start_task
from jetspark.documents.streams import PubAck
from jetspark.objects.info import ObjectInfo, all_infos, chunk_subject, digest_text, info_of_stored
from jetspark.objects.reader import MetaStore, TransferRetry, about_store
from jetspark.timestamps import Seconds, in_seconds

ORPHAN_AGE: Final = timedelta(hours=1)
WINDOW_BYTES = 8 * 1024 * 1024
"""Most bytes of chunks without an ack."""

_MOST_CHUNKS = 4000
_WORKED_OFF_SECONDS = 0.25
_NEVER = 2**53  # a sequence that no stream reaches
_REMOVALS: set[asyncio.Task[None]] = set()  # an event loop keeps only a weak reference
_IN_A_THREAD = 64 * 1024  # bytes whose digest is worth a change of thread


class ObjectWriter:
    """`begin`, any number of `write`, then `finish`; or `discard` at any time."""

    def __init__(self, meta: MetaStore, info: ObjectInfo, chunk_size: int) -> None:
        self._meta = meta
        self._js = meta.js
        self._info = info
        self._chunk_size = chunk_size
        self._subject = chunk_subject(meta.store, info.nuid)
        window = min(max(WINDOW_BYTES // chunk_size, 2), _MOST_CHUNKS)
        self._publisher = self._js.publisher(
            window, on_disconnect="fail", retry_for=0, raise_failures=False
        )
        self._sha256 = hashlib.sha256()
        self._rest: list[bytes] = []
        """Bytes that do not yet fill a chunk."""
        self._rest_size = 0
        self._sent: deque[tuple[bytes, asyncio.Future[PubAck]]] = deque()
        """Chunks whose acks are not checked yet."""
        self._last_good = 0
        """Sequence of the last chunk before them."""
        self._size = 0
        self._chunks = 0
        self._retry = TransferRetry()
        self._commit: asyncio.Future[ObjectInfo] | None = None

    async def begin(self) -> None:
        await self._publisher.__aenter__()

    async def write(self, block: bytes) -> None:
        """Add bytes of the content, any number. Raises the errors of `ObjectStore.put`."""
        size = len(block)
        self._size += size
        digesting = None
        if size >= _IN_A_THREAD:
            digesting = asyncio.get_running_loop().run_in_executor(None, self._sha256.update, block)
        else:
            self._sha256.update(block)
        try:
            await self._cut(block)
        finally:
            if digesting is not None:
                await digesting

    async def finish(self) -> ObjectInfo:
        """Send the rest, wait for all acks, and make the object visible.

        Cancelled in the last step, it may still make the complete object visible. Raises the errors
        of `ObjectStore.put`.
        """
        if self._rest:
            await self._send(b"".join(self._rest))
        while self._sent:
            await self._check_ack(self._sent[0][1])
        # A future, no task: a writer may be freed in a thread (see `blocking.loop_thread`).
        self._commit = asyncio.shield(self._make_visible())
        try:
            return await asyncio.shield(self._commit)
        except asyncio.CancelledError:
            # Otherwise it would be unknown whether the chunks are in use.
            await asyncio.wait({self._commit})
            raise

    async def _make_visible(self) -> ObjectInfo:
        if self._chunks:
            await self._count_chunks()
        new, old = await self._meta.replace(self._info.name, self._complete, unreadable_too=True)
        await self._close()
        if old is not None and old.chunks:
            await self._meta.remove_chunks(old.nuid)
        return new

    def _complete(self, _: ObjectInfo | None) -> ObjectInfo:
        return self._info.replace(
            size=self._size, chunks=self._chunks, digest=digest_text(self._sha256.digest())
        )

    async def discard(self) -> None:
        """Remove the stored chunks, unless the object is visible. Reports chunks that are left.

        Returns within the context's timeout; without a link it continues in the background.
        """
        removal = start_task(self._remove())
        _REMOVALS.add(removal)
        removal.add_done_callback(_REMOVALS.discard)
        await asyncio.wait({removal}, timeout=self._js.timeout)

    async def _remove(self) -> None:
        visible = None if self._commit is not None else False
        is_settled = False
        try:
            # First wait for the chunks on their way, which might be stored after the removal.
            await self._publisher.flush()
            visible = await self._is_visible()
            is_settled = visible or await self._removed()
        except errors.JetsparkError:
            pass
        finally:  # even when the event loop ends and cancels it
            if self._chunks and not is_settled:
                problem = "Chunks of an object that was not completed are left"
                if visible is None:
                    name = self._info.name
                    problem = f'Object "{name}" may be complete or not; if not, its chunks are left'
                self._js.client.report(errors.JetStreamError(f"{problem}: {self._subject!r}."))
            await self._close()

    async def _removed(self) -> bool:
        if not self._chunks:
            return True
        unknown = any(ack.cancelled() or (ack.done() and ack.exception()) for _, ack in self._sent)
        removed = await self._meta.remove_chunks(self._info.nuid)
        if removed and unknown:
            # A server that was paused may store chunks that waited after the purge.
            await asyncio.sleep(_WORKED_OFF_SECONDS)
            removed = await self._meta.remove_chunks(self._info.nuid)
        return removed

    async def _is_visible(self) -> bool:
        if self._commit is None:
            return False
        await asyncio.wait({self._commit})  # an interrupted thread stopped waiting for `finish`
        if self._commit.exception() is None:
            return True
        try:
            info = (await self._meta.find(self._info.name)).info
        except errors.ObjectStoreNotFoundError:
            return False
        return info is not None and info.nuid == self._info.nuid

    async def _close(self) -> None:
        # Like a cancellation, this does not wait.
        await self._publisher.__aexit__(asyncio.CancelledError, None, None)
        self._forget_sent()

    def _forget_sent(self) -> None:
        for _, ack in self._sent:
            if not ack.cancelled():
                ack.exception()  # mark it as retrieved
        self._sent.clear()

    # -- chunks --------------------------------------------------------------------------------

    async def _cut(self, block: bytes) -> None:
        chunk_size = self._chunk_size
        begin = 0
        if self._rest:
            begin = chunk_size - self._rest_size
            self._rest.append(block[:begin])
            self._rest_size += len(self._rest[-1])
            if self._rest_size < chunk_size:
                return
            await self._send(b"".join(self._rest))
        while len(block) - begin >= chunk_size:
            await self._send(block[begin : begin + chunk_size])
            begin += chunk_size
        self._rest_size = len(block) - begin
        self._rest = [block[begin:]] if self._rest_size else []

    async def _send(self, chunk: bytes) -> None:
        await self._submit(chunk)
        self._chunks += 1
        sent = self._sent
        while sent and sent[0][1].done():
            await self._check_ack(sent[0][1])

    async def _submit(self, chunk: bytes) -> None:
        while True:
            try:
                ack = await self._publisher.submit(self._subject, chunk)
            except errors.OutboundBufferError as error:  # there was no link
                await self._retry.wait(error)
            else:
                self._sent.append((chunk, ack))
                return

    async def _check_ack(self, ack: asyncio.Future[PubAck]) -> None:
        """Check the oldest ack."""
        try:
            seq = (await ack).seq
        except errors.JetsparkError as error:
            await self._send_again(error)
            return
        if seq <= self._last_good:
            raise errors.ObjectDamagedError(
                f'Object "{self._info.name}": chunks were stored in another order.'
            )
        self._sent.popleft()
        self._last_good = seq
        self._retry.progress()

    # -- retrying ------------------------------------------------------------------------------

    async def _send_again(self, error: errors.JetsparkError) -> None:
        """Send all chunks from the first one that may not be stored."""
        while True:
            await self._publisher.flush()
            try:
                with about_store(self._meta.store):
                    await self._remove_behind_good()
                break
            except errors.JetsparkError as worse:
                await self._retry.wait(worse)
        await self._retry.wait(error)
        chunks = [chunk for chunk, _ in self._sent]
        self._forget_sent()
        for chunk in chunks:
            await self._submit(chunk)

    async def _remove_behind_good(self) -> None:
        # The stream's refusal of this shows that it has handled everything before.
        with suppress(errors.WrongLastSequenceError, errors.NoStreamResponseError):
            await self._js.publish(self._subject, expect_last_subject_seq=_NEVER)
        stream = self._meta.stream
        while True:
            try:
                stored = await self._js.stream(stream).get(
                    self._last_good + 1, next_by_subject=self._subject, direct=False
                )
            except errors.MessageNotFoundError:
                return
            with suppress(errors.MessageNotFoundError):
                await self._js.stream(stream).delete_msg(stored.seq)

    async def _count_chunks(self) -> None:
        """Count again: some may have been purged, or stored twice by a very late arrival."""
        while True:
            try:
                info = await self._js.stream(self._meta.stream).info(subjects_filter=self._subject)
                break
            except errors.JetsparkError as error:
                await self._retry.wait(error)
        stored = (info.state.subjects or {}).get(self._subject, 0)
        if stored != self._chunks:
            raise errors.ObjectDamagedError(
                f'Object "{self._info.name}": {stored} chunks are stored instead of '
                f"{self._chunks}. Put it again."
            )


async def purge_orphans(meta: MetaStore, older_than: Seconds) -> int:
    if (age := in_seconds(older_than)) < 0:
        raise errors.ConfigError("older_than cannot be negative.")
    before = time.time() - age
    js, stream, store = meta.js, meta.stream, meta.store
    removed = 0
    with about_store(store):
        # List the chunks first: an object completed from now on has a later info.
        info = await js.stream(stream).info(subjects_filter=chunk_subject(store, ">"))
        subjects = set(info.state.subjects or ())
        if subjects:
            subjects -= {subject async for subject in _used(meta, subjects)}
        for subject in sorted(subjects):
            with suppress(errors.MessageNotFoundError):  # removed by its own put
                last = await js.stream(stream).get(last_by_subject=subject, direct=False)
                if last.time.timestamp() <= before:
                    removed += await js.stream(stream).purge(filter=subject, seq=last.seq + 1)
    return removed


async def _used(meta: MetaStore, subjects: set[str]) -> AsyncIterator[str]:
    """Subjects of chunks in use: all infos from the leader, with those written meanwhile."""
    ids = {subject.rpartition(".")[2].encode(): subject for subject in subjects}
    seq = 0
    while True:
        try:
            stored = await meta.js.stream(meta.stream).get(
                seq + 1, next_by_subject=all_infos(meta.store), direct=False
            )
        except errors.MessageNotFoundError:
            return
        seq = stored.seq
        try:
            info = info_of_stored(stored)
        except errors.DocumentError as error:
            meta.js.client.report(error)
            for nuid, subject in ids.items():  # nobody knows which ones are its
                if nuid in stored.data:
                    yield subject
        else:
            if not info.deleted:
                yield chunk_subject(meta.store, info.nuid)
