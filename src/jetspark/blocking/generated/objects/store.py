# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.objects.content import ObjectData
from jetspark.blocking.objects.reader import ObjectReader
from jetspark.blocking.objects.watch import ObjectWatcher
from jetspark.objects.info import ObjectInfo, ObjectStoreStatus
from jetspark.objects.reader import ObjectTarget
from jetspark.objects.store import HeaderValues
from jetspark.objects.store import ObjectStore as AsyncObjectStore
from jetspark.objects.writer import ORPHAN_AGE, ObjectWriter
from jetspark.timestamps import Seconds


class GeneratedObjectStore:
    """The calls of `ObjectStore` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncObjectStore

    def _put(self, data: ObjectData, write: Callable[[], ObjectWriter]) -> ObjectInfo:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The store's name."""
        return self._inner.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    def status(self) -> ObjectStoreStatus:
        """Configuration and state. Raises as every call of a store."""
        return self._thread.run(self._inner.status)

    def seal(self) -> ObjectStoreStatus:
        """Allow no more changes, for ever; the store can still be deleted as a whole.

        Raises as every call of a store (see `ObjectStore`).
        """
        return self._thread.run(self._inner.seal)

    def put(
        self,
        name: str,
        data: ObjectData,
        *,
        description: str | None = None,
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
    ) -> ObjectInfo:
        """Store an object, replacing the one with this name.

        `data`: bytes, the path of a file, a binary file object, or an iterable of bytes; read piece
        by piece in this thread. `chunk_size`: bytes of each chunk, default 128 KiB, at most the
        server's max_payload. Raises ConfigError, BadPayloadError, what reading the data raises,
        APIError when the store is full or sealed, ObjectDamagedError when the stored chunks are not
        what was sent, and as every call of a store (see `ObjectStore`). Then the store is
        unchanged.
        """
        return self._put(
            data, partial(self._inner.writer, name, description, headers, metadata, chunk_size)
        )

    def update_meta(
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
        renamed, ObjectExistsError when the new name is taken, ConfigError, and as every call of a
        store (see `ObjectStore`).
        """
        return self._thread.run(
            self._inner.update_meta,
            name,
            new_name=new_name,
            description=description,
            headers=headers,
            metadata=metadata,
        )

    def delete(self, name: str) -> None:
        """Delete an object or link. One that was deleted before stays deleted.

        A delete marker stays, for watchers. Raises ObjectNotFoundError, APIError when the store is
        sealed, and as every call of a store (see `ObjectStore`).
        """
        self._thread.run(self._inner.delete, name)

    def purge_orphans(self, *, older_than: Seconds = ORPHAN_AGE) -> int:
        """Remove chunks that belong to no object; returns how many.

        Killed programs and servers leave such chunks. `older_than`: seconds or a timedelta,
        default 1 hour; objects with a newer chunk are left alone, as a put may still be running:
        it must be longer than a put waits for its data. Needs one request for each object. Raises
        ConfigError, APIError when the store is sealed, and as every call of a store (see
        `ObjectStore`).
        """
        return self._thread.run(self._inner.purge_orphans, older_than=older_than)

    def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Create a link to an object of this or another store; returns the link's info.

        `target`: the object's info, from `put` or `info`. Replaces a link of that name. Raises
        ObjectExistsError when an object has the name, ConfigError for a target that is deleted or
        a link, and as every call of a store (see `ObjectStore`).
        """
        return self._thread.run(self._inner.add_link, name, target)

    def add_store_link(self, name: str, store: str) -> ObjectInfo:
        """Create a link to a whole object store, like a folder; returns the link's info.

        Replaces a link of that name. Such a link has no content: its `info` names the store.
        Raises ObjectExistsError when an object has the name, and as every call of a store (see
        `ObjectStore`).
        """
        return self._thread.run(self._inner.add_store_link, name, store)

    def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """The info of an object or link; `include_deleted`: a delete marker too.

        Raises ObjectNotFoundError, and as every call of a store (see `ObjectStore`).
        """
        return self._thread.run(self._inner.info, name, include_deleted=include_deleted)

    def get(self, name: str) -> ObjectReader:
        """Read an object, or a link's target, chunk by chunk.

        `for chunk in store.get(name)`. Raises ObjectNotFoundError, and as every call of a store
        (see `ObjectStore`); reading raises ObjectDamagedError and DigestMismatchError instead of
        giving out the last chunk.
        """
        return ObjectReader(self._thread, self._thread.run(self._inner.get, name))

    def get_bytes(self, name: str) -> bytes:
        """The whole content of an object. Raises as `get` and as reading."""
        return self._thread.run(self._inner.get_bytes, name)

    def get_into(self, name: str, target: ObjectTarget) -> ObjectInfo:
        """Write an object into a file; returns its info.

        `target`: a path, where the file appears when it is complete, with the mode of the one that
        it replaces; or a binary file object, which stays open. Written in this thread. Raises as
        `get` and as reading, OSError, and ConfigError when `target` is neither, or the path of a
        FIFO or device.
        """
        raise NotImplementedError

    def objects(self, *, include_deleted: bool = False) -> Listing[ObjectInfo]:
        """The infos of all objects and links, in the order in which they were last written.

        Iterating raises as every call of a store (see `ObjectStore`).
        """
        return Listing(self._thread, self._inner.objects(include_deleted=include_deleted))

    def watch(self, *, ignore_deletes: bool = False, updates_only: bool = False) -> ObjectWatcher:
        """The infos of all objects, deleted ones too, then None once, then every change.

        `ignore_deletes`: without deletions. `updates_only`: None first, then changes. Iterating
        raises as every call of a store (see `ObjectStore`).
        """
        return ObjectWatcher(
            self._thread,
            self._inner.watch(ignore_deletes=ignore_deletes, updates_only=updates_only),
        )

    def __repr__(self) -> str:
        return repr(self._inner)
