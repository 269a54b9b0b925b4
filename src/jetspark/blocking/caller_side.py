"""The part of the asyncio client that works in the caller's thread.

Contract: checking a message, encoding it and leaving it in a buffer needs no event loop. So
`CallerSide` is the asyncio client with the outbox replaced by `PublishBuffer`: its publishing
methods, and what is built on them (answers to messages, acks, publishers), never suspend, and
`drive` runs them to their end where they are called, without a change of thread. What needs a
reply makes one change of thread, inside the coroutine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jetspark.blocking.loop_thread import LoopThread, Suspended, Wait
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.client.client import Client as CoreClient
from jetspark.client.requests import Answer, RequestMux
from jetspark.errors import JetsparkError
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike

if TYPE_CHECKING:
    from jetspark.connection.outbox import Outbox

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not suspend. Raises Suspended if it does."""
    try:
        future = coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    # Whoever was to wake it must see that nobody waits.
    if future is not None:
        future.cancel()
    coroutine.close()
    raise Suspended


class CallerSide(CoreClient):
    """Shares the link with the client in the loop; has its own way out."""

    def __init__(self, thread: LoopThread, inner: CoreClient, buffer: PublishBuffer) -> None:
        # Not the asyncio client's constructor: nothing is made twice.
        self.thread = thread
        self.inner = inner
        self.buffer = buffer
        self.options = inner.options
        self.loop = inner.loop
        self._notices = inner._notices
        self._link = inner._link
        self._requests = inner._requests
        self._subscriptions = inner._subscriptions
        self._good_subjects = {}
        self._out_msgs = 0
        # put, crowded and wait are all that publishing uses of an outbox.
        self._outbox = cast("Outbox", buffer)

    def report(self, error: JetsparkError) -> None:
        """In the loop, where callbacks and status belong."""
        self.thread.post(partial(self.inner.report, error))

    def ask(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        """`request` without async: its reply as a frame. Raises as `request`."""
        if self.inner._outbox.crowded:
            reply = self.thread.run(
                self.inner.request, subject, payload, timeout=timeout, headers=headers
            )
            return reply._frame
        seconds = self._seconds(timeout)
        asked = _Asked(
            self.thread,
            self._requests,
            lambda answer: self.inner._ask(answer, subject, payload, headers, seconds),
        )
        frame: MessageFrame = self.thread.wait(asked)
        self._requests.check_responders(frame, subject)
        return frame

    async def _reply(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        """Blocks the caller's thread, and suspends nothing."""
        return self.ask(subject, payload, timeout, headers)

    async def _pause(self, seconds: float) -> None:
        """Blocks the caller's thread, and suspends nothing."""
        time.sleep(seconds)  # noqa: ASYNC251


class _Asked(Wait):
    """A request of a thread. Its reply ends the wait in the read loop, without a task or future."""

    __slots__ = ("_ask", "_reply", "_requests")

    def __init__(
        self, thread: LoopThread, requests: RequestMux, ask: Callable[[Answer], bytes]
    ) -> None:
        super().__init__(thread)
        self._requests = requests
        self._ask = ask
        self._reply = b""

    def start(self) -> None:
        try:
            self._reply = self._ask(self)
        except BaseException as error:
            self.set_exception(error)

    def cancel(self) -> None:
        self._requests.close(self._reply)

    def done(self) -> bool:
        """Of Answer: it is asked only while the request is in the table."""
        return False

    def set_result(self, frame: MessageFrame) -> None:
        """The reply."""
        self.value = frame
        self.end()

    def set_exception(self, error: BaseException) -> None:
        """There will be none."""
        self.error = error
        self.end()
