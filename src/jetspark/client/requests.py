"""Requests over one shared inbox.

Contract: one wildcard subscription for all requests of a connection, made at the first one. A
request is an entry in a table from its publish to its reply, timeout, cancellation or the
connection's end, whichever comes first; none of them leaves the entry behind, and a reply without
an entry is dropped. A reconnect does not touch the table: the inbox is subscribed again before
anything else is sent, so a reply may still come (row C9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetspark.client.inbox import new_inbox
from jetspark.errors import (
    ConnectionClosedError,
    JetsparkError,
    NoRespondersError,
    RequestTimeoutError,
)
from jetspark.wire.events import MessageFrame
from jetspark.wire.status import NO_RESPONDERS, status_of

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.client.listener import Listener


class RequestMux:
    """The table of open requests of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = client.loop
        self._prefix = new_inbox(client.options.inbox_prefix) + "."
        self._cut = len(self._prefix)
        self._listener: Listener | None = None
        self._open: dict[bytes, asyncio.Future[MessageFrame]] = {}
        self._last = 0

    def __len__(self) -> int:
        """Requests that wait for their reply."""
        return len(self._open)

    async def request(
        self, subject: str, send: Callable[[str], None], timeout: float
    ) -> MessageFrame:
        """Call `send` with a reply subject and wait for the frame that comes back to it.

        Raises NoRespondersError, RequestTimeoutError, ConnectionClosedError, PermissionsError
        (the inbox may not be subscribed to) and what `send` raises.
        """
        if self._listener is None:
            self._listener = self._client.listen(
                self._prefix + "*", self._on_frame, on_end=self._on_end
            )
        self._last += 1
        token = b"%x" % self._last
        answer: asyncio.Future[MessageFrame] = self._loop.create_future()
        self._open[token] = answer
        timer = self._loop.call_later(timeout, _expire, answer, subject, timeout)
        try:
            send(self._prefix + token.decode())
            frame = await answer
        finally:
            timer.cancel()
            self._open.pop(token, None)
        block = frame[3]
        if block is not None and not frame[4]:
            status = status_of(block)
            if status is not None and status.code == NO_RESPONDERS:
                raise NoRespondersError(subject)
        return frame

    def _on_frame(self, frame: MessageFrame) -> None:
        answer = self._open.pop(frame[1][self._cut :], None)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def _on_end(self, error: JetsparkError | None) -> None:
        self._listener = None
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(_own(error))


def _own(error: JetsparkError | None) -> JetsparkError:
    """An error for one caller: one instance raised in many tasks would mix their tracebacks."""
    if error is None or isinstance(error, ConnectionClosedError):
        own: JetsparkError = ConnectionClosedError()
        own.__cause__ = error.__cause__ if error is not None else None
        return own
    own = JetsparkError(f"No replies can be received: {error}")
    own.__cause__ = error
    return own


def _expire(answer: asyncio.Future[MessageFrame], subject: str, timeout: float) -> None:
    if not answer.done():
        answer.set_exception(
            RequestTimeoutError(f"No reply from {subject!r} within {timeout:g} s.")
        )
