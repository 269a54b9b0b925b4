"""Subscriptions: a queue between the read loop and user code.

Contract
- The read loop only appends raw frames; a Message is made when user code takes it.
- The iterator form has no task. The callback form has one, for the life of the subscription, which
  handles one message after the other; an exception of the callback is reported, and the next
  message follows.
- At a pending limit new messages are dropped, counted in `dropped`, and reported by one
  SlowConsumerError (log, last_error, error callback) for each episode.
- The iterator ends after `max_msgs`, `unsubscribe` and `drain`, and when the connection is closed
  on purpose; when it was lost for good, or the server refused the subscription, the iterator
  raises, after what was queued. Leaving a loop over it does not end it, or messages between two
  loops would be lost: it ends when nothing refers to it any more. One that was never read stays,
  since interest alone is of use, but its messages are no longer queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar
from weakref import WeakMethod

import jetspark.errors as errors
from jetspark.client.callbacks import Barriers, Callback, check_no_callback
from jetspark.client.hooks import HookRunner
from jetspark.client.messages import Message, MessageSender
from jetspark.client.tasks import background, next_within
from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor
from jetspark.connection.waiting import Waiters
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole
from jetspark.wire.kernel import MessageFrame


class MessageSource(Protocol):
    """Something that the client drains and closes."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and receive all messages in flight."""

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """Note that this task drains the client, so it takes no messages.

        Returns whether it is the callback's.
        """

    def abandon(self) -> asyncio.Task[None] | None:
        """The connection closed: a callback gets no more items, and is cancelled if it runs.

        Returns the cancelled task, unless it is the caller's.
        """


class ReaderClient(MessageSender, Protocol):
    """The client, as seen by sources of messages."""

    loop: asyncio.AbstractEventLoop
    hooks: HookRunner

    def adopt(
        self, source: MessageSource, end: Callable[[], None] | None = None
    ) -> Callable[[], object]:
        """See `Client.adopt`."""

    def check_loop(self) -> None:
        """Raise ConfigError in another event loop or thread than the client's."""

    def require_open(self) -> None:
        """Raise ConnectionClosedError when the client is closed."""

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Wait until the server has processed everything sent before."""


class Listener:
    """Returned by `Client.listen`. There is no queue and no limit: the handler must keep up.

    Example:
        ```python
        listener = nc.listen("orders.*", lambda frame: print(frame.subject))  # b'orders.eu'
        await nc.publish("orders.eu", b"42 apples")
        await nc.flush()
        await nc.barrier()
        listener.close()
        ```
    """

    def __init__(self, link: Supervisor, route: Route) -> None:
        link.add_route(route)
        self._link = link
        self._route = route

    @property
    def subject(self) -> str:
        """The subject, with its wildcards."""
        return self._route.subject

    @property
    def received(self) -> int:
        """Messages so far."""
        return self._route.received

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._route in self._link.routes

    def close(self) -> None:
        """Unsubscribe; `on_end` is not called. May be called again."""
        self._link.routes.remove(self._route)

    def stop(self) -> None:
        """Unsubscribe at the server; messages in flight still arrive, until `close`."""
        self._link.routes.stop(self._route)

    def __repr__(self) -> str:
        return f"Listener({self.subject!r}, received={self.received})"


# -- how reading ends ----- --------------------------------------------------------------------


def cancelled(task: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
    """Cancel a callback's task; returns it, to be awaited, unless it is done or the caller's."""
    if task is None or task.done() or task is asyncio.current_task():
        return None
    task.cancel()
    return task


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A function that calls the method of an object without keeping it alive."""
    weak = WeakMethod(method)

    def call(*args: Any) -> None:
        if (alive := weak()) is not None:
            alive(*args)

    return call


def loop_was_left(source: str) -> errors.ClosedError:
    """The error for a new loop over an object that leaving a loop has ended."""
    return errors.ClosedError(
        f"Reading from {source} ended when the loop over it was left: to go on after a loop, use "
        "it in a `with` block."
    )


def closed_on_purpose(error: errors.JetsparkError | None) -> bool:
    """Whether the connection's owner closed it."""
    return isinstance(error, errors.ConnectionClosedError) and error.__cause__ is None


