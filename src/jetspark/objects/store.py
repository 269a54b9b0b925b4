"""Object stores: put, get, change, link and delete objects; create and change stores (ADR-20).

Contract: a store is cheap, holds no state of the server and needs no closing. An object is put in
chunks and becomes visible when it is complete, when it replaces the one with its name. Of several
writers of one name the last to complete wins, and the others' chunks are removed. Names are any
text that is not empty.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, TypeAlias, TypedDict, TypeVar, Unpack

import jetspark.errors as errors
from jetspark.client.listing import Listing
from jetspark.client.tasks import in_thread, start_task
from jetspark.jetstream.backing import STREAM_FIELDS, stream_options_of, takes_in
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.differences import known_as
from jetspark.objects.info import (
    STREAM_PREFIX,
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    ObjectStoreConfig,
    ObjectStoreOptions,
    ObjectStoreStatus,
    check_store,
    info_subject,
    new_store,
    quoted,
    store_config,
)
from jetspark.objects.reader import (
    AtomicFile,
    MetaStore,
    ObjectData,
    ObjectReader,
    ObjectTarget,
    ObjectWatcher,
    about_store,
    blocks,
    info_of_link,
    link_to,
    no_store,
    object_not_found,
    resolve,
)
from jetspark.objects.writer import ORPHAN_AGE, ObjectWriter, purge_orphans
from jetspark.subjects import new_nuid
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole, texts_by_name, texts_of

CHUNK_SIZE: Final = 128 * 1024
READ_TRIES: Final = 5

HeaderValues: TypeAlias = Mapping[str, str | Sequence[str]]
"""One value or several for each name."""

T = TypeVar("T")


class PutOptions(TypedDict, total=False):
    """Options of `ObjectStore.put`, for type checkers."""

    description: str | None
    headers: HeaderValues | None
    metadata: Mapping[str, str] | None
    chunk_size: int | None


class ObjectStore:
    """An object store, returned by `JetStream.object_store` and `JetStream.create_object_store`.

    Every call raises BadNameError, ObjectStoreNotFoundError when the store no longer exists, and
    the errors of every API call (see `JetStream`).

    Example:
        ```python
        files = await js.object_store("files")
        await files.put("report.csv", b"a,b")
        print(await files.get_bytes("report.csv"))  # b'a,b'
        print([info.name async for info in files.objects()])  # ['greeting.txt', 'report.csv']
        ```
    """

    def __init__(self, js: JetStreamContext, name: str) -> None:
        self._js = js
        self._meta = MetaStore(js, name)

    @property
    def name(self) -> str:
        """The store's name."""
        return self._meta.store

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._meta.stream

    async def status(self) -> ObjectStoreStatus:
        """Configuration and state."""
        with about_store(self.name):
            return ObjectStoreStatus(await self._js.stream(self.stream).info())

    async def seal(self) -> ObjectStoreStatus:
        """Allow no more changes, for ever. The whole store can still be deleted."""
        with about_store(self.name):
            return ObjectStoreStatus(await self._js.stream(self.stream).update(sealed=True))

    # -- writing -------------------------------------------------------------------------------

    async def put(self, name: str, data: ObjectData, **options: Unpack[PutOptions]) -> ObjectInfo:
        """Store an object, replacing the one with this name.

        `data`: bytes, the path of a file, a binary file object, or an iterable, async or not, of
        bytes; read piece by piece, files and iterables in threads. `chunk_size`: bytes of each
        chunk, default 128 KiB, at most the server's max_payload. Raises BadPayloadError, the errors
        of reading the data, APIError when the store is full or sealed, ObjectDamagedError when the
        stored chunks differ from those sent; then the store is unchanged.

        Example:
            ```python
            from pathlib import Path

            Path("report.csv").write_bytes(b"a,b")
            files = await js.object_store("files")
            info = await files.put("report.csv", Path("report.csv"), metadata={"run": "17"})
            print(info.size, info.chunks)  # 3 1
            ```
        """
        writer = self.writer(name, **options)
        try:
            await writer.begin()
            async with aclosing(blocks(data)) as source:
                async for block in source:
                    await writer.write(block)
            return await writer.finish()
        except BaseException:
            await writer.discard()
            raise

    def writer(
        self,
        name: str,
        *,
        description: str | None = None,
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
    ) -> ObjectWriter:
        """The writer of `put`."""
        info_subject(self.name, name)
        max_payload = self._js.client.max_payload
        if chunk_size is None:
            chunk_size = min(CHUNK_SIZE, max_payload)
        check_whole("chunk_size", chunk_size)
        if chunk_size > max_payload:
            raise errors.ConfigError(
                f"chunk_size must be from 1 to {max_payload:,}, the server's max_payload."
            )
        info = ObjectInfo(
            name=name,
            bucket=self.name,
            nuid=new_nuid(),
            description=description,
            headers=_lists(headers),
            metadata=None if metadata is None else texts_by_name("metadata", metadata),
            options=ObjectOptions(max_chunk_size=chunk_size),
        )
        meta = MetaStore(self._js, self.name, transfer=True)
        return ObjectWriter(meta, info, chunk_size)

    async def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the info of an object or link; None keeps a value. The content stays.

        `new_name`: rename it. Raises ObjectNotFoundError, also when it is replaced while it is
        renamed, ObjectExistsError when the new name is taken.
        """
        options = {
            "description": description,
            "headers": _lists(headers),
            "metadata": None if metadata is None else texts_by_name("metadata", metadata),
        }
        changes = {option: value for option, value in options.items() if value is not None}

        def change(current: ObjectInfo | None) -> ObjectInfo:
            return self._present(name, current).replace(**changes)

        if new_name is None or new_name == name:
            return (await self._meta.replace(name, change))[0]
        info = change((await self._meta.find(name)).readable())
        return await self._rename(info, info.replace(name=new_name))

    async def _rename(self, info: ObjectInfo, renamed: ObjectInfo) -> ObjectInfo:
        new, _ = await self._meta.replace(
            renamed.name, partial(_unless_taken, renamed, links_too=False)
        )

        def leave(current: ObjectInfo | None) -> ObjectInfo:
            if current is None or current.deleted or current.nuid != info.nuid:
                raise object_not_found(self.name, info.name)
            # With a new id, so that replacing this marker does not remove the object's chunks.
            return _delete_marker(current).replace(nuid=new_nuid())

        try:
            await self._meta.replace(info.name, leave)
        except errors.ObjectNotFoundError:
            # It was replaced or deleted meanwhile, so its chunks are gone.
            with suppress(errors.ObjectNotFoundError):
                await self._meta.replace(new.name, leave)
            raise
        return new

    async def delete(self, name: str) -> None:
        """Delete an object or link. A deleted one stays deleted.

        A delete marker stays, for watchers. An info that cannot be read is deleted, too; its chunks
        stay until `purge_orphans`. Raises ObjectNotFoundError, APIError when the store is
        sealed.
        """
        stored = await self._meta.find(name)
        info = stored.info
        if stored.unreadable is not None:
            info = ObjectInfo(name=name, bucket=self.name, nuid=new_nuid())
        if info is None:
            raise object_not_found(self.name, name)
        if info.deleted:
            return
        marker = info
        _, old = await self._meta.replace(
            name, lambda current: _delete_marker(current or marker), unreadable_too=True
        )
        if old is not None and old.chunks:
            await self._meta.remove_chunks(old.nuid)

    async def purge_orphans(self, *, older_than: Seconds = ORPHAN_AGE) -> int:
        """Remove chunks that belong to no object; returns how many.

        Killed programs and servers leave such chunks. `older_than`: seconds or a timedelta, default
        1 hour; it spares objects with a newer chunk, whose put may still be running, so it must be
        longer than any put waits for its data. Sends one request for each object. Raises APIError
        when the store is sealed.
        """
        return await purge_orphans(self._meta, older_than)

    # -- links ---------------------------------------------------------------------------------

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Create a link to an object of this or another store; returns the link's info.

        `target`: the object's info, from `put` or `info`. Replaces a link of that name. Raises
        ObjectExistsError when an object has the name, ConfigError for a deleted target or a link as
        target.
        """
        return await self._add_link(name, link_to(target))

    async def add_store_link(self, name: str, store: str) -> ObjectInfo:
        """Create a link to a whole object store, like a folder; returns the link's info.

        Replaces a link of that name. Such a link has no content: its `info` names the store.
        Raises ObjectExistsError when an object has the name.
        """
        return await self._add_link(name, ObjectLink(bucket=check_store(store)))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        info = info_of_link(self.name, name, link)
        return (await self._meta.replace(name, partial(_unless_taken, info, links_too=True)))[0]

    # -- reading -------------------------------------------------------------------------------

    async def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """The info of an object or link; `include_deleted`: also of a delete marker.

        Raises ObjectNotFoundError.
        """
        info = (await self._meta.find(name)).readable()
        if include_deleted and info is not None:
            return info
        return self._present(name, info)

    async def get(self, name: str) -> ObjectReader:
        """Read an object, or a link's target, chunk by chunk.

        Iterate the result. Raises ObjectNotFoundError; reading raises
        ObjectDamagedError and DigestMismatchError instead of returning the last chunk.

        Example:
            ```python
            files = await js.object_store("files")
            async for chunk in await files.get("greeting.txt"):
                print(chunk)  # b'hello'
            ```
        """
        return ObjectReader(*await resolve(self._meta, name))

    async def get_bytes(self, name: str) -> bytes:
        """The whole content of an object. Raises the errors of `get` and of reading."""
        return await self._read_with_retries(name, ObjectReader.all)

    async def get_into(
        self, name: str, target: ObjectTarget, *, overwrite: bool = True
    ) -> ObjectInfo:
        """Write an object into a file; returns its info.

        `target`: a path, where the complete file appears, with the mode of the file that it
        replaces; or a binary file object, which stays open. Written in threads. `overwrite`:
        whether it may replace a file. Raises the errors of `get` and of reading, OSError, and
        ConfigError for the path of a FIFO or device, or of a file that may not be replaced.

        Example:
            ```python
            files = await js.object_store("files")
            await files.get_into("greeting.txt", "copy.txt")
            ```
        """
        if isinstance(target, str | os.PathLike):
            return await self._read_with_retries(name, partial(_save, target, overwrite))
        reader = await self.get(name)
        await reader.write_to(target)
        return reader.info

    async def _read_with_retries(self, name: str, use: Callable[[ObjectReader], Awaitable[T]]) -> T:
        tries = 0
        while True:
            reader = await self.get(name)
            try:
                return await use(reader)
            except errors.ObjectDamagedError:
                tries += 1
                if tries == READ_TRIES or (await self.get(name)).info.nuid == reader.info.nuid:
                    raise

    def objects(self, *, include_deleted: bool = False) -> Listing[ObjectInfo]:
        """The infos of all objects and links, each name once, by the time of their last write."""
        return Listing(partial(self._objects, include_deleted))

    async def _objects(self, include_deleted: bool) -> AsyncIterator[ObjectInfo]:
        async with self.watch(ignore_deletes=not include_deleted) as watcher:
            names: set[str] = set()
            async for info in watcher:
                if info is None:
                    return
                if info.name not in names:  # it may be written meanwhile
                    names.add(info.name)
                    yield info

    def watch(self, *, ignore_deletes: bool = False, updates_only: bool = False) -> ObjectWatcher:
        """The infos of all objects, even deleted ones, then None once, then every change.

        `ignore_deletes`: without deletions. `updates_only`: start with the None.

        Example:
            ```python
            files = await js.object_store("files")
            async with files.watch() as changes:
                async for info in changes:
                    print(info and info.name)  # greeting.txt None
            ```
        """
        return ObjectWatcher(self._meta, ignore_deletes=ignore_deletes, updates_only=updates_only)

    def _present(self, name: str, info: ObjectInfo | None) -> ObjectInfo:
        if info is None or info.deleted:
            raise object_not_found(self.name, name)
        return info

    def __repr__(self) -> str:
        return f"ObjectStore({self.name!r})"


