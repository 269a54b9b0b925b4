"""Iterators of the blocking client, which bring the event loop's items to other threads.

Contract
- One thread switch brings up to BATCH_SIZE items from the asyncio queue into a buffer here, where
  they still count as pending. Several threads may iterate: each item goes to one.
- A callback runs in a thread of its own, for one item after the other, so it may block and use the
  blocking client. Its exceptions are reported, and the next item follows. Closing the connection
  lets a running callback finish. `drain` waits for it, unless it is called in the callback itself.
- Leaving the last loop over a `LoopIterator` ends it, unless it is used in a `with` block.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, Self, TypeAlias, TypeVar

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.twin import AsyncBlock, Read, Twin, twin_of
from jetspark.blocking.worker import Worker, plain_callback
from jetspark.client.callbacks import check_no_callback
from jetspark.client.listing import Listing as AsyncListing
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.subscription import loop_was_left
from jetspark.client.tasks import reported
from jetspark.connection.locks import locked, new_rlock
from jetspark.errors import BadTimeoutError, JetsparkError, RequestTimeoutError, user_error
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.kernel import MessageFrame, frame_of

BATCH_SIZE = 1000
"""Most items of a thread switch: enough to make its cost negligible."""

ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT")
EntryT = TypeVar("EntryT")

Begin: TypeAlias = Callable[[Callable[[Any], Awaitable[None]] | None], Any]
"""Creates the asyncio object, with this callback if the user gave one."""


class CallbackTwin(Twin, Generic[ItemT]):
    """An object with a callback in a thread of its own."""

    _of_messages = False
    """Whether the hooks see what the callback gets."""

    def __init__(
        self, caller: CallerSide, begin: Begin, callback: Callable[[ItemT], object] | None
    ) -> None:
        if callback is not None:
            callback = plain_callback(callback)
            if self._of_messages:
                callback = caller.hooks.callback(callback)
        self._callback = callback

        def begin_in_loop() -> None:
            # Runs in the loop's thread, so that `_inner` is set before the first item arrives.
            forward = None if callback is None else self._forward
            super(CallbackTwin, self).__init__(caller, begin(forward))
            self._worker = Worker(f"jetspark {self._source()}", caller.inner)
            task = getattr(self._inner, "callback_task", None)
            if task is not None:
                task.add_done_callback(lambda _: self._worker.stop())

        caller.thread.enter(begin_in_loop, self._leave)

    async def _leave(self, *error: Any) -> None:
        if hasattr(self, "_inner"):  # otherwise it was interrupted before it began
            await super()._leave(*error)
            self._worker.stop()

    def _source(self) -> str:
        """The source of the items, for errors and the callback's thread."""
        source: str = getattr(self._inner, "source", type(self).__name__)
        return source

    async def _forward(self, item: ItemT) -> None:
        """The asyncio callback; the asyncio object reports exceptions of the user's."""
        callback: Any = self._callback
        await self._worker.run(self._thread, lambda: callback(item))


