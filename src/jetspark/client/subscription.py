"""Subscriptions: a queue between the read loop and user code.

Contract
- The read loop only appends raw frames; a Message is made when user code takes it.
- The iterator form has no task. The callback form has one, for the life of the subscription, and
  calls one message after the other; what a callback raises is reported and the next one comes.
- At a pending limit new messages are dropped, counted in `dropped`, and reported by one
  SlowConsumerError (log, last_error, error callback) an episode (`drops`).
- The iterator ends after `max_msgs`, `unsubscribe` and `drain`, and when the connection is closed
  on purpose; when it was lost for good, or the server refused the subscription, the iterator
  raises, after what was queued. Leaving a loop over it does not end it, for the messages that come
  meanwhile would be lost: it ends when nothing refers to it any more. One from which nothing was
  ever taken stays, since interest alone is of use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self, TypeAlias

from jetspark.arguments import check_whole, checked_but
from jetspark.client.callbacks import Callback
from jetspark.client.frame_reader import Arriving, FrameReader
from jetspark.client.leaving import weakly
from jetspark.client.messages import Message
from jetspark.client.reading import ReadingClient
from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import (
    BadSubscriptionError,
    ConnectionClosedError,
    JetsparkError,
)
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.events import MessageFrame

MessageCallback: TypeAlias = Callable[[Message], Awaitable[None] | None]


@checked_but("next", "take_queued", "left_by")
class Subscription(FrameReader[Message]):
    """What `Client.subscribe` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        client: ReadingClient,
        link: Supervisor,
        subject: str,
        *,
        queue: str | None,
        callback: MessageCallback | None,
        max_msgs: int,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        hooking = client.hooking
        queue_of_frames = hooking.queue(client, callback)
        self._arriving = arriving = Arriving(
            subject, queue_of_frames, pending_msgs_limit, pending_bytes_limit, link.report
        )
        super().__init__(
            client,
            None if callback is None else hooking.callback(callback),
            arriving.frames,
            arriving.waiters,
        )
        self._link = link
        self._discarded = 0
        self._reader: asyncio.Task[object] | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._route = Route(
            subject,
            arriving.on_frame,
            queue=queue,
            max_msgs=max_msgs,
            on_run=arriving.on_run,
            on_end=weakly(self._end_reading),
        )
        link.add_route(self._route)
        self._kept = callback is None
        """Whether the client keeps it alive until it is read."""
        self._begin_reading(f"jetspark-sub-{subject}")

    # -- what it is ----------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self._route.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._route.queue

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return not self._ended

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._arriving.drops.count

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return len(self._frames)

    @property
    def pending_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._arriving.pending_bytes

    @property
    def delivered(self) -> int:
        """Messages that user code has taken."""
        return self._arriving.accepted - self._discarded - len(self._frames)

    # -- taking messages -----------------------------------------------------------------------

    def _read(self) -> None:
        if self._kept and not self._ended:
            self._release()
            self._release = self._client.adopt(self, partial(self._link.routes.remove, self._route))
        self._kept = False

    def __aiter__(self) -> Self:
        self._check_iterated()
        self._read()
        return self

    def _source(self) -> str:
        return f"subscription {self.subject!r}"

    def _take(self) -> Message:
        frame = self._frames.popleft()
        self._arriving.pending_bytes -= len(frame.payload)
        return Message(self._client, frame)

    async def __anext__(self) -> Message:
        # As in the base, with one call less for each message.
        if self._kept:
            self._read()
        if not self._frames:
            await self._fill()
        frame = self._frames.popleft()
        self._arriving.pending_bytes -= len(frame.payload)
        return Message(self._client, frame)

    async def _fill(self) -> None:
        self._reader = asyncio.current_task()
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        await super()._fill()

    async def next(self, timeout: Seconds | None = None) -> Message:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when the subscription has ended,
        ConnectionClosedError, the error with which the server refused it (PermissionsError,
        SubscriptionLimitError …), ConfigError when there is a callback, BadTimeoutError.
        """
        self._read()
        return await self._next_within(timeout)

    def _over(self) -> JetsparkError:
        if self._error is not None:
            return self._error
        self._link.require_open()
        return BadSubscriptionError(f"The subscription to {self.subject!r} has ended.")

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if iterated over.

        For callers that create messages of their own from many frames.
        """
        frames = self._frames
        taken = [frames.popleft() for _ in range(min(limit, len(frames)))]
        self._arriving.pending_bytes -= sum(len(frame.payload) for frame in taken)
        self._took(len(taken))
        return taken

    async def _call_back(self, callback: Callback[Message]) -> None:
        # As in the base, without a call of `_take`, which is a tenth of the time per message.
        frames, client, call = self._frames, self._client, callback.call
        arriving = self._arriving
        while True:
            if not frames:
                try:
                    await self._fill()
                except (StopAsyncIteration, JetsparkError):
                    return
            frame = frames.popleft()
            arriving.pending_bytes -= len(frame.payload)
            if (rest := call(Message(client, frame))) is not None:
                await rest

    # -- ending --------------------------------------------------------------------------------

    def unsubscribe(self, max_msgs: int = 0) -> None:
        """End it now, discarding what was not taken, or after `max_msgs` messages in all.

        Messages are counted since subscribing; if there were as many already, it ends now and keeps
        them. Raises BadSubscriptionError when it has ended, ConnectionClosedError, ConfigError.
        """
        if self._ended:
            if isinstance(self._error, ConnectionClosedError):
                raise self._error
            raise BadSubscriptionError(f"The subscription to {self.subject!r} has ended.")
        check_whole("max_msgs", max_msgs, 0)
        if max_msgs:
            self._link.routes.limit(self._route, max_msgs)
        else:
            self._link.routes.remove(self._route)
            self._discard()
            self._end_reading(None)

    def _discard(self) -> None:
        self._discarded += len(self._frames)
        self._frames.clear()
        self._arriving.pending_bytes = 0

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and take all that is on its way.

        Returns when the messages have arrived; with a callback, when it was called for the last
        one. `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError,
        BadTimeoutError; the subscription has ended in any case.
        """
        if not self._ended:
            self._link.routes.stop(self._route)
            try:
                await self._client.flush(timeout)
            finally:
                self._link.routes.end(self._route, None)
        await self._finish(in_seconds(timeout))

    async def _finish(self, timeout: float | None) -> None:
        """Wait until everything buffered was taken, unless the caller itself takes it."""
        reader = self._reader
        if self._task is not None:
            await self._callback_done(timeout)
            return
        if reader is None or reader.done() or reader is asyncio.current_task():
            return
        if self._frames:
            emptied = self._emptied = self._client.loop.create_future()
            if not (await asyncio.wait({emptied}, timeout=timeout))[0]:
                raise self._not_taken()

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """For the client's drain: this task drains, so it no longer takes messages."""
        if self._reader is task:
            self._reader = None
        return super().left_by(task)

    def _leave(self) -> None:
        if not self._ended:
            self.unsubscribe()

    def __repr__(self) -> str:
        group = f", queue={self.queue!r}" if self.queue else ""
        return f"Subscription({self.subject!r}{group}, pending={self.pending_msgs})"


def end_with(subscription: Subscription, error: JetsparkError) -> None:
    """No more messages will come, because of this error; those that are queued come first."""
    subscription._link.routes.refuse(subscription._route, error)
