# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Consumer groups without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

from jetspark.blocking.by_hand.groups import BaseGroupMember, GroupCallback, GroupMsg
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.twin import Twin
from jetspark.documents.consumers import ConsumerSettings
from jetspark.errors import JetsparkError
from jetspark.groups.documents import GroupConfig
from jetspark.groups.group import ACK_WAIT
from jetspark.groups.group import ConsumerGroup as AsyncConsumerGroup
from jetspark.groups.group import ElasticGroup as AsyncElasticGroup
from jetspark.groups.group import StaticGroup as AsyncStaticGroup
from jetspark.groups.member import GroupMember as AsyncGroupMember
from jetspark.timestamps import Seconds

__all__ = ["ConsumerGroup", "ElasticGroup", "GroupMember", "GroupMsg", "StaticGroup"]


@twin_of(AsyncGroupMember)
class GroupMember(BaseGroupMember):
    """The result of a group's `consume`: enter it, then iterate it, or give it a callback."""

    _inner: AsyncGroupMember

    @property
    def name(self) -> str:
        """The member's name."""
        return self._inner.name

    @property
    def config(self) -> GroupConfig:
        """The group's configuration for this member."""
        return self._inner.config

    @property
    def joined(self) -> bool:
        """Whether it has its consumer, and so may get messages."""
        return self._inner.joined

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None before, and after `stop`."""
        return self._inner.error

    def wait_ended(self) -> None:
        """Wait until it ends. Raises `error`."""
        self._thread.run(self._inner.wait_ended)


@twin_of(AsyncConsumerGroup)
class ConsumerGroup(Twin):
    """The base of static and elastic groups."""

    _inner: AsyncConsumerGroup

    @property
    def stream(self) -> str:
        """The stream whose messages the members share."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The group's name."""
        return self._inner.name

    @property
    def config(self) -> GroupConfig:
        """The configuration that this object last read or wrote."""
        return self._inner.config

    def partitions(self, member: str) -> list[int]:
        """The partitions of a member in `config`. Raises ConfigError unless it is a member."""
        return self._thread.call(self._inner.partitions, member)

    def refresh(self) -> GroupConfig:
        """Read the configuration again. Raises CodecError for an invalid one."""
        return self._thread.run(self._inner.refresh)

    def active_members(self) -> list[str]:
        """The members with a consumer and a waiting instance."""
        return self._thread.run(self._inner.active_members)

    def step_down(self, member: str) -> None:
        """Let another instance of a member take over."""
        self._thread.run(self._inner.step_down, member)

    def consume(
        self,
        member: str,
        *,
        callback: GroupCallback | None = None,
        ack_wait: Seconds = ACK_WAIT,
        max_ack_pending: int = 1,
        **options: Unpack[ConsumerSettings],
    ) -> GroupMember:
        """Consume as an instance of `member`, within its `with` block."""
        return GroupMember(
            self._caller,
            lambda forward: self._inner.consume(
                member,
                callback=forward,
                ack_wait=ack_wait,
                max_ack_pending=max_ack_pending,
                **options,
            ),
            callback,
        )


@twin_of(AsyncStaticGroup)
class StaticGroup(ConsumerGroup):
    """A group with fixed members, of a stream whose subjects begin with the partition."""

    _inner: AsyncStaticGroup

    def delete(self) -> None:
        """Delete the group and the consumers of its members, which end."""
        self._thread.run(self._inner.delete)


@twin_of(AsyncElasticGroup)
class ElasticGroup(ConsumerGroup):
    """A group whose members may change, of any stream."""

    _inner: AsyncElasticGroup

    def add_members(self, members: str | Iterable[str]) -> list[str]:
        """Add members; returns all."""
        return self._thread.run(self._inner.add_members, members)

    def drop_members(self, members: str | Iterable[str]) -> list[str]:
        """Remove members; returns the others."""
        return self._thread.run(self._inner.drop_members, members)

    def set_mappings(self, mappings: Mapping[str, Iterable[int]]) -> None:
        """Assign each partition to one member, instead of sharing them."""
        self._thread.run(self._inner.set_mappings, mappings)

    def delete_mappings(self) -> None:
        """Remove the mappings; without members, nobody has a partition."""
        self._thread.run(self._inner.delete_mappings)

    def delete(self) -> None:
        """Delete the group, and its stream with the waiting messages; its members end."""
        self._thread.run(self._inner.delete)
