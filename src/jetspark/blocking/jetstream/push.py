"""Messages of a push consumer, through a plain subscription, without async.

Contract: that of `jetspark.jetstream.consumers.push`. Iterating takes many messages for each change
of thread; those count as taken when a request for flow control behind them is answered. A callback
runs in a thread of its own and may use the blocking client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.push import GeneratedPushMessages
from jetspark.blocking.jetstream.consume import JsMsgCallback
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.jetstream.consumers.push import PushMessages as AsyncPushMessages
from jetspark.jetstream.pulling.consume import JsMsgCallback as AsyncJsMsgCallback


class PushMessages(GeneratedPushMessages):
    """What `PushConsumer.subscribe` returns: iterate it, or give it a callback."""

    def __init__(
        self,
        client: CallerSide,
        name: str,
        subscribe: Callable[[AsyncJsMsgCallback | None], AsyncPushMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        super().__init__(
            client, f"jetspark-push-{name}", f"consumer {name!r}", JsMsg, subscribe, callback
        )

    def __iter__(self) -> Iterator[JsMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self

    def __next__(self) -> JsMsg:
        return self._next()

    def _finish(self) -> None:
        self.stop()
