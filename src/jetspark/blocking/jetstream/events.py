"""Receiving JetStream's advisories, metrics and API audits, without async.

As `jetspark.jetstream.events`. A callback runs in its own thread, for one event after the
other, so it may block and use the blocking client; closing the connection lets a running callback
finish. `drain` does not wait in the callback itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.events import GeneratedEvents
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.worker import Worker, check_callback
from jetspark.documents.events import Event
from jetspark.jetstream.events import EventCallback as AsyncEventCallback
from jetspark.jetstream.events import Events as AsyncEvents

EventCallback: TypeAlias = Callable[[Event], None]


class Events(GeneratedEvents, Leaving):
    """What `JetStream.events` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        client: CallerSide,
        listen: Callable[[AsyncEventCallback | None], AsyncEvents],
        callback: EventCallback | None,
    ) -> None:
        check_callback(callback)
        self._client = client
        self._thread = client.thread
        self._callback = callback
        self._worker = Worker("jetspark-events", client.inner)

        def begin() -> None:
            self._inner = listen(None if callback is None else self._forward)
            if (task := self._inner.callback_task) is not None:
                task.add_done_callback(lambda _: self._worker.stop())

        self._thread.call(begin)

    async def _forward(self, event: Event) -> None:
        """The asyncio callback: waits until the worker has handled the event."""
        assert self._callback is not None  # noqa: S101
        await self._worker.run(self._thread, partial(self._callback, event))

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # refuses events that have a callback
        return self

    def __next__(self) -> Event:
        try:
            return self._thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._inner.close)

    def _finish(self) -> None:
        self.close()
