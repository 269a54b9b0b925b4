"""Core NATS over asyncio: publish, subscribe, request.

Contract
- A client belongs to the event loop in which it was created; in other threads its calls raise
  ConfigError.
- Methods without `await` only buffer; the end of the loop's turn writes.
- Arguments are checked before anything is buffered. Errors that no call can raise go to
  `last_error`, the log "jetspark" and the error callback.
- `close` sends the buffer and ends everything at once; `drain` first handles what has arrived. A
  closed client stays closed.
"""

from __future__ import annotations

import asyncio
import os
import time
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Final, Self, TypeVar
from weakref import ref

import jetspark.errors as errors
from jetspark.client.callbacks import ErrorCallback, EventCallback, EventStream, Notices
from jetspark.client.hooks import HookRunner, HooksLike, bound
from jetspark.client.messages import Message, Sendable, parts_of
from jetspark.client.publishing import Publishing
from jetspark.client.requests import Replies, RequestMux, new_inbox, no_reply, room_within
from jetspark.client.subscription import (
    FrameReader,
    Listener,
    MessageCallback,
    MessageSource,
    Subscription,
)
from jetspark.client.tasks import move_on_after, reported, yielding
from jetspark.connection.events import ConnectionStatus
from jetspark.connection.options import ConnectOptions
from jetspark.connection.routes import OnRefused, OnRun, Route
from jetspark.connection.server_errors import check_line
from jetspark.connection.session import Statistics
from jetspark.connection.supervisor import CLOSE_TIMEOUT, Supervisor
from jetspark.connection.transports import Dial, TLSState
from jetspark.connection.waiting import start_task
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.subjects import check_queue, check_subscribe_subject
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole, texts_of
from jetspark.wire.documents import ServerInfo
from jetspark.wire.frames import target_of
from jetspark.wire.headers import HeadersLike, PayloadCodec, codec_of
from jetspark.wire.kernel import MessageFrame

DRAIN_TIMEOUT: Final = 30.0
PENDING_MSGS_LIMIT = 524_288
PENDING_BYTES_LIMIT = 128 * 1024 * 1024


