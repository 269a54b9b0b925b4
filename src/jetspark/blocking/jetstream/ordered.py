"""Ordered consumers without async.

As `jetspark.jetstream.ordered`, with the threads of `jetspark.blocking.jetstream.consume`.
"""

from __future__ import annotations

from jetspark.blocking.generated.jetstream.ordered import GeneratedOrderedMessages
from jetspark.jetstream.ordered import OrderedMessages as AsyncOrderedMessages


class OrderedMessages(GeneratedOrderedMessages):
    """What `JetStream.ordered` returns: iterate it, or give it a callback."""

    _inner: AsyncOrderedMessages
