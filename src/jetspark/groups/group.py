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
    GroupLocation,
    PartitioningFilter,
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
_FIXED_OPTIONS: Final = frozenset(
    {"name", "durable_name", "filter_subject", "filter_subjects", "deliver_subject"}
    | {"priority_groups", "priority_policy", "priority_timeout", "inactive_threshold"}
)


class ConsumerGroup:
    """The base of static and elastic groups.

    Every call raises ConsumerGroupNotFoundError when the group no longer exists, and the errors of
    every API call (see `JetStream`).

    Example:
        ```python
        groups = js.consumer_groups("ORDERS")
        group = await groups.create_static("billing", max_members=2, members=["m1", "m2"])
        async with group.consume("m1"):
            print(group.partitions("m1"))  # [0]
        ```
    """

    def __init__(
        self, js: JetStreamContext, bucket: Bucket, location: GroupLocation, config: GroupConfig
    ) -> None:
        self._js = js
        self._source = js.stream(location.source)
        self._bucket = bucket
        self._location = location
        self._config = config

    @property
    def stream(self) -> str:
        """The stream whose messages the members share."""
        return self._location.stream

    @property
    def name(self) -> str:
        """The group's name."""
        return self._location.group

    @property
    def config(self) -> GroupConfig:
        """The configuration that this object last read or wrote."""
        return self._config

    def partitions(self, member: str) -> list[int]:
        """The partitions of a member in `config`. Raises ConfigError unless it is a member."""
        check_member(self._location, self._config, member)
        return partitions_of(self._config, member)

    async def refresh(self) -> GroupConfig:
        """Read the configuration again. Raises CodecError for an invalid one."""
        return (await self._read())[0]

    def active_members(self) -> Listing[str]:
        """The members with a consumer and a waiting instance, sorted."""
        return Listing(self._active_members)

    async def _active_members(self) -> AsyncIterator[str]:
        config = await self.refresh()
        names = {self._location.consumer(member): member for member in members_of(config)}
        active = [
            names[info.name]
            async for info in self._source.consumers()
            if info.name in names and (self._location.elastic or info.num_waiting)
        ]
        for member in sorted(active):
            yield member

    async def step_down(self, member: str) -> None:
        """Let another instance of a member take over.

        Raises ConsumerNotFoundError when the member is not active.
        """
        consumer = await self._source.consumer(self._location.consumer(member))
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
        """Consume as an instance of `member`, within the block of the result.

        Iterate the result, or give a `callback`, and acknowledge each message.
        `ack_wait`: seconds until a message is delivered again, and until the next instance takes
        over from a silent one. `max_ack_pending`: unacknowledged messages, at least 1; with more
        than one the order of a partition holds only while nothing fails. `options`: other fields of
        ConsumerConfig, the same for all instances of a member. Raises ConfigError when a static
        group has no such member; in an elastic group it waits to be added, and reports that.
        `jetspark.groups.member` says what it survives and how it ends.

        Example:
            ```python
            group = await js.consumer_groups("ORDERS").create_elastic("billing", max_members=12)
            await group.add_members(["m1"])
            async with group.consume("m1", ack_wait=5) as messages:
                async for msg in messages:
                    print(msg.subject)  # …
                    await msg.ack()
            ```
        """
        check_name("member", member)
        check_whole("max_ack_pending", max_ack_pending)
        if wrong := sorted(_FIXED_OPTIONS & options.keys()):
            raise errors.ConfigError(f"The group decides on {wrong[0]} itself.")
        if not self._location.elastic:
            check_member(self._location, self._config, member)
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
            self._js, self._bucket, self._location, self._config, member, callback, chosen
        )

    async def _read(self) -> tuple[GroupConfig, int]:
        try:
            entry = await self._bucket.get(self._location.key, leader=True)
        except errors.KeyNotFoundError:
            raise errors.ConsumerGroupNotFoundError(self.stream, self.name) from None
        self._config = self._location.decode(entry.value)
        return self._config, entry.revision

    async def _delete_key(self) -> None:
        await self._read()
        await self._bucket.delete(self._location.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} of {self.stream!r})"


class StaticGroup(ConsumerGroup):
    """A group with fixed members, of a stream whose subjects begin with the partition.

    Example:
        ```python
        groups = js.consumer_groups("ORDERS")
        group = await groups.create_static("billing", max_members=2, members=["m1", "m2"])
        async with group.consume("m1") as messages:
            print(group.partitions("m1"))  # [0]
        ```
    """

    async def delete(self) -> None:
        """Delete the group and the consumers of its members, which end."""
        await self._delete_key()
        for member in members_of(self._config):
            with suppress(errors.ConsumerNotFoundError):
                await self._source.delete_consumer(self._location.consumer(member))