class CoreClient:
    """One connection to a NATS deployment: created in a running event loop, then connected."""

    def __init__(
        self,
        options: ConnectOptions | None = None,
        *,
        hooks: HooksLike | None = None,
        event_callback: EventCallback | None = None,
        error_callback: ErrorCallback | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.options = options or ConnectOptions()
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        hooks = None if hooks is None else bound(hooks, self)
        self.hooks = HookRunner(hooks, self.report, self.options.api_prefix)
        if hooks is not None:
            event_callback = self.hooks.event_callback(event_callback)
        self._notices = Notices(self.loop, event_callback, error_callback, self.report)
        self._link = Supervisor(
            self.options, on_event=self._notices.event, on_error=self._notices.error, dial=dial
        )
        self.publishing = Publishing(self._link, self.options, self._link.outbox)
        if hooks is not None:
            self.publishing.hook(self.hooks)
        self.requests = RequestMux(
            self.loop, self._link, self.publishing, self.options.inbox_prefix
        )
        self._subscriptions: set[MessageSource] = set()
        self._iterated: dict[ref[MessageSource], Callable[[], None]] = {}
        """Functions that end sources to which nothing refers any more."""
        self._draining: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # of the first drain

    # -- state ---------------------------------------------------------------------------------

    @property
    def status(self) -> ConnectionStatus:
        """closed, connecting, connected, reconnecting or draining."""
        return self._link.status

    @property
    def is_connected(self) -> bool:
        """Whether there is a link now."""
        return self._link.status in (ConnectionStatus.CONNECTED, ConnectionStatus.DRAINING)

    @property
    def last_error(self) -> errors.JetsparkError | None:
        """The last asynchronous error; a successful (re)connect clears it.

        Once the client is closed: why the connection was lost; None after `close` and `drain`.
        """
        return self._link.last_error

    @property
    def server_info(self) -> ServerInfo | None:
        """INFO of the current server, or of the last one while there is no link."""
        return self._link.info

    @property
    def current_server(self) -> str | None:
        """URL of the current server, without credentials; None without a link."""
        return str(link.server) if (link := self._link.present) else None

    @property
    def tls(self) -> TLSState | None:
        """Version, cipher and the server's certificate of the link; None without TLS or a link."""
        return link.tls if (link := self._link.present) else None

    @property
    def servers(self) -> list[str]:
        """URLs of all servers in the pool, including those that the cluster advertised."""
        return [str(server.url) for server in self._link.pool.servers]

    @property
    def max_payload(self) -> int:
        """Largest message that the server accepts: bytes of headers and payload."""
        return self._link.max_payload

    @property
    def stats(self) -> Statistics:
        """Traffic so far."""
        link = self._link
        return Statistics(
            in_msgs=link.traffic.messages,
            in_bytes=link.traffic.payload,
            out_msgs=link.outbox.published,
            out_bytes=link.outbox.bytes_out,
            reconnects=link.traffic.reconnects,
            slow_consumers=link.traffic.slow_consumers,
            pending_msgs=sum(getattr(source, "pending_msgs", 0) for source in self._sources()),
        )

    def events(self) -> EventStream:
        """An iterator over the connection's changes from now on; ends when it is closed.

        Example:
            ```python
            events = nc.events()
            await nc.force_reconnect()
            async for event in events:
                print(type(event).__name__)  # Disconnected Reconnected
            ```
        """
        return self._notices.stream()

    def report(self, error: errors.JetsparkError) -> None:
        """To last_error, the log and the error callback: for errors that no call can raise."""
        self._link.report(error)

    def require_open(self) -> None:
        """Raise ConnectionClosedError when the client is closed; the cause is what ended it."""
        self._link.require_open()

    def _message(self, frame: MessageFrame) -> Message:
        return Message(self, frame)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status} {self.current_server or ''}".rstrip() + ">"

    # -- life ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, as the option `first_connect` says: by default each server is tried once.

        Does nothing when it is connected or connecting already. With one server, raises its error;
        with more, NoServersError from the last one's error. Raises ConfigError for unusable TLS
        files, ConnectionClosedError after `close`.
        """
        self.check_loop()
        await self._link.connect()

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Replace the servers to connect to, discovered ones too, from the next attempt on.

        `servers`: one URL or several. The present link stays until `force_reconnect`. Raises
        ConfigError for servers that `connect` would refuse, ConnectionClosedError.
        """
        self.check_loop()
        self.require_open()
        several = servers if isinstance(servers, str) else tuple(texts_of("servers", servers))
        self._link.replace_servers(replace(self.options, servers=several).urls())

    async def force_reconnect(self) -> None:
        """Leave this server for the next one; returns when the new link is up.

        Raises ConnectionClosedError when closed, or when no server could be reached.
        """
        self.check_loop()
        await self._link.force_reconnect()

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Wait until the server has processed everything published before.

        While the client is connecting or reconnecting, it waits for the link. `timeout` in seconds,
        default: request_timeout. Raises RequestTimeoutError, BadTimeoutError; ConnectionClosedError
        when the client is closed or the link lost: what it carried may not have arrived.
        """
        await self._ping(seconds_of(timeout, self.options), wait=True)

    async def rtt(self, timeout: Seconds | None = None) -> float:
        """Seconds of one round trip to the server.

        `timeout` in seconds, default: request_timeout. Raises RequestTimeoutError,
        ConnectionClosedError when there is no link or it is lost, BadTimeoutError.
        """
        start = time.perf_counter()
        await self._ping(seconds_of(timeout, self.options), wait=False)
        return time.perf_counter() - start

    async def _ping(self, limit: float, *, wait: bool) -> None:
        self.check_loop()
        async with yielding(), move_on_after(limit):
            if wait:
                await self._link.linked()
            await self._link.ping()
            return
        raise errors.RequestTimeoutError(
            f"There was no link to a server within {limit:g} s."
            if self._link.present is None
            else f"The server did not answer a PING within {limit:g} s."
        )

    async def barrier(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """Wait until callbacks have handled every message that this client has received.

        It does not wait for iterators. After `flush` these are all messages that the server had
        sent by then. `timeout`: seconds. Raises RequestTimeoutError, ConnectionClosedError,
        BadTimeoutError; ConfigError in a callback, which would wait for itself.
        """
        self.check_loop()
        self.require_open()
        seconds = seconds_of(timeout, self.options)
        readers = [source for source in self._subscriptions if isinstance(source, FrameReader)]
        task = asyncio.current_task()
        if task is not None and any(reader.callback_task is task for reader in readers):
            raise in_its_own_callback()
        waiting = [handled for reader in readers if (handled := reader.handled()) is not None]
        if not waiting:
            return
        done, late = await asyncio.wait(waiting, timeout=seconds)
        if late:
            raise errors.RequestTimeoutError(
                f"{len(late)} callbacks had not handled their messages after {seconds:g} s."
            )
        if not all(future.result() for future in done):
            raise errors.ConnectionClosedError(
                "The connection was closed before the callbacks were done."
            )

    async def drain(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """End subscriptions, let callbacks handle what has arrived, send publishes, then close.

        Callbacks may still publish, but not subscribe. If there is something to send, it waits for
        a link first. After `timeout` seconds it raises RequestTimeoutError, which says how much was
        never sent; without a link, or when it is lost, ConnectionClosedError. The client is closed
        in any case, except after BadTimeoutError.

        In a message callback, which would wait for itself, it returns at once and continues in the
        background; its errors are reported. A second call waits for the first and raises the same
        error.
        """
        self._check_ending()
        timeout = seconds_of(timeout, self.options)
        caller = asyncio.current_task()
        calling = [sub.left_by(caller) for sub in self._sources()]
        if not any(calling):
            await self._drain(timeout)
        elif self._draining is None:
            self._draining = start_task(reported(self._drain(timeout), self.report))

    async def _others_drain(self, drained: asyncio.Future[None], timeout: float) -> None:
        await asyncio.wait({drained}, timeout=timeout)
        if not drained.done():
            raise errors.RequestTimeoutError(f"Draining took more than {timeout:g} s.")
        if (error := drained.exception()) is not None:
            raise copy(error)

    async def _drain(self, timeout: float) -> None:
        if self._drained is not None and not self._drained.done():
            await self._others_drain(self._drained, timeout)
            return
        if self.status is ConnectionStatus.CLOSED and self.last_error is None:
            return
        drained = self._drained = self.loop.create_future()
        try:
            await self._drain_all(timeout)
        except BaseException as error:
            cancelled = errors.ConnectionClosedError(
                "The connection was closed: its drain was cancelled."
            )
            drained.set_exception(error if isinstance(error, errors.JetsparkError) else cancelled)
            drained.exception()  # mark it as retrieved, since perhaps nobody waits
            raise
        else:
            drained.set_result(None)

    async def _drain_all(self, timeout: float) -> None:
        draining: dict[asyncio.Task[None], MessageSource] = {}
        deadline = self.loop.time() + timeout
        try:
            async with move_on_after(timeout):
                if self._link.outbox.size:
                    await self._link.linked()
                if self.status is not ConnectionStatus.CONNECTED:
                    raise errors.ConnectionClosedError(
                        "The link was lost before the client was drained."
                    )
                self._link.begin_drain()
                for sub in self._sources():
                    draining[start_task(sub.drain(timeout))] = sub
                for result in await asyncio.gather(*draining, return_exceptions=True):
                    if isinstance(result, BaseException):
                        raise result
                await self._link.ping()
                return
            if not self.is_connected:
                raise errors.ConnectionLostError(
                    f"{self._link.outbox.size} bytes that had been published were never sent: "
                    f"there was no link to a server within {timeout:g} s."
                )
            late = [repr(sub) for task, sub in draining.items() if task.cancelled()]
            waits = f" It waits for {', '.join(late)}." if late else ""
            raise errors.RequestTimeoutError(f"Draining took more than {timeout:g} s.{waits}")
        finally:
            await self._close(deadline - self.loop.time())

    async def close(self) -> None:
        """Send what is buffered and end the connection. May be called again.

        Pending requests and iterators end at once; a running callback is cancelled. It does not
        wait for a link: the buffer is then lost, which is reported.
        """
        await self._close(CLOSE_TIMEOUT)

    async def _close(self, timeout: float) -> None:
        self._check_ending()
        try:
            await self._link.close(timeout)
        finally:
            # No await before this: it completes even when it is cancelled here.
            ended = [sub.abandon() for sub in self._sources()]
        if ending := {task for task in ended if task is not None}:
            await asyncio.wait(ending)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # -- publishing and requesting ----------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        payload: Value = b"",
        reply: str | None = None,
        *,
        headers: HeadersLike | None = None,
        codec: PayloadCodec | None = None,
    ) -> None:
        """Send one message; waits while the link is blocked.

        `codec`: makes the payload of a value, see `jetspark.payloads.Codec`. Raises as
        publish_nowait and the codec.

        Example:
            ```python
            await nc.publish("orders.eu", b"42 apples", headers={"Source": "shop 7"})
            ```
        """
        if get_running_loop() is not self.loop:  # asked here, as it is for each message
            self.check_loop()
        if codec is not None:
            payload, headers = codec_of(codec).encode(payload, headers)
        publishing = self.publishing
        if publishing.outbox.crowded:
            payload = payload_bytes(payload)  # a copy: the caller may change it in the meantime
            await publishing.outbox.wait()
        publishing.send(subject, payload, reply, headers)

    async def publish_msg(self, message: Sendable) -> None:
        """`publish` a PreparedMessage or a received message. Raises as publish_nowait."""
        subject, data, reply, headers = parts_of(message)
        await self.publish(subject, data, reply=reply, headers=headers)

    def publish_nowait(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str | None = None,
        *,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message at the end of this turn of the event loop.

        Raises BadPayloadError, BadSubjectError, BadHeaderError, MaxPayloadError,
        HeadersNotSupportedError, OutboundBufferError (`pending_size` bytes are buffered),
        ConnectionClosedError, ConfigError in another event loop or thread than the client's.
        """
        self.check_loop()
        self.publishing.send(subject, payload, reply, headers)

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Publish and wait for the first reply; `timeout` in seconds, default: request_timeout.

        It survives a reconnect. Raises NoRespondersError at once, RequestTimeoutError,
        ConnectionClosedError, its kind ConnectionLostError, PermissionsError for the subject
        or the inbox, BadTimeoutError, and the errors of publish_nowait.

        Example:
            ```python
            async def price(message):
                await message.respond(b"1.20")

            async with nc.subscribe("price.apples", callback=price):
                reply = await nc.request("price.apples", timeout=0.5)
                print(reply.data)  # b'1.20'
            ```
        """
        if self.publishing.asking is None:
            return await plain_request(self, subject, payload, timeout, headers)
        return await request_and_read(
            self, subject, payload, _as_it_is, timeout=timeout, headers=headers
        )

    async def ask(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """`request` for a question that may be asked twice: after a lost link, it is sent again.

        Raises the errors of `request`.
        """
        return await request_and_read(
            self, subject, payload, _as_it_is, timeout=timeout, headers=headers, resend=True
        )

    async def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        """`request` with a PreparedMessage or a received message, without its `reply`.

        Raises the errors of `request`.
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
        """Publish and gather replies: iterate the result, or `.all()` for a list.

        Sends the request when the first reply is needed. It ends after `max_msgs` replies (0: no
        limit), `stall` seconds without another reply (None: no limit), the sentinel, which is not
        returned (True: an empty reply; a function: a reply for which it is true), or `timeout`
        seconds in all, default: request_timeout.

        Raises RequestTimeoutError when no reply came in time, NoRespondersError at once,
        BadTimeoutError, ConfigError, ConnectionClosedError, ConnectionLostError, and the errors of
        publish_nowait.

        Example:
            ```python
            async def report(message):
                for part in (b"1", b"2", b""):
                    await message.respond(part)

            async with nc.subscribe("report", callback=report):
                async for reply in nc.request_many("report", sentinel=True):
                    print(reply.data)  # b'1' b'2'
            ```
        """
        limit = seconds_of(timeout, self.options)
        silence = in_seconds(stall)
        if silence is not None and not silence > 0:
            raise errors.BadTimeoutError(silence)
        check_whole("max_msgs", max_msgs, 0)
        is_sentinel = sentinel if callable(sentinel) else _is_empty if sentinel else _is_none
        data = payload_bytes(payload)  # a copy: the caller may change it in the meantime
        return Replies(self._gather(subject, data, headers, limit, max_msgs, silence, is_sentinel))

    def ask_many(self, subject: str, payload: bytes, *, timeout: Seconds) -> Replies:
        """`request_many` for a question that may be asked twice.

        When the link is lost before the first reply, it is sent on the next link, with a new reply
        subject so that two answers never mix; when it is lost later, the replies end there.
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
        deadline = self.loop.time() + timeout
        if self.publishing.outbox.crowded:
            await room_within(self.publishing.outbox, subject, timeout)
        first = ask_again = True
        while first and ask_again:
            with self.requests.reply_queue(
                subject, deadline, max_msgs, stall, question=question
            ) as (replies, inbox):
                self.publishing.send(subject, payload, inbox.decode(), headers)
                while (frame := await replies.next()) is not None:
                    self.requests.check_responders(frame, subject)
                    message = self._message(frame)
                    if is_sentinel(message):
                        return
                    first = False
                    yield message
                ask_again = replies.was_cut
        if first:
            raise no_reply(subject, timeout)

    def new_inbox(self) -> str:
        """A fresh subject for replies, below `inbox_prefix`."""
        return new_inbox(self.options.inbox_prefix)

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
        """Subscribe; iterate the result, or give a `callback`.

        `queue` joins a queue group; `max_msgs` ends it after so many messages (0: never). At a
        pending limit new messages are dropped, and a SlowConsumerError is reported. Raises
        BadSubjectError, ConfigError, ConnectionClosedError.

        Example:
            ```python
            async with nc.subscribe("prices.*", queue="billing") as prices:
                await nc.publish("prices.eu", b"1.20")
                async for message in prices:
                    print(message.subject, message.data)  # prices.eu b'1.20'
            ```
        """
        self.check_loop()
        self._check_subscribe(subject, queue, max_msgs)
        return Subscription(
            self,
            self._link,
            subject,
            queue=queue,
            callback=callback,
            max_msgs=max_msgs,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
        )

    def listen(
        self,
        subject: str,
        handler: Callable[[MessageFrame], None],
        *,
        queue: str | None = None,
        max_msgs: int = 0,
        on_run: OnRun | None = None,
        on_disconnect: Callable[[], None] | None = None,
        on_reconnect: Callable[[], None] | None = None,
        on_refused: OnRefused | None = None,
        on_end: Callable[[errors.JetsparkError | None], None] | None = None,
    ) -> Listener:
        """Subscribe at the lowest level: `handler` gets each raw frame inside the read loop.

        `handler` must not block. There is no queue, and nothing is dropped. `on_run` gets
        consecutive messages in one call, with the bytes of their payloads; when it returns False,
        or with max_msgs, they go to `handler`. `on_disconnect`: the link was lost. `on_reconnect`:
        the new link knows this subscription. `on_refused`: a publish with this subject or reply
        subject was refused. `on_end`: no more frames will come, after max_msgs (None), a refused
        permission, or the connection's end (ConnectionClosedError); `Listener.close` does not call
        it. Raises the errors of `subscribe`.

        Example:
            ```python
            def count(frame):
                print(len(frame.payload))  # 9

            listener = nc.listen("orders.*", count)
            await nc.publish("orders.eu", b"42 apples")
            await nc.flush()
            await nc.barrier()
            ```
        """
        self.check_loop()
        self._check_subscribe(subject, queue, max_msgs)
        route = Route(
            subject,
            handler,
            queue=queue or None,
            max_msgs=max_msgs,
            on_run=on_run,
            on_disconnect=on_disconnect,
            on_reconnect=on_reconnect,
            on_refused=on_refused,
            on_end=on_end,
        )
        return Listener(self._link, route)

    def adopt(
        self, source: MessageSource, end: Callable[[], None] | None = None
    ) -> Callable[[], object]:
        """Have `drain` drain it and `close` abandon it, until the returned function is called.

        With `end` the client does not keep it alive: when nothing else refers to it, the event loop
        calls `end`, which must not refer to it either.
        """
        if end is None:
            self._subscriptions.add(source)
            return partial(self._subscriptions.discard, source)
        weak = ref(source, self._on_unreferenced)
        self._iterated[weak] = end
        return partial(self._forget, weak)

    def _on_unreferenced(self, weak: ref[MessageSource]) -> None:
        # The garbage collector may call this anywhere: in another thread, or in a forked child with
        # its parent's loop.
        if (end := self._forget(weak)) is not None and os.getpid() == self._pid:
            with suppress(RuntimeError):  # the loop is closed, so the link is, too
                self.loop.call_soon_threadsafe(end)

    def _forget(self, weak: ref[MessageSource]) -> Callable[[], None] | None:
        return self._iterated.pop(weak, None)

    def _sources(self) -> list[MessageSource]:
        alive = [source for weak in tuple(self._iterated) if (source := weak()) is not None]
        return [*self._subscriptions, *alive]

    def check_loop(self) -> None:
        """Raise ConfigError in another event loop or thread than the client's."""
        self._link.outbox.check_home()

    def _check_ending(self) -> None:
        """A closed client may be closed again anywhere, which does nothing."""
        if self.status is not ConnectionStatus.CLOSED:
            self.check_loop()

    def _check_subscribe(self, subject: str, queue: str | None, max_msgs: int) -> None:
        check_subscribe_subject(subject, strict=self.options.check_subjects)
        if queue is not None:
            check_queue(queue)
        check_line(subject, target_of(subject, queue), self.options.max_control_line)
        check_whole("max_msgs", max_msgs, 0)


