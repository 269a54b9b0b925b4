"""Pull and push consumers, without async.

As `jetspark.jetstream.consumers`. A fetch's messages are passed to the caller's thread at once.
"""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.consumers import (
    GeneratedConsumer,
    GeneratedPullConsumer,
    GeneratedPushConsumer,
)
from jetspark.jetstream.consumers import Consumer as AsyncConsumer
from jetspark.jetstream.consumers import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumers import PushConsumer as AsyncPushConsumer


class Consumer(GeneratedConsumer):
    """A consumer of a stream, by name. Its only state is `cached_info`."""

    __slots__ = ("_client", "_inner")

    def __init__(self, client: CallerSide, inner: AsyncConsumer) -> None:
        self._client = client
        self._inner = inner


class PullConsumer(GeneratedPullConsumer, Consumer):
    """A consumer that delivers on request."""

    __slots__ = ()

    _inner: AsyncPullConsumer


class PushConsumer(GeneratedPushConsumer, Consumer):
    """A consumer that delivers to a subject."""

    __slots__ = ()

    _inner: AsyncPushConsumer
