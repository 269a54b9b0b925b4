"""Core NATS without async: publish, subscribe, request, from any thread.

Contract
- Names, arguments, results and errors are those of the asyncio client, without `await`. All clients
  of a process share one event-loop thread (`loop_thread`). Clients are thread-safe.
- A publish is checked in the calling thread and put into a buffer, which goes to the loop as a
  whole; a full buffer blocks it. Calls that need a reply block until it arrives.
- Callbacks run in threads of their own and may use the client.
- A forked child must connect again: all calls but `close` raise ConnectionClosedError there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.iterators import MessageIterator, SingleIterator
from jetspark.blocking.loop_thread import current
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.blocking.twin import Block, Read, Sends, Twin, awaits, calls, drives, twin_of
from jetspark.blocking.worker import Worker, in_callback_of, plain_callback
from jetspark.client.callbacks import EventStream as AsyncEventStream
from jetspark.client.client import (
    DRAIN_TIMEOUT,
    PENDING_BYTES_LIMIT,
    PENDING_MSGS_LIMIT,
    in_its_own_callback,
    seconds_of,
)
from jetspark.client.client import CoreClient as AsyncCoreClient
from jetspark.client.hooks import HookRunner, HooksLike, bound
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.messages import MessageView, Sendable, parts_of
from jetspark.client.requests import Replies as AsyncReplies
from jetspark.client.subscription import Subscription as AsyncSubscription
from jetspark.client.tasks import move_on_after, reported
from jetspark.connection.events import Closed, ConnectionEvent, ConnectionStatus
from jetspark.connection.options import ConnectOptions
from jetspark.connection.session import Statistics
from jetspark.connection.transports import Dial, TLSState
from jetspark.errors import JetsparkError, RequestTimeoutError, user_error
from jetspark.full_client import Client as AsyncClient
from jetspark.payload_bytes import Payload, Value
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import HeadersLike, PayloadCodec, codec_of
from jetspark.wire.kernel import frame_of

__all__ = ["CoreClient", "Subscription"]

EXIT_FLUSH_TIMEOUT = 1.0
"""Seconds at interpreter exit for the server to confirm the publishes."""


# -------------------------------------------------------------------------------------------------
# Messages


@twin_of(AsyncMessage)
class Message(Sends, MessageView):
    __slots__ = ()

    _client: CallerSide

    respond = drives(AsyncMessage.respond)

    def _twin(self) -> AsyncMessage:
        return AsyncMessage(self._client, frame_of(self))


MessageCallback: TypeAlias = Callable[[Message], None]


@twin_of(AsyncSubscription)
class Subscription(MessageIterator[Message], Block):
    _inner: AsyncSubscription
    _message = Message
    active = Read[bool]()
    subject = Read[str]()
    queue = Read[str | None]()
    dropped = Read[int]()

    @property
    def pending_bytes(self) -> int:
        return self._inner.pending_bytes + sum(
            len(frame.payload) for frame in self._buffered.copy()
        )

    @property
    def delivered(self) -> int:
        return self._inner.delivered - len(self._buffered)

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # raises for a subscription with a callback
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._caller, self._buffered.popleft())
        except IndexError:
            pass  # not in the handler, where an interrupt would show this IndexError too
        return super().__next__()

    def unsubscribe(self, max_msgs: int = 0) -> None:
        self._thread.call(self._inner.unsubscribe, max_msgs)
        if not max_msgs:
            self._buffered.clear()

    async def _leave(self, *error: Any) -> None:
        if self._inner.active:
            await super()._leave(*error)
            self._buffered.clear()


@twin_of(AsyncReplies)
class Replies(Twin):
    """The result of `Client.request_many`: iterate it, or `replies.all()`; once.

    The end of a `with` block, and `close`, end the request.
    """

    _inner: AsyncReplies

    def __iter__(self) -> Iterator[Message]:
        replies = self._inner.__aiter__()
        try:
            while True:
                try:
                    reply = self._thread.run(replies.__anext__)
                except StopAsyncIteration:
                    return
                yield Message(self._caller, frame_of(reply))
        finally:
            self._finish()

    def all(self) -> list[Message]:
        return list(self)

    def close(self) -> None:
        """Accept no more replies."""
        self._thread.run(self._inner.aclose)

    def _finish(self) -> None:
        # Without waiting: the garbage collector may call this, and after an interrupt the iteration
        # may still be running.
        if not self._thread.is_over:
            self._thread.spawn(self._inner.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()


def judging(
    caller: CallerSide, sentinel: bool | Callable[[Message], bool]
) -> bool | Callable[[AsyncMessage], bool]:
    """The sentinel for the asyncio call: it passes blocking messages to the user's function."""
    if not callable(sentinel):
        return sentinel
    return lambda reply: sentinel(Message(caller, frame_of(reply)))


