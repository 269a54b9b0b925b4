# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: ordered."""

from __future__ import annotations

from jetspark.blocking.jetstream.consume import ConsumerMessages
from jetspark.documents.consumers import ConsumerInfo
from jetspark.errors import JetsparkError
from jetspark.jetstream.ordered import OrderedMessages as AsyncOrderedMessages


class GeneratedOrderedMessages(ConsumerMessages):
    """The calls of `OrderedMessages` that hand on to its asyncio twin."""

    _inner: AsyncOrderedMessages

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The name of the current consumer; empty while there is none."""
        return self._inner.name

    @property
    def last_error(self) -> JetsparkError | None:
        """Why the consumer was recreated the last time, or could not be."""
        return self._inner.last_error

    def info(self) -> ConsumerInfo:
        """The current consumer as it is now.

        Raises ConsumerNotFoundError, also when there is none at the moment, StreamNotFoundError,
        and as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.info)

    def __repr__(self) -> str:
        return repr(self._inner)
