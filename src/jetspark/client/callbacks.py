"""Calling the user's callbacks.

Contract: an exception of a callback is reported, not raised, so that the next call can follow; even
GeneratorExit, and a CancelledError of another task that it awaited. Only the cancellation of the
calling task and the closing of its coroutine are raised and, after being reported, SystemExit and
KeyboardInterrupt, which are meant to end the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Generic, Self, TypeAlias, TypeVar
from weakref import WeakSet

from jetspark.connection.events import Closed, ConnectionEvent
from jetspark.errors import ConfigError, JetsparkError, user_error

T = TypeVar("T")


def check_no_callback(callback: object) -> None:
    """Raise ConfigError for iterating, or calling `next`, when there is a callback."""
    if callback is not None:
        raise ConfigError(
            "The callback receives every item: give no callback to iterate or to call next()."
        )


def is_generator(result: object) -> bool:
    """Whether a callback returned a generator, so that its body did not run."""
    return isinstance(result, Generator | AsyncGenerator)


class Callback(Generic[T]):
    """Use: `if (rest := callback.call(value)) is not None: await rest`.

    This way, a plain function costs no coroutine.
    """

    def __init__(
        self,
        function: Callable[[T], Awaitable[None] | None],
        source: str,
        report: Callable[[JetsparkError], None],
    ) -> None:
        """`source`: the beginning of the report, such as "The callback of …"."""
        self._function = function
        self._source = source
        self._report = report

    def call(self, value: T) -> Awaitable[None] | None:
        """Call it; returns what remains to be awaited, which a task must do at once."""
        try:
            result = self._function(value)
        except BaseException as error:
            self._raised(error)
            return None
        if result is None:
            return None
        if inspect.isawaitable(result):
            return self._rest(result)
        if is_generator(result):
            self._raised(ConfigError("It is a generator function, which nothing runs."))
        return None

    def watch(self, begins: Callable[[], bool]) -> None:
        """Call `begins` before each call, until it returns False."""
        function = self._function

        def watched(value: T) -> Awaitable[None] | None:
            if not begins():
                self._function = function
            return function(value)

        self._function = watched

    async def _rest(self, result: Awaitable[None]) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        try:
            await result
        except asyncio.CancelledError as error:
            if task is None or task.cancelling():
                raise
            self._raised(error)
        except GeneratorExit as error:
            if asyncio.current_task(loop) is not task:
                raise  # the coroutine is being closed
            self._raised(error)
        except BaseException as error:
            self._raised(error)

    def _raised(self, error: BaseException) -> None:
        self._report(user_error(self._source, error))
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error


# -- connection events for user code -----------------------------------------------------------

logger = logging.getLogger("jetspark")

ErrorCallback: TypeAlias = Callable[[JetsparkError], Awaitable[None] | None]
EventCallback: TypeAlias = Callable[[ConnectionEvent], Awaitable[None] | None]

MAX_BUFFERED_EVENTS = 1000
"""Events that an iterator buffers; the oldest are dropped first."""


class Notices:
    """Passes connection events and errors to callbacks and iterators.

    The event loop calls the callbacks in order, never during a change of state; an async one runs
    in a task of its own. Exceptions of the event callback are reported like those of other
    callbacks; exceptions of the error callback are only logged, since it would be called again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_event: EventCallback | None,
        on_error: ErrorCallback | None,
        report: Callable[[JetsparkError], None],
    ) -> None:
        self._loop = loop
        self._on_event = on_event and Callback(on_event, "The event callback", report)
        self._on_error = on_error and Callback(on_error, "The error callback", _log)
        self._streams: WeakSet[EventStream] = WeakSet()
        self._waiting: set[asyncio.Future[None]] = set()
        """Futures of tasks that wait for an event; each refers to its stream."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closed = False

    def event(self, event: ConnectionEvent) -> None:
        """An event of the supervisor."""
        if self._on_event is not None:
            self._loop.call_soon(self._call, self._on_event, event)
        for stream in tuple(self._streams):
            stream.push(event)
        self._closed = self._closed or isinstance(event, Closed)

    def error(self, error: JetsparkError) -> None:
        """An error of the supervisor."""
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
    """Async iterator over connection events; ends after Closed. One reader.

    Example:
        ```python
        async for event in nc.events():
            print(type(event).__name__)
            if isinstance(event, jetspark.Closed):
                break
        ```
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: WeakSet[EventStream],
        waiting: set[asyncio.Future[None]],
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._waiting = waiting
        self._events: deque[ConnectionEvent] = deque(maxlen=MAX_BUFFERED_EVENTS)
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def push(self, event: ConnectionEvent) -> None:
        """Add an event; for `Notices`."""
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
                await asyncio.sleep(0)  # as in `tasks.yielding`
                raise StopAsyncIteration
            if asyncio.get_running_loop() is not self._loop:
                raise ConfigError(
                    "These events belong to another event loop: use them where it connected."
                )
            waiter = self._waiter = self._loop.create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return self._events.popleft()


class Barriers:
    """Tasks that wait until a callback has handled everything that had arrived.

    An item is handled when the next call begins, or when nothing is queued any more.
    """

    def __init__(self) -> None:
        self._items_begun = 0
        # For each barrier, oldest first: how many items must be taken, and then handled.
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, queued: int) -> asyncio.Future[bool]:
        """A future: True when these and the present items are handled, False if never."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._items_begun + queued, future))
        return future

    def begin_call(self) -> None:
        """A call begins: all calls before it have ended."""
        while self._waiting and self._waiting[0][0] <= self._items_begun:
            _set(self._waiting.popleft()[1], True)
        self._items_begun += 1

    def took(self, count: int) -> None:
        """The present call also handles so many more items."""
        self._items_begun += count

    def end(self, *, handled: bool) -> None:
        """Nothing is queued any more."""
        while self._waiting:
            _set(self._waiting.popleft()[1], handled)


def _set(future: asyncio.Future[bool], handled: bool) -> None:
    if not future.done():
        future.set_result(handled)
