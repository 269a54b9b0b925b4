"""Electing a leader among clients, without async.

As `jetspark.kv.lock`. A callback runs in its own thread and may use the blocking client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.generated.kv.election import GeneratedElection
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.worker import Worker, check_callback
from jetspark.kv.lock import Election as AsyncElection
from jetspark.kv.lock import ElectionState
from jetspark.kv.lock import StateCallback as AsyncStateCallback
from jetspark.timestamps import Seconds

StateCallback: TypeAlias = Callable[[ElectionState], None]


class Election(GeneratedElection):
    """A candidate, as returned by `Bucket.election`: enter it, then iterate its states."""

    def __init__(
        self,
        thread: LoopThread,
        key: str,
        election: Callable[[AsyncStateCallback | None], AsyncElection],
        callback: StateCallback | None,
    ) -> None:
        check_callback(callback)
        self._thread = thread
        self._callback = callback
        self._worker = Worker(f"jetspark-election-{key}")
        make = partial(election, None if callback is None else self._forward)
        self._inner = thread.call(make)

    async def _forward(self, state: ElectionState) -> None:
        """The asyncio callback; the asyncio object reports what the user's callback raises."""
        assert self._callback is not None  # noqa: S101
        await self._worker.run(self._thread, partial(self._callback, state))

    def next(self, timeout: Seconds | None = None) -> ElectionState:
        return self._thread.run(self._inner.next, timeout)

    def __iter__(self) -> Iterator[ElectionState]:
        return self

    def __next__(self) -> ElectionState:
        try:
            return self._thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._thread.is_over:
            self._thread.leave(exc, self._inner.__aexit__, exc_type, exc, traceback)
            self._thread.post(self._worker.stop)
