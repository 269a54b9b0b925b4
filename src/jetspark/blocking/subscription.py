"""Subscriptions of the blocking client.

Contract
- Iterating takes many messages with each thread switch (`taking`); those not returned yet count as
  pending. Several threads may iterate one subscription: each message goes to one of them.
- A callback runs in the subscription's own thread, for one message after the other, so it may block
  and use the blocking client. Its exceptions are reported, and the next message follows. Closing
  the connection lets a running callback finish.
- Otherwise as `jetspark.client.subscription`. `drain` waits for the callback, but not for a thread
  that iterates; in the callback itself it does not wait at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.subscription import GeneratedSubscription
from jetspark.blocking.messages import Message
from jetspark.blocking.taking import AsyncMessageCallback
from jetspark.client.subscription import Subscription as AsyncSubscription

MessageCallback: TypeAlias = Callable[[Message], None]


class Subscription(GeneratedSubscription):
    """What `Client.subscribe` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        client: CallerSide,
        subject: str,
        subscribe: Callable[[AsyncMessageCallback | None], AsyncSubscription],
        callback: MessageCallback | None,
    ) -> None:
        name, what = f"jetspark-sub-{subject}", f"subscription {subject!r}"
        super().__init__(client, name, what, Message, subscribe, callback)

    @property
    def pending_bytes(self) -> int:
        return self._inner.pending_bytes + sum(len(frame.payload) for frame in self._taken.copy())

    @property
    def delivered(self) -> int:
        return self._inner.delivered - len(self._taken)

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # refuses a subscription that has a callback
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._client, self._taken.popleft())
        except IndexError:
            pass  # not called from here, or an interrupt would show this IndexError too
        return self._next()

    def unsubscribe(self, max_msgs: int = 0) -> None:
        self._thread.call(self._inner.unsubscribe, max_msgs)
        if not max_msgs:
            self._taken.clear()

    def _finish(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._unsubscribe)

    def _unsubscribe(self) -> None:
        if self._inner.active:
            self._inner.unsubscribe()
            self._taken.clear()
