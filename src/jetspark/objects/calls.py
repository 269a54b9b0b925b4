"""Object stores: create, change, bind, delete, list (ADR-20).

Contract: options are the fields of ObjectStoreConfig, given as one, as keyword arguments, or as
both, where keyword arguments win. Names and options are checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Unpack

from jetspark.arguments import checked
from jetspark.errors import NameInUseError, StreamNotFoundError
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.differences import known_as
from jetspark.jetstream.listing import Listing
from jetspark.jetstream.streams.backing import STREAM_FIELDS, takes_in
from jetspark.objects.config import (
    ObjectStoreConfig,
    ObjectStoreOptions,
    new_store,
    store_config,
    stream_options,
)
from jetspark.objects.info import ObjectStoreStatus
from jetspark.objects.meta import no_store
from jetspark.objects.names import STREAM_PREFIX, check_store
from jetspark.objects.store import ObjectStore


@checked
class ObjectStoreCalls:
    """The calls of JetStream for object stores."""

    @property
    def _js(self) -> JetStreamContext:
        """What stores are built on."""
        raise NotImplementedError

    async def create_object_store(
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
        wanted = store_config(config, options)
        stream = STREAM_PREFIX + check_store(name)
        try:
            await self._js.create_stream(name=stream, **new_store(name, wanted))
        except NameInUseError as error:
            raise known_as(error, f'Object store "{name}"', STREAM_FIELDS) from None
        return ObjectStore(self._js, name)

    async def update_object_store(
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
        wanted = store_config(config, options)
        try:
            stream = await self._store_stream(name)
            await self._js.update_stream(name=stream, **stream_options(wanted))
        except StreamNotFoundError:
            raise no_store(name) from None
        return ObjectStore(self._js, name)

    async def object_store(self, name: str) -> ObjectStore:
        """Bind to an existing object store.

        Raises ObjectStoreNotFoundError, and as every API call (see `JetStream`).
        """
        await self._store_stream(name)
        return ObjectStore(self._js, name)

    async def delete_object_store(self, name: str) -> None:
        """Delete an object store and its objects. Raises as `object_store`."""
        try:
            await self._js.delete_stream(await self._store_stream(name))
        except StreamNotFoundError:
            raise no_store(name) from None

    async def _store_stream(self, name: str) -> str:
        """Its stream. Raises ObjectStoreNotFoundError, also for a stream that is none."""
        stream = STREAM_PREFIX + check_store(name)
        with suppress(StreamNotFoundError):
            if takes_in((await self._js.stream_info(stream)).config, f"$O.{name}.M.>"):
                return stream
        raise no_store(name)

    def object_store_names(self) -> Listing[str]:
        """The names of all object stores. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._object_store_names)

    async def _object_store_names(self) -> AsyncIterator[str]:
        async for name in self._js.stream_names("$O.*.>"):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def object_stores(self) -> Listing[ObjectStoreStatus]:
        """The statuses of all stores. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._object_stores)

    async def _object_stores(self) -> AsyncIterator[ObjectStoreStatus]:
        async for info in self._js.streams("$O.*.>"):
            if info.name.startswith(STREAM_PREFIX):
                yield ObjectStoreStatus(info)
