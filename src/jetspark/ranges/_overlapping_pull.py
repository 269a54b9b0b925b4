"""Reads from one consumer with overlapping pull requests: two are always in flight.

The server serves waiting requests in turn, so only the total of undelivered messages is tracked,
not each request. The status of a request that ends early has its undelivered messages (ADR-13).
"""

from __future__ import annotations

import time

import jetspark.errors as errors
from jetspark.links.link import BlockingLink
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.retries import TryAnotherLinkError
from jetspark.timestamps import NANOSECONDS
from jetspark.wire import frames, js_api
from jetspark.wire.kernel import Deliveries, DeliveryDecoder, MessageFrame
from jetspark.wire.pull import (
    LAST_CONSUMER,
    PENDING_MESSAGES,
    PullEnd,
    PullRequest,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.status import CONTROL, Status, status_of

INACTIVE_SECONDS = 30.0
"""Seconds without a pull until the server removes the consumer."""
_EXPIRES_SECONDS = 30.0
_HEADROOM = 64 * 1024


class OverlappingPull:
    """Pulls the messages of one consumer, with two pull requests in flight.

    After an error the caller creates another consumer, and another object.
    """

    def __init__(self, link: BlockingLink, stream: str, consumer: str, limits: ReadLimits) -> None:
        """Subscribe to the deliveries. `limits`: the sizes of pull requests, and the heartbeat."""
        self.decoder = DeliveryDecoder(stream, consumer)
        self._link = link
        self._statuses: list[MessageFrame] = []  # received by `take`, to be handled by `check`
        self._subject = js_api.subject_of(
            link.api_prefix, js_api.MSG_NEXT, {"stream": stream, "consumer": consumer}
        )
        self._batch = limits.pull_messages
        # The server refuses a request without room for the largest message.
        self._bytes = max(limits.pull_bytes, link.info.max_payload + _HEADROOM)
        self._expires = _EXPIRES_SECONDS
        self._heartbeat = limits.heartbeat
        self._inbox = link.new_inbox()
        self._sid = link.subscribe(self._inbox)
        self._outstanding = 0
        """Messages requested, but neither received nor given up by the server."""

    def top_up(self, count_left: int) -> None:
        """Send pull requests until two are in flight, or `count_left` messages are requested.

        `count_left`: how many messages the caller still wants.
        """
        requests = b""
        while self._outstanding <= self._batch and self._outstanding < count_left:
            count = min(self._batch, count_left - self._outstanding)
            requests += self._encode_request(count)
            self._outstanding += count
        if requests:
            self._link.send(requests)

    def _encode_request(self, count: int) -> bytes:
        """Encode the pull request for `count` messages, as the frame to send."""
        request = PullRequest(
            batch=count,
            max_bytes=self._bytes,
            expires=round(self._expires * NANOSECONDS),
            idle_heartbeat=round(self._heartbeat * NANOSECONDS),
        )
        return frames.pub(self._subject, request.encode(), self._inbox)

    def take(self, rows: Deliveries) -> int:
        """Wait for deliveries once, and append them to `rows`; returns how many they are.

        Call `check` afterwards, which handles statuses that came with them. An error appends no
        rows. Raises MissedHeartbeatError, TryAnotherLinkError when consumer sequences show that
        messages are missing in between, and the errors of `BlockingLink.deliveries`.
        """
        first_row, sequence_before = len(rows), self.decoder.consumer_sequence
        silence = 2 * self._heartbeat
        try:
            self._statuses = self._link.deliveries(self.decoder, rows, time.monotonic() + silence)
            new = len(rows) - first_row
            if new and self.decoder.consumer_sequence != sequence_before + new:
                raise TryAnotherLinkError(
                    f"deliveries {sequence_before + 1} to {self.decoder.consumer_sequence} came "
                    "with gaps"
                )
        except errors.RequestTimeoutError:
            raise errors.MissedHeartbeatError(
                f"nothing from {self._link.server} for {silence:g} s"
            ) from None
        except BaseException:
            rows.truncate(first_row)
            raise
        self._outstanding = max(0, self._outstanding - new)
        return new

    def check(self) -> None:
        """Handle the statuses (heartbeats, ends of requests) that came with the last messages.

        Raises ConsumerDeletedError, TryAnotherLinkError (the server has sent more than arrived),
        NoRespondersError: create a new consumer; ConsumerIsPushError, PullError: give up.
        """
        for frame in self._statuses:
            # Others are for subscriptions of the link's former users.
            if frame.sid == self._sid and (status := status_of(frame.headers)) is not None:
                self._handle_status(frame, status)

    def _handle_status(self, frame: MessageFrame, status: Status) -> None:
        """Handle one status: check a heartbeat, or account for a pull request that has ended.

        Some ends change the size of the next requests. Raises the errors of `check`.
        """
        if status.code == CONTROL:  # a heartbeat, with the last delivery that was sent
            sent = number_in(frame.headers, LAST_CONSUMER)
            if sent is not None and sent > self.decoder.consumer_sequence:
                raise TryAnotherLinkError(
                    f"The server has sent {sent} messages, {self.decoder.consumer_sequence} "
                    "arrived."
                )
            return
        end = pull_end(status)
        if end is PullEnd.UNUSABLE or end is PullEnd.INVALID:
            raise pull_error(status)
        if status.is_no_responders:
            raise errors.NoRespondersError(self._subject)
        if end is PullEnd.NO_LEADER:
            # A server takes its ephemeral consumers in memory with it.
            raise errors.ConsumerDeletedError(status.code, status.description)
        if end is PullEnd.TOO_LARGE:
            # A stored message is larger than this connection may publish: make room for it.
            self._bytes *= 2
        if end is PullEnd.LIMITED and (limit := limit_of(status)) is not None:
            # The consumer has lower limits, from the server's defaults: request no more than these.
            self._batch = min(self._batch, limit.batch or self._batch)
            self._bytes = min(self._bytes, limit.max_bytes or self._bytes)
            self._expires = min(self._expires, limit.expires or self._expires)
            self._heartbeat = min(self._heartbeat, self._expires / 2)
        undelivered = number_in(frame.headers, PENDING_MESSAGES)  # of the request that ended
        self._outstanding = 0 if undelivered is None else max(0, self._outstanding - undelivered)

    def stop(self) -> None:
        """Unsubscribe; the link's next reader drops messages in flight."""
        self._link.unsubscribe(self._sid)
