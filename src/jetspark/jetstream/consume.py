"""Consuming: continuous messages of a pull consumer (ADR-37).

Contract
- Iterate it, or give a callback. The iterator form has no task. The callback form has one, which
  calls it for one message after the other; an exception of the callback is reported, and the next
  message follows.
- It ends with its `async with` block. Without one, it ends with the last loop over it, and when
  nothing refers to it any more.
- Nothing is acknowledged automatically. Messages discarded by `stop` or lost with a link were not
  acknowledged: the server delivers them again after the consumer's ack_wait. `drain` discards none.
- Without acks a message is delivered at most once: one that is discarded, or lost with a link, is
  gone.
- It survives reconnects, leader changes and server restarts. Errors that do not end it are reported
  (log, last_error, error callback): MissedHeartbeatError after twice the interval, and PullError
  for a refused request; then it sends a new one.
- A lost delivery, even the last one, is reported as SequenceMismatchError within twice the
  heartbeat, unless other clients pull from the consumer, which may have got it. With acks it is
  delivered again after ack_wait. With acks and a pinned client it is not reported: clients take
  turns, so others got most of them.
- It ends with an error when the consumer is deleted or not a pull consumer, and when the server
  does not understand the request. Buffered messages are given out first; then the iterator raises.
  With a callback the error is reported. It stays in `error`.
- Without a leader (409 Leadership Change, Server Shutdown, 503) it sends a request every 250 ms. A
  missing consumer gives 503 too, so it asks the API.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, TypeAlias

import jetspark.errors as errors
from jetspark.client.client import CoreClient
from jetspark.client.subscription import FrameReader, Listener, closed_on_purpose, weakly
from jetspark.client.tasks import background
from jetspark.connection.waiting import Waiters
from jetspark.documents.consumers import ConsumerConfig
from jetspark.jetstream.api import Api
from jetspark.jetstream.fetch import (
    CHECKS_PER_HEARTBEAT,
    GapDetector,
    Priority,
    fate_of_missing,
    missing_deliveries_error,
    silence_error,
    wait_for_leader,
)
from jetspark.jetstream.message import JsMsg
from jetspark.retries import PAUSE
from jetspark.timestamps import Seconds, duration_to_ns, in_seconds
from jetspark.validation import check_whole
from jetspark.wire import js_api
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.pull import (
    PENDING_BYTES,
    PENDING_MESSAGES,
    PullEnd,
    PullLimit,
    PullRequest,
    delivery_size,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.status import CONTROL, Status, status_of

# -------------------------------------------------------------------------------------------------
# Why `ContinuousPull` stopped, for its owner.


class StopReason(Enum):
    """Why it stopped. Each comes with an error, except as noted."""

    RECONNECTED = auto()
    """The link was lost and is back; no error."""
    GAP = auto()
    """A delivery is missing, and no other client pulls: SequenceMismatchError."""
    MISSED_HEARTBEATS = auto()
    """No message or heartbeat for twice the interval: MissedHeartbeatError."""
    NO_LEADER = auto()
    """The consumer has no leader now, or does not exist: PullError."""
    INVALID = auto()
    """The server will not serve such a request from any consumer: PullError."""
    UNUSABLE = auto()
    """The server will not serve this consumer again: ConsumerDeletedError, PullError …"""
    CLOSED = auto()
    """The connection closed or the inbox was refused, with that error or without one."""


OnStop: TypeAlias = Callable[[StopReason, errors.JetsparkError | None], None]

OnMissing: TypeAlias = Callable[[int], None]
"""Called with the number of lost deliveries."""


# -------------------------------------------------------------------------------------------------
# The options of `consume` and ordered consumers (ADR-37): defaults, checks, units.
#
# The buffer is limited in messages or in bytes, never both. A pull request stays within the
# consumer's own limits (max_batch, max_bytes, max_expires), so that it is not refused.


MAX_MESSAGES = 500
MOST_AHEAD = 8_000
"""Messages, for a reader that takes so many in some milliseconds and has set no limit."""
EXPIRES = 30.0
BATCH_OF_BYTES = 1_000_000
"""Messages requested when the limit is in bytes: without a batch, the server sends only one."""

_LEAST_EXPIRES = 1.0
_LEAST_HEARTBEAT, _MOST_HEARTBEAT = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Times in seconds; other limits in bytes if `in_bytes`, else in messages."""

    in_bytes: bool
    full: int
    """The most that may be buffered and requested together."""
    threshold: int
    """Sends a new request when buffered and requested fall to this."""
    batch: int
    """Messages of one request when the limit is in bytes."""
    expires: float
    heartbeat: float
    cap: int
    """The consumer's limit for one request."""
    adapts: bool
    """Whether `full` adapts to the reader, because nobody has set it."""

    @property
    def max_request(self) -> int:
        """Most for one request."""
        return min(self.full, self.cap)

    def resized(self, full: int) -> ConsumeOptions:
        """A copy with another buffer size, within the limits of adapting."""
        full = max(MAX_MESSAGES, min(full, MOST_AHEAD))
        return replace(self, full=full, threshold=full // 2)

    def limited_by(self, limit: PullLimit) -> ConsumeOptions:
        """A copy whose requests stay within a limit of the consumer."""
        max_amount = limit.max_bytes if self.in_bytes else limit.batch
        expires = min(self.expires, limit.expires or self.expires)
        return replace(
            self,
            cap=min(self.cap, max_amount or self.cap),
            batch=min(self.batch, limit.batch or self.batch),
            expires=expires,
            heartbeat=min(self.heartbeat, expires / 2),
        )


def make_consume_options(
    config: ConsumerConfig,
    *,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    expires: Seconds = EXPIRES,
    heartbeat: Seconds | None = None,
    threshold_messages: int | None = None,
    threshold_bytes: int | None = None,
) -> ConsumeOptions:
    """The options for a consumer with `config`. Raises ConfigError."""
    expires, heartbeat = in_seconds(expires), in_seconds(heartbeat)
    in_bytes = max_bytes is not None
    adapts = max_messages is None and threshold_messages is None and not in_bytes
    if in_bytes and (max_messages is not None or threshold_messages is not None):
        raise errors.ConfigError("The buffer is limited in messages or in bytes: give one kind.")
    if not in_bytes and threshold_bytes is not None:
        raise errors.ConfigError("threshold_bytes needs max_bytes.")
    if not in_bytes:
        unit, full, threshold = "messages", max_messages, threshold_messages
        full = MAX_MESSAGES if full is None else full
    else:
        unit, full, threshold = "bytes", max_bytes or 0, threshold_bytes
    check_whole(f"max_{unit}", full)
    if threshold is None:
        threshold = full // 2
    check_whole(f"threshold_{unit}", threshold, 0)
    if not 0 <= threshold <= full:
        raise errors.ConfigError(f"threshold_{unit} must be from 0 to max_{unit}.")
    if expires < _LEAST_EXPIRES:
        raise errors.ConfigError(f"expires must be at least {_LEAST_EXPIRES:g} seconds.")
    if config.max_expires is not None and config.max_expires.total_seconds() > 0:
        expires = min(expires, config.max_expires.total_seconds())
    if heartbeat is None:
        heartbeat = min(expires / 2, _MOST_HEARTBEAT)
    elif not _LEAST_HEARTBEAT <= heartbeat <= min(expires / 2, _MOST_HEARTBEAT):
        raise errors.ConfigError(
            f"heartbeat must be from {_LEAST_HEARTBEAT:g} to {_MOST_HEARTBEAT:g} seconds, "
            "and at most half of expires."
        )
    cap = (config.max_bytes if in_bytes else config.max_batch) or (MOST_AHEAD if adapts else full)
    return ConsumeOptions(
        in_bytes=in_bytes,
        full=full,
        threshold=threshold,
        batch=min(BATCH_OF_BYTES, config.max_batch or BATCH_OF_BYTES),
        expires=expires,
        heartbeat=heartbeat,
        cap=cap,
        adapts=adapts,
    )


# -------------------------------------------------------------------------------------------------
# Continuous pull requests, below `consume` and ordered consumers (ADR-37).
#
# - The read loop appends frames to `frames`. `take` returns one, and sends a new pull request when
#   what is buffered and requested falls to the threshold: the buffer never exceeds its limit, and a
#   slow reader stops the requests. No task, future or timer is made for a message.
# - A limit that nobody has set follows the reader: it doubles while half of the buffer is taken
#   within QUICK seconds (the server would wait for requests), and halves when that takes SLOW.
# - One wildcard inbox serves all requests since `start`. The last token of a reply subject begins
#   with the amount requested, for servers that refuse a request without saying how much is missing.
# - What ends one request only (404, 408, 409 for its size, 423) is handled here. A request beyond a
#   limit that the status names is followed by smaller ones; one refused for another reason is
#   reported, once for each reason, and sent again after PAUSE.
# - Anything else stops it: the owner gets a `StopReason` and calls `start` again. Buffered frames
#   stay, and without a leader what the server has sent still arrives until then.
# - The heartbeat clock stops without a link, and while nothing is outstanding.
# - Heartbeats say how many messages the consumer has sent. A missing delivery stops the pull at
#   once, or goes to `on_missing` half an interval later where other clients may pull, too. After a
#   lost frame that ended a request comes silence: all of it shows within 2¼ heartbeat intervals.


QUICK, SLOW = 0.005, 0.1

_ENDS = {PullEnd.UNUSABLE: StopReason.UNUSABLE, PullEnd.INVALID: StopReason.INVALID}


class ContinuousPull:
    """Stopped until `start`. The read loop or a timer calls `on_stop` and `on_missing`.

    No `on_missing`: no other client pulls from the consumer.
    """

    def __init__(
        self,
        api: Api,
        limits: ConsumeOptions,
        on_stop: OnStop,
        priority: Priority | None = None,
        on_missing: OnMissing | None = None,
        frames: deque[MessageFrame] | None = None,
    ) -> None:
        self._api = api
        self._client = api.client
        self._limits = limits
        self._on_stop = on_stop
        self._on_missing = on_missing
        self._priority = priority
        self.frames: deque[MessageFrame] = deque() if frames is None else frames
        """Received, not taken yet."""
        self.waiters = Waiters()
        """Tasks that wait for `frames`; woken here, and by the owner at the end."""
        self._pending = 0
        self._requesting = False
        self._listener: Listener | None = None
        self._names: dict[str, str] = {}
        self._subject = ""
        self._clock: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._heard = 0
        self._silent = 0
        self._told: set[str] = set()
        self._gaps = GapDetector(None)
        self._requests = 0
        self._filled_at = 0.0

    # -- for the owner -------------------------------------------------------------------------

    def start(self, stream: str, consumer: str, delivered: int | None = None) -> None:
        """Pull from this consumer, on a new inbox; without a link, as soon as there is one.

        `delivered`: the consumer sequence of its last delivery so far; None: unknown. Raises
        ConnectionClosedError.
        """
        self.stop()
        self._gaps = GapDetector(delivered)
        self._names = {"stream": stream, "consumer": consumer}
        self._subject = js_api.subject_of(self._api.prefix, js_api.MSG_NEXT, self._names)
        self._told.clear()
        self._listen()
        if self._client.is_connected:
            self._pending = self._buffered_amount()
            self._requesting = True
            self._heard = self._silent = 0
            self._fill_buffer()
            self._set_clock()

    def stop(self) -> None:
        """Send no more requests and receive no more. Buffered frames stay."""
        self.stop_requests()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def stop_requests(self) -> None:
        """Send no more requests; frames on their way still arrive."""
        self._requesting = False
        for timer in (self._clock, self._resume):
            if timer is not None:
                timer.cancel()
        self._clock = self._resume = None

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the deliveries, and wait for those on their way.

        Raises RequestTimeoutError, ConnectionClosedError; it stops in any case.
        """
        self.stop_requests()
        try:
            if self._listener is not None:
                self._listener.stop()
                await self._client.rtt(timeout)
        finally:
            self.stop()

    def take(self) -> MessageFrame:
        """The next frame; there must be one. May send a request."""
        frame = self.frames.popleft()
        self._pending -= self._amount(frame) if self._limits.in_bytes else 1
        if self._pending <= self._limits.threshold:
            if self._limits.adapts:
                self._adapt()
            self._fill_buffer()
        return frame

    def take_many(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, but no more than one request brings."""
        limits = self._limits
        room = max(limits.full - limits.threshold, 1)
        frames: list[MessageFrame] = []
        while self.frames and room > 0 and len(frames) < limit:
            frame = self.take()
            frames.append(frame)
            room -= self._amount(frame) if limits.in_bytes else 1
        return frames

    @property
    def consumer(self) -> str:
        """The consumer of the last `start`."""
        return self._names.get("consumer", "")

    @property
    def waiting(self) -> int:
        """Our requests that wait at the server."""
        return self._gaps.waiting

    # -- requests --------------------------------------------------------------------------------

    def _listen(self) -> None:
        pinned = self._priority is not None and self._priority.pinned
        self._listener = self._client.listen(
            f"{self._client.new_inbox()}.*",
            self._on_frame_pinned if pinned else self._on_frame,
            on_run=None if pinned else self._on_run,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=self._on_end,
        )

    def _adapt(self) -> None:
        now = self._client.loop.time()
        took, self._filled_at = now - self._filled_at, now
        limits = self._limits
        if took < QUICK:
            self._limits = limits.resized(2 * limits.full)
        elif took > SLOW:
            self._limits = limits.resized(limits.full // 2)

    def _fill_buffer(self) -> None:
        """Request as much as fits into the buffer."""
        limits = self._limits
        while self._requesting and (missing := limits.full - self._pending) > 0:
            amount = min(missing, limits.max_request)
            self._request(amount)
            self._pending += amount

    def _request(self, amount: int) -> None:
        assert self._listener is not None  # noqa: S101
        limits = self._limits
        payload = PullRequest(
            batch=limits.batch if limits.in_bytes else amount,
            max_bytes=amount if limits.in_bytes else 0,
            expires=duration_to_ns(limits.expires),
            idle_heartbeat=duration_to_ns(limits.heartbeat),
            **({} if self._priority is None else self._priority.fields()),
        ).encode()
        self._api.note_request(self._subject, payload)
        self._requests += 1
        try:
            reply = f"{self._listener.subject[:-1]}{amount}-{self._requests}"
            self._client.publish_nowait(self._subject, payload, reply=reply)
        except errors.ConnectionClosedError:
            self._requesting = False  # `_on_end` comes, or came
        except errors.JetsparkError as error:
            self._report_refusal(error)

    def _report_refusal(self, error: errors.JetsparkError) -> None:
        """Report the refusal, once, and request again later."""
        if str(error) not in self._told:
            self._told.add(str(error))
            self._client.report(error)
        self._pause()

    def _pause(self) -> None:
        if self._requesting:
            self._requesting = False
            self._resume = self._client.loop.call_later(PAUSE, self._on_resume)

    def _on_resume(self) -> None:
        self._resume = None
        self._requesting = True
        self._fill_if_low()

    def _fill_if_low(self) -> None:
        if self._pending <= self._limits.threshold:
            self._fill_buffer()

    def _amount(self, frame: MessageFrame) -> int:
        """Bytes of a delivery, as the server counts them for max_bytes."""
        size = delivery_size(frame)
        if self._priority is not None and self._priority.pinned:
            size -= self._priority.added(frame)
        return size

    def _buffered_amount(self) -> int:
        """The part of `_pending` that has arrived."""
        return sum(map(self._amount, self.frames)) if self._limits.in_bytes else len(self.frames)

    # -- frames, in the read loop --------------------------------------------------------------

    def _on_frame(self, frame: MessageFrame) -> None:
        # Deliveries have a reply subject to ack to, statuses have none.
        if frame.reply is None:
            self._gaps.non_deliveries += 1
            status = status_of(frame.headers)
            if status is not None and status.code == CONTROL:
                self._on_heartbeat(frame)
            elif status is not None:
                self._on_status(status, frame)
            return
        if self._gaps.before is None and self._listener is not None:
            self._gaps.first(frame.reply, self._listener.received - 1)
        self.frames.append(frame)
        if self.waiters:
            self.waiters.wake()

    def _on_run(self, frames: list[MessageFrame], size: int) -> bool:
        if frames[0].reply is None:
            return False
        if self._gaps.before is None and self._listener is not None:
            self._gaps.first(frames[0].reply, self._listener.received)
        self.frames += frames
        if self.waiters:
            self.waiters.wake()
        return True

    def _on_frame_pinned(self, frame: MessageFrame) -> None:
        assert self._priority is not None  # noqa: S101
        self._priority.notice(frame)
        self._on_frame(frame)

    def _on_heartbeat(self, frame: MessageFrame) -> None:
        assert self._listener is not None  # noqa: S101
        received, gaps = self._listener.received, self._gaps
        gaps.beat(frame.subject)
        missing = gaps.missing(frame.headers, received)
        if missing and self._on_missing is not None:
            gaps.doubt(missing, received)
        elif missing:
            consequence = "the consumer is recreated after the last one received"
            self._stop_for(
                StopReason.GAP,
                missing_deliveries_error(f"consumer {self.consumer!r}", missing, consequence),
            )

    def _on_status(self, status: Status, frame: MessageFrame) -> None:
        self._gaps.ended(frame.subject)
        end = pull_end(status)
        if (reason := _ENDS.get(end)) is not None:
            self._stop_for(reason, pull_error(status))
            return
        if end is PullEnd.NO_LEADER:
            # Each request gets this status; the first one counts.
            if self._requesting or self._resume is not None:
                self.stop_requests()
                self._on_stop(StopReason.NO_LEADER, pull_error(status))
            return
        token = frame.subject.rpartition(b".")[2].partition(b"-")[0]
        requested = int(token) if token.isdigit() else 0  # anyone may publish to an inbox
        limits = self._limits
        left = number_in(frame.headers, PENDING_BYTES if limits.in_bytes else PENDING_MESSAGES)
        # At least what is buffered, whatever the status says.
        self._pending = max(
            self._pending - (requested if left is None else left), self._buffered_amount()
        )
        if (limit := limit_of(status)) is not None:
            self._limits = limits.limited_by(limit)
        # The next message is larger than any request.
        never_fits = (
            end is PullEnd.TOO_LARGE
            and requested == limits.max_request
            and left in (None, requested)
        )
        if never_fits and self._on_missing is None:  # nobody else takes it
            self._stop_for(StopReason.INVALID, pull_error(status))
        elif limit is not None and (self._limits != limits or requested > limits.max_request):
            self._fill_if_low()
        elif end in (PullEnd.REFUSED, PullEnd.LIMITED) or never_fits:
            self._report_refusal(pull_error(status))
        else:
            self._request_rest(end, counted=left is not None)

    def _request_rest(self, end: PullEnd, *, counted: bool) -> None:
        if end is PullEnd.PIN_LOST and self._priority is not None:
            self._priority.lost()
        elif not counted:
            self._pause()  # an unknown status, which the server may send each time
        if end is not PullEnd.TOO_LARGE or not self.frames:
            # A message too large for the rest of the buffer waits until something is taken.
            self._fill_if_low()

    def _stop_for(self, reason: StopReason, error: errors.JetsparkError | None) -> None:
        self.stop()
        self._on_stop(reason, error)

    # -- time and the link ---------------------------------------------------------------------

    def _set_clock(self) -> None:
        self._clock = self._client.loop.call_later(
            self._limits.heartbeat / CHECKS_PER_HEARTBEAT, self._on_clock
        )

    def _on_clock(self) -> None:
        assert self._listener is not None  # noqa: S101
        received = self._listener.received
        # Count checks, not seconds: a loop blocked by user code received nothing either.
        quiet = received == self._heard and self._pending > self._buffered_amount()
        self._silent = self._silent + 1 if quiet else 0
        self._heard = received
        if (missing := self._gaps.check(received)) and self._on_missing is not None:
            self._on_missing(missing)
        if self._silent < 2 * CHECKS_PER_HEARTBEAT:
            self._set_clock()
            return
        silent = silence_error(
            f"Consumer {self.consumer!r}",
            self._limits.heartbeat,
            one_answer=0 < received <= self._requests,
        )
        self._stop_for(StopReason.MISSED_HEARTBEATS, silent)

    def _on_disconnect(self) -> None:
        self.stop()
        self._listen()

    def _on_reconnect(self) -> None:
        self._stop_for(StopReason.RECONNECTED, None)

    def _on_refused(self, name: str, error: errors.JetsparkError) -> None:
        if name == self._subject:
            self._on_end(copy(error))

    def _on_end(self, error: errors.JetsparkError | None) -> None:
        self._stop_for(StopReason.CLOSED, error)


_CHECKS_FOR_OTHER_CLIENTS = 4
"""Checks, one in each heartbeat interval: others who wait each time may have the messages."""

JsMsgCallback: TypeAlias = Callable[[JsMsg], Awaitable[None] | None]
"""A function, plain or async, called with each message."""


class ConsumerMessages(FrameReader[JsMsg]):
    """The result of `PullConsumer.consume`: iterate it, or give it a callback.

    Example:
        ```python
        async def work(msg):
            await msg.ack()

        consumer = await js.stream("ORDERS").create_consumer(name="worker")
        messages = consumer.consume(callback=work)
        await messages.drain()  # returns when `work` is done with what has arrived
        ```
    """

    _client: CoreClient

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
            client.hooks.queue(client, callback),
        )
        if callback is not None:
            callback = client.hooks.callback(callback)
        self._acks = acks
        self._heartbeat = limits.heartbeat
        self._missing = 0
        self._missing_check: asyncio.Task[None] | None = None
        super().__init__(client, callback, self._pull.frames, self._pull.waiters)
        self._draining = False
        self._told = ""
        self._retry: asyncio.Task[None] | None = None
        self._begin()
        self._begin_reading(f"jetspark-consume-{consumer}", self._ending())

    # -- state ---------------------------------------------------------------------------------

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return len(self._frames)

    @property
    def error(self) -> errors.JetsparkError | None:
        """The error that ended it; None before, and after `stop` or `drain`."""
        return self._error

    def _begin(self) -> None:
        """Start pulling; ordered consumers start later."""
        self._pull.start(self._names["stream"], self._names["consumer"])

    def _ending(self) -> Callable[[], None]:
        """The function that ends it when nothing refers to it any more."""
        return self._pull.stop

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return background(work, f"Consuming of {self.source}", self._end)

    # -- failures, in the read loop ------------------------------------------------------------

    def _on_stop(self, reason: StopReason, error: errors.JetsparkError | None) -> None:
        if self._draining:
            return
        self._cancel_retry()
        if reason in (StopReason.UNUSABLE, StopReason.INVALID, StopReason.CLOSED):
            self._end(error)
        elif reason is StopReason.NO_LEADER:
            status = error.status if isinstance(error, errors.PullError) else None
            self._retry = self._run_in_background(self._start_when_led(status))
        else:
            if error is not None:
                self._client.report(error)
            self._start()

    def _start(self) -> None:
        try:
            self._pull.start(self._names["stream"], self._names["consumer"], self._delivered())
        except errors.ConnectionClosedError as error:
            self._end(error)

    def _delivered(self) -> int | None:
        """The consumer sequence of the last delivery so far; None: unknown."""
        return None

    def _on_missing(self, missing: int) -> None:
        self._missing += missing
        if self._missing_check is None or self._missing_check.done():
            self._missing_check = self._run_in_background(self._report_missing())

    async def _report_missing(self) -> None:
        """Report missing deliveries, unless other waiting clients may have got them.

        Our own abandoned requests also wait at the consumer for a while, so it checks again.
        """
        for attempt in range(_CHECKS_FOR_OTHER_CLIENTS):
            if attempt:
                await asyncio.sleep(self._heartbeat)
            try:
                info = await self._api.call(js_api.CONSUMER_INFO, **self._names)
            except errors.JetsparkError:
                break
            if info.get("num_waiting", 0) <= self._pull.waiting:
                break
        else:
            self._missing = 0
            return
        missing, self._missing = self._missing, 0
        source = f"consumer {self._names['consumer']!r}"
        consequence = f"unless another client took them, {fate_of_missing(self._acks)}"
        self._client.report(missing_deliveries_error(source, missing, consequence))

    async def _start_when_led(self, status: int | None) -> None:
        """Wait for a leader and start again; end when the consumer no longer exists."""
        error = await wait_for_leader(self._api, self._names, status)
        if isinstance(
            error,
            errors.ConsumerNotFoundError
            | errors.StreamNotFoundError
            | errors.ConnectionClosedError,
        ):
            self._end(error)
            return
        if error is not None:
            if str(error) != self._told:
                self._told = str(error)
                self._client.report(error)
            await asyncio.sleep(PAUSE)
        self._start()

    def _cancel_retry(self) -> None:
        if self._retry is not None and self._retry is not asyncio.current_task():
            self._retry.cancel()

    def _end(self, error: errors.JetsparkError | None) -> None:
        if self._ended:
            return
        self._ended = True
        if not self._draining:  # otherwise the end of the messages stops it
            self._pull.stop()
        self._cancel_retry()
        if self._missing_check is not None:
            self._missing_check.cancel()
        self._end_reading(None if closed_on_purpose(error) else error)

    # -- taking messages -----------------------------------------------------------------------

    @property
    def source(self) -> str:
        return f"consumer {self._names['consumer']!r}"

    def _take(self) -> JsMsg | None:
        return JsMsg(self._client, self._pull.take())

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if by iterating.

        For callers that create messages of another class from many frames.
        """
        frames = self._pull.take_many(limit)
        self._took(len(frames))
        return frames

    async def take_last(self) -> list[MessageFrame]:
        """Stop the deliveries, and take the buffered frames and those on their way.

        As `take_queued`. The latter are missing if the connection is lost.
        """
        with suppress(errors.ConnectionClosedError, errors.RequestTimeoutError):
            await self._stop_deliveries(None)
        frames = self.take_queued(self.pending_msgs)
        self.stop()
        return frames

    def _callback_ended(self, error: errors.JetsparkError) -> None:
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

    async def _stop_deliveries(self, timeout: float | None) -> None:
        self._draining = True
        await self._pull.drain(timeout)

    def _leave(self) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"ConsumerMessages({self._names['consumer']!r}, {state}, {self.pending_msgs} here)"


def _ignore(_: object) -> None:
    pass
