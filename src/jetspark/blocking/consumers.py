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
from typing import TypeAlias, Unpack

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.client import Message
from jetspark.blocking.iterators import LoopIterator, MessageIterator
from jetspark.blocking.twin import Read, Twin, awaits, drives, twin_of
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.documents.consumers import ConsumerInfo
from jetspark.errors import JetsparkError
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.consume import ConsumerMessages as AsyncConsumerMessages
from jetspark.jetstream.consumers import Consumer as AsyncConsumer
from jetspark.jetstream.consumers import PriorityOptions
from jetspark.jetstream.consumers import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumers import PushConsumer as AsyncPushConsumer
from jetspark.jetstream.consumers import PushMessages as AsyncPushMessages
from jetspark.jetstream.fetch import Fetched
from jetspark.jetstream.fetch import FetchResult as AsyncFetchResult
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.jetstream.ordered import OrderedMessages as AsyncOrderedMessages
from jetspark.timestamps import Seconds
from jetspark.wire.kernel import deliver, frame_of

__all__ = [
    "Consumer",
    "ConsumerMessages",
    "OrderedMessages",
    "PullConsumer",
    "PushConsumer",
    "PushMessages",
]


@twin_of(AsyncJsMsg)
class JsMsg(Message):
    __slots__ = ("_answering",)
    # Created by the first ack: creating a message must stay cheap.
    _answering: AsyncJsMsg

    ack_sync = drives(AsyncJsMsg.ack_sync)
    nak = drives(AsyncJsMsg.nak)
    in_progress = drives(AsyncJsMsg.in_progress)
    term = drives(AsyncJsMsg.term)

    def _twin(self) -> AsyncJsMsg:
        try:
            return self._answering
        except AttributeError:
            self._answering = AsyncJsMsg(self._client, frame_of(self))
            return self._answering

    @property
    def is_acked(self) -> bool:
        return self._twin().is_acked

    def ack(self) -> None:  # by hand, since it is called for each message
        drive(self._twin().ack())


JsMsgCallback: TypeAlias = Callable[[JsMsg], None]


@twin_of(AsyncFetchResult)
class FetchResult(Fetched[JsMsg]):
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


@twin_of(AsyncConsumerMessages)
class ConsumerMessages(MessageIterator[JsMsg], LoopIterator[JsMsg]):
    _message = JsMsg
    active = Read[bool]()
    error = Read[JetsparkError | None]()

    def __next__(self) -> JsMsg:
        try:
            return JsMsg(self._caller, self._buffered.popleft())
        except IndexError:
            pass  # not in the handler, where an interrupt would show this IndexError too
        return super().__next__()


@twin_of(AsyncPushMessages)
class PushMessages(MessageIterator[JsMsg], LoopIterator[JsMsg]):
    _message = JsMsg
    active = Read[bool]()
    dropped = Read[int]()


@twin_of(AsyncOrderedMessages)
class OrderedMessages(ConsumerMessages):
    stream = Read[str]()
    name = Read[str]()
    last_error = Read[JetsparkError | None]()
    info = awaits(AsyncOrderedMessages.info)


@twin_of(AsyncConsumer)
class Consumer(Twin):
    cached_info = Read[ConsumerInfo]()
    stream = Read[str]()
    name = Read[str]()
    info = awaits(AsyncConsumer.info)
    update = awaits(AsyncConsumer.update)
    delete = awaits(AsyncConsumer.delete)
    pause = awaits(AsyncConsumer.pause)
    resume = awaits(AsyncConsumer.resume)
    reset = awaits(AsyncConsumer.reset)
    step_down_leader = awaits(AsyncConsumer.step_down_leader)
    evacuate_peer = awaits(AsyncConsumer.evacuate_peer)
    remove_peer = awaits(AsyncConsumer.remove_peer)


@twin_of(AsyncPullConsumer)
class PullConsumer(Consumer):
    _inner: AsyncPullConsumer
    fetch = awaits(AsyncPullConsumer.fetch, fetched)
    next = awaits(AsyncPullConsumer.next, received)
    unpin = awaits(AsyncPullConsumer.unpin)

    def consume(
        self,
        *,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> ConsumerMessages:
        return ConsumerMessages(
            self._caller,
            lambda forward: self._inner.consume(
                callback=forward,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                threshold_messages=threshold_messages,
                threshold_bytes=threshold_bytes,
                **priority,
            ),
            callback,
        )


@twin_of(AsyncPushConsumer)
class PushConsumer(Consumer):
    _inner: AsyncPushConsumer
    deliver_subject = Read[str]()

    def subscribe(
        self,
        *,
        callback: JsMsgCallback | None = None,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> PushMessages:
        return PushMessages(
            self._caller,
            lambda forward: self._inner.subscribe(
                callback=forward,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )
