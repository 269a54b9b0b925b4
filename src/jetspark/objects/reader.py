"""Reading an object (ADR-20).

Contract
- Chunks come through an ordered consumer, which survives reconnects, restarts and leader changes;
  about PULL_AHEAD bytes at most are buffered or requested ahead. It is created for the first chunk,
  and ends with the last one or when the iteration is left.
- The last chunk is given out only when the number of chunks, size and digest are right: a caller
  with all bytes has the object. Otherwise ObjectDamagedError or DigestMismatchError. Missing chunks
  are never waited for: the stream's leader is asked when none comes.
- An object that is replaced or deleted meanwhile loses its chunks: ObjectDamagedError.
- The digest of many bytes is computed in a thread. No task of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

from jetspark.errors import (
    ConnectionClosedError,
    DigestMismatchError,
    JetsparkError,
    MessageNotFoundError,
    ObjectDamagedError,
    StreamNotFoundError,
)
from jetspark.jetstream import JsMsg, OrderedMessages
from jetspark.objects.digest import is_digest
from jetspark.objects.info import ObjectInfo
from jetspark.objects.meta import MetaStore, no_store
from jetspark.objects.names import chunk_subject

PULL_AHEAD = 8 * 1024 * 1024
"""Bytes of chunks buffered or requested ahead."""

LOT_BYTES = 1024 * 1024
"""Bytes handled at once."""

HEARTBEAT = 2.0
"""Seconds between heartbeats: a lost chunk, the last too, is read again within twice as long."""

LOOK_AFTER = 0.5
"""Seconds without a chunk until the leader is asked for it."""

_IN_A_THREAD = 64 * 1024  # bytes from which a digest is worth a change of thread


class ObjectReader:
    """What `ObjectStore.get` returns: `async for chunk in reader`, or `await reader.all()`, once.

    Reading raises ObjectDamagedError and DigestMismatchError instead of giving out the last chunk,
    ObjectStoreNotFoundError, and ConnectionClosedError.
    """

    def __init__(self, meta: MetaStore, info: ObjectInfo) -> None:
        self._meta = meta
        self._info = info
        self._subject = chunk_subject(meta.store, info.nuid)
        self._messages: OrderedMessages | None = None
        self._sha256 = hashlib.sha256()
        self._chunks = 0
        self._size = 0
        self._last = 0
        """Sequence of the last chunk."""
        self._stopped = False
        self._lot = max(LOT_BYTES * info.chunks // max(info.size, 1), 1)

    @property
    def info(self) -> ObjectInfo:
        """The object's info; of a link, that of its target."""
        return self._info

    async def all(self) -> bytes:
        """The whole content. Raises as reading (see `ObjectReader`)."""
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while lot := await self.next_lot():
                for chunk in lot:
                    yield chunk
        finally:
            self.stop()

    def stop(self) -> None:
        """Read no more. May be called again."""
        self._stopped = True
        if self._messages is not None:
            self._messages.stop()

    async def next_lot(self) -> list[bytes]:
        """The next chunks: all that have arrived; none at the end. Raises as reading."""
        if self._stopped:
            return []
        try:
            lot = await self._next_chunks() if self._chunks < self._info.chunks else []
            if self._chunks >= self._info.chunks:
                self._check()
        except BaseException:
            self.stop()
            raise
        return lot

    async def _next_chunks(self) -> list[bytes]:
        client = self._meta.js.client
        if self._messages is None:
            with client.hooking.quiet():
                self._messages = self._meta.js.ordered(
                    self._meta.stream,
                    subjects=self._subject,
                    # At least one chunk of any size.
                    max_bytes=max(PULL_AHEAD, 2 * client.max_payload),
                    heartbeat=HEARTBEAT,
                )
        message = await self._next_chunk(self._messages)
        lot = [message.data]
        for frame in self._messages.take_queued(self._lot - 1):
            message = JsMsg(client, frame)
            lot.append(message.data)
        self._last = message.metadata.stream_seq
        self._chunks += len(lot)
        self._size += sum(map(len, lot))
        if self._chunks > self._info.chunks:
            raise self._damaged(f"it has more than {self._info.chunks} chunks")
        if self._size - len(lot[-1]) >= _IN_A_THREAD:
            await asyncio.to_thread(self._digest, lot)
        else:
            self._digest(lot)
        return lot

    async def _next_chunk(self, messages: OrderedMessages) -> JsMsg:
        while True:
            try:
                async with asyncio.timeout(LOOK_AFTER):
                    return await anext(messages)
            except ConnectionClosedError:
                raise  # a lost connection is a TimeoutError too
            except StreamNotFoundError:
                raise no_store(self._meta.store) from None
            except StopAsyncIteration:
                raise ConnectionClosedError("The connection was closed.") from None
            except TimeoutError:
                await self._look()

    async def _look(self) -> None:
        """Raises ObjectDamagedError when the leader has no more chunks."""
        try:
            await self._meta.js.get_msg(
                self._meta.stream, self._last + 1, next_by_subject=self._subject, direct=False
            )
        except MessageNotFoundError:
            found = (await self._meta.find(self._info.name)).info
            if found is None or found.nuid != self._info.nuid:
                raise self._damaged("it was replaced or deleted while it was read") from None
            raise self._damaged(
                f"only {self._chunks} of its {self._info.chunks} chunks are in the store"
            ) from None
        except StreamNotFoundError:
            raise no_store(self._meta.store) from None
        except ConnectionClosedError:
            raise
        except JetsparkError:
            return  # no leader, no link: asked again after LOOK_AFTER

    def _digest(self, lot: Sequence[bytes]) -> None:
        for chunk in lot:
            self._sha256.update(chunk)

    def _check(self) -> None:
        self.stop()
        info = self._info
        if self._size != info.size:
            raise self._damaged(f"it has {self._size} bytes instead of {info.size}")
        if info.digest is None:
            raise self._damaged("its info has no digest")
        if not is_digest(info.digest, self._sha256.digest()):
            raise DigestMismatchError(
                f'Object "{info.name}" of store "{info.bucket}" is damaged: its digest '
                f"is not {info.digest}."
            )

    def _damaged(self, what: str) -> ObjectDamagedError:
        return ObjectDamagedError(
            f'Object "{self._info.name}" of store "{self._info.bucket}" is damaged: {what}.'
        )

    def __repr__(self) -> str:
        return f"ObjectReader({self._info.bucket!r}, {self._info.name!r}, {self._size} bytes read)"