# -------------------------------------------------------------------------------------------------
# Events of the connection

ErrorCallback: TypeAlias = Callable[[JetsparkError], None]
EventCallback: TypeAlias = Callable[[ConnectionEvent], None]


@twin_of(AsyncEventStream)
class EventStream(SingleIterator[ConnectionEvent]):
    """Iterator over connection events, for one thread; ends after Closed."""

    close = calls(AsyncEventStream.close)


# -------------------------------------------------------------------------------------------------
# The client


@twin_of(AsyncCoreClient)
class CoreClient(Block):
    _inner: AsyncCoreClient
    last_error = Read[JetsparkError | None]()
    server_info = Read[ServerInfo | None]()
    current_server = Read[str | None]()
    tls = Read[TLSState | None]()
    servers = Read[list[str]]()
    max_payload = Read[int]()
    report = calls(AsyncCoreClient.report)
    set_servers = calls(AsyncCoreClient.set_servers)
    force_reconnect = awaits(AsyncCoreClient.force_reconnect)
    rtt = awaits(AsyncCoreClient.rtt)

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
        self._thread = current()
        self._notices = Worker("jetspark-notices")
        self._event_callback = event_callback and plain_callback(event_callback)
        self._error_callback = error_callback and plain_callback(error_callback)
        self._thread.call(self._make_in_loop, dial)
        if hooks is not None:
            self._hook(hooks)

    def _hook(self, hooks: HooksLike) -> None:
        """Call the hooks where messages are sent, and in the threads that receive messages."""
        hooks = bound(hooks, self)

        def runner(*, quiet: bool) -> HookRunner:
            return HookRunner(hooks, self._caller.report, self.options.api_prefix, quiet=quiet)

        self._inner.hooks, self._caller.hooks = in_loop, in_caller = (
            runner(quiet=True),
            runner(quiet=False),
        )
        self._inner.publishing.hook(in_loop)
        self._caller.publishing.hook(in_caller)
        self._event_callback = in_caller.event_callback(self._event_callback)

    def _make_in_loop(self, dial: Dial | None) -> None:
        self._inner = AsyncClient(
            self.options, event_callback=self._on_event, error_callback=self._on_error, dial=dial
        )
        link, limit = self._inner.publishing.link, self.options.pending_size
        self._buffer = PublishBuffer(self._thread, link, limit)
        self._caller = CallerSide(self._thread, self._inner, self._buffer)
        self._publishing = self._caller.publishing

    def _on_event(self, event: ConnectionEvent) -> None:
        self._buffer.link_changed()
        if isinstance(event, Closed):
            self._thread.open.discard(self._end)
        if self._event_callback is not None:
            self._notices.post(partial(self._call_event_callback, self._event_callback, event))
        elif isinstance(event, Closed):
            self._notices.stop()

    def _call_event_callback(self, callback: EventCallback, event: ConnectionEvent) -> None:
        try:
            callback(event)
        except BaseException as error:  # SystemExit would end the thread silently
            self._caller.report(user_error("The event callback", error))
        if isinstance(event, Closed):  # after what was reported has reached the error callback
            self._thread.post(partial(self._thread.loop.call_soon, self._notices.stop))

    def _on_error(self, error: JetsparkError) -> None:
        if self._error_callback is not None:
            self._notices.post(partial(self._error_callback, error))

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def status(self) -> ConnectionStatus:
        if self._thread.forked:
            return ConnectionStatus.CLOSED
        return self._inner.status

    @property
    def is_connected(self) -> bool:
        return not self._thread.forked and self._inner.is_connected

    @property
    def stats(self) -> Statistics:
        stats = self._inner.stats
        return replace(stats, out_msgs=stats.out_msgs + self._buffer.published)

    def events(self) -> EventStream:
        return EventStream(self._caller, self._thread.call(self._inner.events))

    def new_inbox(self) -> str:
        return self._inner.new_inbox()

    def publish(
        self,
        subject: str,
        payload: Value = b"",
        reply: str | None = None,
        *,
        headers: HeadersLike | None = None,
        codec: PayloadCodec | None = None,
    ) -> None:
        if codec is not None:
            payload, headers = codec_of(codec).encode(payload, headers)
        if self._buffer.crowded:
            self._buffer.block()
        self._publishing.send(subject, payload, reply, headers)

    def publish_nowait(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str | None = None,
        *,
        headers: HeadersLike | None = None,
    ) -> None:
        """`publish` without waiting while the buffer is full."""
        self._publishing.send(subject, payload, reply, headers)

    def publish_msg(self, message: Sendable) -> None:
        subject, data, reply, headers = parts_of(message)
        self.publish(subject, data, reply=reply, headers=headers)

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        return Message(self._caller, self._caller.ask(subject, payload, timeout, headers))

    def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        subject, data, _, headers = parts_of(message)
        return self.request(subject, data, timeout=timeout, headers=headers)

    def connect(self) -> None:
        self._thread.run(self._connect)

    async def _connect(self) -> None:
        await self._inner.connect()
        self._thread.open.add(self._end)

    def flush(self, timeout: Seconds | None = None) -> None:
        self._thread.run(self._flush, timeout)

    async def _flush(self, timeout: Seconds | None) -> None:
        limit = seconds_of(timeout, self.options)
        async with move_on_after(limit):
            await self._buffer.emptied()
            await self._inner.flush(limit)
            return
        raise RequestTimeoutError(
            f"The server had not taken what was published within {limit:g} s."
        )

    def drain(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        if in_callback_of(self._inner):
            self._thread.spawn(lambda: reported(self._drain(timeout), self._inner.report))
        else:
            self._thread.run(self._drain, timeout)

    async def _drain(self, timeout: Seconds) -> None:
        self._buffer.give()
        await self._inner.drain(timeout)

    def barrier(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        if in_callback_of(self._inner):
            raise in_its_own_callback()
        self._thread.run(self._inner.barrier, timeout)

    def close(self) -> None:
        """Send what is buffered and end the connection. May be called again.

        Pending requests and iterators end at once; a running callback finishes, and gets no more
        messages. It does not wait for a link: the buffer is then lost, which is reported.
        """
        self._thread.leave(None, self._close)

    async def _close(self, *_: object) -> None:
        self._buffer.give()
        try:
            await self._inner.close()
        finally:
            self._thread.open.discard(self._end)

    async def _end(self) -> None:
        """Close at interpreter exit."""
        try:
            # Closing a socket with unread input resets the connection, and the server would lose
            # what it has not read.
            await self._flush(EXIT_FLUSH_TIMEOUT)
        except JetsparkError:
            pass
        finally:
            await self._close()

    def __enter__(self) -> Self:
        self._thread.enter(self._connect, self._close)
        return self

    _leave = _close

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
        return Subscription(
            self._caller,
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
