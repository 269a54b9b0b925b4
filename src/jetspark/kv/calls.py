"""Buckets: create, change, bind, empty, delete, list; aggregates and mirrors (ADR-8, ADR-57).

Contract: options are the fields of BucketConfig, given as one, as keyword arguments, or as both,
where keyword arguments win. Names and options are checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, Unpack

from jetspark.arguments import checked
from jetspark.errors import (
    BucketNotFoundError,
    ConfigError,
    NameInUseError,
    StreamNotFoundError,
    UnsupportedByServerError,
)
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.differences import known_as
from jetspark.jetstream.documents import External, Source, StreamInfo
from jetspark.jetstream.listing import Listing
from jetspark.kv.bucket import Bucket
from jetspark.kv.config import (
    BUCKET_OPTIONS,
    NEW_BUCKET,
    BucketConfig,
    BucketOptions,
    BucketSettings,
    Origin,
    bucket_config,
    is_bucket,
    stream_options,
)
from jetspark.kv.encoding import BucketEncoding
from jetspark.kv.status import BucketStatus
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.subjects import check_name


@checked
class BucketCalls:
    """The calls of JetStream for Key-Value buckets."""

    @property
    def _js(self) -> JetStreamContext:
        """What buckets are built on."""
        raise NotImplementedError

    async def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Create a bucket, or bind to it when it exists with the same configuration.

        Options are the fields of BucketConfig. Raises NameInUseError when it exists with another
        configuration, ConfigError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        wanted = bucket_config(config, options)
        info = await self._make_bucket(check_bucket(name), wanted, _where(name, wanted))
        return self._bound(info)

    async def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Change a bucket; options not given keep their values.

        Raises BucketNotFoundError, ConfigError, UnsupportedByServerError, and as every API call
        (see `JetStream`).
        """
        wanted = bucket_config(config, options)
        if wanted.mirror_name is not None:
            raise ConfigError("A bucket that exists cannot become a mirror.")
        await self._check_markers(wanted)
        stream = (await self._bucket_info(name)).name
        try:
            info = await self._js.update_stream(name=stream, **stream_options(wanted))
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None
        return self._bound(info)

    async def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Update a bucket, or create it. Raises as `update_bucket` and `create_bucket`."""
        wanted = bucket_config(config, options)
        if wanted.mirror_name is None:
            try:
                return await self.update_bucket(name, wanted)
            except BucketNotFoundError:
                pass
        try:
            return await self.create_bucket(name, wanted)
        except NameInUseError as error:
            try:
                return await self.update_bucket(name, wanted)  # created in between
            except BucketNotFoundError:
                raise error from None  # another stream has its name

    async def create_bucket_aggregate(
        self,
        name: str,
        origins: Iterable[Origin | Source],
        config: BucketConfig | None = None,
        /,
        *,
        writable: bool = True,
        **options: Unpack[BucketSettings],
    ) -> Bucket:
        """Create a bucket that also takes the entries of other buckets (server 2.10).

        `origins`: buckets, here or in other domains and accounts. A Source with subject transforms
        is used as it is, so any stream may be an origin. `writable`: whether the aggregate takes
        writes of its own. Options are the fields of BucketConfig without mirror_name. Raises as
        `create_bucket`.
        """
        wanted = bucket_config(config, options)
        sources = [_source(origin, check_bucket(name)) for origin in origins]
        if not sources:
            raise ConfigError("An aggregate needs at least one origin.")
        _no_mirror(wanted)
        where: dict[str, Any] = {"sources": sources}
        if writable:
            # Entries from an origin can be removed here one by one.
            where.update(subjects=[f"$KV.{name}.>"], deny_delete=False)
        return self._bound(await self._make_bucket(name, wanted, where))

    async def create_bucket_mirror(
        self,
        name: str,
        origin: Origin,
        config: BucketConfig | None = None,
        /,
        **options: Unpack[BucketSettings],
    ) -> StreamInfo:
        """Create a mirror of a bucket, which answers its direct gets, nearer to some readers.

        It is a stream of this name and not a bucket: it cannot be bound, and `delete_stream`
        deletes it. Options are the fields of BucketConfig without mirror_name. Filters of keys
        need server 2.10. Raises as `create_bucket`.
        """
        wanted = bucket_config(config, options)
        _no_mirror(wanted)
        check_name("stream", name)
        if name.startswith(STREAM_PREFIX):
            raise ConfigError(f'The name of a mirror cannot begin with "{STREAM_PREFIX}".')
        where = {"mirror": origin.mirror(), "mirror_direct": True}
        return await self._make_bucket(name, wanted, where, stream=name)

    async def bucket(self, name: str) -> Bucket:
        """Bind to an existing bucket.

        Raises BucketNotFoundError, and as every API call (see `JetStream`).
        """
        return self._bound(await self._bucket_info(name))

    async def delete_bucket(self, name: str) -> None:
        """Delete a bucket and its entries. Raises as `bucket`."""
        try:
            await self._js.delete_stream((await self._bucket_info(name)).name)
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None

    async def empty_bucket(self, name: str) -> int:
        """Delete all entries, but not the bucket; returns how many there were.

        Revisions continue. Watchers are not told. Raises as `bucket`.
        """
        try:
            return await self._js.purge_stream((await self._bucket_info(name)).name)
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._bucket_names)

    async def _bucket_names(self) -> AsyncIterator[str]:
        # Read-only aggregates and mirrors have no subjects: a list by subject would miss them.
        async for name in self._js.stream_names():
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets. Iterating raises as every API call (see `JetStream`)."""
        return Listing(self._buckets)

    async def _buckets(self) -> AsyncIterator[BucketStatus]:
        async for info in self._js.streams():
            if info.name.startswith(STREAM_PREFIX) and is_bucket(info.config):
                yield BucketStatus(info)

    async def _bucket_info(self, name: str) -> StreamInfo:
        """Of the bucket's stream. Raises BucketNotFoundError, also for a stream that is none."""
        with suppress(StreamNotFoundError):
            info = await self._js.stream_info(STREAM_PREFIX + check_bucket(name))
            if is_bucket(info.config):
                return info
        raise BucketNotFoundError(name)

    def _bound(self, info: StreamInfo) -> Bucket:
        return Bucket(self._js, BucketEncoding(info.config, self._js.api_prefix))

    async def _make_bucket(
        self, name: str, wanted: BucketConfig, where: dict[str, Any], *, stream: str | None = None
    ) -> StreamInfo:
        await self._check_markers(wanted)
        options = {**NEW_BUCKET, **stream_options(wanted), **where}
        try:
            return await self._js.create_stream(name=stream or STREAM_PREFIX + name, **options)
        except NameInUseError as error:
            raise known_as(error, f'Bucket "{name}"', BUCKET_OPTIONS) from None

    async def _check_markers(self, wanted: BucketConfig) -> None:
        """Asks the server that answers: behind a domain it is not the connected one."""
        if wanted.limit_marker_ttl is None:
            return
        stats = (await self._js.account_info()).api
        if stats is None or stats.level < 1:
            info = self._js.client.server_info
            version = "older" if info is None else info.version
            raise UnsupportedByServerError("limit_marker_ttl", "2.11", version)


def _where(name: str, wanted: BucketConfig) -> dict[str, Any]:
    if wanted.mirror_name is None:
        return {"subjects": [f"$KV.{name}.>"]}
    external = None if wanted.mirror_domain is None else External.of_domain(wanted.mirror_domain)
    mirror = Source(name=STREAM_PREFIX + wanted.mirror_name, external=external)
    return {"mirror": mirror, "mirror_direct": True}


def _source(origin: Origin | Source, bucket: str) -> Source:
    if isinstance(origin, Origin):
        return origin.source_of(bucket)
    if not origin.subject_transforms:
        raise ConfigError("A Source needs subject_transforms; for a bucket, use Origin.")
    return origin


def _no_mirror(wanted: BucketConfig) -> None:
    if wanted.mirror_name is not None:
        raise ConfigError("mirror_name goes with create_bucket only.")
