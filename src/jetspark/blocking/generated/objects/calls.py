# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from typing import Any

from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.objects.store import ObjectStore
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.objects.config import ObjectStoreConfig
from jetspark.objects.info import ObjectStoreStatus


class GeneratedObjectStoreCalls:
    """The calls of `ObjectStoreCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_object_store(
        self, name: str, config: ObjectStoreConfig | None = None, /, **options: Any
    ) -> ObjectStore:
        """Make an object store. Options are the fields of ObjectStoreConfig.

        One that exists with the same configuration is bound; with another one, NameInUseError.
        """
        return ObjectStore(
            self._thread, self._thread.run(self._inner.create_object_store, name, config, **options)
        )

    def update_object_store(
        self, name: str, config: ObjectStoreConfig | None = None, /, **options: Any
    ) -> ObjectStore:
        """Change an object store; what is not named keeps its value.

        Raises ObjectStoreNotFoundError.
        """
        return ObjectStore(
            self._thread, self._thread.run(self._inner.update_object_store, name, config, **options)
        )

    def object_store(self, name: str) -> ObjectStore:
        """Bind to an object store that exists. Raises ObjectStoreNotFoundError."""
        return ObjectStore(self._thread, self._thread.run(self._inner.object_store, name))

    def delete_object_store(self, name: str) -> None:
        """Delete an object store with all it holds. Raises ObjectStoreNotFoundError."""
        self._thread.run(self._inner.delete_object_store, name)

    def object_store_names(self) -> Listing[str]:
        """The names of all object stores."""
        return Listing(self._thread, self._inner.object_store_names())

    def object_stores(self) -> Listing[ObjectStoreStatus]:
        """The statuses of all object stores."""
        return Listing(self._thread, self._inner.object_stores())
