"""Reading an object store: infos, links, the chunks of an object, changes (ADR-20).

Contract of infos: they come from the stream's leader, which has every acknowledged write. A write
depends on the subject's last sequence: one of several writers wins, and the others decide again. So
a writer knows which object it replaced, and removes its chunks. After a lost ack it retries the
write with the same Nats-Msg-Id, which stores it once.

Contract of reading an object
- Chunks come through an ordered consumer, which survives reconnects, restarts and leader changes;
  about PULL_AHEAD bytes at most are buffered or requested ahead. It lasts from the first chunk to
  the last one, or to the end of the iteration.
- The reader returns the last chunk only when the number of chunks, size and digest are right: a
  caller with all bytes has the object. Otherwise it raises ObjectDamagedError (an object that is
  replaced or deleted meanwhile loses its chunks) or DigestMismatchError. It does not wait for
  missing chunks, but asks the stream's leader.
- A thread computes the digest, while the chunks are used and others arrive. There is no task.

Contract of files: they are read and written in threads, BLOCK bytes at a time. A given file object
stays open, at its last position. A path is written under a temporary name and renamed when it is
complete. Raises ConfigError for a path that cannot be opened, OSError while reading or writing.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import stat
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jetspark.errors as errors
from jetspark.client.tasks import in_thread, move_on_after, start_task
from jetspark.err_codes import NO_MESSAGE_FOUND, STREAM_NOT_FOUND
from jetspark.files import beginning
from jetspark.jetstream import JsMsg, OrderedMessages
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.message import MessageFrame
from jetspark.jetstream.watching import StreamWatcher
from jetspark.objects.content_digest import ContentDigest, Writable
from jetspark.objects.info import (
    STREAM_PREFIX,
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    all_infos,
    check_store,
    chunk_subject,
    info_of,
    info_of_stored,
    info_subject,
    is_digest,
    latin_info_subject,
    quoted,
    to_stored,
)
from jetspark.payload_bytes import Payload, byte_view, has_buffer
from jetspark.retries import FULL, PAUSE, is_transient_for_client
from jetspark.subjects import new_nuid
from jetspark.timestamps import ns_to_datetime
from jetspark.validation import check_kind, path_of

_ROLLUP: Final = {"Nats-Rollup": "sub"}
_MOST_LINKS: Final = 8
"""Links followed in a row; this client creates no link to a link."""
STALL_TIMEOUT: Final = 30.0
"""Seconds without progress after which a transfer fails: a put, and reading the chunks."""

PULL_AHEAD = 8 * 1024 * 1024
"""Bytes of chunks buffered or requested ahead."""
BLOCK = 4 * 1024 * 1024
"""Bytes handled at once. Each change of thread waits for the interpreter, so there are few."""
HEARTBEAT = 2.0
"""Seconds between heartbeats: a lost chunk, even the last one, is read again within twice as long.
"""
LOOK_AFTER = 0.5
"""Seconds without a chunk until the leader is asked."""


class TransferRetry:
    """One for each transfer: `await retry.wait(error)` between two attempts."""

    def __init__(self, limit: float = STALL_TIMEOUT) -> None:
        self._limit = limit
        self._since: float | None = None

    def progress(self) -> None:
        self._since = None

    async def wait(self, error: errors.JetsparkError) -> None:
        """Pause. Raises the error if it is not transient, or after too long without progress."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        # A server without storage refuses at once, and the caller should know.
        if not is_transient_for_client(error, but=FULL) or now - self._since >= self._limit:
            raise error
        await asyncio.sleep(PAUSE)


class RequestRetry(TransferRetry):
    """Retries of a call that is no transfer; time counts from its beginning or last progress."""

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self.progress()

    def progress(self) -> None:
        self._since = asyncio.get_running_loop().time()


class StoredMeta(NamedTuple):
    info: ObjectInfo | None
    seq: int
    data: bytes
    subject: str
    """The subject of the info, even when nothing is stored."""
    unreadable: errors.DocumentError | None = None
    """Why the info that is stored cannot be read; it can be replaced and deleted."""

    def readable(self) -> ObjectInfo | None:
        """The info. Raises DocumentError when there is one that cannot be read."""
        if self.unreadable is not None:
            raise self.unreadable
        return self.info


