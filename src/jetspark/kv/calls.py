"""Buckets: make, change, bind, empty, delete, list (ADR-8, ADR-57; row K1).

Contract: options are the fields of BucketConfig, given as one, as keyword arguments, or as both
with the latter on top. Every call raises BadNameError, ConfigError and UnsupportedByServerError
before anything is sent, and then what the calls for streams raise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from jetspark.arguments import checked
from jetspark.errors import (
    BucketNotFoundError,
    ConfigError,
    NameInUseError,
    StreamNotFoundError,
    UnsupportedByServerError,
)
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.documents import External, Source, StreamInfo
from jetspark.jetstream.listing import Listing
from jetspark.kv.bucket import Bucket
from jetspark.kv.config import NEW_BUCKET, BucketConfig, Origin, bucket_config, stream_options
from jetspark.kv.status import BucketStatus
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.subjects import check_name


@checked
class BucketCalls:
    """The part of JetStream that is about Key-Value buckets."""

    @property
    def _js(self) -> JetStreamContext:
        """What buckets are built on."""
        raise NotImplementedError

    async def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """Make a bucket. Options are the fields of BucketConfig.

        One that exists with the same configuration is bound; with another one, NameInUseError.
        """
        said = bucket_config(config, options)
        info = await self._make_bucket(check_bucket(name), said, _where(name, said))
        return Bucket(self._js, info)

    async def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """Change a bucket; what is not named keeps its value. Raises BucketNotFoundError."""
        said = bucket_config(config, options)
        if said.mirror_name is not None:
            raise ConfigError("A bucket that exists cannot become a mirror.")
        await self._check_markers(said)
        stream = STREAM_PREFIX + check_bucket(name)
        try:
            info = await self._js.update_stream(name=stream, **stream_options(said))
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None
        return Bucket(self._js, info)

    async def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Any
    ) -> Bucket:
        """update_bucket, or create_bucket when there is none."""
        said = bucket_config(config, options)
        if said.mirror_name is None:
            try:
                return await self.update_bucket(name, said)
            except BucketNotFoundError:
                pass
        try:
            return await self.create_bucket(name, said)
        except NameInUseError:  # somebody made it in between
            return await self.update_bucket(name, said)

    async def create_bucket_aggregate(
        self,
        name: str,
        origins: Iterable[Origin | Source],
        config: BucketConfig | None = None,
        /,
        *,
        writable: bool = True,
        **options: Any,
    ) -> Bucket:
        """Make a bucket that also takes the entries of other buckets (2.10).

        `origins`: buckets, here or in other domains and accounts. A Source with subject transforms
        of its own is taken as it is, so any stream may be one. `writable`: whether it takes writes
        of its own. Options are the fields of BucketConfig, but no mirror_name.
        """
        said = bucket_config(config, options)
        sources = [_source(origin, check_bucket(name)) for origin in origins]
        if not sources:
            raise ConfigError("An aggregate needs at least one origin.")
        _no_mirror(said)
        where: dict[str, Any] = {"sources": sources}
        if writable:
            # What came from an origin can be removed here, one by one.
            where.update(subjects=[f"$KV.{name}.>"], deny_delete=False)
        return Bucket(self._js, await self._make_bucket(name, said, where))

    async def create_bucket_mirror(
        self, name: str, origin: Origin, config: BucketConfig | None = None, /, **options: Any
    ) -> StreamInfo:
        """Make a copy of a bucket that answers its direct gets, nearer to some readers.

        It is a stream of this name and no bucket: nobody binds to it, and `delete_stream` ends it.
        Options are the fields of BucketConfig, but no mirror_name. Filters of keys need 2.10.
        """
        said = bucket_config(config, options)
        _no_mirror(said)
        check_name("stream", name)
        if name.startswith(STREAM_PREFIX):
            raise ConfigError(f'The name of a mirror cannot begin with "{STREAM_PREFIX}".')
        where = {"mirror": origin.mirror(), "mirror_direct": True}
        return await self._make_bucket(name, said, where, stream=name)

    async def bucket(self, name: str) -> Bucket:
        """Bind to a bucket that exists. Raises BucketNotFoundError."""
        try:
            info = await self._js.stream_info(STREAM_PREFIX + check_bucket(name))
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None
        if (info.config.max_msgs_per_subject or 0) < 1:
            raise BucketNotFoundError(name)
        return Bucket(self._js, info)

    async def delete_bucket(self, name: str) -> None:
        """Delete a bucket with all it holds. Raises BucketNotFoundError."""
        try:
            await self._js.delete_stream(STREAM_PREFIX + check_bucket(name))
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None

    async def empty_bucket(self, name: str) -> int:
        """Delete all entries, and no more; returns how many there were.

        Revisions go on from where they were. Watchers are not told. Raises BucketNotFoundError.
        """
        try:
            return await self._js.purge_stream(STREAM_PREFIX + check_bucket(name))
        except StreamNotFoundError:
            raise BucketNotFoundError(name) from None

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets."""
        return Listing(self._bucket_names)

    async def _bucket_names(self) -> AsyncIterator[str]:
        # Read-only aggregates and mirrors listen to nothing: a list by subject would miss them.
        async for name in self._js.stream_names():
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets."""
        return Listing(self._buckets)

    async def _buckets(self) -> AsyncIterator[BucketStatus]:
        async for info in self._js.streams():
            is_bucket = (info.config.max_msgs_per_subject or 0) > 0
            if is_bucket and info.name.startswith(STREAM_PREFIX):
                yield BucketStatus(info)

    async def _make_bucket(
        self, name: str, said: BucketConfig, where: dict[str, Any], *, stream: str | None = None
    ) -> StreamInfo:
        await self._check_markers(said)
        options = {**NEW_BUCKET, **stream_options(said), **where}
        try:
            return await self._js.create_stream(name=stream or STREAM_PREFIX + name, **options)
        except NameInUseError as error:
            raise NameInUseError(
                error.code,
                error.err_code,
                error.description,
                f'Bucket "{name}" exists with another configuration.',
            ) from None

    async def _check_markers(self, said: BucketConfig) -> None:
        """The answering server's own word: behind a domain it is not the connected one."""
        if said.limit_marker_ttl is None:
            return
        stats = (await self._js.account_info()).api
        if stats is None or stats.level < 1:
            info = self._js.client.server_info
            version = "older" if info is None else info.version
            raise UnsupportedByServerError("limit_marker_ttl", "2.11", version)


def _where(name: str, said: BucketConfig) -> dict[str, Any]:
    if said.mirror_name is None:
        return {"subjects": [f"$KV.{name}.>"]}
    external = None if said.mirror_domain is None else External.of_domain(said.mirror_domain)
    mirror = Source(name=STREAM_PREFIX + said.mirror_name, external=external)
    return {"mirror": mirror, "mirror_direct": True}


def _source(origin: Origin | Source, bucket: str) -> Source:
    if isinstance(origin, Origin):
        return origin.source_of(bucket)
    if not origin.subject_transforms:
        raise ConfigError("A Source without subject_transforms: use Origin for a bucket.")
    return origin


def _no_mirror(said: BucketConfig) -> None:
    if said.mirror_name is not None:
        raise ConfigError("mirror_name goes with create_bucket only.")
