"""Members of partitioned consumer groups, without async.

See `jetspark.groups.member`. A callback runs in its own thread and may use the blocking client;
`stop` does not wait in the callback itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, Unpack

from jetspark.blocking.consumers import JsMsg
from jetspark.blocking.iterators import CallbackTwin, Listing, SingleIterator
from jetspark.blocking.twin import AsyncBlock, Read, Twin, awaits, calls, makes, twin_of
from jetspark.documents.consumers import ConsumerSettings
from jetspark.errors import JetsparkError
from jetspark.groups.documents import GroupConfig
from jetspark.groups.group import ACK_WAIT
from jetspark.groups.group import ConsumerGroup as AsyncConsumerGroup
from jetspark.groups.group import ConsumerGroups as AsyncConsumerGroups
from jetspark.groups.group import ElasticGroup as AsyncElasticGroup
from jetspark.groups.group import StaticGroup as AsyncStaticGroup
from jetspark.groups.member import GroupMember as AsyncGroupMember
from jetspark.groups.member import GroupMsg as AsyncGroupMsg
from jetspark.groups.member import PartitionView
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import frame_of

__all__ = [
    "ConsumerGroup",
    "ConsumerGroups",
    "ElasticGroup",
    "GroupMember",
    "GroupMsg",
    "StaticGroup",
]


@twin_of(AsyncGroupMsg)
class GroupMsg(PartitionView, JsMsg):
    __slots__ = ()


GroupCallback: TypeAlias = Callable[[GroupMsg], None]


@twin_of(AsyncGroupMember)
class GroupMember(CallbackTwin[GroupMsg], SingleIterator[GroupMsg], AsyncBlock):
    _inner: AsyncGroupMember
    name = Read[str]()
    config = Read[GroupConfig]()
    joined = Read[bool]()
    error = Read[JetsparkError | None]()
    wait_stopped = awaits(AsyncGroupMember.wait_stopped)
    _of_messages = True

    async def _forward(self, message: AsyncGroupMsg) -> None:  # type: ignore[override]
        await super()._forward(GroupMsg(self._caller, frame_of(message)))

    def __next__(self) -> GroupMsg:
        return self._handed_out(super().__next__())

    def next(self, timeout: Seconds | None = None) -> GroupMsg:
        return self._handed_out(self._thread.run(self._inner.next, timeout))

    def _handed_out(self, message: AsyncGroupMsg | GroupMsg) -> GroupMsg:
        group_message = GroupMsg(self._caller, frame_of(message))
        self._caller.hooks.handed_out((group_message,))
        return group_message

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._worker.is_current:
            self._thread.spawn(self._leave)
        else:
            self._thread.leave(None, self._leave)


@twin_of(AsyncConsumerGroup)
class ConsumerGroup(Twin):
    _inner: AsyncConsumerGroup
    stream = Read[str]()
    name = Read[str]()
    config = Read[GroupConfig]()
    partitions = calls(AsyncConsumerGroup.partitions)
    refresh = awaits(AsyncConsumerGroup.refresh)
    active_members = makes(AsyncConsumerGroup.active_members, Listing)
    step_down = awaits(AsyncConsumerGroup.step_down)

    def consume(
        self,
        member: str,
        *,
        callback: GroupCallback | None = None,
        ack_wait: Seconds = ACK_WAIT,
        max_ack_pending: int = 1,
        **options: Unpack[ConsumerSettings],
    ) -> GroupMember:
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
    delete = awaits(AsyncStaticGroup.delete)


@twin_of(AsyncElasticGroup)
class ElasticGroup(ConsumerGroup):
    add_members = awaits(AsyncElasticGroup.add_members)
    delete_members = awaits(AsyncElasticGroup.delete_members)
    set_mappings = awaits(AsyncElasticGroup.set_mappings)
    delete_mappings = awaits(AsyncElasticGroup.delete_mappings)
    delete = awaits(AsyncElasticGroup.delete)


@twin_of(AsyncConsumerGroups)
class ConsumerGroups(Twin):
    stream = Read[str]()
    create_elastic = awaits(AsyncConsumerGroups.create_elastic, ElasticGroup)
    create_static = awaits(AsyncConsumerGroups.create_static, StaticGroup)
    elastic = awaits(AsyncConsumerGroups.elastic, ElasticGroup)
    static = awaits(AsyncConsumerGroups.static, StaticGroup)
    elastic_names = makes(AsyncConsumerGroups.elastic_names, Listing)
    static_names = makes(AsyncConsumerGroups.static_names, Listing)
