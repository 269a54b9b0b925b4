"""Overlapping pull requests on one consumer: the next one is sent before the last one ends.

The server serves waiting requests in turn, so only the total number of undelivered messages is
tracked, not each request. The status of a request that ends early has the number of messages that
were not delivered (ADR-13).
"""

from __future__ import annotations

from jetspark.bulk.link import BlockingLink
from jetspark.bulk.ranges import ReadLimits
from jetspark.errors import (
    ConsumerDeletedError,
    NoRespondersError,
)
from jetspark.timestamps import NANOSECONDS
from jetspark.transient import TryAnotherLinkError
from jetspark.wire import frames, js_api
from jetspark.wire.events import MessageFrame
from jetspark.wire.pull_end import (
    LAST_CONSUMER,
    PENDING_MESSAGES,
    PullEnd,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.pull_request import PullRequest
from jetspark.wire.status import CONTROL, NO_RESPONDERS, status_of

_EXPIRES_SECONDS = 30.0
_HEADROOM = 64 * 1024


class OverlappingPull:
    """Keeps two requests in flight. After an error the caller creates another consumer."""

    def __init__(self, link: BlockingLink, stream: str, consumer: str, limits: ReadLimits) -> None:
        self._link = link
        self._subject = js_api.subject_of(
            link.api_prefix, js_api.MSG_NEXT, {"stream": stream, "consumer": consumer}
        )
        self._batch = limits.pull_messages
        # A request must have room for the largest message, or the server refuses it.
        self._bytes = max(limits.pull_bytes, link.info.max_payload + _HEADROOM)
        self._expires = _EXPIRES_SECONDS
        self._heartbeat = limits.heartbeat
        self._inbox = link.new_inbox()
        self._sid = link.subscribe(self._inbox)
        self.owed = 0
        """Messages that were requested and are neither received nor given up."""

    def top_up(self, wanted: int) -> None:
        """Request more unless `wanted` messages are outstanding already; two requests at most."""
        requests = b""
        while self.owed <= self._batch and self.owed < wanted:
            count = min(self._batch, wanted - self.owed)
            requests += self._request(count)
            self.owed += count
        if requests:
            self._link.send(requests)

    def _request(self, count: int) -> bytes:
        request = PullRequest(
            batch=count,
            max_bytes=self._bytes,
            expires=round(self._expires * NANOSECONDS),
            idle_heartbeat=round(self._heartbeat * NANOSECONDS),
        )
        return frames.pub(self._subject, request.encode(), self._inbox)

    def received(self, count: int) -> None:
        """Count received messages."""
        self.owed = max(0, self.owed - count)

    def on_other(self, frame: MessageFrame, consumer_sequence: int) -> None:
        """Handle a frame that is not a delivery. `consumer_sequence`: the last one received.

        Raises ConsumerDeletedError, TryAnotherLinkError (the server has sent more than arrived),
        NoRespondersError: create a new consumer; ConsumerIsPushError, PullError: give up.
        """
        status = status_of(frame.headers) if frame.sid == self._sid else None
        if status is None:
            return
        if status.code == CONTROL:
            sent = number_in(frame.headers, LAST_CONSUMER)
            if sent is not None and sent > consumer_sequence:
                raise TryAnotherLinkError(
                    f"The server has sent {sent} messages, {consumer_sequence} arrived."
                )
            return
        end = pull_end(status)
        if end is PullEnd.UNUSABLE or end is PullEnd.INVALID:
            raise pull_error(status)
        if status.code == NO_RESPONDERS:
            raise NoRespondersError(self._subject)
        if end is PullEnd.NO_LEADER:
            # An ephemeral consumer in memory disappears with its server.
            raise ConsumerDeletedError(status.code, status.description)
        if end is PullEnd.TOO_LARGE:
            # A stored message is larger than this connection may publish.
            self._bytes *= 2
        if end is PullEnd.LIMITED and (limit := limit_of(status)) is not None:
            # The server's default, which every consumer has.
            self._batch = min(self._batch, limit.batch or self._batch)
            self._bytes = min(self._bytes, limit.max_bytes or self._bytes)
            self._expires = min(self._expires, limit.expires or self._expires)
            self._heartbeat = min(self._heartbeat, self._expires / 2)
        left = number_in(frame.headers, PENDING_MESSAGES)
        self.owed = 0 if left is None else max(0, self.owed - left)

    def stop(self) -> None:
        """Unsubscribe; the link's next reader drops the messages in flight."""
        self._link.unsubscribe(self._sid)
