"""`async with` for subscriptions and the like: they end when the block is left."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


def cancelled(task: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
    """Cancel a callback's task; returns it to be awaited, or None if it is done or the caller."""
    if task is None or task.done() or task is asyncio.current_task():
        return None
    task.cancel()
    return task


class Leaving:
    """Ends with its `async with` block, whatever was raised."""

    def _leave(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
