"""A local copy of a bucket as a mapping that is kept up to date, without async.

As `jetspark.kv.watch`. Reading does not switch threads. `on_change` runs in its own thread and may
use the blocking client; the mapping waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.generated.kv.live import GeneratedLiveBucket
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.worker import Worker, check_callback
from jetspark.kv.codecs import Entry
from jetspark.kv.watch import ChangeCallback as AsyncChangeCallback
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket

ChangeCallback: TypeAlias = Callable[[Entry], None]


class LiveBucket(GeneratedLiveBucket):
    """What `Bucket.live` returns: once entered, it is read like a dict of keys and values."""

    def __init__(
        self,
        thread: LoopThread,
        bucket: str,
        live: Callable[[AsyncChangeCallback | None], AsyncLiveBucket],
        on_change: ChangeCallback | None,
    ) -> None:
        check_callback(on_change)
        self._thread = thread
        self._on_change = on_change
        self._worker = Worker(f"jetspark-live-{bucket}")
        self._inner = live(None if on_change is None else self._forward)

    def __getitem__(self, key: str) -> bytes:
        return self._inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    async def _forward(self, entry: Entry) -> None:
        """The asyncio callback; the asyncio object reports what the user's callback raises."""
        assert self._on_change is not None  # noqa: S101
        await self._worker.run(self._thread, partial(self._on_change, entry))

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
            self._thread.leave(exc, self._inner.__aexit__, None, None, None)
            self._thread.post(self._worker.stop)