def _lists(headers: HeaderValues | None) -> dict[str, list[str]] | None:
    if headers is None:
        return None
    values_by_name = texts_by_name("headers", headers)
    return {name: texts_of(f"headers[{name!r}]", values) for name, values in values_by_name.items()}


def _delete_marker(info: ObjectInfo) -> ObjectInfo:
    return info.replace(deleted=True, size=0, chunks=0, digest=None)


def _unless_taken(info: ObjectInfo, existing: ObjectInfo | None, *, links_too: bool) -> ObjectInfo:
    """Raise ObjectExistsError when the name is taken; `links_too`: even by a link."""
    if (
        existing is not None
        and not existing.deleted
        and not (links_too and existing.link is not None)
    ):
        text = f'Object {quoted(info.name)} of store "{info.bucket}" exists already.'
        raise errors.ObjectExistsError(400, 0, "object exists", text)
    return info


async def _save(path: str | os.PathLike[str], overwrite: bool, reader: ObjectReader) -> ObjectInfo:
    opening = start_task(in_thread(partial(AtomicFile, path, overwrite=overwrite)))
    try:
        file = await asyncio.shield(opening)
        await reader.write_to(file)
        await in_thread(file.keep)
    except BaseException:
        await asyncio.wait({opening})  # a thread that nobody waits for would leave its file
        if not (opening.cancelled() or opening.exception()):
            await in_thread(opening.result().drop)
        raise
    return reader.info


