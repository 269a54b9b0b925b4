"""Consumer groups: created, changed, listed; consuming as a member.

A group is cheap, and holds no state of the server but the configuration that it read last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, Unpack

import msgspec

import jetspark.errors as errors
from jetspark.client.listing import Listing
from jetspark.documents.configuration import config_to_wire
from jetspark.documents.consumers import ConsumerConfig, ConsumerSettings
from jetspark.documents.document import to_duration
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import Source, StreamInfo, SubjectTransform
from jetspark.groups.documents import (
    PRIORITY_GROUP,
    ElasticConfig,
    GroupConfig,
    PartitioningFilter,
    Place,
    StaticConfig,
    check_member,
    checked_config,
    is_group_stream,
    mappings_of,
    members_of,
    partitions_of,
)
from jetspark.groups.member import GroupCallback, GroupMember
from jetspark.jetstream.context import JetStreamContext
from jetspark.kv.bucket import Bucket, BucketCalls
from jetspark.subjects import check_name, subjects_overlap
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole, texts_of
from jetspark.wire.documents import encode_document

ACK_WAIT = 5.0
"""Seconds."""
_OURS: Final = frozenset(
    {"name", "durable_name", "filter_subject", "filter_subjects", "deliver_subject"}
    | {"priority_groups", "priority_policy", "priority_timeout", "inactive_threshold"}
)


class ConsumerGroup:
    """The base of static and elastic groups.

    Every call raises ConsumerGroupNotFoundError when the group no longer exists, and the errors of
    every API call (see `JetStream`).
    """

    def __init__(
        self, js: JetStreamContext, bucket: Bucket, place: Place, config: GroupConfig
    ) -> None:
        self._js = js
        self._bucket = bucket
        self._place = place
        self._config = config

    @property
    def stream(self) -> str:
        """The stream whose messages the members share."""
        return self._place.stream

    @property
    def name(self) -> str:
        """The group's name."""
        return self._place.group

    @property
    def config(self) -> GroupConfig:
        """The configuration that this object last read or wrote."""
        return self._config

    def partitions(self, member: str) -> list[int]:
        """The partitions of a member in `config`. Raises ConfigError unless it is a member."""
        check_member(self._place, self._config, member)
        return partitions_of(self._config, member)

    async def refresh(self) -> GroupConfig:
        """Read the configuration again. Raises CodecError for an invalid one."""
        return (await self._read())[0]

    async def active_members(self) -> list[str]:
        """The members with a consumer and a waiting instance."""
        config = await self.refresh()
        names = {self._place.consumer(member): member for member in members_of(config)}
        return sorted(
            [
                names[info.name]
                async for info in self._js.consumers(self._place.source)
                if info.name in names and (self._place.elastic or info.num_waiting)
            ]
        )

    async def step_down(self, member: str) -> None:
        """Let another instance of a member take over.

        Raises ConsumerNotFoundError when the member is not active.
        """
        consumer = await self._js.consumer(self._place.source, self._place.consumer(member))
        await consumer.unpin(PRIORITY_GROUP)

    def consume(
        self,
        member: str,
        *,
        callback: GroupCallback | None = None,
        ack_wait: Seconds = ACK_WAIT,
        max_ack_pending: int = 1,
        **options: Unpack[ConsumerSettings],
    ) -> GroupMember:
        """Consume as an instance of `member`, within its `async with` block.

        Iterate the result, or give a callback (plain or async), and acknowledge each message.
        `ack_wait`: seconds until a message is delivered again, and until the next instance takes
        over from a silent one. `max_ack_pending`: unacknowledged messages, at least 1; with more
        than one the order of a partition holds only while nothing fails. `options`: other fields of
        ConsumerConfig, the same for all instances of a member. Raises ConfigError when a static
        group has no such member; in an elastic group it waits to be added, and reports that.
        `jetspark.groups.member` says what it survives and how it ends.
        """
        check_name("member", member)
        check_whole("max_ack_pending", max_ack_pending)
        if wrong := sorted(_OURS & options.keys()):
            raise errors.ConfigError(f"The group decides on {wrong[0]} itself.")
        if not self._place.elastic:
            check_member(self._place, self._config, member)
        wait = to_duration(ack_wait)
        if wait <= timedelta(0):
            raise errors.ConfigError("ack_wait must be more than 0 seconds.")
        chosen = {
            "ack_policy": "explicit",
            "ack_wait": wait,
            "max_ack_pending": max_ack_pending,
            **options,
        }
        if chosen["ack_policy"] != "explicit":
            raise errors.ConfigError("The members of a group acknowledge each message.")
        config_to_wire(ConsumerConfig, None, chosen)  # raises for invalid options
        return GroupMember(
            self._js, self._bucket, self._place, self._config, member, callback, chosen
        )

    async def _read(self) -> tuple[GroupConfig, int]:
        try:
            entry = await self._bucket.get(self._place.key, leader=True)
        except errors.KeyNotFoundError:
            raise errors.ConsumerGroupNotFoundError(self.stream, self.name) from None
        self._config = self._place.decode(entry.value)
        return self._config, entry.revision

    async def _delete_key(self) -> None:
        await self._read()
        await self._bucket.delete(self._place.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} of {self.stream!r})"


