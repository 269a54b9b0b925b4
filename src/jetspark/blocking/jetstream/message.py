"""A message delivered by a JetStream consumer, and its acknowledgements, without async.

Contract: that of `jetspark.jetstream.message`. Acks leave as publishes do, without a change of
thread; only `ack_sync` waits. A message is for one thread at a time: of two threads that answer
it at the same moment both may succeed.
"""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.message import GeneratedJsMsg
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.jetstream.pulling.fetch_result import Fetched
from jetspark.jetstream.pulling.fetch_result import FetchResult as AsyncFetchResult
from jetspark.wire.kernel import deliver, frame_of


class JsMsg(GeneratedJsMsg):
    """One delivery. `metadata` says where it comes from.

    For the errors of every acknowledgement see `jetspark.jetstream.JsMsg`.
    """

    __slots__ = ("_answering",)
    # Made by the first answer: making a message must stay cheap.
    _answering: AsyncJsMsg

    def _answerer(self) -> AsyncJsMsg:
        try:
            return self._answering
        except AttributeError:
            self._answering = AsyncJsMsg(self._client, frame_of(self))
            return self._answering


class FetchResult(Fetched[JsMsg]):
    """The messages of a fetch. `error`: the error that ended it after these messages, or None."""

    __slots__ = ()


def fetched(client: CallerSide, result: AsyncFetchResult) -> FetchResult:
    """The same fetch, with blocking messages."""
    return FetchResult(deliver(JsMsg, client, list(map(frame_of, result))), result.error)
