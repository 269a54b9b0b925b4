# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: client."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.events import ErrorCallback, EventCallback, EventStream
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.messages import Message
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.blocking.replies import Replies, judging
from jetspark.blocking.subscription import MessageCallback, Subscription
from jetspark.client.client import (
    DRAIN_TIMEOUT,
    PENDING_BYTES_LIMIT,
    PENDING_MSGS_LIMIT,
    Statistics,
)
from jetspark.client.client import Client as AsyncClient
from jetspark.client.hooks import Hooks
from jetspark.client.messages import Sendable
from jetspark.client.publishing import Publishing
from jetspark.connection.events import ConnectionStatus
from jetspark.connection.options import ConnectOptions
from jetspark.connection.transports import Dial, TLSState
from jetspark.errors import JetsparkError
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import HeadersLike


class GeneratedClient:
    """The calls of `Client` that hand on to its asyncio twin."""

    _thread: LoopThread
    _caller: CallerSide
    _buffer: PublishBuffer
    _publishing: Publishing
    _inner: AsyncClient

    def _make(
        self,
        hooks: Hooks | None,
        event_callback: EventCallback | None,
        error_callback: ErrorCallback | None,
        dial: Dial | None,
    ) -> None:
        raise NotImplementedError

    def __init__(
        self,
        options: ConnectOptions | None = None,
        *,
        hooks: Hooks | None = None,
        event_callback: EventCallback | None = None,
        error_callback: ErrorCallback | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.options = options or ConnectOptions()
        self._make(hooks, event_callback, error_callback, dial)

    @property
    def status(self) -> ConnectionStatus:
        """closed, connecting, connected, reconnecting or draining."""
        raise NotImplementedError

    @property
    def is_connected(self) -> bool:
        """Whether there is a link now."""
        raise NotImplementedError

    @property
    def last_error(self) -> JetsparkError | None:
        """The last asynchronous error; a successful (re)connect clears it."""
        return self._inner.last_error

    @property
    def server_info(self) -> ServerInfo | None:
        """INFO of the current server, or of the last one while there is no link."""
        return self._inner.server_info

    @property
    def current_server(self) -> str | None:
        """URL of the current server, without credentials; None without a link."""
        return self._inner.current_server

    @property
    def tls(self) -> TLSState | None:
        """Version, cipher and the server's certificate of the link; None without TLS or a link."""
        return self._inner.tls

    @property
    def servers(self) -> list[str]:
        """URLs of all servers in the pool, including those that the cluster advertised."""
        return self._inner.servers

    @property
    def max_payload(self) -> int:
        """Largest message that the server accepts: bytes of headers and payload."""
        return self._inner.max_payload

    @property
    def stats(self) -> Statistics:
        """Traffic so far."""
        raise NotImplementedError

    def events(self) -> EventStream:
        """Iterator over changes of the connection from now on; ends when it is closed."""
        return EventStream(self._thread, self._thread.call(self._inner.events))

    def report(self, error: JetsparkError) -> None:
        """last_error, the log, and the error callback: for errors that no call can raise."""
        self._thread.call(self._inner.report, error)

    def __repr__(self) -> str:
        return repr(self._inner)

    def connect(self) -> None:
        """Connect, as the option `first_connect` says: by default each server is tried once.

        Nothing happens when it is connected or connecting already. Raises the error of the one
        server, or NoServersError with the last one's as `__cause__`; ConfigError for TLS files that
        cannot be used; ConnectionClosedError after `close`.
        """
        raise NotImplementedError

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Replace the servers to connect to, discovered ones too, from the next attempt on.

        `servers`: one URL or several. The present link stays, also to a server that is not among
        them; `force_reconnect` leaves it. Raises ConfigError for servers that `connect` would
        refuse, ConnectionClosedError.
        """
        self._thread.call(self._inner.set_servers, servers)

    def force_reconnect(self) -> None:
        """Leave this server for the next one; returns when the link is up again.

        Raises ConnectionClosedError when closed, or when no server could be reached.
        """
        self._thread.run(self._inner.force_reconnect)

    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when the server has processed everything published before.

        While the client is connecting or reconnecting it waits for the link. `timeout` in seconds,
        default: request_timeout. Raises RequestTimeoutError, ConnectionClosedError when the client
        is closed or the link is lost meanwhile (`status` tells which: then it reconnects, and what
        was sent over the lost link may not have arrived), BadTimeoutError.
        """
        raise NotImplementedError

    def rtt(self, timeout: Seconds | None = None) -> float:
        """Seconds of one round trip to the server.

        `timeout` in seconds, default: request_timeout. Raises RequestTimeoutError,
        ConnectionClosedError when there is no link or it is lost meanwhile, BadTimeoutError.
        """
        return self._thread.run(self._inner.rtt, timeout)

    def barrier(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """Return when callbacks have handled all messages that this client has received before.

        Those of subscriptions and consumers; iterators are not waited for. After `flush` these are
        all messages that the server had sent by then. `timeout`: seconds. Raises
        RequestTimeoutError, ConfigError in a callback, which it would wait for,
        ConnectionClosedError, also when the client is closed meanwhile, BadTimeoutError.
        """
        raise NotImplementedError

    def drain(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """End subscriptions, let callbacks handle what has arrived, send publishes, then close.

        Publishing is possible until the callbacks are done, subscribing is not. While there is no
        link, and something to send, it waits for the link first. `timeout` in seconds: what is not
        done by then is given up, with RequestTimeoutError, which says how much was never sent.
        Raises ConnectionClosedError without a link and anything to send, or when the link is lost
        meanwhile. The client is closed in any case, except after BadTimeoutError.

        Called in a message callback, for which it would have to wait, it returns at once and
        continues in the background; its errors are reported. A second call waits for the first and
        raises the same; nothing happens when the client is already closed.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Send what is buffered and end the connection. May be called again.

        Pending requests and iterators end at once; a callback that runs is left to finish, and gets
        no more. It does not wait for a link: what is buffered without one is never sent, which is
        reported.
        """
        raise NotImplementedError

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message; waits while the link accepts no more. Raises as publish_nowait."""
        if self._buffer.crowded:
            self._buffer.block()
        self._publishing.send(subject, payload, reply, headers)

    def publish_msg(self, message: Sendable) -> None:
        """`publish` a PreparedMessage, or a message that was received.

        Raises as publish_nowait, and ConfigError for anything else.
        """
        raise NotImplementedError

    def publish_nowait(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message with the next turn of the event loop.

        `payload`: any bytes-like object. Raises BadPayloadError for anything else, BadSubjectError,
        BadHeaderError, MaxPayloadError, HeadersNotSupportedError, OutboundBufferError
        (`pending_size` bytes are buffered already), ConnectionClosedError, ConfigError in another
        event loop or thread than the client's.
        """
        self._publishing.send(subject, payload, reply, headers)

    def request(
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
        refuses the subject or the inbox, BadTimeoutError, and what publish_nowait raises.
        Interrupting it leaves nothing behind; it goes on over a reconnect.
        """
        return Message(self._caller, self._caller.ask(subject, payload, timeout, headers))

    def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        """`request` with a PreparedMessage, or a received one; its `reply` is not used.

        Raises as `request`, and ConfigError for anything else.
        """
        raise NotImplementedError

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

        It ends at whichever comes first: `max_msgs` replies (0: no limit); `stall` seconds without
        a reply after the last one (None: no limit); a reply that is the sentinel, which is not
        given out (True: the one without payload; a function: the one for which it is true, called
        in the event loop's thread); `timeout` seconds in all, default: request_timeout. The request
        is sent when the first reply is requested.

        Raises RequestTimeoutError when not one reply came in time, NoRespondersError at once
        without responders, BadTimeoutError, ConfigError, ConnectionClosedError,
        ConnectionLostError, and what publish_nowait raises.
        """
        return Replies(
            self._caller,
            self._inner.request_many(
                subject,
                payload,
                timeout=timeout,
                headers=headers,
                max_msgs=max_msgs,
                stall=stall,
                sentinel=judging(self._caller, sentinel),
            ),
        )

    def new_inbox(self) -> str:
        """A fresh subject for replies, below `inbox_prefix`."""
        return self._inner.new_inbox()

    def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: MessageCallback | None = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> Subscription:
        """Subscribe; iterate the result, or give a callback, called in a thread of its own.

        `queue` joins a queue group; `max_msgs` ends it after so many messages (0: never). At a
        pending limit new messages are dropped, and a SlowConsumerError is reported. Raises
        BadSubjectError, ConfigError, ConnectionClosedError.
        """
        return Subscription(
            self._caller,
            subject,
            lambda forward: self._inner.subscribe(
                subject,
                queue=queue,
                callback=forward,
                max_msgs=max_msgs,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )
