# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: push."""

from __future__ import annotations

from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.taking import Taking, drain
from jetspark.jetstream.consumers import PushMessages as AsyncPushMessages
from jetspark.timestamps import Seconds


class GeneratedPushMessages(Taking[JsMsg]):
    """The calls of `PushMessages` that hand on to its asyncio twin."""

    _inner: AsyncPushMessages

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet, control messages included."""
        return self._inner.pending_msgs + len(self._taken)

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    def next(self, timeout: Seconds | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it was stopped,
        ConnectionClosedError, and ConfigError when there is a callback.
        """
        return self._next_within(timeout)

    def stop(self) -> None:
        """End it now, and discard messages not taken. May be called again."""
        self._stop(self._inner.stop)

    def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and take those on their way.

        Returns when they have arrived; with a callback, when it was called for the last one.
        `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        drain(self._client, self._worker, self._inner.drain, timeout)

    def __repr__(self) -> str:
        return repr(self._inner)
