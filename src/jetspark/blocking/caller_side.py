"""The part of the blocking client that runs in the caller's thread.

A publish is checked, encoded and put into a buffer without switching to the event loop's thread.
Each client has one `CallerSide`, for all threads; blocking messages and publishers send through it.
Its coroutines never suspend, so `drive` can run them without a loop; a request blocks the calling
thread until its reply.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from jetspark.blocking.loop_thread import LoopThread, Suspended, Wait
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.client.client import CoreClient as AsyncClient
from jetspark.client.client import plain_request, seconds_of
from jetspark.client.messages import Message
from jetspark.client.requests import ReplyReceiver, RequestMux, no_reply
from jetspark.connection.locks import LOOK_EVERY
from jetspark.errors import JetsparkError
from jetspark.payload_bytes import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import MessageFrame, frame_of

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not suspend. Raises Suspended if it does."""
    try:
        future = coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    # Closed, so that nothing tries to resume it.
    if future is not None:
        future.cancel()
    coroutine.close()
    raise Suspended


class CallerSide:
    """The parts of a blocking client meet here: the loop's thread, the asyncio client, sending."""

    def __init__(self, thread: LoopThread, inner: AsyncClient, buffer: PublishBuffer) -> None:
        self.thread = thread
        self.inner = inner
        self.buffer = buffer
        self.publishing = inner.publishing.into(buffer)
        self.hooks = inner.hooks
        """Replaced if there are hooks, which run in the callers' threads."""

    @property
    def server_info(self) -> ServerInfo | None:
        """The INFO of the connected server; None before the first connection."""
        return self.inner.server_info

    def report(self, error: JetsparkError) -> None:
        """Report an error through the asyncio client, in the loop's thread."""
        self.thread.post(partial(self.inner.report, error))

    async def publish(
        self, subject: str, payload: Payload = b"", *, headers: HeadersLike | None = None
    ) -> None:
        """Send one message; blocks while the buffer is full. Raises as `Client.publish`."""
        if self.buffer.crowded:
            await self.buffer.wait()
        self.publishing.send(subject, payload, None, headers)

    async def request(
        self, subject: str, payload: Payload = b"", *, timeout: Seconds | None = None
    ) -> Message:
        """Send a request and wait for the reply. Raises the errors of `Client.request`."""
        return Message(self, self.ask(subject, payload, timeout, None))

    def ask(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        """`request` with headers; returns the reply's frame."""
        hooked = self.publishing.asking
        if hooked is None:
            return self._ask(subject, payload, timeout, headers)
        ask = partial(self._ask, subject, payload, timeout)
        return hooked.send(subject, payload, None, headers, ask, asking=True)

    def _ask(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        inner = self.inner
        if inner.publishing.outbox.crowded:
            reply = self.thread.run(plain_request, inner, subject, payload, timeout, headers)
            return frame_of(reply)
        requests, seconds = inner.requests, seconds_of(timeout, inner.options)
        request = _ThreadRequest(
            self.thread,
            requests,
            lambda answer: requests.ask(answer, subject, payload, headers, seconds),
        )
        self.thread.check_may_wait()
        put = self.buffer.put_here
        own = requests.ask_here(request, self.publishing, put, subject, payload, headers, seconds)
        frame: MessageFrame = (
            self.thread.wait(request) if own is None else request.wait_here(own, subject, seconds)
        )
        requests.check_responders(frame, subject)
        return frame


class _ThreadRequest(Wait):
    """A waiting request: the read loop wakes the thread with the reply, without a task."""

    __slots__ = ("_ask", "_reply", "_requests")

    def __init__(
        self, thread: LoopThread, requests: RequestMux, ask: Callable[[ReplyReceiver], bytes]
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

    def wait_here(self, reply: bytes, subject: str, timeout: float) -> MessageFrame:
        """Wait for the reply to a request that this thread sent itself, without `start`."""
        thread, ended, left = self._thread, self.ended, timeout
        deadline = time.monotonic() + timeout
        try:
            while not ended.acquire(timeout=min(left, LOOK_EVERY)):
                left = deadline - time.monotonic()
                if thread.exiting:
                    left = LOOK_EVERY  # as in `LoopThread.wait`: nobody is left to report to
                elif left <= 0:
                    raise no_reply(subject, timeout)
        except BaseException:
            self._reply = reply
            self._thread.post(self.cancel)
            raise
        if self.error is not None:
            raise self.error
        frame: MessageFrame = self.value
        return frame

    def cancel(self) -> None:
        self._requests.close(self._reply)

    def done(self) -> bool:
        """Always False: `cancel` removes the request from the mux."""
        return False

    def set_result(self, frame: MessageFrame) -> None:
        self.value = frame
        self.end()

    def set_exception(self, error: BaseException) -> None:
        self.error = error
        self.end()
