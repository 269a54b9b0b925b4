"""Passing messages from the event loop to other threads: the base of the blocking iterators.

One thread switch brings up to `BATCH` messages, which have left the asyncio queue and are buffered
here. Several threads may iterate: each message goes to one of them. A callback runs in its own
thread, for one message after the other; its exceptions are reported, and the next message follows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.worker import Worker, check_callback
from jetspark.client.messages import Message as AsyncMessage
from jetspark.errors import JetsparkError, RequestTimeoutError, user_error
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.kernel import MessageFrame, frame_of

BATCH = 1000
"""Most messages for each thread switch: enough to make its cost negligible."""

MessageT = TypeVar("MessageT")

AsyncMessageCallback: TypeAlias = Callable[[AsyncMessage], Awaitable[None]]


class Source(Protocol):
    """The asyncio object: an iterator with a queue."""

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback."""

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""

    @property
    def pending_msgs(self) -> int:
        """Messages in the queue."""

    async def __anext__(self) -> AsyncMessage:
        """The next message."""

    async def next(self, timeout: Seconds | None = None) -> AsyncMessage:
        """The next message, within `timeout` seconds."""

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` queued frames, without waiting."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """End it after the messages in flight have arrived."""


class Taking(Leaving, Generic[MessageT]):
    """`name` names the callback's thread, `what` the source in error messages.

    `begin` creates `_inner`, with a callback if the user gave one.
    """

    _inner: Source

    def __init__(
        self,
        client: CallerSide,
        name: str,
        what: str,
        make: Callable[[CallerSide, MessageFrame], MessageT],
        begin: Callable[[AsyncMessageCallback | None], Source],
        callback: Callable[[MessageT], object] | None,
    ) -> None:
        check_callback(callback)
        self._client = client
        self._thread = client.thread
        self._what = what
        self._make = make
        self._callback = None if callback is None else client.hooks.callback(callback)
        self._turn = threading.Lock()
        self._worker = Worker(name, client.inner)
        self._taken = client.hooks.queue(client, callback)
        """Not returned to the user yet."""

        def begin_in_loop() -> None:
            # In the loop's thread, so that `_inner` is set before the first message arrives.
            self._inner = begin(None if callback is None else self._forward)
            if (task := self._inner.callback_task) is not None:
                task.add_done_callback(lambda _: self._worker.stop())

        self._thread.call(begin_in_loop)

    # -- taking messages -----------------------------------------------------------------------

    def _given(self) -> MessageT | None:
        """A buffered message; None if there is none."""
        try:
            return self._make(self._client, self._taken.popleft())
        except IndexError:
            return None

    def _next(self) -> MessageT:
        """The next message, or StopIteration at the end."""
        if (message := self._given()) is not None:
            return message
        with self._turn:  # one thread waits for the loop, the others for that thread
            while (message := self._given()) is None:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return message

    async def _fill(self) -> None:
        self._take(await self._inner.__anext__())

    def _take(self, first: AsyncMessage) -> None:
        # Buffered, not returned: after an interrupt the next call finds them.
        self._taken.append(frame_of(first))
        self._taken.extend(self._inner.take_queued(BATCH - 1))

    def _next_within(self, timeout: Seconds | None) -> MessageT:
        """The next message, within `timeout` seconds."""
        timeout = in_seconds(timeout)
        if self._callback is None and (message := self._given()) is not None:
            return message
        left = timeout
        if not self._turn.acquire(blocking=False):  # another thread waits for the loop
            start = time.monotonic()
            if not self._turn.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                raise RequestTimeoutError(f"No message of {self._what} within {timeout:g} s.")
            left = None if timeout is None else max(timeout - (time.monotonic() - start), 0)
        try:
            # With a callback the messages are the callback's, and the inner call raises.
            while self._callback is not None or (message := self._given()) is None:
                self._thread.run(self._fill_within, left)
            return message
        finally:
            self._turn.release()

    async def _fill_within(self, timeout: Seconds | None) -> None:
        self._take(await self._inner.next(timeout))

    # -- callbacks -----------------------------------------------------------------------------

    async def _forward(self, message: AsyncMessage) -> None:
        """The asyncio callback: waits until the worker has handled a batch."""
        self._take(message)
        try:
            await self._worker.run(self._thread, self._call_back)
        except asyncio.CancelledError:
            self._taken.clear()  # the connection was closed
            raise

    def _call_back(self) -> None:
        """In the worker's thread: call the callback for each message."""
        callback: Any = self._callback
        while (message := self._given()) is not None:
            try:
                callback(message)
            except BaseException as error:  # SystemExit would end the thread silently
                self._client.report(user_error(f"The callback of {self._what}", error))

    # -- ending --------------------------------------------------------------------------------

    def _stop(self, stop: Callable[[], None]) -> None:
        if not self._thread.is_over:
            self._thread.call(stop)
        self._taken.clear()


def drain(
    client: CallerSide,
    worker: Worker,
    draining: Callable[[Seconds | None], Coroutine[Any, Any, None]],
    timeout: Seconds | None,
) -> None:
    """Drain and wait; in its own callback, where waiting would deadlock, do not wait."""
    if not worker.is_current:
        client.thread.run(draining, timeout)
        return

    async def alone() -> None:
        try:
            await draining(timeout)
        except JetsparkError as error:
            client.inner.report(error)

    client.thread.spawn(alone)
