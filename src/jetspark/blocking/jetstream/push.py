"""Messages of a push consumer, received by a subscription, without async.

As `jetspark.jetstream.consumers`. Each thread switch brings many messages; a flow control
request is answered when the messages before it have been passed to this side. A callback runs in
its own thread and may use the blocking client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.push import GeneratedPushMessages
from jetspark.blocking.jetstream.consume import JsMsgCallback
from jetspark.blocking.jetstream.message import JsMsg
from jetspark.blocking.leaving import LeavingLoop
from jetspark.jetstream.consume import JsMsgCallback as AsyncJsMsgCallback
from jetspark.jetstream.consumers import PushMessages as AsyncPushMessages


class PushMessages(LeavingLoop, GeneratedPushMessages):
    """What `PushConsumer.subscribe` returns: iterate it, or give it a callback."""

    _inner: AsyncPushMessages

    def __init__(
        self,
        client: CallerSide,
        name: str,
        subscribe: Callable[[AsyncJsMsgCallback | None], AsyncPushMessages],
        callback: JsMsgCallback | None,
    ) -> None:
        self._loops = []
        super().__init__(
            client, f"jetspark-push-{name}", f"consumer {name!r}", JsMsg, subscribe, callback
        )

    def __iter__(self) -> Iterator[JsMsg]:
        self._inner.__aiter__()  # refuses when there is a callback
        return self._loop(self.__next__)

    def __next__(self) -> JsMsg:
        return self._next()

    def _finish(self) -> None:
        self.stop()
