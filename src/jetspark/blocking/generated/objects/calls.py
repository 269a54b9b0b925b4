# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from typing import Unpack

from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.objects.store import ObjectStore
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.objects.info import ObjectStoreConfig, ObjectStoreOptions, ObjectStoreStatus


class GeneratedObjectStoreCalls:
    """The calls of `ObjectStoreCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Create an object store, or bind to it when it exists with the same configuration.

        Options are the fields of ObjectStoreConfig. Raises NameInUseError when it exists with
        another configuration, ConfigError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        return ObjectStore(
            self._thread, self._thread.run(self._inner.create_object_store, name, config, **options)
        )

    def update_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Change an object store; options not given keep their values.

        Raises ObjectStoreNotFoundError, ConfigError, UnsupportedByServerError, and as every API
        call (see `JetStream`).
        """
        return ObjectStore(
            self._thread, self._thread.run(self._inner.update_object_store, name, config, **options)
        )

    def object_store(self, name: str) -> ObjectStore:
        """Bind to an existing object store.

        Raises ObjectStoreNotFoundError, and as every API call (see `JetStream`).
        """
        return ObjectStore(self._thread, self._thread.run(self._inner.object_store, name))

    def delete_object_store(self, name: str) -> None:
        """Delete an object store and its objects. Raises as `object_store`."""
        self._thread.run(self._inner.delete_object_store, name)

    def object_store_names(self) -> Listing[str]:
        """The names of all object stores. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._thread, self._inner.object_store_names())

    def object_stores(self) -> Listing[ObjectStoreStatus]:
        """The statuses of all stores. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._thread, self._inner.object_stores())
