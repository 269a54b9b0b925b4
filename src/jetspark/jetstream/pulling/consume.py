"""Consuming: continuous messages of a pull consumer (ADR-37).

Contract
- Iterate it, or give a callback. The iterator form has no task. The callback form has one, which
  calls it for one message after the other; an exception of the callback is reported, and the next
  message follows.
- It ends with its `async with` block. One that was not entered ends when the last loop over it is
  left, and when nothing refers to it any more.
- Nothing is acknowledged automatically. Messages discarded by `stop` or lost with a link were not
  acknowledged: the server delivers them again after the consumer's ack_wait. `drain` discards none.
- Without acks a message is delivered at most once: what is discarded, or lost with a link, is lost.
- It survives reconnects, leader changes and server restarts. Errors that do not end it are reported
  (log, last_error, error callback): MissedHeartbeatError after twice the interval, and PullError
  for a refused request; then it sends a new one.
- A lost delivery, the last one too, is reported within twice the heartbeat as
  SequenceMismatchError, unless other clients pull from the consumer: they may have got it. With
  acks it is delivered again after ack_wait. With acks and a pinned client it is not reported: the
  clients take turns, so others have got most of them.
- It ends with an error when the consumer is deleted or not a pull consumer, and when the server
  does not understand the request. Buffered messages are given out first; then the iterator raises.
  With a callback the error is reported. It stays in `error`.
- Without a leader (409 Leadership Change, Server Shutdown, 503) it sends a request every 250 ms. A
  consumer that does not exist gives 503 too, so the API is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from jetspark.arguments import checked_but
from jetspark.client.background import background
from jetspark.client.frame_reader import FrameReader, closed_on_purpose
from jetspark.client.leaving import weakly
from jetspark.errors import (
    BadSubscriptionError,
    ConnectionClosedError,
    ConsumerNotFoundError,
    JetsparkError,
    PullError,
    StreamNotFoundError,
)
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.pulling.continuous_pull import ContinuousPull
from jetspark.jetstream.pulling.gap_detection import not_come
from jetspark.jetstream.pulling.leader_wait import RETRY_WAIT, wait_for_leader
from jetspark.jetstream.pulling.stop_reason import StopReason
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire import js_api

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.pulling.consume_options import ConsumeOptions
    from jetspark.jetstream.pulling.priority_groups import Priority
    from jetspark.wire.events import MessageFrame

_LOOKS_FOR_OTHERS = 4
"""One in each heartbeat interval; when others wait each time, missing messages may be theirs."""

JsMsgCallback: TypeAlias = Callable[[JsMsg], Awaitable[None] | None]


@checked_but("next", "take_queued")
class ConsumerMessages(FrameReader[JsMsg]):
    """What `PullConsumer.consume` returns: iterate it, or give it a callback."""

    _client: Client

    def __init__(
        self,
        api: Api,
        stream: str,
        consumer: str,
        limits: ConsumeOptions,
        callback: JsMsgCallback | None,
        priority: Priority | None,
        *,
        acks: bool = False,
        alone: bool = False,
    ) -> None:
        self._api = api
        self._names = {"stream": stream, "consumer": consumer}
        shared = priority is not None and priority.pinned and acks
        on_missing = None if alone else _ignore if shared else weakly(self._on_missing)
        client = api.client
        self._pull = ContinuousPull(
            api,
            limits,
            weakly(self._on_stop),
            priority,
            on_missing,
            client.hooking.queue(client, callback),
        )
        if callback is not None:
            callback = client.hooking.callback(callback)
        self._acks = acks
        self._heartbeat = limits.heartbeat
        self._missing = 0
        self._look: asyncio.Task[None] | None = None
        super().__init__(client, callback, self._pull.frames, self._pull.waiters)
        self._draining = False
        self._told = ""
        self._retry: asyncio.Task[None] | None = None
        self._begin()
        self._begin_reading(f"jetspark-consume-{consumer}", self._ending())

    # -- what it is ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return not self._ended

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return len(self._frames)

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None while it goes on, and after `stop` or `drain`."""
        return self._error

    def _begin(self) -> None:
        """Start pulling; ordered consumers do so later."""
        self._pull.start(self._names["stream"], self._names["consumer"])

    def _ending(self) -> Callable[[], None]:
        """What ends it when nothing refers to it any more."""
        return self._pull.stop

    def _behind(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return background(work, f"Consuming of {self._source()}", self._end)

    # -- trouble: called in the read loop ------------------------------------------------------

    def _on_stop(self, reason: StopReason, error: JetsparkError | None) -> None:
        if self._draining:
            return
        self._cancel_retry()
        if reason in (StopReason.UNUSABLE, StopReason.INVALID, StopReason.CLOSED):
            self._end(error)
        elif reason is StopReason.NO_LEADER:
            status = error.status if isinstance(error, PullError) else None
            self._retry = self._behind(self._start_when_led(status))
        else:
            if error is not None:
                self._client.report(error)
            self._start()

    def _start(self) -> None:
        try:
            self._pull.start(self._names["stream"], self._names["consumer"], self._delivered())
        except ConnectionClosedError as error:
            self._end(error)

    def _delivered(self) -> int | None:
        """The consumer sequence of the last delivery so far; None: unknown."""
        return None

    def _on_missing(self, missing: int) -> None:
        self._missing += missing
        if self._look is None or self._look.done():
            self._look = self._behind(self._tell_missing())

    async def _tell_missing(self) -> None:
        """Report them, unless other clients wait at the consumer, which may have got them.

        Requests of ours that were given up wait there for a while too, so it looks again.
        """
        for attempt in range(_LOOKS_FOR_OTHERS):
            if attempt:
                await asyncio.sleep(self._heartbeat)
            try:
                info = await self._api.call(js_api.CONSUMER_INFO, **self._names)
            except JetsparkError:
                break
            if info.get("num_waiting", 0) <= self._pull.waiting:
                break
        else:
            self._missing = 0
            return
        missing, self._missing = self._missing, 0
        then = "they are delivered again after its ack_wait" if self._acks else "they are lost"
        what = f"consumer {self._names['consumer']!r}"
        self._client.report(not_come(what, missing, f"unless another client took them, {then}"))

    async def _start_when_led(self, status: int | None) -> None:
        """Wait for a leader and start again; end when the consumer does not exist any more."""
        error = await wait_for_leader(self._api, self._names, status)
        if isinstance(error, ConsumerNotFoundError | StreamNotFoundError | ConnectionClosedError):
            self._end(error)
            return
        if error is not None:
            if str(error) != self._told:
                self._told = str(error)
                self._client.report(error)
            await asyncio.sleep(RETRY_WAIT)
        self._start()

    def _cancel_retry(self) -> None:
        if self._retry is not None and self._retry is not asyncio.current_task():
            self._retry.cancel()

    def _end(self, error: JetsparkError | None) -> None:
        if self._ended:
            return
        self._ended = True
        if not self._draining:  # else that stops it, when the last messages have come
            self._pull.stop()
        self._cancel_retry()
        if self._look is not None:
            self._look.cancel()
        self._end_reading(None if closed_on_purpose(error) else error)

    # -- taking messages -----------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[JsMsg]:
        self._check_iterated()
        return self._loop()

    async def _loop(self) -> AsyncIterator[JsMsg]:
        frames, take, client = self._frames, self._pull.take, self._client
        self._loop_begins()
        try:
            while True:
                if not frames:
                    try:
                        await self._fill()
                    except StopAsyncIteration:
                        return
                yield JsMsg(client, take())
        finally:
            self._loop_ends(over=self._ended)

    def _source(self) -> str:
        return f"consumer {self._names['consumer']!r}"

    def _take(self) -> JsMsg | None:
        return JsMsg(self._client, self._pull.take())

    async def __anext__(self) -> JsMsg:
        # As in the base, with one call less for each message.
        if not self._frames:
            await self._fill()
        return JsMsg(self._client, self._pull.take())

    async def next(self, timeout: Seconds | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, ConfigError when there is a callback, and the error that ended it.
        """
        return await self._next_within(timeout)

    def _over(self) -> JetsparkError:
        self._client.require_open()
        return BadSubscriptionError("Consuming has ended.")

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if iterated over.

        For whoever makes messages of its own out of many frames.
        """
        taken = self._pull.take_many(limit)
        self._took(len(taken))
        return taken

    def _callback_ended(self, error: JetsparkError) -> None:
        self._client.report(error)

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now. May be called again.

        Discards messages not taken: with acks the server delivers them again after ack_wait,
        without acks they are lost. A running callback finishes.
        """
        self._pull.stop()
        self._discard()
        self._end(None)

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Request no more, and take the messages on their way.

        Returns when they have arrived; with a callback, when it was called for the last one.
        `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        timeout = in_seconds(timeout)
        if not self._ended:
            self._draining = True
            try:
                await self._pull.drain(timeout)
            finally:
                self._end(None)
        await self._callback_done(timeout)

    def _leave(self) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"ConsumerMessages({self._names['consumer']!r}, {state}, {self.pending_msgs} here)"


def _ignore(_: object) -> None:
    pass