async def plain_request(
    client: CoreClient,
    subject: str,
    payload: Payload,
    timeout: Seconds | None,
    headers: HeadersLike | None,
    *,
    resend: bool = False,
) -> Message:
    """`Client.request`, or `ask` if `resend`, without hooks."""
    if get_running_loop() is not client.loop:
        client.check_loop()
    requests, outbox = client.requests, client.publishing.outbox
    seconds, spent = seconds_of(timeout, client.options), 0.0
    if outbox.crowded:
        payload = payload_bytes(payload)  # a copy: the caller may change it in the meantime
        spent = await room_within(outbox, subject, seconds)
    answer: asyncio.Future[MessageFrame] = client.loop.create_future()
    try:
        reply = requests.ask(answer, subject, payload, headers, seconds, resend=resend, spent=spent)
    except errors.ConnectionClosedError:
        await asyncio.sleep(0)  # a caller who asks again and again must not freeze the loop
        raise
    try:
        frame = await answer
    except BaseException:
        requests.close(reply)
        raise
    if frame.headers is not None:
        requests.check_responders(frame, subject)
    return client._message(frame)


def seconds_of(timeout: Seconds | None, options: ConnectOptions) -> float:
    """The seconds of a timeout, or request_timeout for None. Raises BadTimeoutError."""
    if timeout is None:
        return options.request_timeout
    seconds = in_seconds(timeout)
    if not seconds > 0:
        raise errors.BadTimeoutError(seconds)
    return seconds


def _is_empty(message: Message) -> bool:
    return not message.data


def _is_none(message: Message) -> bool:
    return False


def _as_it_is(message: Message) -> Message:
    return message


def in_its_own_callback() -> errors.ConfigError:
    """The error for a callback that calls `barrier`."""
    return errors.ConfigError(
        "A callback cannot wait for a barrier, which waits for the callback: use another task "
        "or thread."
    )


T = TypeVar("T")


async def request_and_read(
    client: CoreClient,
    subject: str,
    payload: Payload,
    read: Callable[[Message], T],
    *,
    timeout: Seconds | None,
    headers: HeadersLike | None,
    resend: bool = False,
) -> T:
    """The result of `read` for the reply of `Client.request`; raises the errors of both.

    It reads inside the hook, which thus sees its errors. `resend`: as for `Client.ask`.
    """

    hooked = client.publishing.asking
    if hooked is None:
        return read(await plain_request(client, subject, payload, timeout, headers, resend=resend))
    ask = partial(plain_request, client, subject, payload, timeout, resend=resend)
    return await hooked.request(subject, payload, headers, ask, read)
