"""Members of partitioned consumer groups, without async.

See `jetspark.groups.member`. A callback runs in its own thread and may use the blocking client;
`stop` does not wait in the callback itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jetspark.blocking.by_hand.consumers import JsMsg
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Begin, CallbackTwin, SingleIterator
from jetspark.blocking.twin import AsyncBlock
from jetspark.blocking.worker import check_callback
from jetspark.groups.member import GroupMember as AsyncGroupMember
from jetspark.groups.member import GroupMsg as AsyncGroupMsg
from jetspark.groups.member import PartitionView
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import frame_of


@twin_of(AsyncGroupMsg)
class GroupMsg(PartitionView, JsMsg):
    """One message of a consumer group; acknowledge it like any other."""

    __slots__ = ()


GroupCallback: TypeAlias = Callable[[GroupMsg], None]


class BaseGroupMember(CallbackTwin[GroupMsg], SingleIterator[GroupMsg], AsyncBlock):
    """Messages come one by one, since each partition has one at a time by default."""

    _inner: AsyncGroupMember

    def __init__(self, caller: CallerSide, begin: Begin, callback: GroupCallback | None) -> None:
        check_callback(callback)
        callback = None if callback is None else caller.hooks.callback(callback)
        super().__init__(caller, begin, callback)

    async def _forward(self, message: AsyncGroupMsg) -> None:  # type: ignore[override]
        await super()._forward(GroupMsg(self._caller, frame_of(message)))

    def __next__(self) -> GroupMsg:
        return self._handed_out(super().__next__())

    def next(self, timeout: Seconds | None = None) -> GroupMsg:
        return self._handed_out(self._thread.run(self._inner.next, timeout))

    def _handed_out(self, message: AsyncGroupMsg | GroupMsg) -> GroupMsg:
        ours = GroupMsg(self._caller, frame_of(message))
        self._caller.hooks.handed_out((ours,))
        return ours

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        thread = self._thread
        if thread.is_over:
            return
        if self._worker.is_current:
            thread.spawn(self._inner.stop)
        else:
            thread.run(self._inner.stop)
        thread.post(self._worker.stop)