class ElasticGroup(ConsumerGroup):
    """A group whose members may change, of any stream.

    Example:
        ```python
        group = await js.consumer_groups("ORDERS").create_elastic("billing", max_members=4)
        await group.add_members(["m1", "m2"])
        await group.delete_members("m2")
        print(group.partitions("m1"))  # [0, 1, 2, 3]
        ```
    """

    async def add_members(self, members: str | Iterable[str]) -> list[str]:
        """Add members; returns all.

        Members share the partitions; those beyond `max_members`, in alphabetical order, have none.
        Raises ConfigError for a group with mappings.
        """
        new = _names(members)

        def change(config: ElasticConfig) -> ElasticConfig:
            return _with_members(config, list(dict.fromkeys([*(config.members or []), *new])))

        return (await self._change(change)).members or []

    async def delete_members(self, members: str | Iterable[str]) -> list[str]:
        """Remove members; returns the others.

        Raises ConfigError for a name that is not a member, and for a group with mappings.
        """
        removed = _names(members)

        def change(config: ElasticConfig) -> ElasticConfig:
            for member in () if config.member_mappings else removed:
                check_member(self._location, config, member)
            return _with_members(
                config, [member for member in config.members or [] if member not in removed]
            )

        return (await self._change(change)).members or []

    async def set_mappings(self, mappings: Mapping[str, Iterable[int]]) -> None:
        """Assign each partition to one member, instead of sharing them."""
        if not (new_mappings := mappings_of(mappings)):
            raise errors.ConfigError("mappings is empty: delete_mappings removes them.")
        await self._change(
            lambda config: msgspec.structs.replace(
                config, members=None, member_mappings=new_mappings
            )
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
            info = await self._source.info()
            if is_group_stream(self._location, info.config):
                await self._js.delete_stream(self._location.source)

    async def _change(self, change: Callable[[ElasticConfig], ElasticConfig]) -> ElasticConfig:
        while True:
            config, revision = await self._read()
            assert isinstance(config, ElasticConfig)  # noqa: S101
            changed = change(config)
            checked_config(changed)
            try:
                await self._bucket.update(self._location.key, encode_document(changed), revision)
            except errors.WrongLastSequenceError:
                continue  # somebody else changed it
            self._config = changed
            return changed


def _with_members(config: ElasticConfig, members: list[str]) -> ElasticConfig:
    if config.member_mappings:
        raise errors.ConfigError("The group has mappings: change or delete them first.")
    return msgspec.structs.replace(config, members=members or None)


def _names(members: str | Iterable[str]) -> list[str]:
    new = texts_of("members", members)
    if not new:
        raise errors.ConfigError("members is empty.")
    return new


class ConsumerGroups:
    """The consumer groups of a stream, as `JetStream.consumer_groups` returns them.

    Sends nothing itself. Its calls raise StreamNotFoundError, and the errors of every API call (see
    `JetStream`).

    Example:
        ```python
        groups = js.consumer_groups("ORDERS")
        group = await groups.create_static("billing", max_members=4, members=["m1", "m2"])
        print(group.partitions("m1"))  # [0, 1]
        ```
    """

    def __init__(self, js: BucketCalls, stream: str) -> None:
        self._js = js
        self._stream = check_name("stream", stream)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._stream

    async def create_elastic(
        self,
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

        Example:
            ```python
            from jetspark.groups import PartitioningFilter

            group = await js.consumer_groups("ORDERS").create_elastic(
                "billing", max_members=12, filters=[PartitioningFilter("orders.*", [1])]
            )
            await group.add_members(["m1", "m2"])
            print(group.partitions("m1"))  # [0, 1, 2, 3, 4, 5]
            ```
        """
        location = GroupLocation(self.stream, name, elastic=True).check()
        check_whole("max_buffered_msgs", max_buffered_msgs, 0)
        check_whole("max_buffered_bytes", max_buffered_bytes, 0)
        filters_or_none = None if filters is None else list(filters) or None
        config = ElasticConfig(max_members, filters_or_none, max_buffered_msgs, max_buffered_bytes)
        info = await self._begin(location, config)
        _check_filters(config, info)
        bucket = await self._group_bucket(location, info)
        stored, revision = await _create_key(bucket, location, config)
        transforms = [
            SubjectTransform(src=filter_.filter, dest=filter_.destination(max_members))
            for filter_ in filters_or_none or [PartitioningFilter(">")]
        ]
        try:
            await self._js.create_stream(
                name=location.source,
                retention="workqueue",
                num_replicas=info.config.num_replicas,
                storage=info.config.storage,
                max_msgs=max_buffered_msgs or -1,
                max_bytes=max_buffered_bytes or -1,
                discard="new",
                sources=[Source(name=self.stream, subject_transforms=transforms)],
                allow_direct=True,
            )
        except errors.APIError as refused:
            if revision is not None:
                await _delete_key(bucket, location, revision, refused)
            raise
        return ElasticGroup(self._js, bucket, location, stored)

    async def create_static(
        self,
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
        of `create_elastic`.
        """
        location = GroupLocation(self.stream, name, elastic=False).check()
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
        info = await self._begin(location, config)
        bucket = await self._group_bucket(location, info)
        stored, _ = await _create_key(bucket, location, config)
        return StaticGroup(self._js, bucket, location, stored)

    async def elastic(self, name: str) -> ElasticGroup:
        """Bind to an elastic group.

        Raises ConsumerGroupNotFoundError, CodecError for an invalid configuration, and the errors
        of every API call (see `JetStream`).
        """
        return ElasticGroup(
            self._js, *await self._bind(GroupLocation(self.stream, name, elastic=True))
        )

    async def static(self, name: str) -> StaticGroup:
        """Bind to a static group. Raises the errors of `elastic`."""
        return StaticGroup(
            self._js, *await self._bind(GroupLocation(self.stream, name, elastic=False))
        )

    def elastic_names(self) -> Listing[str]:
        """The names of a stream's elastic groups."""
        return Listing(partial(self._group_names, GroupLocation(self.stream, "", elastic=True)))

    def static_names(self) -> Listing[str]:
        """The names of a stream's static groups."""
        return Listing(partial(self._group_names, GroupLocation(self.stream, "", elastic=False)))

    async def _group_names(self, location: GroupLocation) -> AsyncIterator[str]:
        try:
            bucket = await self._js.bucket(location.bucket)
        except errors.BucketNotFoundError:
            return
        async for key in bucket.keys(f"{location.stream}.*"):
            yield key.partition(".")[2]

    async def _begin(self, location: GroupLocation, config: GroupConfig) -> StreamInfo:
        checked_config(config)
        check_feature("a consumer group", (2, 11), self._js.server_info)
        return await self._js.stream(location.stream).info()

    async def _group_bucket(self, location: GroupLocation, info: StreamInfo) -> Bucket:
        try:
            return await self._js.bucket(location.bucket)
        except errors.BucketNotFoundError:
            return await self._js.create_bucket(
                location.bucket, replicas=info.config.num_replicas, storage="file"
            )

    async def _bind(self, location: GroupLocation) -> tuple[Bucket, GroupLocation, GroupConfig]:
        location.check()
        try:
            bucket = await self._js.bucket(location.bucket)
            return (
                bucket,
                location,
                location.decode(await bucket.get_value(location.key, leader=True)),
            )
        except (errors.BucketNotFoundError, errors.KeyNotFoundError):
            raise errors.ConsumerGroupNotFoundError(location.stream, location.group) from None

    def __repr__(self) -> str:
        return f"ConsumerGroups({self.stream!r})"


class GroupCalls(BucketCalls):
    """The call of JetStream for consumer groups."""

    def consumer_groups(self, stream: str) -> ConsumerGroups:
        """The consumer groups of a stream: create, find and list them. Raises BadNameError.

        Example:
            ```python
            groups = js.consumer_groups("ORDERS")
            print(await groups.elastic_names().all())  # []
            ```
        """
        return ConsumerGroups(self, stream)


async def _create_key(
    bucket: Bucket, location: GroupLocation, config: GroupConfig
) -> tuple[GroupConfig, int | None]:
    """The stored configuration, and its revision if this call created it.

    Raises ConfigError when the existing one has other options.
    """
    try:
        return config, await bucket.create(location.key, encode_document(config))
    except errors.KeyExistsError:
        config_of_group = location.decode(await bucket.get_value(location.key, leader=True))
    if config_of_group.fixed != config.fixed:
        raise errors.ConfigError(
            f'Consumer group "{location.group}" of stream "{location.stream}" exists with other '
            "options: delete it first."
        )
    return config_of_group, None


async def _delete_key(
    bucket: Bucket, location: GroupLocation, revision: int, refusal: errors.APIError
) -> None:
    """Remove the key of a group whose stream was refused, unless somebody changed it."""
    try:
        await bucket.delete(location.key, revision)
    except errors.WrongLastSequenceError:
        pass
    except errors.JetsparkError as error:
        refusal.add_note(f'Consumer group "{location.group}" is left: delete it ({error})')


def _check_filters(config: ElasticConfig, info: StreamInfo) -> None:
    stream = info.config
    if stream.mirror or stream.sources or stream.subject_transform:
        return  # it also has other subjects
    subjects = stream.subjects or []
    for filter_ in config.filters:
        if not any(subjects_overlap(filter_, subject) for subject in subjects):
            raise errors.ConfigError(
                f'Partitioning filter "{filter_}" matches none of the subjects of stream '
                f'"{stream.name}": {", ".join(subjects)}.'
            )
