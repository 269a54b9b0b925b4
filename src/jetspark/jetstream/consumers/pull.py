"""Pull consumers: fetch, next, consume, unpin (ADR-13, ADR-37, ADR-42).

Pulls are checked against the consumer's configuration as it was when the object was made
(`cached_info`). How a fetch works is in `pulling.fetch`, how consuming does in `pulling.consume`.
"""

from __future__ import annotations

from jetspark.arguments import checked_but
from jetspark.errors import ConfigError, RequestTimeoutError
from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers.consumer import Consumer
from jetspark.jetstream.documents.consumers import AckPolicy, ConsumerInfo, PriorityPolicy
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.pulling.consume import ConsumerMessages, JsMsgCallback
from jetspark.jetstream.pulling.consume_options import EXPIRES, make_consume_options
from jetspark.jetstream.pulling.fetch import Pull
from jetspark.jetstream.pulling.fetch_result import FetchResult
from jetspark.jetstream.pulling.priority_groups import GROUPS_SINCE, Priority, make_priority
from jetspark.jetstream.requirements import check_feature
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire import js_api


@checked_but("next")
class PullConsumer(Consumer):
    """A consumer that delivers on request."""

    __slots__ = ("_pins",)

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        super().__init__(api, info)
        self._pins: dict[str, bytes] = {}

    async def fetch(
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
        pulled = self._priority(group, min_pending, min_ack_pending, priority)
        return await self._pull(batch, timeout, max_bytes, heartbeat, pulled).run()

    async def next(
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
        seconds = self._api.timeout if timeout is None else in_seconds(timeout)
        pulled = self._priority(group, min_pending, min_ack_pending, priority)
        result = await self._pull(1, seconds, None, None, pulled).run()
        if not result:
            raise RequestTimeoutError(
                f"No message from consumer {self.name!r} within {seconds:g} s."
            )
        return result[0]

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
        """Continuous messages: iterate the result, or give a callback (plain or async).

        It buffers: up to `max_messages` messages (default: 500, and up to 8,000 for a reader that
        takes half of them within 5 ms), or `max_bytes` bytes, are received or requested ahead. When
        these fall to `threshold_messages` or `threshold_bytes` (default:
        half), the next pull request is sent. `expires`: seconds that a request may wait at the
        server, at least 1, default 30. `heartbeat`: seconds between the server's heartbeats, 0.5
        to 30, at most half of `expires`, which is the default; when none comes for twice as long,
        that is reported, and a new request is sent. The other options are those of `fetch`.

        How it ends and what it survives: see `jetspark.jetstream.pulling.consume`. Raises
        ConfigError, UnsupportedByServerError, ConnectionClosedError.
        """
        limits = make_consume_options(
            self.cached_info.config,
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
        )
        pulled = self._priority(group, min_pending, min_ack_pending, priority)
        return ConsumerMessages(
            self._api, self.stream, self.name, limits, callback, pulled, acks=self._acks
        )

    async def unpin(self, group: str) -> None:
        """Let the server pin another client of a priority group (ADR-42; server 2.11).

        Raises ConfigError for a consumer whose policy is not "pinned_client",
        UnsupportedByServerError, ConsumerNotFoundError, StreamNotFoundError, and as every API
        call (see `JetStream`).
        """
        needs = check_feature("unpin", GROUPS_SINCE, self._api.server)
        if self.cached_info.config.priority_policy != PriorityPolicy.PINNED_CLIENT:
            raise ConfigError("unpin needs a consumer with priority_policy 'pinned_client'.")
        names = {"stream": self.stream, "consumer": self.name}
        await self._api.call(js_api.CONSUMER_UNPIN, {"group": group}, needs, **names)

    @property
    def _acks(self) -> bool:
        return self.cached_info.config.ack_policy != AckPolicy.NONE

    def _pull(
        self,
        batch: int,
        timeout: Seconds | None,
        max_bytes: int | None,
        heartbeat: Seconds | None,
        pulled: Priority | None,
    ) -> Pull:
        return Pull(
            self._api,
            self.stream,
            self.name,
            batch,
            timeout,
            max_bytes,
            heartbeat,
            pulled,
            acks=self._acks,
        )

    def _priority(
        self,
        group: str | None,
        min_pending: int | None,
        min_ack_pending: int | None,
        priority: int | None,
    ) -> Priority | None:
        return make_priority(
            self.cached_info.config,
            self._api.server,
            self._pins,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
