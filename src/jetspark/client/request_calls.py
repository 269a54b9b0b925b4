"""The calls of a client that request replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from jetspark.arguments import check_whole, checked_but
from jetspark.client.gather import Replies
from jetspark.client.inbox import new_inbox
from jetspark.client.messages import Message
from jetspark.client.prepared import Sendable, parts_of
from jetspark.client.publish_calls import PublishCalls
from jetspark.client.requests import RequestMux, no_reply
from jetspark.connection.options import ConnectOptions
from jetspark.errors import BadTimeoutError
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike


@checked_but("request", "request_msg")
class RequestCalls(PublishCalls):
    """Mixed into the client."""

    loop: asyncio.AbstractEventLoop
    requests: RequestMux

    def _message(self, frame: MessageFrame) -> Message:
        raise NotImplementedError

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Publish and wait for the first reply; `timeout` in seconds, default: request_timeout.

        Raises NoRespondersError at once without responders, RequestTimeoutError,
        ConnectionClosedError, ConnectionLostError (which is both), PermissionsError when the server
        refuses the subject or the inbox, BadTimeoutError, BadTimeError, and what publish_nowait
        raises. Cancelling it leaves nothing behind; it goes on over a reconnect.
        """
        hooked = self.publishing.hooked
        if hooked is None:
            return await plain_request(self, subject, payload, timeout, headers)
        ask = partial(plain_request, self, subject, payload, timeout)
        return await hooked.asked(subject, payload, headers, ask)

    async def ask(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """`request` for a question: when the link is lost meanwhile, it is sent on the next one.

        For what may be done twice. Raises as `request`.
        """
        hooked = self.publishing.hooked
        if hooked is None:
            return await plain_request(self, subject, payload, timeout, headers, again=True)
        ask = partial(plain_request, self, subject, payload, timeout, again=True)
        return await hooked.asked(subject, payload, headers, ask)

    async def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        """`request` with a PreparedMessage, or a received one; its `reply` is not used.

        Raises as `request`, and ConfigError for anything else.
        """
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
        true); `timeout` seconds in all, default: request_timeout. The request is sent when the
        first reply is requested.

        Raises RequestTimeoutError when not one reply came in time, NoRespondersError at once
        without responders, BadTimeoutError, ConfigError, ConnectionClosedError,
        ConnectionLostError, and what publish_nowait raises.
        """
        limit = seconds_of(timeout, self.options)
        silence = in_seconds(stall)
        if silence is not None and not silence > 0:
            raise BadTimeoutError(silence)
        check_whole("max_msgs", max_msgs, 0)
        is_sentinel = sentinel if callable(sentinel) else _is_empty if sentinel else _is_none
        data = payload_bytes(payload)  # a copy: the caller may change it in the meantime
        return Replies(self._gather(subject, data, headers, limit, max_msgs, silence, is_sentinel))

    def ask_many(self, subject: str, payload: bytes, *, timeout: Seconds) -> Replies:
        """`request_many` for a question: when the link is lost before a reply came, it is sent on
        the next one; when it is lost later, the replies end there.

        Each time with a reply subject of its own, so that two answers never mix.
        """
        limit = seconds_of(timeout, self.options)
        return Replies(
            self._gather(subject, payload, None, limit, 0, None, _is_none, question=True)
        )

    async def _gather(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
        max_msgs: int,
        stall: float | None,
        is_sentinel: Callable[[Message], bool],
        *,
        question: bool = False,
    ) -> AsyncGenerator[Message]:
        self.check_loop()
        if self.publishing.outbox.crowded:
            await self.publishing.outbox.wait()
        deadline = self.loop.time() + timeout
        first = again = True
        while first and again:
            with self.requests.gathering(subject, deadline, max_msgs, stall, question=question) as (
                gathering,
                reply,
            ):
                self.publishing.send_asking(subject, payload, reply, headers)
                while (frame := await gathering.next()) is not None:
                    self.requests.check_responders(frame, subject)
                    message = self._message(frame)
                    if is_sentinel(message):
                        return
                    first = False
                    yield message
                again = gathering.was_cut
        if first:
            raise no_reply(subject, timeout)

    def new_inbox(self) -> str:
        """A fresh subject for replies, below `inbox_prefix`."""
        return new_inbox(self.options.inbox_prefix)


async def plain_request(
    client: RequestCalls,
    subject: str,
    payload: Payload,
    timeout: Seconds | None,
    headers: HeadersLike | None,
    *,
    again: bool = False,
) -> Message:
    """`RequestCalls.request`, or `ask` (`again`), of which the hook was told."""
    client.check_loop()
    requests, outbox = client.requests, client.publishing.outbox
    if outbox.crowded:
        payload = payload_bytes(payload)  # a copy: the caller may change it in the meantime
        await outbox.wait()
    answer: asyncio.Future[MessageFrame] = client.loop.create_future()
    seconds = seconds_of(timeout, client.options)
    reply = requests.ask(answer, subject, payload, headers, seconds, again=again)
    try:
        frame = await answer
    finally:
        requests.close(reply)
    requests.check_responders(frame, subject)
    return client._message(frame)


def seconds_of(timeout: Seconds | None, options: ConnectOptions) -> float:
    """A timeout or, for None, request_timeout. Raises BadTimeError, BadTimeoutError."""
    if timeout is None:
        return options.request_timeout
    seconds = in_seconds(timeout)
    if not seconds > 0:
        raise BadTimeoutError(seconds)
    return seconds


def _is_empty(message: Message) -> bool:
    return not message.data


def _is_none(message: Message) -> bool:
    return False
