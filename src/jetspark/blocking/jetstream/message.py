"""A message delivered by a JetStream consumer, and its acknowledgements, without async.

Contract: that of `jetspark.jetstream.message`. Acks leave as publishes do, without a change of
thread; only `ack_sync` waits. A message is for one thread at a time: of two threads that answer
it at the same moment both may succeed.
"""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.messages import Message
from jetspark.errors import JetsparkError
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.jetstream.pulling.fetch_result import FetchResult as AsyncFetchResult
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import deliver


class JsMsg(Message):
    """One delivery. `metadata` says where it comes from."""

    __slots__ = ("_answering",)
    # Made by the first answer: making a message must stay cheap.
    _answering: AsyncJsMsg

    def _answerer(self) -> AsyncJsMsg:
        try:
            return self._answering
        except AttributeError:
            self._answering = AsyncJsMsg(self._client, self._frame)
            return self._answering

    @property
    def is_acked(self) -> bool:
        """Whether this object has sent a final answer."""
        return self._answerer().is_acked

    def ack(self) -> None:
        """Done; does not wait for the server to confirm it."""
        drive(self._answerer().ack())

    def ack_sync(self, *, timeout: Seconds | None = None) -> None:
        """Done, and the server confirmed it within `timeout` seconds (None: the client's).

        Raises RequestTimeoutError, and NoRespondersError when the consumer is gone.
        """
        drive(self._answerer().ack_sync(timeout=timeout))

    def nak(self, delay: Seconds | None = None) -> None:
        """Deliver it again: now, or after `delay` (a timedelta, or seconds)."""
        drive(self._answerer().nak(delay))

    def in_progress(self) -> None:
        """Still working: begins the consumer's ack_wait anew."""
        drive(self._answerer().in_progress())

    def term(self, reason: str = "") -> None:
        """Never deliver it again. The server's advisory shows the reason.

        A reason needs server 2.10.4, or raises UnsupportedByServerError: older ones would not
        take the answer at all.
        """
        drive(self._answerer().term(reason))


class FetchResult(list[JsMsg]):
    """The messages of a fetch. `error`: what ended it after these messages came, or None."""

    __slots__ = ("error",)

    def __init__(self, messages: Iterable[JsMsg] = (), error: JetsparkError | None = None) -> None:
        super().__init__(messages)
        self.error = error


def fetched(client: CallerSide, result: AsyncFetchResult) -> FetchResult:
    """The same fetch, with blocking messages."""
    return FetchResult(deliver(JsMsg, client, [message._frame for message in result]), result.error)
