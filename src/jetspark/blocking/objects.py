# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Object stores without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.blocking.by_hand.objects import BaseObjectStore, ObjectReader, ObjectWatcher
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Listing
from jetspark.objects.info import ObjectInfo, ObjectStoreStatus
from jetspark.objects.store import HeaderValues
from jetspark.objects.store import ObjectStore as AsyncObjectStore
from jetspark.objects.writer import ORPHAN_AGE
from jetspark.timestamps import Seconds

__all__ = ["ObjectReader", "ObjectStore", "ObjectWatcher"]


@twin_of(AsyncObjectStore)
class ObjectStore(BaseObjectStore):
    """An object store, returned by `JetStream.object_store` and `JetStream.create_object_store`."""

    _inner: AsyncObjectStore

    @property
    def name(self) -> str:
        """The store's name."""
        return self._inner.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    def status(self) -> ObjectStoreStatus:
        """Configuration and state."""
        return self._thread.run(self._inner.status)

    def seal(self) -> ObjectStoreStatus:
        """Allow no more changes, for ever. The whole store can still be deleted."""
        return self._thread.run(self._inner.seal)

    def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the info of an object or link; None keeps a value. The content stays."""
        return self._thread.run(
            self._inner.update_meta,
            name,
            new_name=new_name,
            description=description,
            headers=headers,
            metadata=metadata,
        )

    def delete(self, name: str) -> None:
        """Delete an object or link. A deleted one stays deleted."""
        self._thread.run(self._inner.delete, name)

    def purge_orphans(self, *, older_than: Seconds = ORPHAN_AGE) -> int:
        """Remove chunks that belong to no object; returns how many."""
        return self._thread.run(self._inner.purge_orphans, older_than=older_than)

    def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Create a link to an object of this or another store; returns the link's info."""
        return self._thread.run(self._inner.add_link, name, target)

    def add_store_link(self, name: str, store: str) -> ObjectInfo:
        """Create a link to a whole object store, like a folder; returns the link's info."""
        return self._thread.run(self._inner.add_store_link, name, store)

    def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """The info of an object or link; `include_deleted`: also of a delete marker."""
        return self._thread.run(self._inner.info, name, include_deleted=include_deleted)

    def get(self, name: str) -> ObjectReader:
        """Read an object, or a link's target, chunk by chunk."""
        return ObjectReader(self._caller, self._thread.run(self._inner.get, name))

    def get_bytes(self, name: str) -> bytes:
        """The whole content of an object. Raises the errors of `get` and of reading."""
        return self._thread.run(self._inner.get_bytes, name)

    def objects(self, *, include_deleted: bool = False) -> Listing[ObjectInfo]:
        """The infos of all objects and links, by the time of their last write."""
        return Listing(self._caller, self._inner.objects(include_deleted=include_deleted))

    def watch(self, *, ignore_deletes: bool = False, updates_only: bool = False) -> ObjectWatcher:
        """The infos of all objects, even deleted ones, then None once, then every change."""
        return ObjectWatcher(
            self._caller,
            self._inner.watch(ignore_deletes=ignore_deletes, updates_only=updates_only),
        )