class MetaStore:
    """The infos of one store, from its meta messages.

    Calls retry transient errors within the context's timeout; those of a `transfer` as it does.
    """

    def __init__(self, js: JetStreamContext, store: str, *, transfer: bool = False) -> None:
        self._transfer = transfer
        self.js = js
        self.store = store
        self.stream = STREAM_PREFIX + store

    def _retry(self) -> TransferRetry:
        return TransferRetry() if self._transfer else RequestRetry(self.js.timeout)

    async def find(self, name: str) -> StoredMeta:
        """The current info of a name, which may be a delete marker.

        Raises BadNameError, ObjectStoreNotFoundError, and as every API call.
        """
        retry = self._retry()
        while True:
            try:
                return await self._find(name)
            except errors.JetsparkError as error:
                await retry.wait(error)

    async def _find(self, name: str) -> StoredMeta:
        """Finds, and so replaces, an object under the JavaScript client's subject there."""
        stored = await self._at(info_subject(self.store, name))
        if stored.unreadable or (stored.info is not None and not stored.info.deleted):
            return stored
        subject = latin_info_subject(self.store, name)
        if subject is None:
            return stored
        latin_stored = await self._at(subject)
        # The Latin-1 of one name may be the UTF-8 of another.
        if latin_stored.info is None or latin_stored.info.name != name:
            return stored
        if latin_stored.info.deleted:
            return stored._replace(info=stored.info or latin_stored.info)
        return latin_stored

    async def _at(self, subject: str) -> StoredMeta:
        try:
            with about_store(self.store):
                stored = await self.js.stream(self.stream).get(
                    last_by_subject=subject, direct=False
                )
        except errors.MessageNotFoundError:
            return StoredMeta(None, 0, b"", subject)
        try:
            return StoredMeta(info_of_stored(stored), stored.seq, stored.data, subject)
        except errors.DocumentError as error:
            return StoredMeta(None, stored.seq, stored.data, subject, error)

    async def replace(
        self,
        name: str,
        decide: Callable[[ObjectInfo | None], ObjectInfo],
        *,
        unreadable_too: bool = False,
    ) -> tuple[ObjectInfo, ObjectInfo | None]:
        """Store the result of `decide` for the current info; returns both.

        `decide` may be called again. `unreadable_too`: replace even an info that cannot be read,
        which is None then; its chunks stay until `purge_orphans`. Raises its errors, DocumentError,
        ObjectStoreNotFoundError, and as `publish`.
        """
        message_id = new_nuid()
        retry = self._retry()
        unsure: list[tuple[ObjectInfo, ObjectInfo | None]] = []
        while True:
            tried = False
            try:
                stored = await self._find(name)
                if unsure and stored.data == to_stored(unsure[-1][0]):
                    return unsure[-1]
                new = decide(stored.info if unreadable_too else stored.readable())
                tried = True
                ack = await self.js.publish(
                    stored.subject,
                    to_stored(new),
                    headers=_ROLLUP,
                    msg_id=message_id,
                    expect_last_subject_seq=stored.seq,
                )
            except errors.WrongLastSequenceError:
                retry.progress()  # another writer was faster
            except errors.JetsparkError as error:
                if tried:
                    unsure.append((new, stored.info))
                await retry.wait(error)
            else:
                if ack.duplicate:
                    # An earlier attempt stored it; of several, it is unknown what they replaced.
                    return unsure[0] if len(unsure) == 1 else (new, None)
                return new.replace(mtime=datetime.now(UTC)), stored.info

    async def remove_chunks(self, nuid: str) -> bool:
        """Purge the chunks of an object that no longer exists.

        False: some are left; the reason was reported.
        """
        subject = chunk_subject(self.store, nuid)
        retry = self._retry()
        while True:
            try:
                with suppress(errors.StreamNotFoundError):
                    await self.js.stream(self.stream).purge(filter=subject)
                return True
            except errors.JetsparkError as error:
                try:
                    await retry.wait(error)
                except errors.JetsparkError:
                    self.js.client.report(error)
                    return False


def no_store(name: str) -> errors.ObjectStoreNotFoundError:
    return errors.ObjectStoreNotFoundError(
        404, STREAM_NOT_FOUND, "object store not found", f'Object store "{name}" not found.'
    )


@contextmanager
def about_store(name: str) -> Iterator[None]:
    """Raise ObjectStoreNotFoundError for a missing stream."""
    try:
        yield
    except errors.StreamNotFoundError:
        raise no_store(name) from None


