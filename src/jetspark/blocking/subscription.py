"""Subscriptions of the blocking client.

Contract
- Iterating takes many messages for each change of thread (`taking`); those count as pending
  until they are given out. Several threads may iterate one subscription: each message goes to one.
- A callback runs in a thread of the subscription's own, one message after the other, so it may
  block and use the blocking client. What it raises is reported, and the next message comes. A
  callback that runs when the connection is closed is left to finish.
- Otherwise as `jetspark.client.subscription`. `drain` waits for the callback, not for a thread
  that iterates; called in the callback itself it does not wait at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.messages import Message
from jetspark.blocking.taking import Taking
from jetspark.client.subscription import Subscription as AsyncSubscription
from jetspark.timestamps import Seconds

MessageCallback: TypeAlias = Callable[[Message], None]


class Subscription(Taking[Message]):
    """What `Client.subscribe` returns: iterate it, or give it a callback."""

    _inner: AsyncSubscription

    def __init__(
        self,
        client: CallerSide,
        subject: str,
        *,
        queue: str | None,
        callback: MessageCallback | None,
        max_msgs: int,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        super().__init__(
            client,
            f"jetspark-sub-{subject}",
            f"subscription {subject!r}",
            Message,
            lambda forward: client.inner.subscribe(
                subject,
                queue=queue,
                callback=forward,
                max_msgs=max_msgs,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )

    def _callback_task(self) -> asyncio.Task[None] | None:
        return self._inner._task

    # -- what it is ----------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self._inner.subject

    @property
    def queue(self) -> str | None:
        """The queue group."""
        return self._inner.queue

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    @property
    def pending_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._inner.pending_bytes + sum(len(frame[4]) for frame in self._taken.copy())

    @property
    def delivered(self) -> int:
        """Messages that user code has taken."""
        return self._inner.delivered - len(self._taken)

    # -- taking messages -----------------------------------------------------------------------

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # refuses a subscription that has a callback
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._client, self._taken.popleft())
        except IndexError:
            pass  # not from here, or an interrupt would come with a second traceback
        return self._next()

    def next(self, timeout: Seconds | None = None) -> Message:
        """The next message; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when the subscription has ended,
        ConnectionClosedError.
        """
        return self._next_within(timeout)

    # -- ending --------------------------------------------------------------------------------

    def unsubscribe(self, max_msgs: int = 0) -> None:
        """End it now, discarding what was not taken, or after `max_msgs` messages in all.

        The count is of the messages received since subscribing; when they are here already, it
        ends now and keeps them. Raises BadSubscriptionError when it has ended,
        ConnectionClosedError.
        """
        self._thread.call(self._inner.unsubscribe, max_msgs)
        if not max_msgs:
            self._taken.clear()

    def _leave(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._unsubscribe)

    def _unsubscribe(self) -> None:
        if self._inner.active:
            self._inner.unsubscribe()
            self._taken.clear()
