"""Backing up and restoring streams, without async.

Contract: that of `jetspark.jetstream.backup.backup` and `jetspark.jetstream.backup.restore`.
`progress` is called in the caller's thread, and the transfer waits for it; when it raises, or the
wait is broken off by Ctrl-C, the transfer has ended and cleaned up before the exception goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream import BackupProgress, StreamBackup
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import StreamInfo
from jetspark.jetstream.streams.calls import StreamConfigLike

T = TypeVar("T")

ProgressCallback: TypeAlias = Callable[[BackupProgress], None]


class BackupCalls:
    """The parts of JetStream that back streams up and restore them."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def backup_stream(
        self,
        name: str,
        folder: str | os.PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        chunk_size: int | None = None,
        window_size: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> StreamBackup:
        """Save a stream with all it holds in a folder, as `nats stream backup` does.

        See `jetspark.jetstream.JetStream.backup_stream`.
        """
        call = partial(
            self._inner.backup_stream,
            name,
            folder,
            consumers=consumers,
            check=check,
            chunk_size=chunk_size,
            window_size=window_size,
        )
        return _run(self._thread, call, progress)

    def restore_stream(
        self,
        folder: str | os.PathLike[str],
        config: StreamConfigLike | None = None,
        /,
        *,
        progress: ProgressCallback | None = None,
        **options: Any,
    ) -> StreamInfo:
        """Make a stream again from a backup, with its messages, sequences, times and consumers.

        See `jetspark.jetstream.JetStream.restore_stream`.
        """
        call = partial(self._inner.restore_stream, folder, config, **options)
        return _run(self._thread, call, progress)


def _run(
    thread: LoopThread,
    call: Callable[..., Coroutine[Any, Any, T]],
    progress: ProgressCallback | None,
) -> T:
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
    """A transfer in the event loop that waits after each step until the next one is asked for.

    It could be complete otherwise when the caller's thread raises.
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
