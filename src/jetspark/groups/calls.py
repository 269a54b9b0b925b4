"""The calls of JetStream for consumer groups: create, bind, list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial

from jetspark.arguments import check_whole, checked
from jetspark.errors import (
    APIError,
    BucketNotFoundError,
    ConfigError,
    ConsumerGroupNotFoundError,
    JetsparkError,
    KeyExistsError,
    KeyNotFoundError,
    WrongLastSequenceError,
)
from jetspark.groups.documents import (
    ElasticConfig,
    GroupConfig,
    PartitioningFilter,
    Place,
    StaticConfig,
    checked_config,
    encode,
    mappings_of,
    members_of,
)
from jetspark.groups.group import ElasticGroup, StaticGroup
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.documents import Source, StreamInfo, SubjectTransform
from jetspark.jetstream.listing import Listing
from jetspark.jetstream.requirements import check_feature
from jetspark.kv.bucket import Bucket
from jetspark.kv.calls import BucketCalls
from jetspark.subjects import check_name, subjects_overlap


class _Buckets(BucketCalls):
    def __init__(self, js: JetStreamContext) -> None:
        self._context = js

    @property
    def _js(self) -> JetStreamContext:
        return self._context


@checked
class GroupCalls:
    """The calls of JetStream for consumer groups."""

    @property
    def _js(self) -> JetStreamContext:
        """What groups are built on."""
        raise NotImplementedError

    async def create_elastic_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        filters: Iterable[PartitioningFilter] | None = None,
        max_buffered_msgs: int = 0,
        max_buffered_bytes: int = 0,
    ) -> ElasticGroup:
        """Create a group whose members may change (server 2.11), or bind to the same one.

        `max_members`: the number of partitions. `filters`: which messages, and which of their
        tokens decide on the partition; None: all, by their whole subject. The group has a stream of
        its own, `<stream>-<name>`, which may have `max_buffered_msgs` messages and
        `max_buffered_bytes` bytes (0: no limit). It has no members yet. Raises ConfigError, also
        when the group exists with other options and for a filter that fits none of the stream's
        subjects, NameInUseError when another stream has the name of the group's,
        StreamNotFoundError, UnsupportedByServerError, and as every API call (see `JetStream`). A
        refused group leaves nothing behind.
        """
        place = Place(stream, name, elastic=True).check()
        check_whole("max_buffered_msgs", max_buffered_msgs, 0)
        check_whole("max_buffered_bytes", max_buffered_bytes, 0)
        wanted = None if filters is None else list(filters) or None
        config = ElasticConfig(max_members, wanted, max_buffered_msgs, max_buffered_bytes)
        info = await self._begin(place, config)
        _check_filters(config, info)
        bucket = await self._group_bucket(place, info)
        found, revision = await _create_key(bucket, place, config)
        transforms = [
            SubjectTransform(src=one.filter, dest=one.destination(max_members))
            for one in wanted or [PartitioningFilter(">")]
        ]
        try:
            await self._js.create_stream(
                name=place.source,
                retention="workqueue",
                num_replicas=info.config.num_replicas,
                storage=info.config.storage,
                max_msgs=max_buffered_msgs or -1,
                max_bytes=max_buffered_bytes or -1,
                discard="new",
                sources=[Source(name=stream, subject_transforms=transforms)],
                allow_direct=True,
            )
        except APIError as refused:
            if revision is not None:
                await _delete_key(bucket, place, revision, refused)
            raise
        return ElasticGroup(self._js, bucket, place, found)

    async def create_static_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        members: Iterable[str] | None = None,
        mappings: Mapping[str, Iterable[int]] | None = None,
        filters: Iterable[str] | None = None,
    ) -> StaticGroup:
        """Create a group with fixed members (server 2.11), or bind to the same one.

        The first token of the stream's subjects is the partition, as a subject transform of the
        stream makes it, from 0 to `max_members` - 1. `members` share the partitions, or `mappings`
        says who has which. `filters`: which messages, without the partition; None: all. Raises as
        `create_elastic_group`.
        """
        place = Place(stream, name, elastic=False).check()
        config = StaticConfig(
            max_members,
            list(filters or []),
            list(members or []) or None,
            mappings_of(mappings or {}) or None,
        )
        if not members_of(config):
            raise ConfigError("A static group has members, or mappings: nobody is added later.")
        info = await self._begin(place, config)
        bucket = await self._group_bucket(place, info)
        found, _ = await _create_key(bucket, place, config)
        return StaticGroup(self._js, bucket, place, found)

    async def elastic_group(self, stream: str, name: str) -> ElasticGroup:
        """Bind to an elastic group.

        Raises ConsumerGroupNotFoundError, CodecError for an invalid configuration, and as every API
        call (see `JetStream`).
        """
        return ElasticGroup(self._js, *await self._bind(Place(stream, name, elastic=True)))

    async def static_group(self, stream: str, name: str) -> StaticGroup:
        """Bind to a static group. Raises as `elastic_group`."""
        return StaticGroup(self._js, *await self._bind(Place(stream, name, elastic=False)))

    def elastic_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's elastic groups.

        Iterating raises as every API call (see `JetStream`).
        """
        return Listing(partial(self._group_names, Place(stream, "", elastic=True)))

    def static_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's static groups. Raises as `elastic_group_names`."""
        return Listing(partial(self._group_names, Place(stream, "", elastic=False)))

    async def _group_names(self, place: Place) -> AsyncIterator[str]:
        check_name("stream", place.stream)
        try:
            bucket = await _Buckets(self._js).bucket(place.bucket)
        except BucketNotFoundError:
            return
        async for key in bucket.keys(f"{place.stream}.*"):
            yield key.partition(".")[2]

    async def _begin(self, place: Place, config: GroupConfig) -> StreamInfo:
        checked_config(config)
        check_feature("a consumer group", (2, 11), self._js.server_info)
        return await self._js.stream_info(place.stream)

    async def _group_bucket(self, place: Place, info: StreamInfo) -> Bucket:
        buckets = _Buckets(self._js)
        try:
            return await buckets.bucket(place.bucket)
        except BucketNotFoundError:
            return await buckets.create_bucket(
                place.bucket, replicas=info.config.num_replicas, storage="file"
            )

    async def _bind(self, place: Place) -> tuple[Bucket, Place, GroupConfig]:
        place.check()
        try:
            bucket = await _Buckets(self._js).bucket(place.bucket)
            return bucket, place, place.decode(await bucket.get_value(place.key, leader=True))
        except (BucketNotFoundError, KeyNotFoundError):
            raise ConsumerGroupNotFoundError(place.stream, place.group) from None


