"""Many replies to one request, without async."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.messages import Message
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.requests import Replies as AsyncReplies
from jetspark.wire.kernel import frame_of


class Replies(Leaving):
    """What `Client.request_many` returns: iterate it, once; `list(...)` waits for all.

    `with` ends the request when the block is left; so does `close`.
    """

    __slots__ = ("_client", "_inner")

    def __init__(self, client: CallerSide, inner: AsyncReplies) -> None:
        self._client = client
        self._inner = inner

    def __iter__(self) -> Iterator[Message]:
        replies = self._inner.__aiter__()
        thread = self._client.thread
        try:
            while True:
                try:
                    reply = thread.run(replies.__anext__)
                except StopAsyncIteration:
                    return
                yield Message(self._client, frame_of(reply))
        finally:
            # Leaving the loop ends the request. Not waited for: the garbage collector may run this,
            # and after an interrupt it may still be running.
            if not thread.is_over:
                thread.spawn(self._inner.aclose)

    def close(self) -> None:
        """Accept no more replies."""
        self._client.thread.run(self._inner.aclose)

    def _finish(self) -> None:
        if not self._client.thread.is_over:
            self._client.thread.spawn(self._inner.aclose)  # as above


def judging(
    client: CallerSide, sentinel: bool | Callable[[Message], bool]
) -> bool | Callable[[AsyncMessage], bool]:
    """The asyncio call's sentinel: it passes blocking messages to the user's function."""
    if not callable(sentinel):
        return sentinel
    return lambda reply: sentinel(Message(client, frame_of(reply)))
