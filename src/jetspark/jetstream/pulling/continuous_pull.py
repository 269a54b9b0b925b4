"""Continuous pull requests, below `consume` and ordered consumers (ADR-37).

Contract
- The read loop appends raw frames to `frames`. `take` gives out one and sends a new pull request
  when the messages buffered and requested fall to the threshold. So the buffer never exceeds its
  limit, and a slow reader stops the requests. No task, future or timer is made for a message.
- A limit that nobody has set follows the reader: it doubles while half of the buffer is taken
  within QUICK seconds (the server would wait for requests), and halves when that takes SLOW.
- One wildcard inbox serves all requests since `start`. The last token of a request's reply subject
  begins with the amount requested: when a server refuses it without saying how much is not coming,
  the token says so. Deliveries to an older inbox find no interest.
- What ends only one request (404, 408, 409 for its size, 423) is handled here. A request beyond a
  limit that the status names is followed by smaller ones. One refused for another reason is
  reported to the client, once for each reason, and sent again after RETRY_WAIT.
- Anything else stops it: the owner is told the `StopReason` and calls `start` again, for the same
  consumer or another one. Buffered frames stay. Without a leader, what was already sent still
  arrives until then.
- The heartbeat clock stops without a link, and while nothing is outstanding.
- Heartbeats say how many messages the consumer has sent. A missing delivery stops it at once; when
  other clients may pull too, `on_missing` is told half an interval later. A lost frame that ended a
  request is followed by silence instead. So each is noticed within 2¼ heartbeat intervals.
- All of it runs in the client's event loop; there is no task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy
from typing import TYPE_CHECKING

from jetspark.connection.waiters import Waiters
from jetspark.errors import ConnectionClosedError, JetsparkError
from jetspark.jetstream.pulling.gap_detection import LOOKS, GapDetector, not_come, silence_error
from jetspark.jetstream.pulling.leader_wait import RETRY_WAIT
from jetspark.jetstream.pulling.stop_reason import OnMissing, OnStop, StopReason
from jetspark.timestamps import duration_to_ns
from jetspark.wire import js_api
from jetspark.wire.pull_end import (
    PENDING_BYTES,
    PENDING_MESSAGES,
    PullEnd,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.pull_request import PullRequest, delivery_size
from jetspark.wire.status import CONTROL, status_of

if TYPE_CHECKING:
    from jetspark.client.listener import Listener
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.pulling.consume_options import ConsumeOptions
    from jetspark.jetstream.pulling.priority_groups import Priority
    from jetspark.wire.events import MessageFrame
    from jetspark.wire.status import Status

QUICK, SLOW = 0.005, 0.1

_ENDS = {PullEnd.UNUSABLE: StopReason.UNUSABLE, PullEnd.INVALID: StopReason.INVALID}


class ContinuousPull:
    """Made stopped; `start` it. `on_stop` and `on_missing` are called in the read loop or a timer.

    Without `on_missing` no other client pulls from the consumer.
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

        `delivered`: the consumer sequence of its last delivery so far, None: unknown. Raises
        ConnectionClosedError.
        """
        self.stop()
        self._gaps = GapDetector(delivered)
        self._names = {"stream": stream, "consumer": consumer}
        self._subject = js_api.subject_of(self._api.prefix, js_api.MSG_NEXT, self._names)
        self._told.clear()
        self._listen()
        if self._client.is_connected:
            self._pending = self._here()
            self._requesting = True
            self._heard = self._silent = 0
            self._fill_buffer()
            self._set_clock()

    def stop(self) -> None:
        """Send no more requests, receive no more. Buffered frames stay."""
        self.stop_requests()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def stop_requests(self) -> None:
        """Send no more requests; what is on its way still arrives."""
        self._requesting = False
        for timer in (self._clock, self._resume):
            if timer is not None:
                timer.cancel()
        self._clock = self._resume = None

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the deliveries, and return when those on their way have arrived.

        Raises RequestTimeoutError, ConnectionClosedError; it is stopped in any case.
        """
        self.stop_requests()
        try:
            if self._listener is not None:
                self._listener.stop()
                await self._client.rtt(timeout)
        finally:
            self.stop()

    def take(self) -> MessageFrame:
        """The next frame, of which there must be one. May send a request."""
        frame = self.frames.popleft()
        self._pending -= self._amount(frame) if self._limits.in_bytes else 1
        if self._pending <= self._limits.threshold:
            if self._limits.adapts:
                self._adapt()
            self._fill_buffer()
        return frame

    def take_many(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, at most as many as one request brings."""
        limits = self._limits
        room = max(limits.full - limits.threshold, 1)
        taken: list[MessageFrame] = []
        while self.frames and room > 0 and len(taken) < limit:
            frame = self.take()
            taken.append(frame)
            room -= self._amount(frame) if limits.in_bytes else 1
        return taken

    @property
    def consumer(self) -> str:
        """The consumer of the last start."""
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
        """Request as much as the buffer has room for."""
        limits = self._limits
        while self._requesting and (missing := limits.full - self._pending) > 0:
            amount = min(missing, limits.most)
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
        except ConnectionClosedError:
            self._requesting = False  # `_on_end` comes, or came
        except JetsparkError as error:
            self._refused(error)

    def _refused(self, error: JetsparkError) -> None:
        """Report it, once, and request again later."""
        if str(error) not in self._told:
            self._told.add(str(error))
            self._client.report(error)
        self._pause()

    def _pause(self) -> None:
        if self._requesting:
            self._requesting = False
            self._resume = self._client.loop.call_later(RETRY_WAIT, self._on_resume)

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

    def _here(self) -> int:
        """The part of `_pending` that has arrived."""
        return sum(map(self._amount, self.frames)) if self._limits.in_bytes else len(self.frames)

    # -- what comes back: called in the read loop ----------------------------------------------

    def _on_frame(self, frame: MessageFrame) -> None:
        # Deliveries have a reply subject to ack to, statuses have none.
        if frame.reply is None:
            self._gaps.others += 1
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
            again = "it is recreated after the last one received"
            self._stop_for(StopReason.GAP, not_come(f"consumer {self.consumer!r}", missing, again))

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
        asked = int(token) if token.isdigit() else 0  # anyone may publish to an inbox
        limits = self._limits
        left = number_in(frame.headers, PENDING_BYTES if limits.in_bytes else PENDING_MESSAGES)
        # At least what is buffered, whatever the status says.
        self._pending = max(self._pending - (asked if left is None else left), self._here())
        if (limit := limit_of(status)) is not None:
            self._limits = limits.within(limit)
        # The next message is larger than any request.
        never_fits = end is PullEnd.TOO_LARGE and asked == limits.most and left in (None, asked)
        if never_fits and self._on_missing is None:  # nobody else takes it
            self._stop_for(StopReason.INVALID, pull_error(status))
        elif limit is not None and (self._limits != limits or asked > limits.most):
            self._fill_if_low()
        elif end in (PullEnd.REFUSED, PullEnd.LIMITED) or never_fits:
            self._refused(pull_error(status))
        else:
            self._request_rest(end, known=left is not None)

    def _request_rest(self, end: PullEnd, *, known: bool) -> None:
        if end is PullEnd.PIN_LOST and self._priority is not None:
            self._priority.lost()
        elif not known:
            self._pause()  # an unknown status, which the server may send each time
        if end is not PullEnd.TOO_LARGE or not self.frames:
            # A message too large for the rest of the buffer waits until something is taken.
            self._fill_if_low()

    def _stop_for(self, reason: StopReason, error: JetsparkError | None) -> None:
        self.stop()
        self._on_stop(reason, error)

    # -- time and the link ---------------------------------------------------------------------

    def _set_clock(self) -> None:
        self._clock = self._client.loop.call_later(self._limits.heartbeat / LOOKS, self._on_clock)

    def _on_clock(self) -> None:
        assert self._listener is not None  # noqa: S101
        received = self._listener.received
        # Looks are counted, not seconds: a loop blocked by user code has heard nothing either.
        quiet = received == self._heard and self._pending > self._here()
        self._silent = self._silent + 1 if quiet else 0
        self._heard = received
        if (missing := self._gaps.look(received)) and self._on_missing is not None:
            self._on_missing(missing)
        if self._silent < 2 * LOOKS:
            self._set_clock()
            return
        silent = silence_error(f"Consumer {self.consumer!r}", self._limits.heartbeat)
        self._stop_for(StopReason.MISSED_HEARTBEATS, silent)

    def _on_disconnect(self) -> None:
        self.stop()
        self._listen()

    def _on_reconnect(self) -> None:
        self._stop_for(StopReason.RECONNECTED, None)

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        if name == self._subject:
            self._on_end(copy(error))

    def _on_end(self, error: JetsparkError | None) -> None:
        self._stop_for(StopReason.CLOSED, error)
