"""Writing an object, and removing chunks that belong to none (ADR-20).

Contract
- Chunks are published to the object's own subject without waiting for each ack, about WINDOW_BYTES
  at a time. When all are stored, the info is written, which makes the object visible and replaces
  the one with its name, whose chunks are then removed.
- After SINGLE_CHUNKS, fast ingest takes the others, if server and stream have it: with fewer acks,
  the client has more time for the digest. When a batch ends early, each of its chunks that is not
  stored is published as the first ones were: the stream has stored its batch in order and without a
  gap, so their number says which ones.
- When an ack is missing (a lost link, a leader change), the chunks after the last good one are
  removed and sent again, as long as there is progress, so their order stays right.
- A failed write removes its chunks, unless the program or the connection has ended.
- A thread computes the digest meanwhile. There is no task.

A program killed during a put, a connection lost for good, and a killed server, which may bring back
purged chunks, leave chunks that belong to no object: orphans.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

import jetspark.errors as errors
from jetspark.client.tasks import move_on_after, start_task
from jetspark.documents.streams import PubAck
from jetspark.jetstream.fast_ingest import FastIngest
from jetspark.objects.content_digest import ContentDigest
from jetspark.objects.info import (
    ObjectInfo,
    all_infos,
    chunk_subject,
    digest_text,
    info_of_stored,
    quoted,
)
from jetspark.objects.reader import (
    STALL_TIMEOUT,
    MetaStore,
    TransferRetry,
    about_store,
)
from jetspark.timestamps import Seconds, in_seconds

ORPHAN_AGE: Final = timedelta(hours=1)
WINDOW_BYTES = 8 * 1024 * 1024
"""Most bytes of chunks without an ack."""
SINGLE_CHUNKS: Final = 8
"""Chunks before a batch, whose beginning and end cost two requests."""

_MOST_CHUNKS = 4000
_WORKED_OFF_SECONDS = 0.25
_NEVER = 2**53  # a sequence that no stream reaches
_REMOVALS: set[asyncio.Task[None]] = set()  # an event loop keeps only a weak reference
_BATCH_ACKS = 4  # acks in which a window of a batch is divided

T = TypeVar("T")


class ObjectWriter:
    """`begin`, any number of `write`, then `finish`; or `discard` at any time."""

    def __init__(self, meta: MetaStore, info: ObjectInfo, chunk_size: int) -> None:
        self._meta = meta
        self._js = meta.js
        self._info = info
        self._chunk_size = chunk_size
        self._subject = chunk_subject(meta.store, info.nuid)
        self._window = min(max(WINDOW_BYTES // chunk_size, 2), _MOST_CHUNKS)
        self._publisher = self._js.publisher(
            self._window, on_disconnect="fail", retry_for=0, raise_failures=False
        )
        self._batch: FastIngest | None = None
        self._batch_chunks: deque[bytes] = deque()
        """Chunks of the batch that may not be stored."""
        self._in_batch = False
        self._digest = ContentDigest()
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
        self._size += len(block)
        await self._digest.add([block])
        await self._cut(block)

    async def finish(self) -> ObjectInfo:
        """Send the rest, wait for all acks, and make the object visible.

        Cancelled in the last step, it may still make the complete object visible. Raises the errors
        of `ObjectStore.put`.
        """
        if self._rest:
            await self._send(b"".join(self._rest))
        if self._batch is not None and self._in_batch:
            await self._end_batch(self._batch)
        await self._check_acks()
        self._info = self._info.replace(
            size=self._size, chunks=self._chunks, digest=digest_text(await self._digest.value())
        )
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
        new, old = await self._meta.replace(
            self._info.name, lambda _: self._info, unreadable_too=True
        )
        await self._close()
        if old is not None and old.chunks:
            await self._meta.remove_chunks(old.nuid)
        return new

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
            if self._batch is not None:
                await _committed(self._batch)
            await self._publisher.flush()
            visible = await self._is_visible()
            is_settled = visible or await self._removed()
        except errors.JetsparkError:
            pass
        finally:  # even when the event loop ends and cancels it
            if self._chunks and not is_settled:
                problem = "Chunks of an object that was not completed are left"
                if visible is None:
                    name = quoted(self._info.name)
                    problem = f"Object {name} may be complete or not; if not, its chunks are left"
                self._js.client.report(errors.JetStreamError(f"{problem}: {self._subject!r}."))
            await self._close()

    async def _removed(self) -> bool:
        if not self._chunks:
            return True
        unknown = any(ack.cancelled() or (ack.done() and ack.exception()) for _, ack in self._sent)
        unknown = unknown or (self._batch is not None and self._batch.acked < self._batch.sent)
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
        self._digest.close()
        await self._close_batch()
        await self._publisher.__aexit__(asyncio.CancelledError, None, None)
        self._forget_sent()

    async def _close_batch(self) -> None:
        if self._batch is not None:
            with suppress(errors.PublishFailedError):  # which `_end_batch` has made good
                await self._batch.__aexit__(asyncio.CancelledError, None, None)

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
        if self._chunks == SINGLE_CHUNKS:
            await self._begin_batch()
        self._chunks += 1
        if self._batch is not None and self._in_batch:
            await self._add(self._batch, chunk)
            return
        await self._submit(chunk)
        sent = self._sent
        while sent and sent[0][1].done():
            await self._check_ack(sent[0][1])

    async def _submit(self, chunk: bytes) -> None:
        while True:
            try:
                ack = await self._publisher.publish_async(self._subject, chunk)
            except errors.OutboundBufferError as error:  # there was no link
                await self._retry.wait(error)
            else:
                self._sent.append((chunk, ack))
                return

    async def _check_acks(self) -> None:
        while self._sent:
            await self._check_ack(self._sent[0][1])

    async def _check_ack(self, ack: asyncio.Future[PubAck]) -> None:
        """Check the oldest ack."""
        try:
            seq = (await ack).seq
        except errors.JetsparkError as error:
            await self._send_again(error)
            return
        if seq <= self._last_good:
            raise errors.ObjectDamagedError(
                f"Object {quoted(self._info.name)}: chunks were stored in another order."
            )
        self._sent.popleft()
        self._last_good = seq
        self._retry.progress()

    # -- a batch of fast ingest ----------------------------------------------------------------

    async def _begin_batch(self) -> None:
        ack_every = max(self._window // _BATCH_ACKS, 1)
        outstanding = self._window // ack_every
        try:
            batch = self._js.fast_ingest(ack_every=ack_every, outstanding=outstanding)
        except errors.UnsupportedByServerError:
            return
        await self._check_acks()
        self._batch = await batch.__aenter__()
        self._in_batch = True

    async def _add(self, batch: FastIngest, chunk: bytes) -> None:
        unacked = self._batch_chunks
        unacked.append(chunk)
        try:
            async with asyncio.timeout(STALL_TIMEOUT) as limit:
                await batch.publish(self._subject, chunk)
        except (errors.JetsparkError, TimeoutError):
            if limit.expired():
                raise _stalled() from None
            await self._end_batch(batch)
        else:
            self._retry.progress()
            for _ in range(batch.acked + len(unacked) - batch.sent):
                unacked.popleft()

    async def _end_batch(self, batch: FastIngest) -> None:
        """Publish singly what the batch has not stored. Its chunks are stored up to one of them."""
        self._in_batch = False
        await _committed(batch)
        unacked = self._batch_chunks
        count = self._chunks - SINGLE_CHUNKS
        if batch.acked < count:
            stored, self._last_good = await self._retried(self._stored_after_batch)
            missing = SINGLE_CHUNKS + count - stored
            if not 0 <= missing <= len(unacked):
                raise self._damaged(stored)
            for chunk in list(unacked)[len(unacked) - missing :]:
                await self._submit(chunk)
        unacked.clear()
        await self._close_batch()

    async def _stored_after_batch(self) -> tuple[int, int]:
        """How many chunks are stored, and the sequence of the last one."""
        await self._let_settle()
        last = await self._js.stream(self._meta.stream).get(
            last_by_subject=self._subject, direct=False
        )
        return await self._stored_chunks(), last.seq

    # -- retrying ------------------------------------------------------------------------------

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                with about_store(self._meta.store):
                    return await call()
            except errors.JetsparkError as error:
                await self._retry.wait(error)

    async def _send_again(self, error: errors.JetsparkError) -> None:
        """Send all chunks from the first one that may not be stored."""
        await self._retried(self._remove_behind_good)
        await self._retry.wait(error)
        chunks = [chunk for chunk, _ in self._sent]
        self._forget_sent()
        for chunk in chunks:
            await self._submit(chunk)

    async def _let_settle(self) -> None:
        """Return when the stream has handled everything before, as its refusal of this shows."""
        with suppress(errors.WrongLastSequenceError, errors.NoStreamResponseError):
            await self._js.publish(self._subject, expect_last_subject_seq=_NEVER)

    async def _remove_behind_good(self) -> None:
        await self._publisher.flush()
        await self._let_settle()
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
        stored = await self._retried(self._stored_chunks)
        if stored != self._chunks:
            raise self._damaged(stored)

    async def _stored_chunks(self) -> int:
        info = await self._js.stream(self._meta.stream).info(subjects_filter=self._subject)
        return (info.state.subjects or {}).get(self._subject, 0)

    def _damaged(self, stored: int) -> errors.ObjectDamagedError:
        return errors.ObjectDamagedError(
            f"Object {quoted(self._info.name)}: {stored} chunks are stored instead of "
            f"{self._chunks}. Put it again."
        )


async def _committed(batch: FastIngest) -> None:
    """Return when the fate of every chunk is known. Raises after too long without a link."""
    async with move_on_after(STALL_TIMEOUT):
        await batch.commit()
        return
    raise _stalled()


def _stalled() -> errors.RequestTimeoutError:
    return errors.RequestTimeoutError(f"The store took no chunk within {STALL_TIMEOUT:g} s.")


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