def object_not_found(
    store: str, name: str, link_problem: str | None = None
) -> errors.ObjectNotFoundError:
    """The error for a missing object; `link_problem`: where its link leads instead."""
    sentence = f'Object {quoted(name)} not found in store "{store}".'
    if link_problem is not None:
        sentence = f'{quoted(name)} in store "{store}" {link_problem}.'
    return errors.ObjectNotFoundError(404, NO_MESSAGE_FOUND, "object not found", sentence)


def link_to(target: ObjectInfo) -> ObjectLink:
    check_kind("target", target, ObjectInfo, "the info of an object")
    if target.deleted:
        raise errors.ConfigError("A link cannot lead to a deleted object.")
    if target.link is not None:
        raise errors.ConfigError("A link cannot lead to a link.")
    return ObjectLink(bucket=target.bucket, name=target.name)


def info_of_link(store: str, name: str, link: ObjectLink) -> ObjectInfo:
    if link.bucket == store and link.name in (None, "", name):
        target = "the store that it is in" if not link.name else "itself"
        raise errors.ConfigError(f"Link {name!r} cannot lead to {target}.")
    return ObjectInfo(name=name, bucket=store, nuid=new_nuid(), options=ObjectOptions(link=link))


async def resolve(meta: MetaStore, name: str) -> tuple[MetaStore, ObjectInfo]:
    """The object of a name or its link, and its store. Raises ObjectNotFoundError."""
    store, target = meta, name
    for _ in range(_MOST_LINKS):
        info = (await store.find(target)).readable()
        if info is None or info.deleted:
            if store is meta and target == name:
                raise object_not_found(meta.store, name)
            problem = f'leads to {quoted(target)} in store "{store.store}", which does not exist'
            raise object_not_found(meta.store, name, problem)
        if info.link is None:
            return store, info
        if not info.link.name:
            raise object_not_found(
                meta.store, name, f"leads to the whole store {quoted(info.link.bucket)}"
            )
        store, target = MetaStore(meta.js, check_store(info.link.bucket)), info.link.name
    raise object_not_found(meta.store, name, "leads from link to link")


# -- content: from bytes, files and iterables, to files --------------------------------------------

Bytes: TypeAlias = Payload


@runtime_checkable
class Readable(Protocol):
    """A binary file object, or an asyncio.StreamReader."""

    def read(self, size: int, /) -> Any:
        """Up to `size` bytes; none at the end."""


ObjectData: TypeAlias = Bytes | os.PathLike[str] | Readable | Iterable[Bytes] | AsyncIterable[Bytes]
ObjectTarget: TypeAlias = str | os.PathLike[str] | Writable


async def blocks(data: ObjectData) -> AsyncGenerator[bytes]:
    """The bytes of any source. Raises BadPayloadError, and the errors of reading it."""
    if isinstance(data, Readable) and inspect.iscoroutinefunction(data.read):
        while piece := await data.read(BLOCK):
            for block in pieces(piece):
                yield block
    elif isinstance(data, AsyncIterable) and not isinstance(data, Readable):
        async for piece in data:
            for block in pieces(piece):
                yield block
    else:
        source = sync_blocks(data)
        coming = start_task(in_thread(_next, source))
        try:
            while (ready := await coming) is not None:
                coming = start_task(in_thread(_next, source))
                yield ready
        finally:
            if not (coming.cancel() or coming.cancelled()):
                coming.exception()  # mark it as retrieved
            # A thread may still be reading; the generator ends with it.
            with suppress(ValueError):
                await in_thread(source.close)


def _next(source: Iterator[bytes]) -> bytes | None:
    return next(source, None)  # StopIteration cannot pass through a future


def sync_blocks(data: Any) -> Generator[bytes]:
    """`blocks` of a source that needs no event loop."""
    if isinstance(data, str):  # an iterable of texts, or nothing if empty
        raise errors.ConfigError("Give a path as a pathlib.Path, and text as bytes: text.encode().")
    if isinstance(data, Readable):
        while block := data.read(BLOCK):
            yield from pieces(block)
    elif has_buffer(data):
        yield from pieces(data)
    elif isinstance(data, os.PathLike):
        with _opened(data) as file:
            yield from sync_blocks(file)
    else:
        for piece in data:
            yield from pieces(piece)


def _opened(path: os.PathLike[str]) -> BinaryIO:
    try:
        return path_of("data", path).open("rb")
    except OSError as error:
        raise errors.ConfigError(f"Cannot read {path}: {error.strerror or error}.") from error


