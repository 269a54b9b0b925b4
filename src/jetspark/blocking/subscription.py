"""Subscriptions of the blocking client.

Contract
- Iterating takes up to BATCH messages for each change of thread; those count as pending until
  they are given out. Several threads may iterate one subscription: each message goes to one.
- A callback runs in a thread of the subscription's own, one message after the other, so it may
  block and use the blocking client. What it raises is reported, and the next message comes. A
  callback that runs when the connection is closed is left to finish.
- Otherwise as `jetspark.client.subscription`. `drain` waits for the callback, not for a thread
  that iterates; called in the callback itself it does not wait at all.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.messages import Message
from jetspark.blocking.worker import Worker
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.subscription import Subscription as AsyncSubscription
from jetspark.connection.routes import user_error
from jetspark.errors import ConfigError, JetsparkError, RequestTimeoutError
from jetspark.wire.events import MessageFrame

MessageCallback: TypeAlias = Callable[[Message], None]

BATCH = 1000
"""Messages taken at a change of thread: enough to hide its cost."""


class Subscription:
    """What `Client.subscribe` returns: iterate it, or give it a callback."""

    _inner: AsyncSubscription

    def __init__(
        self,
        client: CallerSide,
        subject: str,
        *,
        queue: str | None,
        callback: MessageCallback | None,
        max_msgs: int,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise ConfigError("The blocking client calls plain functions, not async ones.")
        self._client = client
        self._thread = client.thread
        self._callback = callback
        self._taken: deque[MessageFrame] = deque()
        self._turn = threading.Lock()
        self._worker = Worker(f"jetspark-sub-{subject}")

        def subscribe() -> None:
            # In the loop's thread, so that `_inner` is there before the first message.
            self._inner = client.inner.subscribe(
                subject,
                queue=queue,
                callback=None if callback is None else self._forward,
                max_msgs=max_msgs,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            )
            if self._inner._task is not None:
                self._inner._task.add_done_callback(lambda _: self._worker.stop())

        self._thread.call(subscribe)

    @property
    def in_callback(self) -> bool:
        """Whether the caller is this subscription's callback."""
        return self._worker.is_current

    # -- what it is ----------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self._inner.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._inner.queue

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return self._inner.pending_msgs + len(self._taken)

    @property
    def pending_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._inner.pending_bytes + sum(len(frame[4]) for frame in self._taken.copy())

    @property
    def delivered(self) -> int:
        """Messages that user code has taken."""
        return self._inner.delivered - len(self._taken)

    # -- taking messages -----------------------------------------------------------------------

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # refuses a subscription that has a callback
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._client, self._taken.popleft())
        except IndexError:
            pass
        with self._turn:  # one thread waits at the loop, the others for what it brings
            while (message := self._given()) is None:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return message

    def _given(self) -> Message | None:
        try:
            return Message(self._client, self._taken.popleft())
        except IndexError:
            return None

    async def _fill(self) -> None:
        self._take(await self._inner.__anext__())

    def _take(self, first: AsyncMessage) -> None:
        # Left here and not returned: a caller that was interrupted finds them next time.
        self._taken.append(first._frame)
        self._taken.extend(self._inner.take_queued(BATCH - 1))

    def next(self, timeout: float | None = None) -> Message:
        """The next message; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when the subscription has ended,
        ConnectionClosedError.
        """
        if self._callback is None and (message := self._given()) is not None:
            return message
        left = timeout
        if not self._turn.acquire(blocking=False):  # another thread waits at the loop
            start = time.monotonic()
            if not self._turn.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                raise RequestTimeoutError(f"No message on {self.subject!r} within {timeout:g} s.")
            left = None if timeout is None else max(timeout - (time.monotonic() - start), 0)
        try:
            # With a callback, what is here is the callback's: the inner call refuses.
            while self._callback is not None or (message := self._given()) is None:
                self._thread.run(self._fill_within, left)
            return message
        finally:
            self._turn.release()

    async def _fill_within(self, timeout: float | None) -> None:
        self._take(await self._inner.next(timeout))

    async def _forward(self, message: AsyncMessage) -> None:
        """The inner subscription's callback: waits until the worker is done with a batch."""
        self._take(message)
        done = self._thread.loop.create_future()
        self._worker.post(lambda: self._call_back(done))
        try:
            await done
        except asyncio.CancelledError:
            self._taken.clear()  # the connection was closed
            raise

    def _call_back(self, done: asyncio.Future[None]) -> None:
        """In the worker's thread: one message after the other."""
        callback = self._callback
        assert callback is not None  # noqa: S101
        try:
            while (message := self._given()) is not None:
                try:
                    callback(message)
                except Exception as error:
                    self._client.report(user_error(f"The callback of {self.subject!r}", error))
        finally:
            self._thread.post(lambda: _set(done))

    # -- ending --------------------------------------------------------------------------------

    def unsubscribe(self, max_msgs: int = 0) -> None:
        """End it now, discarding what was not taken, or after `max_msgs` messages in all.

        The count is of the messages received since subscribing; when they are here already, it
        ends now and keeps them. Raises BadSubscriptionError when it has ended,
        ConnectionClosedError.
        """
        self._thread.call(self._inner.unsubscribe, max_msgs)
        if not max_msgs:
            self._taken.clear()

    def drain(self, timeout: float | None = None) -> None:
        """Let the server send no more, and take all that is on its way.

        Returns when the messages are here; with a callback, when it was called for the last one.
        `timeout` in seconds bounds the wait for the server (request_timeout by default) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; the
        subscription has ended in any case.
        """
        if self.in_callback:
            # It ends when this callback has: waiting for it here would never end.
            self._thread.spawn(lambda: self._drain_alone(timeout))
        else:
            self._thread.run(self._inner.drain, timeout)

    async def _drain_alone(self, timeout: float | None) -> None:
        try:
            await self._inner.drain(timeout)
        except JetsparkError as error:
            self._client.inner.report(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._thread.is_over:
            self._thread.call(self._leave)

    def _leave(self) -> None:
        if self._inner.active:
            self._inner.unsubscribe()
            self._taken.clear()

    def __repr__(self) -> str:
        return repr(self._inner)


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
