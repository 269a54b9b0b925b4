"""A queue of frames between the read loop and user code: an iterator, or a task with a callback.

Contract
- The read loop only appends raw frames. What user code gets is made when it is taken.
- The iterator form has no task; any number of tasks may wait in it, and each item goes to one.
- The callback form has one task, until the end, which calls for one item after the other. What a
  callback raises is reported, and the next item comes.
- What is queued at the end is still given out. Then the iterator ends, or raises the error that
  ended it, unless the connection was closed on purpose.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from jetspark.arguments import checked_but
from jetspark.client.background import background
from jetspark.client.callbacks import Callback
from jetspark.client.leaving import Leaving, cancelled
from jetspark.client.reading import ReadingClient
from jetspark.connection.waiters import Waiters
from jetspark.errors import (
    BadTimeoutError,
    ConfigError,
    ConnectionClosedError,
    JetsparkError,
    RequestTimeoutError,
)
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.events import MessageFrame

ItemT = TypeVar("ItemT")


def closed_on_purpose(error: JetsparkError | None) -> bool:
    """Whether the connection was closed by its owner, and not lost."""
    return isinstance(error, ConnectionClosedError) and error.__cause__ is None


@checked_but("left_by")
class FrameReader(Leaving, Generic[ItemT]):
    """The base of subscriptions, consuming and events.

    Subclasses subscribe in their constructors and then call `_begin_reading`; in the read loop
    they append to `_frames` and wake `_waiters`, and at the end they call `_end_reading`.
    """

    def __init__(
        self,
        client: ReadingClient,
        callback: Callable[[ItemT], Awaitable[None] | None] | None,
        frames: deque[MessageFrame] | None = None,
        waiters: Waiters | None = None,
    ) -> None:
        """`frames`, `waiters`: those of what fills the queue, when that is another object."""
        self._client = client
        self._callback = callback
        self._frames: deque[MessageFrame] = deque() if frames is None else frames
        self._waiters = Waiters() if waiters is None else waiters
        self._ended = False
        self._error: JetsparkError | None = None
        self._task: asyncio.Task[None] | None = None
        self._release: Callable[[], None] = _nothing

    def _begin_reading(self, task: str) -> None:
        """From now on the client drains and closes it. `task`: the name of the callback's."""
        client = self._client
        self._release = client.adopt(self)
        if self._callback is not None:
            call = Callback(self._callback, f"The callback of {self._source()}", client.report)
            self._task = background(
                self._call_back(call), f"Reading {self._source()}", self._broken, name=task
            )
            self._task.add_done_callback(lambda _: self._release())

    # -- what a subclass says ------------------------------------------------------------------

    def _source(self) -> str:
        """What the items come from, for a sentence."""
        raise NotImplementedError

    def _take(self) -> ItemT | None:
        """The item of the next frame; there is a frame. None when it makes none."""
        raise NotImplementedError

    def _over(self) -> JetsparkError:
        """What `next` raises when no item will come."""
        raise NotImplementedError

    def _discard(self) -> None:
        """Drop what is queued."""
        self._frames.clear()

    def _callback_ended(self, error: JetsparkError) -> None:
        """The callback gets no more, because of this error."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Let the server send no more, and take all that is on its way."""
        raise NotImplementedError

    # -- taking --------------------------------------------------------------------------------

    def _check_iterated(self) -> None:
        if self._callback is not None:
            raise ConfigError("This has a callback: it cannot be iterated as well.")

    async def __anext__(self) -> ItemT:
        while True:
            if not self._frames:
                await self._fill()
            if (item := self._take()) is not None:
                return item

    async def _fill(self) -> None:
        """Return when there is a frame; StopAsyncIteration or the error when none will come."""
        while not self._frames:
            if self._ended:
                if self._error is None or closed_on_purpose(self._error):
                    raise StopAsyncIteration
                raise self._error
            await self._waiters.wait()

    async def _next_within(self, timeout: Seconds | None) -> ItemT:
        """The next item; waits `timeout` seconds, or for ever."""
        seconds = in_seconds(timeout)
        if self._callback is not None:
            raise ConfigError("This has a callback: next() would take its items.")
        while self._frames:
            if (item := self._take()) is not None:
                return item
        try:
            async with asyncio.timeout(seconds):
                return await self.__anext__()
        except StopAsyncIteration:
            raise self._over() from None
        except JetsparkError:
            raise  # a lost connection is a TimeoutError, too
        except TimeoutError:
            if seconds is not None and seconds < 0:
                raise BadTimeoutError(seconds) from None
            raise RequestTimeoutError(
                f"Nothing received from {self._source()} within {seconds:g} s."
            ) from None

    async def _call_back(self, callback: Callback[ItemT]) -> None:
        frames, take, call = self._frames, self._take, callback.call
        while True:
            if not frames:
                try:
                    await self._fill()
                except StopAsyncIteration:
                    return
                except JetsparkError as error:
                    self._callback_ended(error)
                    return
            if (item := take()) is not None and (rest := call(item)) is not None:
                await rest

    # -- ending --------------------------------------------------------------------------------

    def _broken(self, error: JetsparkError) -> None:
        """The callback's task ended by an error that nobody expected."""
        self._error = self._error or error
        self._client.report(error)
        self._leave()

    def _end_reading(self, error: JetsparkError | None) -> None:
        """No more frames come. The first error counts."""
        self._ended = True
        if self._error is None:
            self._error = error
        if self._task is None:
            self._release()
        self._waiters.wake()

    async def _callback_done(self, timeout: float | None) -> None:
        """Return when the callback has been called for the last item, unless it is the caller."""
        task = self._task
        if task is None or task.done() or task is asyncio.current_task():
            return
        if not (await asyncio.wait({task}, timeout=timeout))[0]:
            raise self._not_taken()

    def _not_taken(self) -> RequestTimeoutError:
        return RequestTimeoutError(
            f"{len(self._frames)} messages of {self._source()} were not taken in time."
        )

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback; None when there is none."""
        return self._task

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """Of the client's drain: whether this task is in the callback."""
        return task is not None and self._task is task

    def abandon(self) -> asyncio.Task[None] | None:
        """Of the client's close: a callback gets no more, and one that runs is cancelled."""
        if self._task is not None:
            self._discard()
        return cancelled(self._task)


def _nothing() -> None:
    pass
