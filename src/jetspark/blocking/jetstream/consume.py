"""Consuming without async: messages of a pull consumer without end.

Contract: that of `jetspark.jetstream.consume`. Iterating takes up to one refilling of the buffer
for each change of thread; those wait here, so at most half as much again as the buffer is held.
A callback runs in a thread of its own and may use the blocking client; one that runs when the
connection is closed is left to finish. `drain` called in the callback itself does not wait.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.taking import Taking, drain
from jetspark.errors import ConfigError, JetsparkError
from jetspark.jetstream.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.consume import JsMsgCallback as AsyncJsMsgCallback

JsMsgCallback: TypeAlias = Callable[[JsMsg], None]


class ConsumerMessages:
    """What `PullConsumer.consume` returns: iterate it, or give it a callback."""

    _inner: AsyncConsumerMessages

    def __init__(
        self,
        client: CallerSide,
        name: str,
        consume: Callable[[AsyncJsMsgCallback | None], AsyncConsumerMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise ConfigError("The blocking client calls plain functions, not async ones.")
        self._client = client
        self._thread = client.thread
        self._taking: Taking[JsMsg] = Taking(
            client,
            f"jetspark-consume-{name}",
            f"consumer {name!r}",
            JsMsg,
            lambda: self._inner,
            callback,
        )
        self._taken = self._taking.frames

        def begin() -> None:
            # In the loop's thread, so that `_inner` is there before the first message.
            self._inner = consume(None if callback is None else self._taking.forward)
            if self._inner._task is not None:
                self._inner._task.add_done_callback(lambda _: self._taking.worker.stop())

        self._thread.call(begin)

    # -- what it is ----------------------------------------------------------------------------

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
        return self._taking.__next__()

    def next(self, timeout: float | None = None) -> JsMsg:
        """The next message; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, BadSubscriptionError when it has been stopped, and the error
        that has ended it.
        """
        return self._taking.next(timeout)

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now. Any number of times.

        Discards what was not taken: the server delivers it again when the consumer's ack_wait is
        over. A callback that runs is left to finish.
        """
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
        self._taken.clear()

    def drain(self, timeout: float | None = None) -> None:
        """Ask for no more, and take all that is on its way.

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
