"""One request, many replies (ADR-47).

Contract: nothing is sent before the first reply is requested. The end is determined when a reply
arrives, not when it is taken, so a slow reader gets the same replies as a fast one. The entry in
the request table is removed at the end, on an error, a cancellation, or when the iterator is
closed; leaving an `async for` early closes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from types import TracebackType
from typing import Any, Self

from jetspark.client.messages import Message
from jetspark.errors import JetsparkError
from jetspark.wire.events import MessageFrame


class Gathering:
    """The entry of one such request in the request table; fed by the read loop.

    It ends after `max_msgs` frames (0: no such limit), at `deadline` (of the loop's clock), when
    no frame has come for `stall` seconds after the last one (None: no such limit), by `cut` if it
    is a `question`, or by `fail`.
    """

    __slots__ = (
        "_end",
        "_ended",
        "_error",
        "_frames",
        "_left",
        "_loop",
        "_stall",
        "_total",
        "_waiter",
        "question",
        "subject",
        "was_cut",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        subject: str,
        deadline: float,
        max_msgs: int,
        stall: float | None,
        *,
        question: bool = False,
    ) -> None:
        self._loop = loop
        self.subject = subject
        self.question = question
        self.was_cut = False
        self._total = self._end = deadline
        self._left = max_msgs
        self._stall = stall
        self._frames: deque[MessageFrame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: JetsparkError | None = None

    def push(self, frame: MessageFrame) -> None:
        """A reply came."""
        now = self._loop.time()
        if self._ended or now >= self._end:
            return
        self._frames.append(frame)
        if self._stall is not None:
            self._end = min(self._total, now + self._stall)
        if self._left:
            self._left -= 1
            self._ended = not self._left
        self._wake()

    def cut(self) -> None:
        """The link was lost: replies to a question do not come over the next one."""
        if self.question and not self._ended:
            self._ended = self.was_cut = True
            self._wake()

    def fail(self, error: JetsparkError) -> None:
        """End: no more replies will come."""
        self._ended = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> MessageFrame | None:
        """The next reply; None at the end. Raises the error of `fail` after the last reply."""
        while not self._frames:
            if self._error is not None:
                raise self._error
            if self._ended or self._loop.time() >= self._end:
                return None
            waiter = self._waiter = self._loop.create_future()
            timer = self._loop.call_at(self._end, self._wake)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._frames.popleft()


class Replies:
    """What `Client.request_many` returns: iterate it, or await it for the list of all. Once.

    `async with` ends the request when the block is left; so does `aclose`.
    """

    __slots__ = ("_replies",)

    def __init__(self, replies: AsyncGenerator[Message]) -> None:
        self._replies = replies

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._replies

    def __await__(self) -> Generator[Any, None, list[Message]]:
        return self._all().__await__()

    async def _all(self) -> list[Message]:
        return [message async for message in self._replies]

    async def aclose(self) -> None:
        """Accept no more replies."""
        await self._replies.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
