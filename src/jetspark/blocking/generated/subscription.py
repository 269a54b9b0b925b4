# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: subscription."""

from __future__ import annotations

from jetspark.blocking.messages import Message
from jetspark.blocking.taking import Taking, drain
from jetspark.client.subscription import Subscription as AsyncSubscription
from jetspark.timestamps import Seconds


class GeneratedSubscription(Taking[Message]):
    """The calls of `Subscription` that hand on to its asyncio twin."""

    _inner: AsyncSubscription

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self._inner.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._inner.queue

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet."""
        return self._inner.pending_msgs + len(self._taken)

    @property
    def pending_bytes(self) -> int:
        """Bytes of their payloads."""
        raise NotImplementedError

    @property
    def delivered(self) -> int:
        """Messages that user code has taken."""
        raise NotImplementedError

    def next(self, timeout: Seconds | None = None) -> Message:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when the subscription has ended,
        ConnectionClosedError, the error with which the server refused it (PermissionsError,
        SubscriptionLimitError …), ConfigError when there is a callback, BadTimeoutError.
        """
        return self._next_within(timeout)

    def unsubscribe(self, max_msgs: int = 0) -> None:
        """End it now, discarding what was not taken, or after `max_msgs` messages in all.

        Messages are counted since subscribing; if there were as many already, it ends now and keeps
        them. Raises BadSubscriptionError when it has ended, ConnectionClosedError, ConfigError.
        """
        raise NotImplementedError

    def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and take all that is on its way.

        Returns when the messages have arrived; with a callback, when it was called for the last
        one. `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError,
        BadTimeoutError; the subscription has ended in any case.
        """
        drain(self._client, self._worker, self._inner.drain, timeout)

    def __repr__(self) -> str:
        return repr(self._inner)
