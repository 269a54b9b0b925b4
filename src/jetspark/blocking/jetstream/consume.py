"""Consuming without async: messages of a pull consumer without end.

Contract: that of `jetspark.jetstream.pulling.consume`. Iterating takes up to one refilling of the
buffer for each change of thread; those wait here, so at most half as much again as the buffer is
held. A callback runs in a thread of its own and may use the blocking client; one that runs when the
connection is closed is left to finish. `drain` called in the callback itself does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.taking import Taking
from jetspark.errors import JetsparkError
from jetspark.jetstream.pulling.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.pulling.consume import JsMsgCallback as AsyncJsMsgCallback
from jetspark.timestamps import Seconds

JsMsgCallback: TypeAlias = Callable[[JsMsg], None]


class ConsumerMessages(Taking[JsMsg]):
    """What `PullConsumer.consume` returns: iterate it, or give it a callback."""

    _inner: AsyncConsumerMessages

    def __init__(
        self,
        client: CallerSide,
        name: str,
        consume: Callable[[AsyncJsMsgCallback | None], AsyncConsumerMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        super().__init__(
            client, f"jetspark-consume-{name}", f"consumer {name!r}", JsMsg, consume, callback
        )

    def _callback_task(self) -> asyncio.Task[None] | None:
        return self._inner._task

    # -- what it is ----------------------------------------------------------------------------

    @property
    def error(self) -> JetsparkError | None:
        """What ended it; None while it goes on, and after an end that was asked for."""
        return self._inner.error

    # -- taking messages -----------------------------------------------------------------------

    def __iter__(self) -> Iterator[JsMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self

    def __next__(self) -> JsMsg:
        try:
            return JsMsg(self._client, self._taken.popleft())
        except IndexError:
            pass  # not from here, or an interrupt would come with a second traceback
        return self._next()

    def next(self, timeout: Seconds | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it has been stopped,
        ConnectionClosedError, and the error that has ended it.
        """
        return self._next_within(timeout)

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now. Any number of times.

        Discards what was not taken: the server delivers it again when the consumer's ack_wait is
        over. A callback that runs is left to finish.
        """
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def drain(self, timeout: Seconds | None = None) -> None:
        """Ask for no more, and take all that is on its way.

        Returns when the messages are here; with a callback, when it was called for the last one.
        `timeout` in seconds bounds the wait for the server (request_timeout by default) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        super().drain(timeout)

    def _leave(self) -> None:
        self.stop()
