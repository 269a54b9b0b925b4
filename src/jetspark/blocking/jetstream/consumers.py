"""Consumers: make, change, bind, list, delete; the handles that they give, without async.

Contract: that of `jetspark.jetstream.consumers.calls`. A fetch crosses to the caller's thread as a
whole.
"""

from __future__ import annotations

from typing import Any

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.consume import ConsumerMessages, JsMsgCallback
from jetspark.blocking.jetstream.consumer_control import ConsumerControl
from jetspark.blocking.jetstream.message import FetchResult, JsMsg, fetched
from jetspark.blocking.jetstream.paging import Paged
from jetspark.blocking.jetstream.push import PushMessages
from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.jetstream.consumers.calls import ConsumerConfigLike
from jetspark.jetstream.consumers.handles import Consumer as AsyncConsumer
from jetspark.jetstream.consumers.handles import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumers.handles import PushConsumer as AsyncPushConsumer
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import ConsumerInfo
from jetspark.jetstream.pulling.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.pulling.consume import JsMsgCallback as AsyncJsMsgCallback
from jetspark.jetstream.pulling.limits import EXPIRES
from jetspark.timestamps import Seconds


class Consumer(ConsumerControl):
    """A consumer of a stream, by name. Has no state besides `cached_info`."""

    __slots__ = ("_client", "_inner")

    _inner: AsyncConsumer

    def __init__(self, client: CallerSide, inner: AsyncConsumer) -> None:
        self._client = client
        self._inner = inner

    @property
    def cached_info(self) -> ConsumerInfo:
        """What the last call of `info`, or the one that made this object, returned."""
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
        """The consumer as it is now. Raises ConsumerNotFoundError."""
        return self._client.thread.run(self._inner.info)

    def delete(self) -> None:
        """Delete the consumer. Raises ConsumerNotFoundError."""
        self._client.thread.run(self._inner.delete)

    def __repr__(self) -> str:
        return repr(self._inner)


class PullConsumer(Consumer):
    """A consumer that delivers when it is asked."""

    __slots__ = ()

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
        """Up to `batch` messages, as a list that also tells how the fetch ended.

        Without `timeout`: what can be delivered now, at once; an empty list when nothing can. With
        `timeout` (seconds): waits until the batch is full or the time is over. `max_bytes`: stop
        before this many bytes of messages. `heartbeat` (seconds, at most half of `timeout`): a
        server that says nothing for twice as long is reported by MissedHeartbeatError. `group` and
        what follows: for consumers with priority groups.

        What is returned and what is raised: see `jetspark.jetstream.PullConsumer.fetch`.
        """
        result = self._client.thread.run(
            self._inner.fetch,
            batch,
            timeout=timeout,
            max_bytes=max_bytes,
            heartbeat=heartbeat,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        return fetched(self._client, result)

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

        Raises RequestTimeoutError when none came, and what `fetch` raises. The other options are
        those of `fetch`.
        """
        message = self._client.thread.run(
            self._inner.next,
            timeout,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        return JsMsg(self._client, message._frame)

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
        """Messages without end: iterate the result, or give a callback.

        The callback runs in a thread of its own. The options: see
        `jetspark.jetstream.PullConsumer.consume`. Raises ConfigError, UnsupportedByServerError,
        ConnectionClosedError.
        """

        def consume(forward: AsyncJsMsgCallback | None) -> AsyncConsumerMessages:
            return self._inner.consume(
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
            )

        return ConsumerMessages(self._client, self.name, consume, callback)

    def unpin(self, group: str) -> None:
        """Let the server pin another client of a priority group (ADR-42; server 2.11).

        Raises ConfigError for a consumer whose policy is not "pinned_client",
        UnsupportedByServerError, ConsumerNotFoundError, APIError.
        """
        self._client.thread.run(self._inner.unpin, group)


class PushConsumer(Consumer):
    """A consumer that delivers to a subject."""

    __slots__ = ()

    _inner: AsyncPushConsumer

    @property
    def deliver_subject(self) -> str:
        """Where it delivers."""
        return self._inner.deliver_subject

    def subscribe(
        self,
        *,
        callback: JsMsgCallback | None = None,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> PushMessages:
        """Its messages: iterate the result, or give a callback.

        Requests for flow control are answered, heartbeats watched. Members of a `deliver_group`
        share the messages. The limits are those of `Client.subscribe`. Raises ConfigError,
        ConnectionClosedError; how it goes on and ends: see `jetspark.jetstream.consumers.push`.
        """
        return PushMessages(
            self._client,
            self.name,
            lambda forward: self._inner.subscribe(
                callback=forward,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )


class ConsumerCalls:
    """The part of JetStream that is about consumers."""

    _caller: CallerSide
    _thread: LoopThread
    _inner: AsyncJetStream

    def create_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> PullConsumer:
        """Make a pull consumer, or bind it when it exists with the same configuration.

        Options are the fields of ConsumerConfig. With a `name` (or `durable_name`) it stays until
        it is deleted; with `name` and `inactive_threshold` until nobody has used it for so long;
        without a name for 5 s of that. A `config` is sent as it is: there only `durable_name`
        makes it stay. Raises StreamNotFoundError, and NameInUseError when it exists with another
        configuration: `update_consumer` changes it, `consumer` binds it as it is.
        """
        inner = self._thread.run(self._inner.create_consumer, stream, config, **options)
        return PullConsumer(self._caller, inner)

    def create_push_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> PushConsumer:
        """Make a push consumer; `deliver_subject` is required. Otherwise as create_consumer."""
        inner = self._thread.run(self._inner.create_push_consumer, stream, config, **options)
        return PushConsumer(self._caller, inner)

    def update_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> ConsumerInfo:
        """Change a consumer; what is not named keeps its value. A name is required.

        The current configuration is read first, so of two updates at the same moment one may
        undo the other. Raises ConsumerNotFoundError.
        """
        return self._thread.run(self._inner.update_consumer, stream, config, **options)

    def create_or_update_consumer(
        self, stream: str, config: ConsumerConfigLike | None = None, /, **options: Any
    ) -> ConsumerInfo:
        """update_consumer, or a new consumer, pull or push, when there is none of that name."""
        return self._thread.run(self._inner.create_or_update_consumer, stream, config, **options)

    def consumer(self, stream: str, name: str) -> PullConsumer:
        """Bind to a pull consumer that exists.

        Raises ConsumerNotFoundError, and ConsumerIsPushError for a push consumer.
        """
        return PullConsumer(self._caller, self._thread.run(self._inner.consumer, stream, name))

    def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """Bind to a push consumer that exists. Raises ConsumerNotFoundError, ConfigError."""
        return PushConsumer(self._caller, self._thread.run(self._inner.push_consumer, stream, name))

    def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """Configuration and state of a consumer. Raises ConsumerNotFoundError."""
        return self._thread.run(self._inner.consumer_info, stream, name)

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError."""
        self._thread.run(self._inner.delete_consumer, stream, name)

    def consumer_names(self, stream: str) -> Paged[str]:
        """The names of a stream's consumers."""
        return Paged(self._thread, self._inner.consumer_names(stream))

    def consumers(self, stream: str) -> Paged[ConsumerInfo]:
        """A stream's consumers."""
        return Paged(self._thread, self._inner.consumers(stream))
