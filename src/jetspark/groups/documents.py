"""The configuration of a consumer group, as orbit.go's `pcgroups` stores it. Pure.

It determines the partitions of each member, and names. An elastic group has its own stream, a work
queue that sources the stream with the partition's number before each subject. A static group reads
a stream whose subjects already have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from jetspark.documents.streams import StreamConfig
from jetspark.errors import CodecError, ConfigError, DocumentError
from jetspark.kv_rules import check_key
from jetspark.nearest import nearest_name
from jetspark.subjects import check_name
from jetspark.validation import check_whole
from jetspark.wire.documents import decode_json, encode_document

ELASTIC_BUCKET: Final = "elastic-consumer-groups"
STATIC_BUCKET: Final = "static-consumer-groups"
PRIORITY_GROUP: Final = "PCG"
_PARTITION: Final = "{{Partition("
_MOST_PARTITIONS: Final = 2**16
"""A limit, since anybody may write a configuration, and each partition is a filter of a consumer.
"""

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class PartitioningFilter(msgspec.Struct, frozen=True):
    """Messages of an elastic group, and the tokens that determine their partition."""

    filter: str
    """A subject with * or a last >."""
    partitioning_wildcards: list[int] | None = None
    """The * that determine it, counted from 1; none: the whole subject does."""

    def check(self) -> None:
        tokens = self.filter.split(".")
        stars = tokens.count("*")
        if not stars and tokens[-1] != ">":
            raise ConfigError(f"Partitioning filter {self.filter!r} needs a *, or a > at its end.")
        chosen = self.partitioning_wildcards or []
        if len(set(chosen)) < len(chosen) or not all(1 <= wildcard <= stars for wildcard in chosen):
            raise ConfigError(
                f"The wildcards of partitioning filter {self.filter!r} must be different numbers "
                f"from 1 to {stars}."
            )

    def destination(self, partitions: int) -> str:
        """The subject transform that prefixes the subject with the partition."""
        wildcard_numbers = count(1)
        tokens = [
            f"{{{{Wildcard({next(wildcard_numbers)})}}}}" if token == "*" else token
            for token in self.filter.split(".")
        ]
        of = "".join(f",{wildcard}" for wildcard in self.partitioning_wildcards or [])
        return f"{_PARTITION}{partitions}{of})}}}}.{'.'.join(tokens)}"


class MemberMapping(msgspec.Struct, frozen=True):
    """The partitions of one member."""

    member: str
    partitions: list[_Count]


class ElasticConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """An elastic group, whose members or mappings may change."""

    max_members: _Count
    """The number of partitions."""
    partitioning_filters: list[PartitioningFilter] | None
    """None: all messages, by their whole subject."""
    max_buffered_msg: int = 0
    """Most messages that wait in the group's stream; 0: no limit."""
    max_buffered_bytes: int = 0
    members: list[str] | None = None
    member_mappings: list[MemberMapping] | None = None

    @property
    def filters(self) -> list[str]:
        """Subjects without partitions."""
        return [filter_.filter for filter_ in self.partitioning_filters or []] or [">"]

    @property
    def fixed(self) -> tuple[Any, ...]:
        filters = self.partitioning_filters or []
        chosen = [(filter_.filter, filter_.partitioning_wildcards or []) for filter_ in filters]
        return self.max_members, chosen, self.max_buffered_msg, self.max_buffered_bytes


class StaticConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """A static group, which cannot change."""

    max_members: _Count
    """The number of partitions."""
    filters: list[str] = []
    """Subjects without partitions; empty: all."""
    members: list[str] | None = None
    member_mappings: list[MemberMapping] | None = None

    @property
    def fixed(self) -> tuple[Any, ...]:
        return (self.max_members, self.filters, self.members or [], self.member_mappings or [])


GroupConfig: TypeAlias = ElasticConfig | StaticConfig


def mappings_of(mappings: Mapping[str, Iterable[int]]) -> list[MemberMapping]:
    return [MemberMapping(member, list(partitions)) for member, partitions in mappings.items()]