class StaticGroup(ConsumerGroup):
    """A group with fixed members, of a stream whose subjects begin with the partition."""

    async def delete(self) -> None:
        """Delete the group and the consumers of its members, which end."""
        await self._delete_key()
        for member in members_of(self._config):
            with suppress(errors.ConsumerNotFoundError):
                await self._js.delete_consumer(self.stream, self._place.consumer(member))


class ElasticGroup(ConsumerGroup):
    """A group whose members may change, of any stream."""

    async def add_members(self, members: str | Iterable[str]) -> list[str]:
        """Add members; returns all.

        Members share the partitions; those beyond `max_members`, in alphabetical order, have none.
        Raises ConfigError for a group with mappings.
        """
        new = _names(members)

        def change(config: ElasticConfig) -> ElasticConfig:
            return _with_members(config, list(dict.fromkeys([*(config.members or []), *new])))

        return (await self._change(change)).members or []

    async def drop_members(self, members: str | Iterable[str]) -> list[str]:
        """Remove members; returns the others.

        Raises ConfigError for a name that is not a member, and for a group with mappings.
        """
        gone = _names(members)

        def change(config: ElasticConfig) -> ElasticConfig:
            for member in () if config.member_mappings else gone:
                check_member(self._place, config, member)
            return _with_members(config, [one for one in config.members or [] if one not in gone])

        return (await self._change(change)).members or []

    async def set_mappings(self, mappings: Mapping[str, Iterable[int]]) -> None:
        """Assign each partition to one member, instead of sharing them."""
        if not (wanted := mappings_of(mappings)):
            raise errors.ConfigError("mappings is empty: delete_mappings removes them.")
        await self._change(
            lambda config: msgspec.structs.replace(config, members=None, member_mappings=wanted)
        )

    async def delete_mappings(self) -> None:
        """Remove the mappings; without members, nobody has a partition."""
        await self._change(lambda config: msgspec.structs.replace(config, member_mappings=None))

    async def delete(self) -> None:
        """Delete the group, and its stream with the waiting messages; its members end.

        Another stream with that name stays.
        """
        await self._delete_key()
        with suppress(errors.StreamNotFoundError):
            info = await self._js.stream_info(self._place.source)
            if is_group_stream(self._place, info.config):
                await self._js.delete_stream(self._place.source)

    async def _change(self, change: Callable[[ElasticConfig], ElasticConfig]) -> ElasticConfig:
        while True:
            config, revision = await self._read()
            assert isinstance(config, ElasticConfig)  # noqa: S101
            changed = change(config)
            checked_config(changed)
            try:
                await self._bucket.update(self._place.key, encode_document(changed), revision)
            except errors.WrongLastSequenceError:
                continue  # somebody else changed it
            self._config = changed
            return changed


def _with_members(config: ElasticConfig, members: list[str]) -> ElasticConfig:
    if config.member_mappings:
        raise errors.ConfigError("The group has mappings: change or delete them first.")
    return msgspec.structs.replace(config, members=members or None)


def _names(members: str | Iterable[str]) -> list[str]:
    found = texts_of("members", members)
    if not found:
        raise errors.ConfigError("members is empty.")
    return found