class ObjectStoreCalls(JetStreamContext):
    """The calls of JetStream for object stores.

    Options are the fields of ObjectStoreConfig, given as one, as keyword arguments, or as both,
    where keyword arguments win. Names and options are checked before anything is sent.
    """

    async def create_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Create an object store, or bind to it when it exists with the same configuration.

        Options are the fields of ObjectStoreConfig. Raises NameInUseError when it exists with
        another configuration, and as every API call (see `JetStream`).

        Example:
            ```python
            files = await js.create_object_store("reports", description="what the night runs leave")
            await files.put("greeting.txt", b"hello")
            ```
        """
        store = store_config(config, options)
        stream = STREAM_PREFIX + check_store(name)
        try:
            await self.create_stream(name=stream, **new_store(name, store))
        except errors.NameInUseError as error:
            raise known_as(error, f'Object store "{name}"', STREAM_FIELDS) from None
        return ObjectStore(self, name)

    async def update_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Change an object store; options not given keep their values.

        Raises ObjectStoreNotFoundError, and as every API call (see `JetStream`).
        """
        store = store_config(config, options)
        with about_store(name):
            stream = await self._store_stream(name)
            await self.stream(stream).update(**stream_options_of(store, STREAM_FIELDS))
        return ObjectStore(self, name)

    async def create_or_update_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Update an object store, or create it.

        Raises as `update_object_store` and `create_object_store`.
        """
        store = store_config(config, options)
        with suppress(errors.ObjectStoreNotFoundError):
            return await self.update_object_store(name, store)
        try:
            return await self.create_object_store(name, store)
        except errors.NameInUseError as error:
            try:
                return await self.update_object_store(name, store)  # created in between
            except errors.ObjectStoreNotFoundError:
                raise error from None  # another stream has its name

    async def object_store(self, name: str) -> ObjectStore:
        """Bind to an existing object store.

        Raises ObjectStoreNotFoundError, and as every API call (see `JetStream`).
        """
        await self._store_stream(name)
        return ObjectStore(self, name)

    async def delete_object_store(self, name: str) -> None:
        """Delete an object store and its objects. Raises as `object_store`."""
        with about_store(name):
            await self.delete_stream(await self._store_stream(name))

    async def _store_stream(self, name: str) -> str:
        """The store's stream. Raises ObjectStoreNotFoundError, also for another stream."""
        stream = STREAM_PREFIX + check_store(name)
        with suppress(errors.StreamNotFoundError):
            if takes_in((await self.stream(stream).info()).config, f"$O.{name}.M.>"):
                return stream
        raise no_store(name)

    def object_store_names(self) -> Listing[str]:
        """The names of all object stores."""
        return Listing(self._object_store_names)

    async def _object_store_names(self) -> AsyncIterator[str]:
        async for name in self.stream_names("$O.*.>"):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def object_stores(self) -> Listing[ObjectStoreStatus]:
        """The statuses of all stores."""
        return Listing(self._object_stores)

    async def _object_stores(self) -> AsyncIterator[ObjectStoreStatus]:
        async for info in self.streams("$O.*.>"):
            if info.name.startswith(STREAM_PREFIX):
                yield ObjectStoreStatus(info)
