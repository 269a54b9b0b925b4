"""Ordered consumers without async.

Contract: that of `jetspark.jetstream.ordered.ordered`; otherwise as
`jetspark.blocking.jetstream.consume`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from jetspark.blocking.jetstream.consume import ConsumerMessages, JsMsgCallback
from jetspark.blocking.jetstream.consumers import ConsumerCalls
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.leaving import LeavingLoop
from jetspark.errors import JetsparkError
from jetspark.jetstream.documents import ConsumerInfo, ReplayPolicy
from jetspark.jetstream.ordered.calls import HEARTBEAT, INACTIVE_THRESHOLD
from jetspark.jetstream.ordered.ordered import OrderedMessages as AsyncOrderedMessages
from jetspark.jetstream.pulling.limits import EXPIRES
from jetspark.timestamps import Seconds


class OrderedMessages(LeavingLoop, ConsumerMessages):
    """What `JetStream.ordered` returns: iterate it, or give it a callback."""

    _inner: AsyncOrderedMessages

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The name of the present consumer; empty while there is none."""
        return self._inner.name

    @property
    def last_error(self) -> JetsparkError | None:
        """Why the consumer had to be made again the last time, or could not be."""
        return self._inner.last_error

    def info(self) -> ConsumerInfo:
        """The present consumer as it is now. Raises ConsumerNotFoundError."""
        return self._thread.run(self._inner.info)

    def __iter__(self) -> Iterator[JsMsg]:
        return self._loop(self.__next__)


class OrderedCalls(ConsumerCalls):
    """The part of JetStream that is about consumers, ordered ones too."""

    def ordered(
        self,
        stream: str,
        *,
        subjects: str | Sequence[str] | None = None,
        deliver_policy: str | None = None,
        start_seq: int | None = None,
        start_time: datetime | None = None,
        headers_only: bool = False,
        replay_policy: str = ReplayPolicy.INSTANT,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds = HEARTBEAT,
        inactive_threshold: Seconds = INACTIVE_THRESHOLD,
    ) -> OrderedMessages:
        """A stream in order, without a gap and without acks: iterate it, or give a callback.

        `subjects`: only matching ones; several need server 2.10. `deliver_policy`: a
        DeliverPolicy, "all" by default; `start_seq` or `start_time` instead of it begin there.
        `headers_only`: without payloads; their sizes are in the header Nats-Msg-Size.
        `replay_policy`: "original" keeps the pace of publishing.

        It pulls ahead: up to `max_messages` (default 1000) messages, or `max_bytes` bytes, are here
        or on their way. `expires`: seconds that one pull may wait at the server. `heartbeat`:
        seconds of silence after which the server gives a sign of life; twice as long without one,
        and the consumer is made again. `inactive_threshold`: how long the server keeps the
        consumer of a reader that vanished.

        Nothing is sent before the first message is asked for, except with a callback. Raises
        ConfigError, UnsupportedByServerError; how it ends: see
        `jetspark.jetstream.ordered.ordered`.
        """
        return OrderedMessages(
            self._caller,
            stream,
            lambda forward: self._inner.ordered(
                stream,
                subjects=subjects,
                deliver_policy=deliver_policy,
                start_seq=start_seq,
                start_time=start_time,
                headers_only=headers_only,
                replay_policy=replay_policy,
                callback=forward,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                inactive_threshold=inactive_threshold,
            ),
            callback,
        )
