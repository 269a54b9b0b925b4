"""Consuming a pull consumer continuously, without async.

As `jetspark.jetstream.consume`. Each thread switch brings at most the messages of one pull
request, which are buffered here: the buffer's limit is exceeded by at most half. A callback runs in
its own thread and may use the blocking client; closing the connection lets a running callback
finish. `drain` does not wait in the callback itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.consume import GeneratedConsumerMessages
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.leaving import LeavingLoop
from jetspark.jetstream.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.consume import JsMsgCallback as AsyncJsMsgCallback

JsMsgCallback: TypeAlias = Callable[[JsMsg], None]


class ConsumerMessages(LeavingLoop, GeneratedConsumerMessages):
    """What `PullConsumer.consume` returns: iterate it, or give it a callback."""

    _inner: AsyncConsumerMessages

    def __init__(
        self,
        client: CallerSide,
        name: str,
        consume: Callable[[AsyncJsMsgCallback | None], AsyncConsumerMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        self._loops = []
        super().__init__(
            client, f"jetspark-consume-{name}", f"consumer {name!r}", JsMsg, consume, callback
        )

    def __iter__(self) -> Iterator[JsMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self._loop(self.__next__)

    def __next__(self) -> JsMsg:
        try:
            return JsMsg(self._client, self._taken.popleft())
        except IndexError:
            pass  # not called from here, or an interrupt would show this IndexError too
        return self._next()

    def _finish(self) -> None:
        self.stop()
