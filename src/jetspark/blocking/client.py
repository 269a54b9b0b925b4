"""Core NATS without async: publish, subscribe, request, from any thread.

Contract
- The names, arguments, results and errors of `jetspark.face.Client`, without `await`. All clients
  of a process share one event-loop thread (`loop_thread`); a client may be used by any number of
  threads at once.
- A publish is checked here and left in a buffer that goes to the loop as a whole; it blocks while
  the network takes no more. Calls that need an answer block until it is there.
- User functions (callbacks) are called in threads of their own and may use the client.
- A forked child connects again: there, all calls but `close` raise ConnectionClosedError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.events import EventStream
from jetspark.blocking.jetstream import JetStream
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.loop_thread import current
from jetspark.blocking.messaging import MessagingCalls
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.blocking.subscription import MessageCallback, Subscription
from jetspark.blocking.worker import Worker, check_callback, in_callback_of
from jetspark.client.client import (
    DRAIN_TIMEOUT,
    PENDING_BYTES_LIMIT,
    PENDING_MSGS_LIMIT,
    Statistics,
)
from jetspark.connection.events import Closed, ConnectionEvent, ConnectionStatus
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.transport import Dial, dial_tcp
from jetspark.errors import JetsparkError, RequestTimeoutError
from jetspark.face import Client as AsyncClient
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.documents import ServerInfo

ErrorCallback: TypeAlias = Callable[[JetsparkError], None]
EventCallback: TypeAlias = Callable[[ConnectionEvent], None]

EXIT_FLUSH_TIMEOUT = 1.0
"""Seconds that a server may take at interpreter exit to confirm what was published."""


class Client(MessagingCalls, Leaving):
    """One connection to a NATS deployment, for any thread. Made, then connected."""

    _inner: AsyncClient
    _buffer: PublishBuffer
    _caller: CallerSide

    def __init__(
        self,
        options: ConnectOptions | None = None,
        *,
        event_callback: EventCallback | None = None,
        error_callback: ErrorCallback | None = None,
        dial: Dial = dial_tcp,
    ) -> None:
        for callback in (event_callback, error_callback):
            check_callback(callback)
        self.options = options or ConnectOptions()
        self._thread = current()
        self._notices = Worker("jetspark-notices")
        self._event_callback = event_callback
        self._error_callback = error_callback
        self._thread.call(self._make, dial)

    def _make(self, dial: Dial) -> None:
        self._inner = AsyncClient(
            self.options, event_callback=self._on_event, error_callback=self._on_error, dial=dial
        )
        link = self._inner._link
        self._buffer = PublishBuffer(self._thread, link, self.options.pending_size)
        self._caller = CallerSide(self._thread, self._inner, self._buffer)

    def _on_event(self, event: ConnectionEvent) -> None:
        self._buffer.link_changed()
        if self._event_callback is not None:
            self._notices.post(partial(self._event_callback, event))
        if isinstance(event, Closed):
            self._thread.open.discard(self._end)
            self._notices.stop()

    def _on_error(self, error: JetsparkError) -> None:
        if self._error_callback is not None:
            self._notices.post(partial(self._error_callback, error))

    # -- what it is ----------------------------------------------------------------------------

    @property
    def status(self) -> ConnectionStatus:
        """closed, connecting, connected, reconnecting or draining."""
        return self._inner.status

    @property
    def is_connected(self) -> bool:
        """Whether there is a link now."""
        return self._inner.is_connected

    @property
    def last_error(self) -> JetsparkError | None:
        """The last asynchronous error; a successful (re)connect clears it."""
        return self._inner.last_error

    @property
    def server_info(self) -> ServerInfo | None:
        """What the present server said of itself, or the last one while there is no link."""
        return self._inner.server_info

    @property
    def current_server(self) -> str | None:
        """URL of the present server, without credentials; None without a link."""
        return self._inner.current_server

    @property
    def servers(self) -> list[str]:
        """URLs of all servers in the pool, those learnt from the cluster too."""
        return self._inner.servers

    @property
    def max_payload(self) -> int:
        """Largest message that the server accepts, bytes, headers included."""
        return self._inner.max_payload

    @property
    def stats(self) -> Statistics:
        """Traffic so far."""
        stats = self._inner.stats
        return replace(stats, out_msgs=stats.out_msgs + self._buffer.count)

    def events(self) -> EventStream:
        """Iterator over changes of the connection from now on; ends when it is closed."""
        return EventStream(self._thread, self._thread.call(self._inner.events))

    def report(self, error: JetsparkError) -> None:
        """last_error, the log, and the error callback: for errors that no call can raise."""
        self._thread.call(self._inner.report, error)

    def __repr__(self) -> str:
        return repr(self._inner)

    # -- life ----------------------------------------------------------------------------------

    def connect(self) -> None:
        """Try each server once. Nothing happens when it is connected or connecting already.

        Raises the error of the one server, or NoServersError with the last one's as `__cause__`;
        ConfigError for TLS files that cannot be used; ConnectionClosedError after `close`.
        """
        self._thread.run(self._connect)

    async def _connect(self) -> None:
        await self._inner.connect()
        self._thread.open.add(self._end)

    def force_reconnect(self) -> None:
        """Leave this server for the next one; returns when the link is up again.

        Raises ConnectionClosedError when closed, or when no server could be reached.
        """
        self._thread.run(self._inner.force_reconnect)

    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when the server has taken all that was published before.

        `timeout` in seconds, request_timeout by default. Raises RequestTimeoutError, and
        ConnectionClosedError when there is no link or it is lost meanwhile.
        """
        self._thread.run(self._flush, timeout)

    async def _flush(self, timeout: Seconds | None) -> None:
        limit = self.options.request_timeout if timeout is None else in_seconds(timeout)
        try:
            async with asyncio.timeout(limit):
                await self._buffer.emptied()
        except TimeoutError:
            raise RequestTimeoutError(f"The network took no more within {limit:g} s.") from None
        await self._inner.flush(timeout)

    def rtt(self) -> float:
        """Seconds of one round trip to the server. Raises as `flush` does."""
        return self._thread.run(self._inner.rtt)

    def drain(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """Finish, then close: subscriptions end, callbacks get what has arrived, publishes leave.

        Publishing is possible until the callbacks are done, subscribing is not. `timeout` in
        seconds; what is not done by then is given up and RequestTimeoutError raised. Raises
        ConnectionClosedError when there is no link. The client is closed in any case.

        Called in a callback that gets messages, which it would have to wait for, it returns at
        once and goes on by itself; its errors are reported. A second call waits for the first and
        raises as it does; nothing happens when the client is closed, by `drain` or by `close`.
        """
        if in_callback_of(self._inner):
            self._thread.spawn(lambda: self._drain_alone(timeout))
        else:
            self._thread.run(self._drain, timeout)

    async def _drain(self, timeout: Seconds) -> None:
        self._buffer.give()
        await self._inner.drain(timeout)

    async def _drain_alone(self, timeout: Seconds) -> None:
        try:
            await self._drain(timeout)
        except JetsparkError as error:
            self._inner.report(error)

    def close(self) -> None:
        """Send what waits and end the connection. Any number of times.

        Pending requests and iterators end at once; a callback that runs is left to finish, and
        gets no more.
        """
        if not self._thread.is_over:  # else it is closed, or another process's
            self._thread.run(self._close)

    async def _close(self) -> None:
        self._buffer.give()
        try:
            await self._inner.close()
        finally:
            self._thread.open.discard(self._end)

    async def _end(self) -> None:
        """At interpreter exit."""
        try:
            # Until the server has it: closing a socket that has unread input resets the
            # connection, and what the server had not read by then is gone.
            await self._flush(EXIT_FLUSH_TIMEOUT)
        except JetsparkError:
            pass
        finally:
            await self._close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def _leave(self) -> None:
        self.close()

    # -- subscribing ---------------------------------------------------------------------------

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
        pending limit new messages are dropped, and SlowConsumerError tells. Raises
        BadSubjectError, ConfigError, ConnectionClosedError.
        """
        return Subscription(
            self._caller,
            subject,
            queue=queue,
            callback=callback,
            max_msgs=max_msgs,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
        )

    # -- JetStream -----------------------------------------------------------------------------

    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        """JetStream over this connection; several at once may differ in these.

        `timeout`: seconds for each API call and ack. `domain`: a JetStream domain. `api_prefix`:
        the whole prefix instead of "$JS.API". With neither, the connection's own ones
        (`jetstream_domain`, `jetstream_api_prefix`). `trace`: log each API request and answer to
        "jetspark.trace" at level DEBUG. Nothing is sent. Raises ConfigError when both domain and
        api_prefix are given.
        """
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)


def connect(
    servers: str | Iterable[str] | None = None,
    *,
    event_callback: EventCallback | None = None,
    error_callback: ErrorCallback | None = None,
    **options: Any,
) -> Client:
    """Connect to NATS: `nc = connect(...)`, or `with connect(...) as nc`.

    `servers`: one URL or several, nats://127.0.0.1:4222 by default. `options`: the fields of
    ConnectOptions; an unknown name raises ConfigError. `event_callback` is told of changes of the
    connection, `error_callback` of errors that no call can raise; both are called in a thread of
    their own. See `Client.connect` for the errors of connecting.
    """
    made = make_options(servers, **options)
    client = Client(made, event_callback=event_callback, error_callback=error_callback)
    client.connect()
    return client
