"""Taking messages out of the event loop: what iterators of the blocking client have in common.

Contract: one change of thread brings up to `batch` messages; they count as taken there, and wait
here. Several threads may take: each message goes to one. A callback runs in a thread of its own,
one message after the other; what it raises is reported, and the next message comes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.worker import Worker
from jetspark.client.messages import Message as AsyncMessage
from jetspark.errors import JetsparkError, RequestTimeoutError, user_error
from jetspark.wire.events import MessageFrame

BATCH = 1000
"""Messages taken at a change of thread: enough to hide its cost."""

MessageT = TypeVar("MessageT")


class Source(Protocol):
    """The asyncio class: an iterator with a queue."""

    async def __anext__(self) -> AsyncMessage:
        """The next message."""

    async def next(self, timeout: float | None = None) -> AsyncMessage:
        """The next message, in time."""

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Frames that are here now."""


class Taking(Generic[MessageT]):
    """`name`: of the callback's thread. `what`: whose messages, for people."""

    def __init__(
        self,
        client: CallerSide,
        name: str,
        what: str,
        make: Callable[[CallerSide, MessageFrame], MessageT],
        source: Callable[[], Source],  # a callback may come before the constructor's end
        callback: Callable[[MessageT], object] | None,
    ) -> None:
        self._client = client
        self._thread = client.thread
        self._what = what
        self._make = make
        self._source = source
        self._callback = callback
        self._turn = threading.Lock()
        self.worker = Worker(name)
        client.callbacks.add(self.worker)
        self.frames: deque[MessageFrame] = deque()
        """Taken from the event loop and not given out yet."""

    def given(self) -> MessageT | None:
        """A message that is here."""
        try:
            return self._make(self._client, self.frames.popleft())
        except IndexError:
            return None

    def __next__(self) -> MessageT:
        """The next message, or StopIteration at the end."""
        if (message := self.given()) is not None:
            return message
        with self._turn:  # one thread waits at the loop, the others for what it brings
            while (message := self.given()) is None:
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None
            return message

    async def _fill(self) -> None:
        self._take(await self._source().__anext__())

    def _take(self, first: AsyncMessage) -> None:
        # Left here and not returned: a caller that was interrupted finds them next time.
        self.frames.append(first._frame)
        self.frames.extend(self._source().take_queued(BATCH - 1))

    def next(self, timeout: float | None) -> MessageT:
        """The next message, within `timeout` seconds."""
        if self._callback is None and (message := self.given()) is not None:
            return message
        left = timeout
        if not self._turn.acquire(blocking=False):  # another thread waits at the loop
            start = time.monotonic()
            if not self._turn.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                raise RequestTimeoutError(f"No message of {self._what} within {timeout:g} s.")
            left = None if timeout is None else max(timeout - (time.monotonic() - start), 0)
        try:
            # With a callback, what is here is the callback's: the inner call refuses.
            while self._callback is not None or (message := self.given()) is None:
                self._thread.run(self._fill_within, left)
            return message
        finally:
            self._turn.release()

    async def _fill_within(self, timeout: float | None) -> None:
        self._take(await self._source().next(timeout))

    # -- callbacks -----------------------------------------------------------------------------

    async def forward(self, message: AsyncMessage) -> None:
        """The asyncio class's callback: waits until the worker is done with a batch."""
        self._take(message)
        try:
            await self.worker.run(self._thread, self._call_back)
        except asyncio.CancelledError:
            self.frames.clear()  # the connection was closed
            raise

    def _call_back(self) -> None:
        """In the worker's thread: one message after the other."""
        callback: Any = self._callback
        while (message := self.given()) is not None:
            try:
                callback(message)
            except Exception as error:
                self._client.report(user_error(f"The callback of {self._what}", error))


def drain(
    client: CallerSide,
    worker: Worker,
    draining: Callable[[float | None], Coroutine[Any, Any, None]],
    timeout: float | None,
) -> None:
    """Drain, and wait for it; in its own callback's thread, where that would never end, do not."""
    if not worker.is_current:
        client.thread.run(draining, timeout)
        return

    async def alone() -> None:
        try:
            await draining(timeout)
        except JetsparkError as error:
            client.inner.report(error)

    client.thread.spawn(alone)
