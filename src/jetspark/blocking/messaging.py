"""The calls of a blocking client that publish, and those that ask for replies."""

from __future__ import annotations

from collections.abc import Callable

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.messages import Message
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.blocking.replies import Replies
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.prepared import Sendable, parts_of
from jetspark.face import Client as AsyncClient
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class MessagingCalls:
    """Mixed into the client."""

    _thread: LoopThread
    _inner: AsyncClient
    _buffer: PublishBuffer
    _caller: CallerSide

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message; waits while the network takes no more. Raises as publish_nowait."""
        if self._buffer.crowded:
            self._buffer.block()
        self._caller.publish_nowait(subject, payload, reply=reply, headers=headers)

    def publish_msg(self, message: Sendable) -> None:
        """`publish` a message made before, or one that was received. Raises as publish_nowait."""
        subject, data, reply, headers = parts_of(message)
        self.publish(subject, data, reply=reply, headers=headers)

    def publish_nowait(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message with the next turn of the event loop.

        Raises BadSubjectError, BadHeaderError, MaxPayloadError, HeadersNotSupportedError,
        OutboundBufferError (pending_size bytes wait already), ConnectionClosedError.
        """
        self._caller.publish_nowait(subject, payload, reply=reply, headers=headers)

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Publish and wait for the first reply; `timeout` in seconds, request_timeout by default.

        Raises NoRespondersError at once when nobody listens, RequestTimeoutError,
        ConnectionClosedError, and what publish_nowait raises. Interrupting it leaves nothing
        behind; a reconnect meanwhile does no harm.
        """
        return Message(self._caller, self._caller.ask(subject, payload, timeout, headers))

    def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        """`request` with a message made before; its `reply` is not used."""
        subject, data, _, headers = parts_of(message)
        return self.request(subject, data, timeout=timeout, headers=headers)

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
        """Publish and gather replies: iterate the result, or make a `list` of it.

        It ends at whichever comes first: `max_msgs` replies (0: no limit); `stall` seconds
        without a reply after the last one (None: no limit); a reply that is the sentinel, which
        is not given out (True: the one without payload; a function: the one for which it is
        true, called in the event loop's thread); `timeout` seconds in all, request_timeout by
        default. The request is sent when the first reply is asked for.

        Raises RequestTimeoutError when not one reply came in time, NoRespondersError at once when
        nobody listens, ConfigError, ConnectionClosedError, ConnectionLostError, and what
        publish_nowait raises.
        """
        caller = self._caller
        if callable(sentinel):
            chosen = sentinel  # for the type checker, which forgets the test inside a lambda

            def judge(reply: AsyncMessage) -> bool:
                return chosen(Message(caller, reply._frame))

        inner = self._inner.request_many(
            subject,
            payload,
            timeout=timeout,
            headers=headers,
            max_msgs=max_msgs,
            stall=stall,
            sentinel=judge if callable(sentinel) else sentinel,
        )
        return Replies(caller, inner)

    def new_inbox(self) -> str:
        """A fresh subject for replies, below `inbox_prefix`."""
        return self._inner.new_inbox()