class Scoped:
    """Begins with its `async with` block, and ends with it.

    Without a block it begins with its first item, at the latest. What is published once it has
    begun arrives.

    Subclasses that count their loops (`_loop_begins`, `_loop_ends`) also end with the last loop,
    unless the block was entered: a pull that went on would use up deliveries that nobody handles.
    """

    _entered = False
    _loops = 0
    _was_left = False

    @property
    def source(self) -> str:
        """The source of the items, for error messages."""
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _loop_begins(self) -> None:
        """Raise ClosedError when leaving a loop has ended it."""
        if self._was_left:
            raise loop_was_left(self.source)
        self._loops += 1

    def _loop_ends(self, *, over: bool) -> None:
        """A loop was left. `over`: because nothing more would have come."""
        self._loops -= 1
        if not (over or self._entered or self._loops):
            self._was_left = True
            self._leave()

    async def _begin_block(self) -> None:
        """Begin, so that nothing published from now on is missed. May be called again.

        Raises the errors of `next`.
        """

    async def __aenter__(self) -> Self:
        self._entered = True
        try:
            await self._begin_block()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._leave()


# -- the queue between the read loop and user code ---------------------------------------------


class FrameQueue:
    """A queue with limits, for the read loop. Raises ConfigError for a limit below 1.

    Reports drops once an episode: a slow reader makes room for one message at a time, and that is
    one episode, which ends when a whole queue was accepted since the last drop.
    """

    def __init__(
        self,
        subject: str,
        frames: deque[MessageFrame],
        msgs_limit: int,
        bytes_limit: int,
        report: Callable[[errors.JetsparkError], None],
    ) -> None:
        check_whole("pending_msgs_limit", msgs_limit)
        check_whole("pending_bytes_limit", bytes_limit)
        self._subject = subject
        self._msgs_limit = msgs_limit
        self._bytes_limit = bytes_limit
        self._report = report
        self._accepted_at_drop: int | None = None
        self.frames = frames
        self.waiters = Waiters()
        self.accepted = 0
        """Messages so far, except dropped ones."""
        self.dropped = 0
        self.pending_bytes = 0
        """Bytes of the payloads in the queue."""

    def on_frame(self, frame: MessageFrame) -> None:
        """Queue a message, or drop it at a limit."""
        size = self.pending_bytes + len(frame.payload)
        if len(self.frames) >= self._msgs_limit or size > self._bytes_limit:
            self._drop()
            return
        self.accepted += 1
        self.pending_bytes = size
        self.frames.append(frame)
        if self.waiters:
            self.waiters.wake()

    def on_run(self, frames: list[MessageFrame], size: int) -> bool:
        """Queue messages that came together; False at a limit: it wants them one by one."""
        size += self.pending_bytes
        if len(self.frames) + len(frames) > self._msgs_limit or size > self._bytes_limit:
            return False
        self.accepted += len(frames)
        self.pending_bytes = size
        self.frames += frames
        if self.waiters:
            self.waiters.wake()
        return True

    def take(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` queued frames."""
        frames = self.frames
        batch = [frames.popleft() for _ in range(min(limit, len(frames)))]
        self.pending_bytes -= sum(len(frame.payload) for frame in batch)
        return batch

    def _drop(self) -> None:
        self.dropped += 1
        last, self._accepted_at_drop = self._accepted_at_drop, self.accepted
        if last is None or self.accepted - last >= max(len(self.frames), 1):
            self._report(errors.SlowConsumerError(self._subject, self.dropped))


ItemT = TypeVar("ItemT")


class FrameReader(Scoped, Generic[ItemT]):
    """The base of subscriptions, consumers' messages and events.

    - Any number of tasks may wait in the iterator; each item goes to one of them. The callback form
      has one task, which calls it for one item after the other.
    - At its end it still gives out what is queued. Then the iterator ends, or raises the error that
      ended it, unless the connection was closed on purpose.
    - Without a callback it ends when nothing refers to it: the client has a weak reference, the
      read loop only the queue, and timers call it `weakly`. A waiting task refers to it.

    Subclasses subscribe in their constructors, then call `_begin_reading`, and at the end
    `_end_reading`. The read loop appends to `frames` and wakes `waiters`.
    """

    def __init__(
        self,
        client: ReaderClient,
        callback: Callable[[ItemT], Awaitable[None] | None] | None,
        frames: deque[MessageFrame],
        waiters: Waiters,
    ) -> None:
        self._client = client
        self._callback = callback
        self._frames = frames
        self._waiters = waiters
        self._ended = False
        self._error: errors.JetsparkError | None = None
        self._reader: asyncio.Task[object] | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._calling: Callback[ItemT] | None = None
        self._barriers: Barriers | None = None
        self._release: Callable[[], object] = _nothing

    _waits_for_reader = False
    """Whether `drain` waits for the iterating task to take what has arrived."""

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return not self._ended

    def _begin_reading(self, task: str, end: Callable[[], None] | None = None) -> None:
        """Let the client drain and close it from now on. `task`: the name of the callback's task.

        `end`: as for `Client.adopt`.
        """
        client = self._client
        self._release = client.adopt(self, end if self._callback is None else None)
        if self._callback is not None:
            call = Callback(self._callback, f"The callback of {self.source}", client.report)
            self._calling = call
            self._task = background(
                self._call_back(call),
                f"Reading {self.source}",
                self._broken,
                name=task,
                should_run=lambda: not self._ended,
            )
            self._task.add_done_callback(self._no_more_calls)

    # -- for subclasses ----- ------------------------------------------------------------------

    def _take(self) -> ItemT | None:
        """The item of the next frame; None if the frame has none. There must be a frame."""
        raise NotImplementedError

    def _over(self) -> errors.JetsparkError:
        """The error that `next` raises after the last item."""
        if self._error is not None:
            return self._error
        self._client.require_open()
        return errors.ClosedError(f"Reading from {self.source} has ended.")

    def _discard(self) -> None:
        """Drop what is queued."""
        self._frames.clear()

    def _callback_ended(self, error: errors.JetsparkError) -> None:
        """An error ended the callback's task: it gets no more items."""

    async def _stop_deliveries(self, timeout: float | None) -> None:
        """Stop them at the server, and receive all messages in flight."""
        raise NotImplementedError

    def _end(self, error: errors.JetsparkError | None) -> None:
        """No more frames are wanted; leads to `_end_reading`."""
        raise NotImplementedError

    # -- taking --------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ItemT]:
        check_no_callback(self._callback)
        return self._loop()

    async def _loop(self) -> AsyncIterator[ItemT]:
        frames, take = self._frames, self._take
        self._loop_begins()
        try:
            while True:
                if not frames:
                    try:
                        await self._fill()
                    except StopAsyncIteration:
                        return
                if (item := take()) is not None:
                    yield item
        finally:
            self._loop_ends(over=self._ended)

    async def __anext__(self) -> ItemT:
        while True:
            if not self._frames:
                await self._fill()
            if (item := self._take()) is not None:
                return item

    async def _fill(self) -> None:
        """Wait for a frame; raises StopAsyncIteration or the error at the end."""
        if self._waits_for_reader:
            self._reader = asyncio.current_task()
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        if self._barriers is not None:
            self._barriers.end(handled=True)
        self._client.check_loop()
        while not self._frames:
            if self._ended:
                await asyncio.sleep(0)  # as in `tasks.yielding`
                if self._error is None or closed_on_purpose(self._error):
                    raise StopAsyncIteration
                raise self._error
            await self._waiters.wait()

    async def next(self, timeout: Seconds | None = None) -> ItemT:
        """The next item; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, ClosedError when it has ended, the error that ended it,
        such as that with which the server refused it (PermissionsError, SubscriptionLimitError …),
        ConnectionClosedError, ConfigError when there is a callback, BadTimeoutError.
        """
        check_no_callback(self._callback)
        while self._frames:
            if (item := self._take()) is not None:
                return item
        late = f"Nothing received from {self.source}"
        return await next_within(self.__anext__, timeout, self._over, late)

    async def _call_back(self, callback: Callback[ItemT]) -> None:
        frames, take, call = self._frames, self._take, callback.call
        while True:
            if not frames:
                try:
                    await self._fill()
                except StopAsyncIteration:
                    return
                except errors.JetsparkError as error:
                    self._callback_ended(error)
                    return
            if (item := take()) is not None and (rest := call(item)) is not None:
                await rest

    # -- barriers ------------------------------------------------------------------------------

    def handled(self) -> asyncio.Future[bool] | None:
        """A future that is done when the callback has handled the present items; None without any.

        Its result is False when they never will be handled: the connection was closed.
        """
        if self._calling is None or self._task is None or self._task.done() or self._waiters:
            return None
        if self._barriers is None:
            self._barriers = Barriers()
            self._calling.watch(self._begins)
        return self._barriers.add(len(self._frames))

    def _begins(self) -> bool:
        """A call begins; returns whether to report the next one."""
        if (barriers := self._barriers) is None:
            return False
        barriers.begin_call()
        if not barriers:
            self._barriers = None
        return self._barriers is not None

    def _took(self, count: int) -> None:
        """The callback took so many more items than the one of its call."""
        if self._barriers is not None:
            self._barriers.took(count)

    # -- ending --------------------------------------------------------------------------------

    def _no_more_calls(self, task: asyncio.Task[None]) -> None:
        if self._barriers is not None:
            self._barriers.end(handled=True)
        self._release()

    def _broken(self, error: errors.JetsparkError) -> None:
        """The callback's task has ended with an unexpected error."""
        self._error = self._error or error
        self._client.report(error)
        self._leave()

    def _end_reading(self, error: errors.JetsparkError | None) -> None:
        """No more frames will come. The first error counts."""
        self._ended = True
        if self._error is None:
            self._error = error
        if self._task is None:
            self._release()
        self._waiters.wake()

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and take the messages on their way.

        Returns when they have arrived; with a callback, after its call for the last one. `timeout`
        (seconds) limits the wait for the server (default: request_timeout) and, if given, the wait
        for the callback. Raises RequestTimeoutError, ConnectionClosedError, BadTimeoutError (it
        ends nevertheless); ConfigError in another event loop.
        """
        seconds = in_seconds(timeout)
        start = asyncio.get_running_loop().time()
        if not self._ended:
            self._client.check_loop()
            try:
                await self._stop_deliveries(seconds)
            finally:
                self._end(None)
        if seconds is not None:
            seconds = max(start + seconds - asyncio.get_running_loop().time(), 0)
        if self._waits_for_reader and self._task is None:
            await self._emptied_by_reader(seconds)
        else:
            await self._callback_done(seconds)

    async def _callback_done(self, timeout: float | None) -> None:
        """Wait for the callback's call for the last item, unless called by the callback."""
        task = self._task
        if task is None or task.done() or task is asyncio.current_task():
            return
        if not (await asyncio.wait({task}, timeout=timeout))[0]:
            raise self._not_taken()

    async def _emptied_by_reader(self, timeout: float | None) -> None:
        """Wait until the buffer was taken, unless the caller is its reader."""
        reader = self._reader
        if reader is None or reader.done() or reader is asyncio.current_task():
            return
        if self._frames:
            emptied = self._emptied = self._client.loop.create_future()
            if not (await asyncio.wait({emptied}, timeout=timeout))[0]:
                raise self._not_taken()

    def _not_taken(self) -> errors.RequestTimeoutError:
        return errors.RequestTimeoutError(
            f"{len(self._frames)} messages of {self.source} were not taken in time."
        )

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback; None when there is none."""
        return self._task

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """Note for the client's drain that this task drains, so it no longer takes messages.

        Returns whether it is the callback's.
        """
        if self._reader is task:
            self._reader = None
        return task is not None and self._task is task

    def abandon(self) -> asyncio.Task[None] | None:
        """Close: the callback gets no more items, and is cancelled if it runs."""
        if self._task is not None:
            self._discard()
        if self._barriers is not None:
            self._barriers.end(handled=False)
        return cancelled(self._task)


class QueueReader(FrameReader[ItemT]):
    """One whose frames come through a `FrameQueue`."""

    def __init__(
        self,
        client: ReaderClient,
        callback: Callable[[ItemT], Awaitable[None] | None] | None,
        subject: str,
        msgs_limit: int,
        bytes_limit: int,
        *,
        hooked: bool = True,
    ) -> None:
        """`hooked`: its messages have hooks."""
        frames: deque[MessageFrame] = deque()
        if hooked:
            frames = client.hooks.queue(client, callback)
            callback = None if callback is None else client.hooks.callback(callback)
        queue = FrameQueue(subject, frames, msgs_limit, bytes_limit, client.report)
        self._incoming = queue
        super().__init__(client, callback, frames, queue.waiters)

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._incoming.dropped


class MessageReader(QueueReader[ItemT]):
    """One whose items are messages, of which a caller may take many at once."""

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return len(self._frames)

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if by iterating.

        For callers that create messages of another class from many frames.
        """
        frames = self._incoming.take(limit)
        self._took(len(frames))
        return frames


def _nothing() -> None:
    pass


def _keep_interest(route: Route, frames: deque[MessageFrame]) -> None:
    """Stay subscribed for nobody: drop all messages."""
    route.handler, route.on_run = _drop, _drop_run
    frames.clear()


def _drop(_: MessageFrame) -> None:
    pass


def _drop_run(_: list[MessageFrame], __: int) -> bool:
    return True


MessageCallback: TypeAlias = Callable[[Message], Awaitable[None] | None]
"""A function, plain or async, called with each message."""


class Subscription(MessageReader[Message]):
    """The result of `Client.subscribe`: iterate it, or give it a callback.

    Example:
        ```python
        prices = nc.subscribe("prices.*")
        await nc.publish("prices.eu", b"1.20")
        message = await prices.next(timeout=2)
        print(message.data)  # b'1.20'
        await prices.drain()
        ```
    """

    _waits_for_reader = True

    def __init__(
        self,
        client: ReaderClient,
        link: Supervisor,
        subject: str,
        *,
        queue: str | None,
        callback: MessageCallback | None,
        max_msgs: int,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        super().__init__(client, callback, subject, pending_msgs_limit, pending_bytes_limit)
        self._link = link
        self._discarded = 0
        self._route = Route(
            subject,
            self._incoming.on_frame,
            queue=queue or None,
            max_msgs=max_msgs,
            on_run=self._incoming.on_run,
            on_end=weakly(self._end_reading),
        )
        link.add_route(self._route)
        self._unread = callback is None
        """True until it is read: it stays, even when nothing refers to it any more."""
        keep_interest = partial(_keep_interest, self._route, self._frames)
        self._begin_reading(f"jetspark-sub-{subject}", keep_interest)

    # -- state ---------------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """The subject of the subscription."""
        return self._route.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._route.queue

    @property
    def pending_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._incoming.pending_bytes

    @property
    def delivered(self) -> int:
        """Messages that user code has taken."""
        return self._incoming.accepted - self._discarded - len(self._frames)

    # -- taking messages -----------------------------------------------------------------------

    def _read(self) -> None:
        if self._unread and not self._ended:
            self._release()
            self._release = self._client.adopt(self, partial(self._link.routes.remove, self._route))
        self._unread = False

    def __aiter__(self) -> Self:
        check_no_callback(self._callback)
        self._read()
        return self

    @property
    def source(self) -> str:
        return f"subscription {self.subject!r}"

    def _take(self) -> Message:
        frame = self._frames.popleft()
        self._incoming.pending_bytes -= len(frame.payload)
        return Message(self._client, frame)

    async def __anext__(self) -> Message:
        # As in the base class, with one call less for each message.
        if self._unread:
            self._read()
        if not self._frames:
            await self._fill()
        frame = self._frames.popleft()
        self._incoming.pending_bytes -= len(frame.payload)
        return Message(self._client, frame)

    async def next(self, timeout: Seconds | None = None) -> Message:
        self._read()
        return await super().next(timeout)

    async def _call_back(self, callback: Callback[Message]) -> None:
        # As in the base class, without a call of `_take`, a tenth of the time per message.
        frames, client, call = self._frames, self._client, callback.call
        incoming = self._incoming
        while True:
            if not frames:
                try:
                    await self._fill()
                except (StopAsyncIteration, errors.JetsparkError):
                    return
            frame = frames.popleft()
            incoming.pending_bytes -= len(frame.payload)
            if (rest := call(Message(client, frame))) is not None:
                await rest

    # -- ending --------------------------------------------------------------------------------

    def unsubscribe(self, max_msgs: int = 0) -> None:
        """End it now, discarding what was not taken, or after `max_msgs` messages in all.

        `max_msgs` counts from subscribing; if there were as many already, it ends now and keeps
        them. Raises ClosedError when it has ended, ConnectionClosedError, ConfigError.
        """
        if self._ended:
            if isinstance(self._error, errors.ConnectionClosedError):
                raise self._error
            raise errors.ClosedError(f"The subscription to {self.subject!r} has ended.")
        check_whole("max_msgs", max_msgs, 0)
        if max_msgs:
            self._link.routes.limit(self._route, max_msgs)
        else:
            self._link.routes.remove(self._route)
            self._discard()
            self._end_reading(None)

    def _discard(self) -> None:
        self._discarded += len(self._frames)
        self._frames.clear()
        self._incoming.pending_bytes = 0

    async def _stop_deliveries(self, timeout: float | None) -> None:
        self._link.routes.stop(self._route)
        await self._client.flush(timeout)

    def _end(self, error: errors.JetsparkError | None) -> None:
        self._link.routes.end(self._route, error)

    def _leave(self) -> None:
        if not self._ended:
            self.unsubscribe()

    def __repr__(self) -> str:
        group = f", queue={self.queue!r}" if self.queue else ""
        return f"Subscription({self.subject!r}{group}, pending={self.pending_msgs})"