def pieces(block: Bytes) -> Iterator[bytes]:
    """Bytes as they are; other buffers, which may change, are copied. Raises BadPayloadError."""
    if type(block) is bytes:
        yield block
        return
    if isinstance(block, str):
        raise errors.BadPayloadError(block, "open it in binary mode, or encode it")
    with byte_view(block) as view:
        for begin in range(0, len(view), BLOCK):
            yield bytes(view[begin : begin + BLOCK])


def write_all(file: Writable, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        file.write(chunk)


class AtomicFile:
    """A file that gets its name with `keep`, when it is complete; `drop` removes it.

    It replaces an existing file, with the same mode; a symlink stays one. Without `overwrite`, it
    raises ConfigError for an existing file, also one that appears before `keep`.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        self._path = path_of("target", path)
        self._overwrite = overwrite
        if not self._path.name or self._path.is_dir():
            raise errors.ConfigError(f"target must be the path of a file, not {str(path)!r}.")
        self._check_free()
        try:
            self._path = Path(os.path.realpath(self._path))
            mode = self._path.stat().st_mode if self._path.exists() else None
            if not (mode is None or stat.S_ISREG(mode)):  # a FIFO or device would be lost
                raise errors.ConfigError(
                    f"{path} is not a regular file: open it, and give the open file as target."
                )
            name = f"{beginning(self._path.name)}.{secrets.token_hex(4)}.part"
            self._part = self._path.with_name(name)
            opener = partial(os.open, mode=0o666 if mode is None else 0o600)
            self._file = open(self._part, "xb", opener=opener)  # noqa: SIM115 - keep and drop
            if mode is not None:
                self._part.chmod(stat.S_IMODE(mode))
        except OSError as error:
            raise errors.ConfigError(
                f"Cannot write {self._path}: {error.strerror or error}."
            ) from error
        self.write = self._file.write

    def _check_free(self) -> None:
        if not self._overwrite and os.path.lexists(self._path):  # also a broken symlink
            raise errors.ConfigError(f"{self._path} exists already, and overwrite is False.")

    def keep(self) -> None:
        self._file.close()
        self._check_free()
        self._part.replace(self._path)

    def drop(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


class ObjectReader:
    """The result of `ObjectStore.get`: `async for chunk in reader`, or `await reader.all()`.

    It can be read once. Raises ObjectDamagedError and DigestMismatchError in place of the last
    chunk, ObjectStoreNotFoundError, and ConnectionClosedError.

    Example:
        ```python
        reader = await (await js.object_store("files")).get("greeting.txt")
        print(reader.info.size, await reader.all())  # 5 b'hello'
        ```
    """

    def __init__(self, meta: MetaStore, info: ObjectInfo) -> None:
        self._meta = meta
        self._info = info
        self._subject = chunk_subject(meta.store, info.nuid)
        self._messages: OrderedMessages | None = None
        self._digest = ContentDigest()
        self._chunks = 0
        self._size = 0
        self._last = 0
        """Sequence of the last chunk."""
        self._retry = TransferRetry()
        self._stopped = False
        self._max_chunks_at_once = max(BLOCK * info.chunks // max(info.size, 1), 1)

    @property
    def info(self) -> ObjectInfo:
        """The object's info; for a link, its target's."""
        return self._info

    async def all(self) -> bytes:
        """The whole content."""
        content = BytesIO()  # grows in place, and gives its memory away
        async for chunk in self:
            content.write(chunk)
        return content.getvalue()

    async def write_to(self, file: Writable) -> None:
        """Write the content into a file, in the thread that computes the digest.

        The last chunks are written when the digest is right.
        """
        try:
            while not self._stopped:
                chunks = await self._receive()
                if self._is_complete:
                    await self._digest.add(chunks)
                    await self._check()
                    await in_thread(write_all, file, chunks)
                    break
                await self._digest.add(chunks, file)
        finally:
            self.stop()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while chunks := await self.next_chunks():
                for chunk in chunks:
                    yield chunk
        finally:
            self.stop()

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        self._digest.close()
        if self._messages is not None:
            self._messages.stop()

    async def next_chunks(self) -> list[bytes]:
        """All chunks that have arrived, at least one; none at the end."""
        if self._stopped:
            return []
        try:
            chunks = await self._receive()
            await self._digest.add(chunks)
            if self._is_complete:
                await self._check()
        except BaseException:
            self.stop()
            raise
        if self._is_complete:
            self.stop()
        return chunks

    @property
    def _is_complete(self) -> bool:
        return self._chunks >= self._info.chunks

    async def _receive(self) -> list[bytes]:
        """All chunks that have arrived, at least one; none of an empty object."""
        if self._is_complete:
            return []
        client = self._meta.js.client
        message, messages = await self._next_chunk()
        chunks = [message.data]
        for frame in messages.take_queued(self._max_chunks_at_once - 1):
            message = JsMsg(client, frame)
            chunks.append(message.data)
        self._last = message.metadata.stream_seq
        self._chunks += len(chunks)
        self._size += sum(map(len, chunks))
        if self._chunks > self._info.chunks:
            raise self._damaged(f"it has more than {self._info.chunks} chunks")
        return chunks

    def _begin(self) -> OrderedMessages:
        js = self._meta.js
        with js.client.hooks.quiet():
            self._messages = js.stream(self._meta.stream).ordered(
                subjects=self._subject,
                start_seq=self._last + 1,
                max_bytes=max(PULL_AHEAD, 2 * js.client.max_payload),
                heartbeat=HEARTBEAT,
            )
        return self._messages

    async def _next_chunk(self) -> tuple[JsMsg, OrderedMessages]:
        messages = self._messages or self._begin()
        while not self._stopped:
            try:
                with about_store(self._meta.store):
                    async with move_on_after(LOOK_AFTER):
                        message = await anext(messages)
                        self._retry.progress()
                        return message, messages
                    await self._ask_leader()
                self._retry.progress()
            except StopAsyncIteration:
                break
            except errors.JetsparkError as error:
                await self._retry.wait(error)  # no leader or link
                if not messages.active:  # its first consumer could not be made
                    messages = self._begin()
        raise errors.ConnectionClosedError("The connection was closed.")

    async def _ask_leader(self) -> None:
        """Raise ObjectDamagedError when the leader has no more chunks."""
        try:
            await self._meta.js.stream(self._meta.stream).get(
                self._last + 1, next_by_subject=self._subject, direct=False
            )
        except errors.MessageNotFoundError:
            current = (await self._meta.find(self._info.name)).info
            if current is None or current.nuid != self._info.nuid:
                raise self._damaged("it was replaced or deleted while it was read") from None
            raise self._damaged(
                f"only {self._chunks} of its {self._info.chunks} chunks are in the store"
            ) from None

    async def _check(self) -> None:
        info = self._info
        if self._size != info.size:
            raise self._damaged(f"it has {self._size} bytes instead of {info.size}")
        if info.digest is None:
            raise self._damaged("its info has no digest")
        if not is_digest(info.digest, await self._digest.value()):
            problem = f"its digest is not {quoted(info.digest)}"
            raise errors.DigestMismatchError(self._describe_damage(problem))

    def _damaged(self, problem: str) -> errors.ObjectDamagedError:
        return errors.ObjectDamagedError(self._describe_damage(problem))

    def _describe_damage(self, problem: str) -> str:
        name = quoted(self._info.name)
        return f'Object {name} of store "{self._meta.store}" is damaged: {problem}.'

    def __repr__(self) -> str:
        return f"ObjectReader({self._info.bucket!r}, {self._info.name!r}, {self._size} bytes read)"


class ObjectWatcher(StreamWatcher[ObjectInfo]):
    """The result of `ObjectStore.watch`: iterate it.

    Its contract is that of `jetspark.jetstream.watching`. An unreadable info is reported (log,
    last_error, error callback) and left out.

    Example:
        ```python
        files = await js.object_store("files")
        async with files.watch(ignore_deletes=True) as changes:
            info = await changes.next(timeout=2)
            print(info.name, info.size)  # greeting.txt 5
        ```
    """

    def __init__(self, meta: MetaStore, *, ignore_deletes: bool, updates_only: bool) -> None:
        super().__init__(
            meta.js, meta.store, meta.stream, [all_infos(meta.store)], updates_only=updates_only
        )
        self._ignore_deletes = ignore_deletes

    @property
    def source(self) -> str:
        return f"a watch on object store {self._name!r}"

    def _missing_stream_error(self) -> errors.JetsparkError:
        return no_store(self._name)

    def __aiter__(self) -> AsyncIterator[ObjectInfo | None]:
        return self._loop()

    def _entries(self, frames: Iterable[MessageFrame]) -> None:
        for frame, _, time_ns, _ in self._fresh(frames):
            try:
                info = info_of(frame.payload, ns_to_datetime(time_ns))
            except errors.JetStreamError as error:
                self._js.client.report(error)
                continue
            if not (info.deleted and self._ignore_deletes):
                self._ready.append(info)
