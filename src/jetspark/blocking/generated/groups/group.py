# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.groups.member import GroupCallback, GroupMember
from jetspark.documents.consumers import ConsumerSettings
from jetspark.groups.documents import GroupConfig
from jetspark.groups.group import ACK_WAIT
from jetspark.groups.group import ConsumerGroup as AsyncConsumerGroup
from jetspark.groups.group import ElasticGroup as AsyncElasticGroup
from jetspark.groups.group import StaticGroup as AsyncStaticGroup
from jetspark.timestamps import Seconds


class GeneratedConsumerGroup:
    """The calls of `ConsumerGroup` that hand on to its asyncio twin."""

    _client: CallerSide
    _inner: AsyncConsumerGroup

    @property
    def stream(self) -> str:
        """The stream whose messages it shares out."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The group's name."""
        return self._inner.name

    @property
    def config(self) -> GroupConfig:
        """The configuration, as it was read or written last by this object."""
        return self._inner.config

    def partitions(self, member: str) -> list[int]:
        """The partitions of a member in `config`. Raises ConfigError for who is no member."""
        return self._inner.partitions(member)

    def refresh(self) -> GroupConfig:
        """Read the configuration again. Raises CodecError for one that is invalid."""
        return self._client.thread.run(self._inner.refresh)

    def active_members(self) -> list[str]:
        """The members that have a consumer with a waiting instance, as far as the server knows."""
        return self._client.thread.run(self._inner.active_members)

    def step_down(self, member: str) -> None:
        """Let another instance of a member have its messages.

        Raises ConsumerNotFoundError when the member is not active.
        """
        self._client.thread.run(self._inner.step_down, member)

    def consume(
        self,
        member: str,
        *,
        callback: GroupCallback | None = None,
        ack_wait: Seconds = ACK_WAIT,
        max_ack_pending: int = 1,
        **options: Unpack[ConsumerSettings],
    ) -> GroupMember:
        """Consume as an instance of `member`, from entering `with` to its end.

        Iterate the result, or give a callback, called in a thread of its own, and acknowledge each
        message. `ack_wait`: seconds until a message comes again; after as long the next instance
        takes over from one that is not heard of. `max_ack_pending`: messages under way, at least 1;
        with more than one the order of a partition holds only while nothing fails. `options`: other
        fields of ConsumerConfig, the same for all instances of a member. Raises ConfigError, for a
        static group also when there is no such member; who is none of an elastic group's members
        waits to be added, which is reported. How it goes on and ends: see `jetspark.groups.member`.
        """
        return GroupMember(
            self._client,
            lambda forward: self._inner.consume(
                member,
                callback=forward,
                ack_wait=ack_wait,
                max_ack_pending=max_ack_pending,
                **options,
            ),
            callback,
        )

    def __repr__(self) -> str:
        return repr(self._inner)


class GeneratedStaticGroup:
    """The calls of `StaticGroup` that hand on to its asyncio twin."""

    _client: CallerSide
    _inner: AsyncStaticGroup

    def delete(self) -> None:
        """Delete the group and the consumers of its members, who end."""
        self._client.thread.run(self._inner.delete)


class GeneratedElasticGroup:
    """The calls of `ElasticGroup` that hand on to its asyncio twin."""

    _client: CallerSide
    _inner: AsyncElasticGroup

    def add_members(self, members: str | Iterable[str]) -> list[str]:
        """Add members; returns all.

        They share the partitions; those after `max_members`, in alphabetical order, have none.
        Raises ConfigError for a group with mappings.
        """
        return self._client.thread.run(self._inner.add_members, members)

    def drop_members(self, members: str | Iterable[str]) -> list[str]:
        """Remove members; returns the others.

        Raises ConfigError for who is no member, and for a group with mappings.
        """
        return self._client.thread.run(self._inner.drop_members, members)

    def set_mappings(self, mappings: Mapping[str, Iterable[int]]) -> None:
        """Say which member has which partitions, in place of members.

        Each partition once. Raises ConfigError.
        """
        self._client.thread.run(self._inner.set_mappings, mappings)

    def delete_mappings(self) -> None:
        """Remove the mappings: nobody has a partition then, until there are members."""
        self._client.thread.run(self._inner.delete_mappings)

    def delete(self) -> None:
        """Delete the group, its stream and what waits there; its members end.

        Another stream that has the name of the group's is left alone.
        """
        self._client.thread.run(self._inner.delete)
