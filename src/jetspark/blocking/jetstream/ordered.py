"""Ordered consumers without async.

As `jetspark.jetstream.ordered.ordered`, with the threads of `jetspark.blocking.jetstream.consume`.
"""

from __future__ import annotations

from collections.abc import Iterator

from jetspark.blocking.generated.jetstream.ordered import GeneratedOrderedMessages
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.leaving import LeavingLoop
from jetspark.jetstream.ordered.ordered import OrderedMessages as AsyncOrderedMessages


class OrderedMessages(LeavingLoop, GeneratedOrderedMessages):
    """What `JetStream.ordered` returns: iterate it, or give it a callback."""

    _inner: AsyncOrderedMessages

    def __iter__(self) -> Iterator[JsMsg]:
        return self._loop(self.__next__)