async def _create_key(
    bucket: Bucket, place: Place, config: GroupConfig
) -> tuple[GroupConfig, int | None]:
    """The configuration that is stored then, and the revision if it is not that of who was first.

    Raises ConfigError when theirs has other options.
    """
    try:
        return config, await bucket.create(place.key, encode(config))
    except KeyExistsError:
        found = place.decode(await bucket.get_value(place.key, leader=True))
    if found.fixed != config.fixed:
        raise ConfigError(
            f'Consumer group "{place.group}" of stream "{place.stream}" exists with other options: '
            "delete it first."
        )
    return found, None


async def _delete_key(bucket: Bucket, place: Place, revision: int, refused: APIError) -> None:
    """Of a group whose stream was refused, unless somebody has changed it."""
    try:
        await bucket.delete(place.key, revision)
    except WrongLastSequenceError:
        pass
    except JetsparkError as error:
        refused.add_note(f'Consumer group "{place.group}" is left: delete it ({error})')


def _check_filters(config: ElasticConfig, info: StreamInfo) -> None:
    stream = info.config
    if stream.mirror or stream.sources or stream.subject_transform:
        return  # its subjects are others, too
    subjects = stream.subjects or []
    for one in config.filters:
        if not any(subjects_overlap(one, subject) for subject in subjects):
            raise ConfigError(
                f'Partitioning filter "{one}" fits none of the subjects of stream '
                f'"{stream.name}": {", ".join(subjects)}.'
            )
