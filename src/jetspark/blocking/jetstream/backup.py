"""Backing up and restoring streams, without async.

Contract: that of `jetspark.jetstream.backup.backup` and `jetspark.jetstream.backup.restore`.
`progress` is called in the caller's thread, and the transfer waits for it; when it raises, or the
wait is interrupted by Ctrl-C, the transfer has ended and cleaned up before the exception goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.worker import check_callback
from jetspark.jetstream import BackupProgress

T = TypeVar("T")

ProgressCallback: TypeAlias = Callable[[BackupProgress], None]


def transfer(
    thread: LoopThread,
    call: Callable[..., Coroutine[Any, Any, T]],
    progress: ProgressCallback | None,
) -> T:
    """Run `call`, with `progress` called in the caller's thread."""
    check_callback(progress)
    if progress is None:
        return thread.run(call)
    transfer = thread.call(_Transfer, call)
    try:
        while (step := thread.run(transfer.next)) is not None:
            progress(step)
    except BaseException:
        thread.run(transfer.cancel)
        raise
    return thread.run(transfer.result)


class _Transfer(Generic[T]):
    """A transfer in the event loop that waits after each step until the caller wants the next one.

    Otherwise it might be complete when the caller's thread raises.
    """

    def __init__(self, call: Callable[..., Coroutine[Any, Any, T]]) -> None:
        self._step: BackupProgress | None = None
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(call(progress=self._on_step))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _on_step(self, step: BackupProgress) -> None:
        self._step = step
        self._taken.clear()
        self._news.set()
        await self._taken.wait()

    async def next(self) -> BackupProgress | None:
        """The next figures; None when there will be no more."""
        self._taken.set()
        await self._news.wait()
        if self._task.done():
            return None
        self._news.clear()
        return self._step

    async def result(self) -> T:
        return await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