class GroupCalls(BucketCalls):
    """The calls of JetStream for consumer groups."""

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
        tokens determine the partition; None: all, by their whole subject. The group has its own
        stream, `<stream>-<name>`, with up to `max_buffered_msgs` messages and `max_buffered_bytes`
        bytes (0: no limit). It has no members yet. Raises ConfigError when the group exists with
        other options, and for a filter that matches none of the stream's subjects; NameInUseError
        when another stream has that name; StreamNotFoundError, UnsupportedByServerError, and the
        errors of every API call (see `JetStream`). A refused group leaves nothing behind.
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
            await self.create_stream(
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
        except errors.APIError as refused:
            if revision is not None:
                await _delete_key(bucket, place, revision, refused)
            raise
        return ElasticGroup(self, bucket, place, found)

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

        The first token of the stream's subjects is the partition, from 0 to `max_members` - 1, as a
        subject transform of the stream makes it. `members` share the partitions, or `mappings`
        assigns them. `filters`: which messages, without the partition; None: all. Raises the errors
        of `create_elastic_group`.
        """
        place = Place(stream, name, elastic=False).check()
        config = StaticConfig(
            max_members,
            texts_of("filters", filters or ()),
            texts_of("members", members or ()) or None,
            mappings_of(mappings or {}) or None,
        )
        if not members_of(config):
            raise errors.ConfigError(
                "A static group needs members or mappings: nobody is added later."
            )
        info = await self._begin(place, config)
        bucket = await self._group_bucket(place, info)
        found, _ = await _create_key(bucket, place, config)
        return StaticGroup(self, bucket, place, found)

    async def elastic_group(self, stream: str, name: str) -> ElasticGroup:
        """Bind to an elastic group.

        Raises ConsumerGroupNotFoundError, CodecError for an invalid configuration, and the errors
        of every API call (see `JetStream`).
        """
        return ElasticGroup(self, *await self._bind(Place(stream, name, elastic=True)))

    async def static_group(self, stream: str, name: str) -> StaticGroup:
        """Bind to a static group. Raises the errors of `elastic_group`."""
        return StaticGroup(self, *await self._bind(Place(stream, name, elastic=False)))

    def elastic_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's elastic groups."""
        return Listing(partial(self._group_names, Place(stream, "", elastic=True)))

    def static_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's static groups."""
        return Listing(partial(self._group_names, Place(stream, "", elastic=False)))

    async def _group_names(self, place: Place) -> AsyncIterator[str]:
        check_name("stream", place.stream)
        try:
            bucket = await self.bucket(place.bucket)
        except errors.BucketNotFoundError:
            return
        async for key in bucket.keys(f"{place.stream}.*"):
            yield key.partition(".")[2]

    async def _begin(self, place: Place, config: GroupConfig) -> StreamInfo:
        checked_config(config)
        check_feature("a consumer group", (2, 11), self.server_info)
        return await self.stream_info(place.stream)

    async def _group_bucket(self, place: Place, info: StreamInfo) -> Bucket:
        try:
            return await self.bucket(place.bucket)
        except errors.BucketNotFoundError:
            return await self.create_bucket(
                place.bucket, replicas=info.config.num_replicas, storage="file"
            )

    async def _bind(self, place: Place) -> tuple[Bucket, Place, GroupConfig]:
        place.check()
        try:
            bucket = await self.bucket(place.bucket)
            return bucket, place, place.decode(await bucket.get_value(place.key, leader=True))
        except (errors.BucketNotFoundError, errors.KeyNotFoundError):
            raise errors.ConsumerGroupNotFoundError(place.stream, place.group) from None


async def _create_key(
    bucket: Bucket, place: Place, config: GroupConfig
) -> tuple[GroupConfig, int | None]:
    """The stored configuration, and its revision if this call created it.

    Raises ConfigError when the existing one has other options.
    """
    try:
        return config, await bucket.create(place.key, encode_document(config))
    except errors.KeyExistsError:
        found = place.decode(await bucket.get_value(place.key, leader=True))
    if found.fixed != config.fixed:
        raise errors.ConfigError(
            f'Consumer group "{place.group}" of stream "{place.stream}" exists with other options: '
            "delete it first."
        )
    return found, None


async def _delete_key(
    bucket: Bucket, place: Place, revision: int, refused: errors.APIError
) -> None:
    """Remove the key of a group whose stream was refused, unless somebody changed it."""
    try:
        await bucket.delete(place.key, revision)
    except errors.WrongLastSequenceError:
        pass
    except errors.JetsparkError as error:
        refused.add_note(f'Consumer group "{place.group}" is left: delete it ({error})')


def _check_filters(config: ElasticConfig, info: StreamInfo) -> None:
    stream = info.config
    if stream.mirror or stream.sources or stream.subject_transform:
        return  # it also has other subjects
    subjects = stream.subjects or []
    for one in config.filters:
        if not any(subjects_overlap(one, subject) for subject in subjects):
            raise errors.ConfigError(
                f'Partitioning filter "{one}" matches none of the subjects of stream '
                f'"{stream.name}": {", ".join(subjects)}.'
            )
