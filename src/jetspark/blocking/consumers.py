# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Consumers and their messages without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from datetime import datetime
from typing import Unpack

from jetspark.blocking.by_hand.consumers import (
    BaseConsumerMessages,
    BasePushMessages,
    FetchResult,
    JsMsg,
    JsMsgCallback,
    fetched,
    received,
)
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.twin import Twin
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.documents.consumers import ConsumerInfo, PauseState
from jetspark.errors import JetsparkError
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.consumers import Consumer as AsyncConsumer
from jetspark.jetstream.consumers import PriorityOptions
from jetspark.jetstream.consumers import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumers import PushConsumer as AsyncPushConsumer
from jetspark.jetstream.consumers import PushMessages as AsyncPushMessages
from jetspark.jetstream.ordered import OrderedMessages as AsyncOrderedMessages
from jetspark.timestamps import Seconds

__all__ = [
    "Consumer",
    "ConsumerMessages",
    "OrderedMessages",
    "PullConsumer",
    "PushConsumer",
    "PushMessages",
]


@twin_of(AsyncConsumerMessages)
class ConsumerMessages(BaseConsumerMessages):
    """The result of `PullConsumer.consume`: iterate it, or give it a callback."""

    _inner: AsyncConsumerMessages

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None before, and after `stop` or `drain`."""
        return self._inner.error


@twin_of(AsyncOrderedMessages)
class OrderedMessages(ConsumerMessages):
    """The result of `JetStream.ordered`: iterate it, or give it a callback."""

    _inner: AsyncOrderedMessages

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The name of the present consumer; empty without one."""
        return self._inner.name

    @property
    def last_error(self) -> JetsparkError | None:
        """Why the consumer was last recreated, or could not be."""
        return self._inner.last_error

    def info(self) -> ConsumerInfo:
        """Configuration and state of the present consumer."""
        return self._thread.run(self._inner.info)


@twin_of(AsyncPushMessages)
class PushMessages(BasePushMessages):
    """The result of `PushConsumer.subscribe`: iterate it, or give it a callback."""

    _inner: AsyncPushMessages

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped


@twin_of(AsyncConsumer)
class Consumer(Twin):
    """A consumer of a stream, by name. Its only state is `cached_info`."""

    _inner: AsyncConsumer

    @property
    def cached_info(self) -> ConsumerInfo:
        """The result of the last `info`, or of the call that created this object."""
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
        """The consumer as it is now. Raises ConsumerNotFoundError, StreamNotFoundError."""
        return self._thread.run(self._inner.info)

    def delete(self) -> None:
        """Delete the consumer. Raises the errors of `info`."""
        self._thread.run(self._inner.delete)

    def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until an aware datetime (server 2.11)."""
        return self._thread.run(self._inner.pause, until)

    def resume(self) -> PauseState:
        """Deliver again (server 2.11). Raises the errors of `JetStream.pause_consumer`."""
        return self._thread.run(self._inner.resume)

    def reset(self, seq: int | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14)."""
        return self._thread.run(self._inner.reset, seq)


@twin_of(AsyncPullConsumer)
class PullConsumer(Consumer):
    """A consumer that delivers on request."""

    _inner: AsyncPullConsumer

    def fetch(
        self,
        batch: int,
        *,
        timeout: Seconds | None = None,
        max_bytes: int | None = None,
        heartbeat: Seconds | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> FetchResult:
        """Up to `batch` messages, as a list that also says how the fetch ended."""
        return fetched(
            self._caller,
            self._thread.run(
                self._inner.fetch,
                batch,
                timeout=timeout,
                max_bytes=max_bytes,
                heartbeat=heartbeat,
                **priority,
            ),
        )

    def next(self, timeout: Seconds | None = None, **priority: Unpack[PriorityOptions]) -> JsMsg:
        """One message, within `timeout` seconds (default: the context's)."""
        return received(self._caller, self._thread.run(self._inner.next, timeout, **priority))

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
        **priority: Unpack[PriorityOptions],
    ) -> ConsumerMessages:
        """Continuous messages: iterate the result, or give a callback (a plain function, called in
        a thread of its own).
        """
        return ConsumerMessages(
            self._caller,
            lambda forward: self._inner.consume(
                callback=forward,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                threshold_messages=threshold_messages,
                threshold_bytes=threshold_bytes,
                **priority,
            ),
            callback,
        )

    def unpin(self, group: str) -> None:
        """Let the server pin another client of a priority group (ADR-42; server 2.11)."""
        self._thread.run(self._inner.unpin, group)


@twin_of(AsyncPushConsumer)
class PushConsumer(Consumer):
    """A consumer that delivers to a subject."""

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
        """Its messages: iterate the result, or give a callback (a plain function, called in a
        thread of its own).
        """
        return PushMessages(
            self._caller,
            lambda forward: self._inner.subscribe(
                callback=forward,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )
