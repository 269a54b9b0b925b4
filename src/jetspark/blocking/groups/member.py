"""Consuming as a member of a consumer group, without async.

As `jetspark.groups.member`. A callback runs in its own thread and may use the blocking client;
`stop` does not wait in the callback itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.groups.member import GeneratedGroupMember
from jetspark.blocking.groups.message import GroupMsg
from jetspark.blocking.worker import Worker, check_callback
from jetspark.groups.member import GroupCallback as AsyncGroupCallback
from jetspark.groups.member import GroupMember as AsyncGroupMember
from jetspark.groups.member import GroupMsg as AsyncGroupMsg
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import frame_of

GroupCallback: TypeAlias = Callable[[GroupMsg], None]


class GroupMember(GeneratedGroupMember):
    """What a group's `consume` returns: enter it, then iterate it, or give it a callback."""

    def __init__(
        self,
        client: CallerSide,
        consume: Callable[[AsyncGroupCallback | None], AsyncGroupMember],
        callback: GroupCallback | None,
    ) -> None:
        check_callback(callback)
        self._client = client
        self._callback = None if callback is None else client.hooks.callback(callback)
        self._worker = Worker("jetspark-group", client.inner)
        self._inner = client.thread.call(consume, None if callback is None else self._forward)

    async def _forward(self, message: AsyncGroupMsg) -> None:
        """The asyncio callback; the asyncio object reports what the user's callback raises."""
        assert self._callback is not None  # noqa: S101
        ours = GroupMsg(self._client, frame_of(message))
        await self._worker.run(self._client.thread, partial(self._callback, ours))

    def __iter__(self) -> Iterator[GroupMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self

    def __next__(self) -> GroupMsg:
        try:
            message = self._client.thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return self._handed_out(message)

    def next(self, timeout: Seconds | None = None) -> GroupMsg:
        return self._handed_out(self._client.thread.run(self._inner.next, timeout))

    def _handed_out(self, message: AsyncGroupMsg) -> GroupMsg:
        ours = GroupMsg(self._client, frame_of(message))
        self._client.hooks.handed_out((ours,))
        return ours

    def __enter__(self) -> Self:
        self._client.thread.run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        thread = self._client.thread
        if thread.is_over:
            return
        if self._worker.is_current:
            thread.spawn(self._inner.stop)
        else:
            thread.run(self._inner.stop)
        thread.post(self._worker.stop)
