"""Requests over one shared inbox.

Contract: one wildcard subscription for all requests of a connection, made at the first one, which
may be while draining: a callback that is still to be called may have to ask. A
request is an entry in a table from its publish to its reply, timeout, cancellation or the
connection's end, whichever comes first; none of them leaves the entry behind, and a reply without
an entry is dropped. A reconnect does not touch the table: the inbox is subscribed again before
anything else is sent, so a reply may still come (row C9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jetspark.client.gather import Gathering
from jetspark.client.inbox import new_inbox
from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import (
    ConnectionClosedError,
    JetsparkError,
    NoRespondersError,
    RequestTimeoutError,
)
from jetspark.wire.events import MessageFrame
from jetspark.wire.status import NO_RESPONDERS, status_of


class RequestMux:
    """The table of open requests of one client."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, link: Supervisor, inbox_prefix: str
    ) -> None:
        self._loop = loop
        self._link = link
        self._prefix = new_inbox(inbox_prefix) + "."
        self._cut = len(self._prefix)
        self._route: Route | None = None
        self._open: dict[bytes, asyncio.Future[MessageFrame]] = {}
        self._gathering: dict[bytes, Gathering] = {}
        self._last = 0

    def __len__(self) -> int:
        """Requests that wait for a reply."""
        return len(self._open) + len(self._gathering)

    def _token(self) -> bytes:
        """Of a new request; the inbox is subscribed to when it returns."""
        if self._route is None:
            route = Route(self._prefix + "*", self._on_frame, on_end=self._on_end)
            self._link.add_route(route, while_draining=True)
            self._route = route
        self._last += 1
        return b"%x" % self._last

    async def request(
        self, subject: str, send: Callable[[str], None], timeout: float
    ) -> MessageFrame:
        """Call `send` with a reply subject and wait for the frame that comes back to it.

        Raises NoRespondersError, RequestTimeoutError, ConnectionClosedError, ConnectionLostError,
        JetsparkError (the inbox may not be subscribed to) and what `send` raises.
        """
        token = self._token()
        answer: asyncio.Future[MessageFrame] = self._loop.create_future()
        self._open[token] = answer
        timer = self._loop.call_later(timeout, _expire, answer, subject, timeout)
        try:
            send(self._prefix + token.decode())
            frame = await answer
        finally:
            timer.cancel()
            self._open.pop(token, None)
        self.check_responders(frame, subject)
        return frame

    @contextmanager
    def gathering(
        self, timeout: float, max_msgs: int, stall: float | None
    ) -> Iterator[tuple[Gathering, str]]:
        """An entry for many replies, and the reply subject to publish with."""
        token = self._token()
        gathering = Gathering(self._loop, self._loop.time() + timeout, max_msgs, stall)
        self._gathering[token] = gathering
        try:
            yield gathering, self._prefix + token.decode()
        finally:
            self._gathering.pop(token, None)

    @staticmethod
    def check_responders(frame: MessageFrame, subject: str) -> None:
        """Raises NoRespondersError when the frame says so."""
        block = frame[3]
        if block is not None and not frame[4]:
            status = status_of(block)
            if status is not None and status.code == NO_RESPONDERS:
                raise NoRespondersError(subject)

    def _on_frame(self, frame: MessageFrame) -> None:
        token = frame[1][self._cut :]
        answer = self._open.pop(token, None)
        if answer is not None:
            if not answer.done():
                answer.set_result(frame)
        elif (gathering := self._gathering.get(token)) is not None:
            gathering.push(frame)

    def _on_end(self, error: JetsparkError | None) -> None:
        self._route = None
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(_own(error))
        for gathering in self._gathering.values():
            gathering.fail(_own(error))


def _own(error: JetsparkError | None) -> JetsparkError:
    """An error for one caller: one instance raised in many tasks would mix their tracebacks."""
    if error is None or isinstance(error, ConnectionClosedError):
        own: JetsparkError = ConnectionClosedError() if error is None else type(error)()
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