class MessageSource(CallbackTwin[ItemT]):
    """A source that delivers until it is drained."""

    def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries; returns when those on their way were received and handled.

        Waits for a callback, unless called in it, but not for an iterating thread. `timeout`:
        seconds, default: that of requests. Raises RequestTimeoutError, ConnectionClosedError,
        BadTimeoutError; it ends in any case.
        """
        if self._worker.is_current:
            report = self._caller.inner.report
            self._thread.spawn(lambda: reported(self._inner.drain(timeout), report))
        else:
            self._thread.run(self._inner.drain, timeout)


class SingleIterator(Twin, Generic[ItemT]):
    """Iterates over the asyncio object, with one thread switch for each item."""

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # raises with a callback
        return self

    def __next__(self) -> ItemT:
        try:
            item: ItemT = self._thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return item


class LotIterator(Twin, Generic[ItemT]):
    """Iterates over the asyncio object, with one thread switch for up to BATCH_SIZE items."""

    _callback: Callable[..., object] | None = None

    def __init__(self, caller: CallerSide, inner: Any) -> None:
        super().__init__(caller, inner)
        self._turn = new_rlock()
        self._buffered = self._queue()
        """Items not returned to the user yet."""

    def _queue(self) -> deque[Any]:
        return deque()

    def _pop(self) -> ItemT:
        """A buffered item. Raises IndexError if there is none."""
        item: ItemT = self._buffered.popleft()
        return item

    def _take(self, first: Any) -> None:
        """Buffer this item, and all that are queued in the loop.

        It does not return them, so after an interrupt the next call finds them.
        """
        raise NotImplementedError

    def __next__(self) -> ItemT:
        try:
            return self._pop()
        except IndexError:
            pass  # not in the handler, where an interrupt would show this IndexError too
        with self._turn:  # one thread waits for the loop, the others for that thread
            while True:
                try:
                    return self._pop()
                except IndexError:
                    pass
                try:
                    self._thread.run(self._fill)
                except StopAsyncIteration:
                    raise StopIteration from None

    async def _fill(self) -> None:
        self._take(await self._inner.__anext__())

    def next(self, timeout: Seconds | None = None) -> ItemT:
        """The next item; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, ClosedError after the last one, ConnectionClosedError,
        ConfigError when there is a callback, BadTimeoutError, and the error that ended it.
        """
        seconds = in_seconds(timeout)
        if self._callback is not None:
            check_no_callback(self._callback)
        try:
            return self._pop()
        except IndexError:
            pass
        if seconds is not None and seconds < 0:
            raise BadTimeoutError(seconds)
        item = locked(self._turn, self._next, seconds, missed=None)
        if item is None:  # another thread waits for the loop
            start = time.monotonic()

            def after_it() -> tuple[ItemT]:
                waited = time.monotonic() - start
                return self._next(None if seconds is None else max(seconds - waited, 0))

            limit = -1 if seconds is None else seconds
            item = locked(self._turn, after_it, missed=None, timeout=limit)
        if item is None:
            raise RequestTimeoutError(f"Nothing was received within {seconds:g} s.")
        return item[0]

    def _next(self, timeout: float | None) -> tuple[ItemT]:
        while True:
            try:
                return (self._pop(),)
            except IndexError:
                pass
            self._thread.run(self._fill_within, timeout)

    async def _fill_within(self, timeout: float | None) -> None:
        self._take(await self._inner.next(timeout))


class LoopIterator(LotIterator[ItemT], AsyncBlock):
    """Leaving the last loop over it ends it too, unless it is used in a `with` block.

    Several threads may loop: it lasts until the last loop.
    """

    _entered = False
    _was_left = False

    def __init__(self, caller: CallerSide, inner: Any) -> None:
        super().__init__(caller, inner)
        self._loops: list[None] = []
        """An item for each loop; a list, since threads change it in one step."""

    def __enter__(self) -> Self:
        self._entered = True
        return super().__enter__()

    def __iter__(self) -> Iterator[ItemT]:
        check_no_callback(self._callback)
        return self._loop()

    def _loop(self) -> Iterator[ItemT]:
        if self._was_left:
            raise loop_was_left(self._inner.source)
        self._loops.append(None)
        take = self.__next__
        try:
            while True:
                try:
                    yield take()
                except StopIteration:
                    return
        finally:
            self._loops.pop()
            if not (self._entered or self._loops or self._thread.is_over):
                self._was_left = self._inner.active
                # Without waiting: the garbage collector may call this.
                self._thread.post(self._inner.stop)

    def stop(self) -> None:
        """End it now, and discard items not taken. May be called again.

        A running callback finishes.
        """
        self._thread.leave(None, self._inner.stop)
        self._buffered.clear()

    async def _leave(self, *error: Any) -> None:
        await super()._leave(*error)
        self._buffered.clear()


class CallbackIterator(CallbackTwin[ItemT], LotIterator[ItemT]):
    """An iterator that may have a callback, which also gets items in lots."""

    async def _forward(self, item: Any) -> None:
        """The asyncio callback: waits until the worker has handled a lot."""
        self._take(item)
        try:
            await self._worker.run(self._thread, self._call_back)
        except asyncio.CancelledError:
            self._buffered.clear()  # the connection was closed
            raise

    def _call_back(self) -> None:
        """Call the callback for each item, in the worker's thread, until `stop`."""
        callback: Any = self._callback
        while True:
            try:
                item = self._pop()
            except IndexError:
                return
            try:
                callback(item)
            except BaseException as error:  # SystemExit would end the thread silently
                self._caller.report(user_error(f"The callback of {self._source()}", error))


class MessageIterator(CallbackIterator[MessageT], MessageSource[MessageT]):
    """Iterates over messages, or gives them to a callback."""

    _message: Callable[[CallerSide, MessageFrame], MessageT]
    """The class of the messages."""
    _of_messages = True

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        count: int = self._inner.pending_msgs
        return count + len(self._buffered)

    def _queue(self) -> deque[Any]:
        return self._caller.hooks.queue(self._caller, self._callback)

    def _pop(self) -> MessageT:
        return self._message(self._caller, self._buffered.popleft())

    def _take(self, first: AsyncMessage) -> None:
        self._buffered.append(frame_of(first))
        self._buffered.extend(self._inner.take_queued(BATCH_SIZE - 1))


class EntryIterator(LoopIterator[EntryT | None], Generic[EntryT]):
    """Iterates over the entries of a watch."""

    active = Read[bool]()
    complete = Read[bool]()
    error = Read[JetsparkError | None]()

    def _take(self, first: EntryT | None) -> None:
        self._buffered.append(first)
        self._buffered.extend(self._inner.take_ready(BATCH_SIZE - 1))


@twin_of(AsyncListing)
class Listing(Twin, Generic[ItemT]):
    """Iterate it, or `listing.all()` for a list.

    Requests nothing before the first item; each iteration starts anew. Items reach the caller's
    thread in batches.
    """

    _inner: AsyncListing[ItemT]
    _batch_size = BATCH_SIZE

    def __init__(self, caller: CallerSide, inner: AsyncListing[ItemT]) -> None:
        super().__init__(caller, inner)

    def __iter__(self) -> Iterator[ItemT]:
        items = self._inner.__aiter__()
        try:
            while batch := self._thread.run(take_batch, items, self._batch_size):
                yield from batch
        finally:
            # Without waiting: after an interrupt it may still be running, and ends itself.
            close = getattr(items, "aclose", None)
            if close is not None and not self._thread.is_over:
                self._thread.spawn(close)

    def all(self) -> list[ItemT]:
        """All items as a list."""
        return self._thread.run(self._inner.all)


async def take_batch(items: AsyncIterator[ItemT], limit: int) -> list[ItemT]:
    """The next items; none at the end."""
    batch: list[ItemT] = []
    async for item in items:
        batch.append(item)
        if len(batch) == limit:
            break
    return batch
