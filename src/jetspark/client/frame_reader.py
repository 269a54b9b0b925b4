"""A queue of frames between the read loop and user code: an iterator, or a task with a callback.

Contract
- The read loop only appends raw frames. What user code gets is made when it is taken.
- The iterator form has no task; any number of tasks may wait in it, and each item goes to one.
- The client and the read loop know the queue (`Arriving`), not the iterator form's reader, which so
  ends when nothing refers to it any more.
- The callback form has one task, until the end, which calls it for one item after the other. What a
  callback raises is reported, and the next item follows.
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
from jetspark.client.barriers import Barriers
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.drops import Drops
from jetspark.client.leaving import Leaving, cancelled
from jetspark.client.reading import ReadingClient
from jetspark.connection.waiters import Waiters
from jetspark.errors import (
    BadTimeoutError,
    ConnectionClosedError,
    JetsparkError,
    RequestTimeoutError,
    SlowConsumerError,
)
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.events import MessageFrame

ItemT = TypeVar("ItemT")


def closed_on_purpose(error: JetsparkError | None) -> bool:
    """Whether the connection was closed by its owner, and not lost."""
    return isinstance(error, ConnectionClosedError) and error.__cause__ is None


class Arriving:
    """The queue of a subscription, with its limits, as the read loop knows it."""

    __slots__ = (
        "_bytes_limit",
        "_msgs_limit",
        "_report",
        "_subject",
        "accepted",
        "drops",
        "frames",
        "pending_bytes",
        "waiters",
    )

    def __init__(
        self,
        subject: str,
        frames: deque[MessageFrame],
        msgs_limit: int,
        bytes_limit: int,
        report: Callable[[JetsparkError], None],
    ) -> None:
        self._subject = subject
        self._msgs_limit = msgs_limit
        self._bytes_limit = bytes_limit
        self._report = report
        self.frames = frames
        self.waiters = Waiters()
        self.accepted = 0
        """Messages so far, without those that were dropped."""
        self.pending_bytes = 0
        """Bytes of the payloads in the queue."""
        self.drops = Drops()

    def on_frame(self, frame: MessageFrame) -> None:
        """Queue a message, or drop it at a limit."""
        size = self.pending_bytes + len(frame.payload)
        if len(self.frames) >= self._msgs_limit or size > self._bytes_limit:
            if self.drops.add(self.accepted, len(self.frames)):
                self._report(SlowConsumerError(self._subject, self.drops.count))
            return
        self.accepted += 1
        self.pending_bytes = size
        self.frames.append(frame)
        if self.waiters:
            self.waiters.wake()

    def on_run(self, frames: list[MessageFrame], size: int) -> bool:
        """Queue messages that came together; False at a limit: give them one by one."""
        size += self.pending_bytes
        if len(self.frames) + len(frames) > self._msgs_limit or size > self._bytes_limit:
            return False
        self.accepted += len(frames)
        self.pending_bytes = size
        self.frames += frames
        if self.waiters:
            self.waiters.wake()
        return True


@checked_but("left_by")
class FrameReader(Leaving, Generic[ItemT]):
    """The base of subscriptions, consuming and events.

    Subclasses subscribe in their constructors and then call `_begin_reading`; in the read loop
    something else appends to `frames` and wakes `waiters`, and at the end `_end_reading` is called.
    """

    def __init__(
        self,
        client: ReadingClient,
        callback: Callable[[ItemT], Awaitable[None] | None] | None,
        frames: deque[MessageFrame],
        waiters: Waiters,
    ) -> None:
        """`frames`, `waiters`: of the object that fills the queue."""
        self._client = client
        self._callback = callback
        self._frames = frames
        self._waiters = waiters
        self._ended = False
        self._error: JetsparkError | None = None
        self._task: asyncio.Task[None] | None = None
        self._calling: Callback[ItemT] | None = None
        self._barriers: Barriers | None = None
        self._release: Callable[[], object] = _nothing

    def _begin_reading(self, task: str, end: Callable[[], None] | None = None) -> None:
        """From now on the client drains and closes it. `task`: name of the callback's task.

        `end`: as for `Client.adopt`.
        """
        client = self._client
        self._release = client.adopt(self, end if self._callback is None else None)
        if self._callback is not None:
            call = Callback(self._callback, f"The callback of {self._source()}", client.report)
            self._calling = call
            self._task = background(
                self._call_back(call), f"Reading {self._source()}", self._broken, name=task
            )
            self._task.add_done_callback(self._no_more_calls)

    # -- what a subclass says ------------------------------------------------------------------

    def _source(self) -> str:
        """The source of the items, for messages."""
        raise NotImplementedError

    def _take(self) -> ItemT | None:
        """The item of the next frame, which must exist; None if the frame yields none."""
        raise NotImplementedError

    def _over(self) -> JetsparkError:
        """The error that `next` raises after the last item."""
        raise NotImplementedError

    def _discard(self) -> None:
        """Drop what is queued."""
        self._frames.clear()

    def _callback_ended(self, error: JetsparkError) -> None:
        """The callback gets no more items, because of this error."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and receive all messages in flight."""
        raise NotImplementedError

    # -- taking --------------------------------------------------------------------------------

    def _check_iterated(self) -> None:
        check_no_callback(self._callback)

    async def __anext__(self) -> ItemT:
        while True:
            if not self._frames:
                await self._fill()
            if (item := self._take()) is not None:
                return item

    async def _fill(self) -> None:
        """Return when there is a frame; raises StopAsyncIteration or the error at the end."""
        if self._barriers is not None:
            self._barriers.end(handled=True)
        self._client.check_loop()
        while not self._frames:
            if self._ended:
                if self._error is None or closed_on_purpose(self._error):
                    raise StopAsyncIteration
                raise self._error
            await self._waiters.wait()

    async def _next_within(self, timeout: Seconds | None) -> ItemT:
        """The next item; waits `timeout` seconds, None: without limit."""
        seconds = in_seconds(timeout)
        check_no_callback(self._callback)
        while self._frames:
            if (item := self._take()) is not None:
                return item
        try:
            async with asyncio.timeout(seconds):
                return await self.__anext__()
        except StopAsyncIteration:
            raise self._over() from None
        except JetsparkError:
            raise  # ConnectionLostError is a TimeoutError, too
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

    # -- barriers ------------------------------------------------------------------------------

    def handled(self) -> asyncio.Future[bool] | None:
        """Done when the callback has handled what is here now; None: nothing is waited for.

        Its result is False when that will not be handled: the connection was closed.
        """
        if self._calling is None or self._task is None or self._task.done() or self._waiters:
            return None
        if self._barriers is None:
            self._barriers = Barriers()
            self._calling.watch(self._begins)
        return self._barriers.add(len(self._frames))

    def _begins(self) -> bool:
        """A call begins; returns whether to be told of the next one."""
        if (barriers := self._barriers) is None:
            return False
        barriers.begun()
        if not barriers:
            self._barriers = None
        return self._barriers is not None

    def _took(self, count: int) -> None:
        """The callback has taken so many more, besides the one that it was called for."""
        if self._barriers is not None:
            self._barriers.took(count)

    # -- ending --------------------------------------------------------------------------------

    def _no_more_calls(self, task: asyncio.Task[None]) -> None:
        if self._barriers is not None:
            self._barriers.end(handled=True)
        self._release()

    def _broken(self, error: JetsparkError) -> None:
        """The callback's task has ended with an unexpected error."""
        self._error = self._error or error
        self._client.report(error)
        self._leave()

    def _end_reading(self, error: JetsparkError | None) -> None:
        """End: no more frames will come. The first error counts."""
        self._ended = True
        if self._error is None:
            self._error = error
        if self._task is None:
            self._release()
        self._waiters.wake()

    async def _callback_done(self, timeout: float | None) -> None:
        """Return after the callback's call for the last item; at once in the callback itself."""
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
        """For the client's drain: whether this task runs the callback."""
        return task is not None and self._task is task

    def abandon(self) -> asyncio.Task[None] | None:
        """For the client's close: the callback gets no more items, and is cancelled if it runs."""
        if self._task is not None:
            self._discard()
        if self._barriers is not None:
            self._barriers.end(handled=False)
        return cancelled(self._task)


def _nothing() -> None:
    pass
