"""A message delivered by a JetStream consumer, and its acknowledgements, without async.

As `jetspark.jetstream.message`. Acks are sent as publishes are, without a thread switch; only
`ack_sync` waits. Use a message in one thread at a time: if two threads acknowledge it at once, both
may succeed.
"""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.message import GeneratedJsMsg
from jetspark.jetstream.fetch import Fetched
from jetspark.jetstream.fetch import FetchResult as AsyncFetchResult
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.wire.kernel import deliver, frame_of


class JsMsg(GeneratedJsMsg):
    """One delivered message; `metadata` has its stream, consumer and sequences.

    For the errors of every acknowledgement see `jetspark.jetstream.JsMsg`.
    """

    __slots__ = ("_answering",)
    # Created by the first ack: creating a message must stay cheap.
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


def received(client: CallerSide, message: AsyncJsMsg) -> JsMsg:
    """The same message, blocking."""
    own = JsMsg(client, frame_of(message))
    client.hooks.handed_out((own,))
    return own


def fetched(client: CallerSide, result: AsyncFetchResult) -> FetchResult:
    """The same fetch, with blocking messages."""
    messages = deliver(JsMsg, client, list(map(frame_of, result)))
    client.hooks.handed_out(messages)
    return FetchResult(messages, result.error)
