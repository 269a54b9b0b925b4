# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: consumers."""

from __future__ import annotations

from datetime import datetime

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.consume import ConsumerMessages, JsMsgCallback
from jetspark.blocking.jetstream.message import FetchResult, JsMsg, fetched, received
from jetspark.blocking.jetstream.push import PushMessages
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.documents.consumers import ConsumerInfo, PauseState
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.consumers import Consumer as AsyncConsumer
from jetspark.jetstream.consumers import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumers import PushConsumer as AsyncPushConsumer
from jetspark.timestamps import Seconds


class GeneratedConsumer:
    """The calls of `Consumer` that hand on to its asyncio twin."""

    __slots__ = ()

    _client: CallerSide
    _inner: AsyncConsumer

    @property
    def cached_info(self) -> ConsumerInfo:
        """The consumer as of the last `info`, or of the call that made this object."""
        return self._inner.cached_info

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self._inner.name

    def info(self) -> ConsumerInfo:
        """The consumer as it is now.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return self._client.thread.run(self._inner.info)

    def delete(self) -> None:
        """Delete the consumer. Raises as `info`."""
        self._client.thread.run(self._inner.delete)

    def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until then, an aware datetime (server 2.11).

        Raises as `JetStream.pause_consumer`.
        """
        return self._client.thread.run(self._inner.pause, until)

    def resume(self) -> PauseState:
        """Deliver again (server 2.11). Raises as `JetStream.pause_consumer`."""
        return self._client.thread.run(self._inner.resume)

    def reset(self, seq: int | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14).

        Acknowledgements and delivery counts from there on are forgotten. Raises as
        `JetStream.reset_consumer`, which has the details.
        """
        return self._client.thread.run(self._inner.reset, seq)

    def __repr__(self) -> str:
        return repr(self._inner)


class GeneratedPullConsumer:
    """The calls of `PullConsumer` that hand on to its asyncio twin."""

    __slots__ = ()

    _client: CallerSide
    _inner: AsyncPullConsumer

    def fetch(
        self,
        batch: int,
        *,
        timeout: Seconds | None = None,
        max_bytes: int | None = None,
        heartbeat: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> FetchResult:
        """Up to `batch` messages, as a list that also says how the fetch ended.

        Without `timeout`: what can be delivered at once, which may be nothing. A message published
        a moment ago may be missing: the consumer hears of it after the publisher has its ack. With
        `timeout` (seconds): waits until the batch is full or the time is over; the server gets
        10 ms less, so that it ends first. `max_bytes`: stop before this many bytes of messages
        (subjects and headers count). `heartbeat` (seconds, at most half of `timeout`): a server
        silent for twice as long is a MissedHeartbeatError at once instead of at the timeout; the
        clock stops while the connection is down.

        For a consumer with priority groups (ADR-42; server 2.11): `group`, which is then required.
        "overflow": deliver only while at least `min_pending` messages wait to be delivered, or
        at least `min_ack_pending` to be acknowledged. "prioritized" (2.12): `priority`, 0 to 9,
        lower ones are served first. "pinned_client": this object keeps the pin id.

        When messages came, they are returned, and an error after them is in `.error`: also
        SequenceMismatchError when the server's last status shows that a delivery was lost (with
        acks it comes again after ack_wait), and RequestTimeoutError when that status is missing
        half a second after the timeout. When none came: an empty list if the server says that
        there are none; otherwise raises RequestTimeoutError, SequenceMismatchError,
        MissedHeartbeatError, ConsumerNotFoundError, StreamNotFoundError, ConsumerDeletedError,
        ConsumerIsPushError, PullError, PermissionsError or ConnectionClosedError. ConfigError,
        UnsupportedByServerError before anything is sent. With a timeout, a fetch survives a lost
        connection: it sends its request again. When it is interrupted, the consumer gets back what
        was delivered to it (NAK). The server counts that as a delivery: with `max_deliver` messages
        may so be given up that no program has seen, and without acks they are lost. There, let
        `timeout` end it, and do not interrupt it.
        """
        return fetched(
            self._client,
            self._client.thread.run(
                self._inner.fetch,
                batch,
                timeout=timeout,
                max_bytes=max_bytes,
                heartbeat=heartbeat,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
        )

    def next(
        self,
        timeout: Seconds | None = None,
        *,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> JsMsg:
        """One message, within `timeout` seconds (default: the context's).

        Raises RequestTimeoutError when none came, and as `fetch`, which has the other options, and
        says what an interruption costs.
        """
        return received(
            self._client,
            self._client.thread.run(
                self._inner.next,
                timeout,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
        )

    def consume(
        self,
        *,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> ConsumerMessages:
        """Continuous messages: iterate the result, or give a callback, called in its own thread.

        It buffers: up to `max_messages` messages (default: 500, and up to 8,000 for a reader that
        takes half of them within 5 ms), or `max_bytes` bytes, are received or requested ahead. When
        these fall to `threshold_messages` or `threshold_bytes` (default:
        half), the next pull request is sent. `expires`: seconds that a request may wait at the
        server, at least 1, default 30. `heartbeat`: seconds between the server's heartbeats, 0.5
        to 30, at most half of `expires`, which is the default; when none comes for twice as long,
        that is reported, and a new request is sent. The other options are those of `fetch`.

        How it ends and what it survives: see `jetspark.jetstream.consume`. Raises
        ConfigError, UnsupportedByServerError, ConnectionClosedError.
        """
        return ConsumerMessages(
            self._client,
            self._inner.name,
            lambda forward: self._inner.consume(
                callback=forward,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                threshold_messages=threshold_messages,
                threshold_bytes=threshold_bytes,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
            callback,
        )

    def unpin(self, group: str) -> None:
        """Let the server pin another client of a priority group (ADR-42; server 2.11).

        Raises ConfigError for a consumer whose policy is not "pinned_client",
        UnsupportedByServerError, ConsumerNotFoundError, StreamNotFoundError, and as every API
        call (see `JetStream`).
        """
        self._client.thread.run(self._inner.unpin, group)


class GeneratedPushConsumer:
    """The calls of `PushConsumer` that hand on to its asyncio twin."""

    __slots__ = ()

    _client: CallerSide
    _inner: AsyncPushConsumer

    @property
    def deliver_subject(self) -> str:
        """The subject that it delivers to."""
        return self._inner.deliver_subject

    def subscribe(
        self,
        *,
        callback: JsMsgCallback | None = None,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> PushMessages:
        """Its messages: iterate the result, or give a callback, called in its own thread.

        Flow control requests are answered, heartbeats watched. Members of a `deliver_group` share
        the messages. The limits are those of `Client.subscribe`. Raises ConfigError,
        ConnectionClosedError; how it goes on and ends: see `jetspark.jetstream.consumers`.
        """
        return PushMessages(
            self._client,
            self._inner.name,
            lambda forward: self._inner.subscribe(
                callback=forward,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )
