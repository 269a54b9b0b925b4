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
from jetspark.objects.content import ObjectTarget
from jetspark.objects.info import ObjectInfo, ObjectStoreStatus
from jetspark.objects.orphans import ORPHAN_AGE
from jetspark.objects.store import HeaderValues
from jetspark.objects.store import ObjectStore as AsyncObjectStore
from jetspark.objects.writer import ObjectWriter
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
        """What it is and holds now."""
        return self._thread.run(self._inner.status)

    def seal(self) -> ObjectStoreStatus:
        """Allow no more changes, for ever; the store can still be deleted as a whole."""
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
        """Store an object, in place of the one that has the name.

        `data`: bytes, the path of a file, a binary file object, or an iterable of bytes; read piece
        by piece in this thread. `chunk_size`: bytes of each stored message, 128 KiB by default, at
        most the server's max_payload. Raises BadNameError, ConfigError, what reading the data
        raises, and APIError when the store is full or sealed; then the store is as it was.
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
        """Change what is said about an object or a link; None keeps it. The content stays.

        `new_name`: rename it; raises ObjectExistsError when there is an object of that name.
        Raises ObjectNotFoundError, also when it is replaced while it is renamed.
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
        """Delete an object, or a link. Nothing happens to one that was deleted before.

        A mark stays in its place, for watchers. Raises ObjectNotFoundError.
        """
        self._thread.run(self._inner.delete, name)

    def purge_orphans(self, *, older_than: Seconds = ORPHAN_AGE) -> int:
        """Remove chunks that belong to no object; returns how many.

        Killed programs and servers leave such. `older_than`: seconds or a timedelta, 1 hour by
        default; what got a chunk since then is left alone, for it may be a put that goes on. It
        has to be longer than a put waits for its own data. One question for each object. Raises
        ObjectStoreNotFoundError, ConfigError, and APIError when the store is sealed.
        """
        return self._thread.run(self._inner.purge_orphans, older_than=older_than)

    def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Make `name` lead to an object, of this store or another one.

        `target`: its info, from `put` or `info`. In place of another link of that name; an object
        raises ObjectExistsError. Raises ConfigError for a target that is deleted or a link.
        """
        return self._thread.run(self._inner.add_link, name, target)

    def add_store_link(self, name: str, store: str) -> ObjectInfo:
        """Make `name` lead to the object store of that name, as a folder would.

        In place of another link of that name; an object raises ObjectExistsError. Such a link
        says where to go in its `info`; it has no content.
        """
        return self._thread.run(self._inner.add_store_link, name, store)

    def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """What is stored about an object, or a link. Raises ObjectNotFoundError."""
        return self._thread.run(self._inner.info, name, include_deleted=include_deleted)

    def get(self, name: str) -> ObjectReader:
        """An object to be read, chunk by chunk; a link gives what it leads to.

        `for chunk in store.get(name)`. Raises ObjectNotFoundError; while reading ObjectDamagedError
        and DigestMismatchError, instead of the last chunk.
        """
        return ObjectReader(self._thread, self._thread.run(self._inner.get, name))

    def get_bytes(self, name: str) -> bytes:
        """All of an object. Raises as `get`."""
        return self._thread.run(self._inner.get_bytes, name)

    def get_into(self, name: str, target: ObjectTarget) -> ObjectInfo:
        """Write an object into a file; returns its info. Raises as `get`, ConfigError, OSError.

        `target`: a path, where the file appears when it is complete; or a binary file object, which
        is left open. Written in this thread.
        """
        raise NotImplementedError

    def objects(self, *, include_deleted: bool = False) -> Listing[ObjectInfo]:
        """All objects and links, in the order in which they were last written."""
        return Listing(self._thread, self._inner.objects(include_deleted=include_deleted))

    def watch(self, *, ignore_deletes: bool = False, updates_only: bool = False) -> ObjectWatcher:
        """The infos of all objects, deleted ones too, then None once, then every change.

        `ignore_deletes`: only objects that are there. `updates_only`: None first, then changes.
        """
        return ObjectWatcher(
            self._thread,
            self._inner.watch(ignore_deletes=ignore_deletes, updates_only=updates_only),
        )

    def __repr__(self) -> str:
        return repr(self._inner)
