"""Connection events for user code: callbacks and an iterator.

Contract: callbacks are called by the event loop, in order, never during a change of state; an async
callback runs in a task of its own. What they raise is only logged, since a report could cause
another one without end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias
from weakref import WeakSet

from jetspark.client.callbacks import Callback
from jetspark.connection.events import Closed, ConnectionEvent
from jetspark.errors import ConfigError, JetsparkError

logger = logging.getLogger("jetspark")

ErrorCallback: TypeAlias = Callable[[JetsparkError], Awaitable[None] | None]
EventCallback: TypeAlias = Callable[[ConnectionEvent], Awaitable[None] | None]

EVENTS_KEPT = 1000
"""Events that an iterator buffers; the oldest are dropped first."""


class Notices:
    """Passes events and errors to the callbacks and iterators."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_event: EventCallback | None,
        on_error: ErrorCallback | None,
    ) -> None:
        self._loop = loop
        self._on_event = on_event and Callback(on_event, "The event callback", _log)
        self._on_error = on_error and Callback(on_error, "The error callback", _log)
        self._streams: WeakSet[EventStream] = WeakSet()
        self._waiting: set[asyncio.Future[None]] = set()
        """Of tasks that wait for an event: each refers to its stream."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closed = False

    def event(self, event: ConnectionEvent) -> None:
        """Of the supervisor."""
        if self._on_event is not None:
            self._loop.call_soon(self._call, self._on_event, event)
        for stream in tuple(self._streams):
            stream.push(event)
        self._closed = self._closed or isinstance(event, Closed)

    def error(self, error: JetsparkError) -> None:
        """Of the supervisor."""
        if self._on_error is not None:
            self._loop.call_soon(self._call, self._on_error, error)

    def stream(self) -> EventStream:
        """An iterator over the events from now on."""
        stream = EventStream(self._loop, self._streams, self._waiting)
        self._streams.add(stream)
        if self._closed:  # for good
            stream.close()
        return stream

    def _call(self, callback: Callback[Any], value: object) -> None:
        if (rest := callback.call(value)) is not None:
            task = asyncio.ensure_future(rest)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _log(error: JetsparkError) -> None:
    logger.error("%s", error, exc_info=error.__cause__)


class EventStream:
    """Async iterator over connection events; ends after Closed. One reader."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: WeakSet[EventStream],
        waiting: set[asyncio.Future[None]],
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._waiting = waiting
        self._events: deque[ConnectionEvent] = deque(maxlen=EVENTS_KEPT)
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def push(self, event: ConnectionEvent) -> None:
        """Of `Notices`."""
        self._events.append(event)
        if isinstance(event, Closed):
            self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Accept no more events; buffered ones can still be read."""
        self._ended = True
        self._registry.discard(self)
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConnectionEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            if asyncio.get_running_loop() is not self._loop:
                raise ConfigError(
                    "These events belong to another event loop: take them where it was connected."
                )
            waiter = self._waiter = self._loop.create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return self._events.popleft()
