"""Backing up and restoring streams, without async.

As `jetspark.jetstream.backup` and `jetspark.jetstream.restore`. `progress` is called
in the caller's thread, and the transfer waits for it. When it raises, or Ctrl-C interrupts the
call, the transfer is ended and cleaned up before the exception is raised.
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
    except BaseException as error:
        thread.leave(error, transfer.cancel)
        raise
    return thread.run(transfer.result)


class _Transfer(Generic[T]):
    """A transfer in the event loop that pauses after each step until the caller calls `next`.

    Otherwise it could be complete by the time the caller's `progress` raises.
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
        """The next progress; None when the transfer has ended."""
        self._taken.set()
        await self._news.wait()
        if self._task.done():
            return None
        self._news.clear()
        return self._step

    async def result(self) -> T:
        try:
            return await self._task
        finally:
            del self._task  # in this thread: see `blocking.loop_thread`

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        del self._task