def checked_config(config: GroupConfig) -> None:
    """Raises ConfigError, also for values that other members could not read."""
    try:
        decode_json(encode_document(config), type(config), "group")
    except DocumentError as error:
        raise ConfigError(f"Not a usable group: {error.reason}.") from None
    partitions = config.max_members
    check_whole("max_members", partitions, maximum=_MOST_PARTITIONS)
    if isinstance(config, ElasticConfig):
        for filter in config.partitioning_filters or []:
            filter.check()
    if config.members and config.member_mappings:
        raise ConfigError("A group has either members or mappings.")
    for member in members_of(config):
        check_name("member", member)
    if not config.member_mappings:
        return
    names = [mapping.member for mapping in config.member_mappings]
    if len(set(names)) < len(names):
        raise ConfigError("A member has two mappings.")
    assigned = sorted(number for each in config.member_mappings for number in each.partitions)
    if assigned != list(range(partitions)):
        raise ConfigError(f"The mappings must have each partition from 0 to {partitions - 1} once.")


def members_of(config: GroupConfig) -> list[str]:
    return [*(config.members or []), *(mapping.member for mapping in config.member_mappings or [])]


def check_member(location: GroupLocation, config: GroupConfig, member: str) -> None:
    problem = (
        f'"{member}" is not a member of consumer group "{location.group}" of stream '
        f'"{location.stream}"'
    )
    members = members_of(config)
    if not members:
        raise ConfigError(f"{problem}: it has none.")
    if member not in members:
        near = nearest_name(member, members)
        hint = f'did you mean "{near}"?' if near else f"its members are {', '.join(members)}."
        raise ConfigError(f"{problem}: {hint}")


def partitions_of(config: GroupConfig, member: str) -> list[int]:
    """The numbers of a member's partitions; every client computes the same.

    Members, in alphabetical order, get equally many; the first ones also get the rest.
    """
    if not config.members:
        for mapping in config.member_mappings or []:
            if mapping.member == member:
                return mapping.partitions
        return []
    names = sorted(set(config.members))[: config.max_members]
    if member not in names:
        return []
    share = config.max_members // len(names)
    at = names.index(member)
    rest = range(len(names) * share + at, config.max_members, len(names))
    return [*range(at * share, (at + 1) * share), *rest]


def filters_of(config: GroupConfig, member: str) -> list[str]:
    partitions = partitions_of(config, member)
    if not config.members:
        return [f"{number}.>" for number in partitions]
    return [f"{number}.{filter}" for filter in config.filters or [">"] for number in partitions]


class GroupLocation(NamedTuple):
    """Bucket, key and stream of a group, and the names of its parts."""

    stream: str
    group: str
    elastic: bool

    def check(self) -> GroupLocation:
        check_name("stream", self.stream)
        check_name("consumer group", self.group)
        check_key(self.key, self.key)
        return self

    @property
    def bucket(self) -> str:
        return ELASTIC_BUCKET if self.elastic else STATIC_BUCKET

    @property
    def key(self) -> str:
        return f"{self.stream}.{self.group}"

    @property
    def source(self) -> str:
        return f"{self.stream}-{self.group}" if self.elastic else self.stream

    def consumer(self, member: str) -> str:
        return member if self.elastic else f"{self.group}-{member}"

    def decode(self, value: bytes) -> GroupConfig:
        cls: type[GroupConfig] = ElasticConfig if self.elastic else StaticConfig
        try:
            config = decode_json(value, cls, "configuration")
            checked_config(config)
        except (DocumentError, ConfigError) as error:
            raise CodecError(
                f'Consumer group "{self.group}" of stream "{self.stream}" has an invalid '
                f"configuration: {error}"
            ) from None
        return config


def is_group_stream(location: GroupLocation, stream: StreamConfig) -> bool:
    """Whether the stream with a group's name is the group's own."""
    return stream.retention == "workqueue" and any(
        source.name == location.stream
        and source.subject_transforms
        and all(
            transform.dest.lower().startswith(_PARTITION.lower())
            for transform in source.subject_transforms
        )
        for source in stream.sources or ()
    )
