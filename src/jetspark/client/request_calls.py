"""The calls of a client that ask for replies (rows C8, C9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from jetspark.arguments import check_whole, checked_but
from jetspark.client.gather import Replies
from jetspark.client.inbox import new_inbox
from jetspark.client.messages import Message
from jetspark.client.prepared import Sendable, parts_of
from jetspark.client.publish_calls import PublishCalls
from jetspark.client.requests import Answer, RequestMux
from jetspark.errors import BadTimeoutError, RequestTimeoutError
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike


@checked_but("request", "request_msg")
class RequestCalls(PublishCalls):
    """Mixed into the client."""

    loop: asyncio.AbstractEventLoop
    _requests: RequestMux

    def _message(self, frame: MessageFrame) -> Message:
        raise NotImplementedError

    def _seconds(self, timeout: Seconds | None) -> float:
        """A timeout or, for None, request_timeout. Raises BadTimeoutError."""
        if timeout is None:
            return self.options.request_timeout
        seconds = in_seconds(timeout)
        if not seconds > 0:
            raise BadTimeoutError(seconds)
        return seconds

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Publish and wait for the first reply; `timeout` in seconds, request_timeout by default.

        Raises NoRespondersError at once when nobody listens, RequestTimeoutError,
        ConnectionClosedError, ConnectionLostError (which is both), BadTimeoutError, and what
        publish_nowait raises.
        Cancelling it leaves nothing behind; a reconnect meanwhile does no harm.
        """
        return self._message(await self._reply(subject, payload, timeout, headers))

    async def _reply(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        """The reply's frame. The blocking client has another way to it."""
        if self._outbox.crowded:
            payload = payload_bytes(payload)  # as it is now, not when there is room again
            await self._outbox.wait()
        answer: asyncio.Future[MessageFrame] = self.loop.create_future()
        reply = self._ask(answer, subject, payload, headers, self._seconds(timeout))
        try:
            frame = await answer
        finally:
            self._requests.close(reply)
        self._requests.check_responders(frame, subject)
        return frame

    def _ask(
        self,
        answer: Answer,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
    ) -> bytes:
        """Publish a request whose reply goes to the answer. Close it when nobody waits any more."""
        requests = self._requests
        reply = requests.open(answer, subject, timeout)
        try:
            block = None if headers is None else self._encode(headers)
            # A single request need not wait for others to be written with it.
            self.publish_replying(subject, payload, reply, block, now=len(requests) == 1)
        except BaseException:
            requests.close(reply)
            raise
        return reply

    async def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        """`request` with a message made before; its `reply` is not used."""
        subject, data, _, headers = parts_of(message)
        return await self.request(subject, data, timeout=timeout, headers=headers)

    def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        max_msgs: int = 0,
        stall: Seconds | None = None,
        sentinel: bool | Callable[[Message], bool] = False,
    ) -> Replies:
        """Publish and gather replies: `async for` over the result, or `await` it for a list.

        It ends at whichever comes first: `max_msgs` replies (0: no limit); `stall` seconds
        without a reply after the last one (None: no limit); a reply that is the sentinel, which
        is not given out (True: the one without payload; a function: the one for which it is
        true); `timeout` seconds in all, request_timeout by default. The request is sent when the
        first reply is asked for.

        Raises RequestTimeoutError when not one reply came in time, NoRespondersError at once when
        nobody listens, BadTimeoutError, ConfigError, ConnectionClosedError, ConnectionLostError,
        and what publish_nowait raises.
        """
        limit = self._seconds(timeout)
        silence = in_seconds(stall)
        if silence is not None and not silence > 0:
            raise BadTimeoutError(silence)
        check_whole("max_msgs", max_msgs, 0)
        is_sentinel = sentinel if callable(sentinel) else _is_empty if sentinel else _is_none
        data = payload_bytes(payload)  # as it is now, not when the first reply is asked for
        return Replies(self._gather(subject, data, headers, limit, max_msgs, silence, is_sentinel))

    async def _gather(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
        max_msgs: int,
        stall: float | None,
        is_sentinel: Callable[[Message], bool],
    ) -> AsyncGenerator[Message]:
        if self._outbox.crowded:
            await self._outbox.wait()
        first = True
        with self._requests.gathering(subject, timeout, max_msgs, stall) as (gathering, reply):
            block = None if headers is None else self._encode(headers)
            self.publish_replying(subject, payload, reply, block)
            while (frame := await gathering.next()) is not None:
                self._requests.check_responders(frame, subject)
                message = self._message(frame)
                if is_sentinel(message):
                    return
                first = False
                yield message
        if first:
            raise RequestTimeoutError(f"No reply from {subject!r} within {timeout:g} s.")

    def new_inbox(self) -> str:
        """A fresh subject for replies, below `inbox_prefix`."""
        return new_inbox(self.options.inbox_prefix)


def _is_empty(message: Message) -> bool:
    return not message.data


def _is_none(message: Message) -> bool:
    return False
