"""Push consumers, and their messages through a plain subscription.

Contract
- Control messages are not given out. A flow control request is answered when the messages before
  it were taken, so a slow reader is sent no more than the server's window. So is a heartbeat that
  says that such an answer was lost (Nats-Consumer-Stalled).
- A consumer with `idle_heartbeat` that is silent for twice as long is reported as
  MissedHeartbeatError (log, last_error, error callback), once for each silence. Not in a deliver
  group, where one member gets the heartbeats.
- Nothing is sent when a consumer is deleted. So the server is asked for one that is silent for
  twice the heartbeat, or QUIET seconds without one or in a group. If it, or its stream, does not
  exist any more, the iterator raises that, after what was queued; with a callback it is reported.
  Without the permission to ask it goes on.
- Heartbeats also say how much was delivered. A message that did not come, the last one too, is
  reported as SequenceMismatchError within twice the interval, when the heartbeat is taken. With
  acks it is delivered again after ack_wait, without acks it is lost. Messages dropped here at a
  pending limit are not reported twice.
- Nothing is acknowledged automatically. Otherwise as `client.subscription`: the iterator has no
  task, the callback has one; at a pending limit new messages are dropped, and SlowConsumerError
  is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from jetspark.arguments import checked, checked_but
from jetspark.client.background import background
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.client.leaving import Leaving, weakly
from jetspark.client.messages import Message
from jetspark.client.subscription import end_with
from jetspark.errors import (
    BadTimeoutError,
    ConsumerNotFoundError,
    JetsparkError,
    StreamNotFoundError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers.consumer import Consumer, consumer_info
from jetspark.jetstream.documents.consumers import AckPolicy, ConsumerInfo
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.pulling.consume import JsMsgCallback
from jetspark.jetstream.pulling.gap_detection import LOOKS, GapDetector, not_come, silence_error
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.kernel import frame_of
from jetspark.wire.status import CONTROL, status_of

if TYPE_CHECKING:
    from jetspark.wire.events import MessageFrame

_STALLED = "Nats-Consumer-Stalled"

QUIET = 20.0
"""Seconds of silence of a consumer without heartbeats until it is looked for."""


@checked_but("next", "take_queued", "left_by")
class PushMessages(Leaving):
    """What `PushConsumer.subscribe` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        api: Api,
        info: ConsumerInfo,
        callback: JsMsgCallback | None,
        delivered: int | None,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        config, client = info.config, api.client
        self._api = api
        self._client = client
        self._stream = info.stream_name
        self._name = info.name
        self._callback = callback
        self._sub = client.subscribe(
            config.deliver_subject or "",
            queue=config.deliver_group or None,
            callback=None if callback is None else self._call_back,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
        )
        if callback is None:
            self._sub.__aiter__()  # this reads it, so the client need not keep it
        self._heartbeat = 0.0
        if config.idle_heartbeat is not None and not config.deliver_group:
            self._heartbeat = config.idle_heartbeat.total_seconds()
        self._clock: asyncio.TimerHandle | None = None
        self._heard = self._silent = 0
        self._asking: asyncio.Task[None] | None = None
        self._acks = config.ack_policy != AckPolicy.NONE
        self._gaps = GapDetector(delivered)
        self._taken = 0  # frames, the server's own included
        self._dropped = 0  # as of the last heartbeat
        self._set_clock()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._sub.active

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet, control messages included."""
        return self._sub.pending_msgs

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._sub.dropped

    @property
    def callback_task(self) -> asyncio.Task[None] | None:
        """The task that calls the callback; None when there is none."""
        return self._sub.callback_task

    # -- taking messages -----------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[JsMsg]:
        self._sub.__aiter__()  # refuses when there is a callback
        return self._loop()

    async def _loop(self) -> AsyncIterator[JsMsg]:
        self._loop_begins()
        try:
            while True:
                try:
                    message = await self.__anext__()
                except StopAsyncIteration:
                    return
                yield message
        finally:
            self._loop_ends(over=not self.active)

    async def __anext__(self) -> JsMsg:
        while True:
            frame = frame_of(await self._sub.__anext__())
            if not self._is_control(frame):
                return JsMsg(self._client, frame)

    async def next(self, timeout: Seconds | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, and ConfigError when there is a callback.
        """
        loop = self._client.loop
        seconds = in_seconds(timeout)
        if seconds is not None and seconds < 0:
            raise BadTimeoutError(seconds)
        deadline = None if seconds is None else loop.time() + seconds
        while True:
            left = None if deadline is None else max(deadline - loop.time(), 0)
            frame = frame_of(await self._sub.next(left))
            if not self._is_control(frame):
                return JsMsg(self._client, frame)

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if iterated over.

        For whoever makes messages of its own out of many frames.
        """
        return [frame for frame in self._sub.take_queued(limit) if not self._is_control(frame)]

    def _call_back(self, message: Message) -> Awaitable[None] | None:
        frame = frame_of(message)
        if self._callback is None or self._is_control(frame):
            return None
        return self._callback(JsMsg(self._client, frame))

    # -- control messages ----------------------------------------------------------------------

    def _is_control(self, frame: MessageFrame) -> bool:
        """Whether it is a control message, which is answered if need be."""
        self._taken += 1
        block = frame.headers
        status = None if block is None or frame.payload else status_of(block)
        if status is None or status.code != CONTROL:
            if self._gaps.before is None:
                self._gaps.first(frame.reply, self._taken - 1)
            return False
        self._gaps.others += 1
        message = Message(self._client, frame)
        if status.is_flow_control:
            self._answer(message.reply)
        elif message.headers is not None:
            self._answer(message.headers.get(_STALLED))
            self._compare(block)
        return True

    def _answer(self, subject: str | None) -> None:
        if subject:
            try:
                self._client.publish_nowait(subject)
            except JetsparkError as error:
                self._client.report(error)

    def _compare(self, heartbeat: bytes | None) -> None:
        """Compare what the consumer sent before this heartbeat with what was taken."""
        gaps, dropped = self._gaps, self._sub.dropped
        if dropped != self._dropped:
            self._dropped, gaps.before = dropped, None
        if self._heartbeat and (missing := gaps.missing(heartbeat, self._taken)):
            gaps.doubt(missing, self._taken)

    # -- time ----------------------------------------------------------------------------------

    def _set_clock(self) -> None:
        pause = (self._heartbeat or QUIET / 2) / LOOKS
        self._clock = self._client.loop.call_later(pause, weakly(self._on_clock))

    def _on_clock(self) -> None:
        if not self._sub.active:
            return
        received = self._sub.delivered + self._sub.pending_msgs + self._sub.dropped
        # Looks are counted, not seconds: a loop blocked by user code has heard nothing either.
        self._silent = self._silent + 1 if received == self._heard else 0
        self._heard = received
        if not self._client.is_connected:
            self._silent = 0
        if missing := self._gaps.look(self._taken + self._sub.pending_msgs):
            then = "they are delivered again after its ack_wait" if self._acks else "they are lost"
            self._client.report(not_come(f"push consumer {self._name!r}", missing, then))
        if self._silent == 2 * LOOKS and self._heartbeat:
            self._client.report(silence_error(f"Push consumer {self._name!r}", self._heartbeat))
        if self._silent and self._silent % (2 * LOOKS) == 0:
            what = f"Looking for push consumer {self._name!r}"
            self._asking = background(self._look_for_it(), what, self._client.report)
        self._set_clock()

    async def _look_for_it(self) -> None:
        try:
            await consumer_info(self._api, self._stream, self._name)
        except (ConsumerNotFoundError, StreamNotFoundError) as error:
            self._stop_clock()
            if self._callback is not None:
                self._client.report(error)
            end_with(self._sub, error)
        except JetsparkError:
            pass  # no leader, no link, no permission: nothing is known

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, and discard messages not taken. May be called again."""
        self._stop_clock()
        if self._asking is not None:
            self._asking.cancel()
        if self._sub.active:
            self._sub.unsubscribe()

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and take those on their way.

        Returns when they have arrived; with a callback, when it was called for the last one.
        `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        self._stop_clock()
        await self._sub.drain(timeout)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()

    def _leave(self) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"PushMessages({self._name!r}, {state}, {self.pending_msgs} here)"


@checked
class PushConsumer(Consumer):
    """A consumer that delivers to a subject."""

    __slots__ = ("_delivered",)

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        super().__init__(api, info)
        # Nothing is delivered without a subscription, so this holds until the first one.
        self._delivered: int | None = None if info.push_bound else info.delivered.consumer_seq

    @property
    def deliver_subject(self) -> str:
        """The subject that it delivers to."""
        return self.cached_info.config.deliver_subject or ""

    def subscribe(
        self,
        *,
        callback: JsMsgCallback | None = None,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> PushMessages:
        """Its messages: iterate the result, or give a callback (plain or async).

        Flow control requests are answered, heartbeats watched. Members of a `deliver_group` share
        the messages. The limits are those of `Client.subscribe`. Raises ConfigError,
        ConnectionClosedError; how it goes on and ends: see `jetspark.jetstream.consumers.push`.
        """
        delivered, self._delivered = self._delivered, None
        return PushMessages(
            self._api,
            self.cached_info,
            callback,
            delivered,
            pending_msgs_limit,
            pending_bytes_limit,
        )
