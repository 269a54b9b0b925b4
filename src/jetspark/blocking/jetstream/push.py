"""Messages of a push consumer, through a plain subscription, without async.

Contract: that of `jetspark.jetstream.push`. Iterating takes many messages for each change of
thread; those count as taken when a request for flow control behind them is answered. A callback
runs in a thread of its own and may use the blocking client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.consume import JsMsgCallback
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.taking import Taking, drain
from jetspark.errors import ConfigError
from jetspark.jetstream.consume import JsMsgCallback as AsyncJsMsgCallback
from jetspark.jetstream.push import PushMessages as AsyncPushMessages


class PushMessages:
    """What `PushConsumer.subscribe` returns: iterate it, or give it a callback."""

    _inner: AsyncPushMessages

    def __init__(
        self,
        client: CallerSide,
        name: str,
        subscribe: Callable[[AsyncJsMsgCallback | None], AsyncPushMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise ConfigError("The blocking client calls plain functions, not async ones.")
        self._client = client
        self._thread = client.thread
        self._taking: Taking[JsMsg] = Taking(
            client,
            f"jetspark-push-{name}",
            f"consumer {name!r}",
            JsMsg,
            lambda: self._inner,
            callback,
        )
        self._taken = self._taking.frames

        def begin() -> None:
            # In the loop's thread, so that `_inner` is there before the first message.
            self._inner = subscribe(None if callback is None else self._taking.forward)
            task = self._inner._sub._task
            if task is not None:
                task.add_done_callback(lambda _: self._taking.worker.stop())

        self._thread.call(begin)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def pending_msgs(self) -> int:
        """Messages received and not taken yet, the server's own included."""
        return self._inner.pending_msgs + len(self._taken)

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    # -- taking messages -----------------------------------------------------------------------

    def __iter__(self) -> Iterator[JsMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self

    def __next__(self) -> JsMsg:
        return self._taking.__next__()

    def next(self, timeout: float | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it has been stopped,
        ConnectionClosedError.
        """
        return self._taking.next(timeout)

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, discarding what was not taken. Any number of times."""
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def drain(self, timeout: float | None = None) -> None:
        """Let the server send no more, and take all that is on its way.

        Returns when the messages are here; with a callback, when it was called for the last one.
        `timeout` in seconds bounds the wait for the server (request_timeout by default) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        drain(self._client, self._taking.worker, self._inner.drain, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return repr(self._inner)
