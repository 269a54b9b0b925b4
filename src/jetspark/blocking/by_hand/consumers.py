"""Consumers without async: their messages, and iterating over them.

Contract
- Acknowledgements are sent like publishes, without a thread switch; only `ack_sync` waits. Use a
  message in one thread at a time: if two threads acknowledge it at once, both may succeed.
- A fetch's messages come to the caller's thread together. Each thread switch of an iterator brings
  at most the messages of one pull request, which are buffered here: that exceeds the buffer's limit
  by at most half. A push consumer's flow control request is answered when the messages before it
  have reached this side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jetspark.blocking.by_hand.client import Message
from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import LoopIterator, MessageIterator
from jetspark.jetstream.fetch import Fetched
from jetspark.jetstream.fetch import FetchResult as AsyncFetchResult
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import deliver, frame_of


@twin_of(AsyncJsMsg)
class JsMsg(Message):
    """One delivered message; `metadata` has its stream, consumer and sequences."""

    __slots__ = ("_answering",)
    # Created by the first ack: creating a message must stay cheap.
    _answering: AsyncJsMsg

    def _answerer(self) -> AsyncJsMsg:
        try:
            return self._answering
        except AttributeError:
            self._answering = AsyncJsMsg(self._client, frame_of(self))
            return self._answering

    @property
    def is_acked(self) -> bool:
        return self._answerer().is_acked

    def ack(self) -> None:
        drive(self._answerer().ack())

    def ack_sync(self, *, timeout: Seconds | None = None) -> None:
        drive(self._answerer().ack_sync(timeout=timeout))

    def nak(self, delay: Seconds | None = None) -> None:
        drive(self._answerer().nak(delay))

    def in_progress(self) -> None:
        drive(self._answerer().in_progress())

    def term(self, reason: str = "") -> None:
        drive(self._answerer().term(reason))


JsMsgCallback: TypeAlias = Callable[[JsMsg], None]


class FetchResult(Fetched[JsMsg]):
    """The messages of a fetch. `error`: the error that ended it after these messages, or None."""

    __slots__ = ()


def received(caller: CallerSide, message: AsyncJsMsg) -> JsMsg:
    """A received message, for the blocking client."""
    own = JsMsg(caller, frame_of(message))
    caller.hooks.handed_out((own,))
    return own


def fetched(caller: CallerSide, result: AsyncFetchResult) -> FetchResult:
    """A fetch, with blocking messages."""
    messages = deliver(JsMsg, caller, list(map(frame_of, result)))
    caller.hooks.handed_out(messages)
    return FetchResult(messages, result.error)


class BaseConsumerMessages(MessageIterator[JsMsg], LoopIterator[JsMsg]):
    """See `jetspark.jetstream.consume`."""

    _message = JsMsg

    def __next__(self) -> JsMsg:
        try:
            return JsMsg(self._caller, self._taken.popleft())
        except IndexError:
            pass  # not in the handler, where an interrupt would show this IndexError too
        return super().__next__()


class BasePushMessages(MessageIterator[JsMsg], LoopIterator[JsMsg]):
    """See `jetspark.jetstream.consumers`."""

    _message = JsMsg
