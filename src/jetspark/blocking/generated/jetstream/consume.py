# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: consume."""

from __future__ import annotations

from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.taking import Taking, drain
from jetspark.errors import JetsparkError
from jetspark.jetstream.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.timestamps import Seconds


class GeneratedConsumerMessages(Taking[JsMsg]):
    """The calls of `ConsumerMessages` that hand on to its asyncio twin."""

    _inner: AsyncConsumerMessages

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return self._inner.pending_msgs + len(self._taken)

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None while it goes on, and after `stop` or `drain`."""
        return self._inner.error

    def next(self, timeout: Seconds | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, ConfigError when there is a callback, and the error that ended it.
        """
        return self._next_within(timeout)

    def stop(self) -> None:
        """End it now. May be called again.

        Discards messages not taken: with acks the server delivers them again after ack_wait,
        without acks they are lost. A running callback finishes.
        """
        self._stop(self._inner.stop)

    def drain(self, timeout: Seconds | None = None) -> None:
        """Request no more, and take the messages on their way.

        Returns when they have arrived; with a callback, when it was called for the last one.
        `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        drain(self._client, self._worker, self._inner.drain, timeout)

    def __repr__(self) -> str:
        return repr(self._inner)
