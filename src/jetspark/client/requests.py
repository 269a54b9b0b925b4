"""Requests over one shared inbox.

Contract: one wildcard subscription for all requests of a connection, made at the first one, which
may be while draining, since callbacks still run then and may send requests. A request is an entry
in a table from its publish to its reply, timeout, cancellation or the connection's end, whichever
comes first; each of them removes the entry, and a reply without an entry is dropped. A reconnect
does not change the table: the inbox is subscribed again before anything else is sent, so a reply
may still come. A request that ends before there was a link to send it is not sent later.

`ask_here` is for another thread than the loop's; it needs no lock, since it only adds entries, and
whoever looks at all of them looks at a copy.

One timer serves all requests. It is set for the earliest deadline, so a request that is answered in
time starts none. A timeout is at most `_TICK` late.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from copy import copy
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from jetspark.client.messages import Message
from jetspark.client.publishing import Publishing
from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import (
    ConnectionClosedError,
    JetsparkError,
    MaxPayloadError,
    NoRespondersError,
    RequestTimeoutError,
)
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike
from jetspark.wire.status import NO_RESPONDERS, status_of

# -------------------------------------------------------------------------------------------------
# Reply subjects that cannot be guessed.


def new_inbox(prefix: str) -> str:
    """A fresh subject below `prefix`, 128 random bits."""
    return f"{prefix}.{secrets.token_urlsafe(16)}"


# -------------------------------------------------------------------------------------------------
# Publishes whose reply subjects differ in a number: `<head><number><tail>`.
#
# Contract: as `Publishing.send_replying`, for millions of messages to few subjects. The beginning
# of the frames is kept for each subject, so that a frame needs one formatting operation.


_SUBJECTS_REMEMBERED: Final = 4096


class NumberedPublishes:
    """`head` ends with a dot; `tail` is empty or begins with a dot, and contains no %."""

    __slots__ = ("_heads", "_link", "_outbox", "_plain", "_publishing", "_reply", "_with_headers")

    def __init__(self, publishing: Publishing, head: bytes, tail: bytes = b"") -> None:
        self._publishing = publishing
        self._link = publishing.link
        self._outbox = publishing.outbox
        self._reply = head
        self._plain = b"PUB %%b%%d%b %%d\r\n%%b\r\n" % tail
        self._with_headers = b"HPUB %%b%%d%b %%d %%d\r\n%%b%%b\r\n" % tail
        self._heads: dict[str, bytes] = {}

    def send(
        self, number: int, subject: str, payload: Payload, headers: HeadersLike | None = None
    ) -> None:
        """One message, with this turn of the loop. Raises as `Client.publish_nowait`."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        head = self._heads.get(subject) or self._head(subject)
        block = b"" if headers is None else self._publishing.encode_headers(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        if headers is None:
            frame = self._plain % (head, number, size, payload)
        else:
            frame = self._with_headers % (head, number, len(block), size, block, payload)
        self._outbox.put(frame)

    def _head(self, subject: str) -> bytes:
        head = b"%b %b" % (self._publishing.encode_subject(subject), self._reply)
        self._publishing.check_line(subject, head)
        if len(self._heads) >= _SUBJECTS_REMEMBERED:
            self._heads.clear()
        self._heads[subject] = head
        return head


# -------------------------------------------------------------------------------------------------
# The low-level subscription: raw frames, straight from the read loop.


class Listener:
    """Returned by `Client.listen`. There is no queue and no limit: the handler must keep up."""

    __slots__ = ("_link", "_route")

    def __init__(self, link: Supervisor, route: Route) -> None:
        link.add_route(route)
        self._link = link
        self._route = route

    @property
    def subject(self) -> str:
        """The subject, with its wildcards."""
        return self._route.subject

    @property
    def received(self) -> int:
        """Messages so far."""
        return self._route.received

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._route in self._link.routes

    def close(self) -> None:
        """Unsubscribe; `on_end` is not called. May be called again."""
        self._link.routes.remove(self._route)

    def stop(self) -> None:
        """Unsubscribe at the server; messages in flight still arrive, until `close`."""
        self._link.routes.stop(self._route)

    def __repr__(self) -> str:
        return f"Listener({self.subject!r}, received={self.received})"


_TICK: Final = 0.005
"""Minimum seconds between two checks of the deadlines, so that many timeouts need few checks."""


class Answer(Protocol):
    """Receives the reply: a future of the loop, or what another thread waits for."""

    def done(self) -> bool:
        """Whether the caller no longer waits."""

    def set_result(self, frame: MessageFrame, /) -> None:
        """The reply."""

    def set_exception(self, error: JetsparkError, /) -> None:
        """Fail: there will be no reply."""


_Request: TypeAlias = tuple[Answer, float, str, float, bytes | None]
"""(answer, deadline, subject, timeout, frame to send again): a bare tuple, since every request
creates one."""


class RequestMux:
    """The table of open requests of one client."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: Supervisor,
        publishing: Publishing,
        inbox_prefix: str,
    ) -> None:
        self._loop = loop
        self._link = link
        self._publishing = publishing
        self._outbox = link.outbox
        self._inbox = new_inbox(inbox_prefix) + "."
        self._prefix = self._inbox.encode()
        self._route: Route | None = None
        # By reply subject.
        self._open: dict[bytes, _Request] = {}
        self._gathering: dict[bytes, Gathering] = {}
        self._left: set[bytes] = set()
        """Nobody waits for their replies any more; they may not have been sent yet."""
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        """Number of requests that wait for a reply."""
        return len(self._open) + len(self._gathering)

    def _reply(self) -> bytes:
        """The reply subject of a new request; subscribed on return."""
        if self._route is None:
            route = Route(
                self._inbox + "*",
                self._on_frame,
                on_disconnect=self._on_disconnect,
                on_refused=self._on_refused,
                on_end=self._on_end,
            )
            self._link.add_route(route, while_draining=True)
            self._route = route
        return self._next()

    def _next(self) -> bytes:
        return b"%b%x" % (self._prefix, next(self._numbers))

    def ask(
        self,
        answer: Answer,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
        *,
        again: bool = False,
    ) -> bytes:
        """Publish a request; returns its reply subject, for `close` when its caller stops waiting.

        `again`: when the link is lost before the reply came, send it on the next one, too.

        The answer gets the reply's frame, RequestTimeoutError, ConnectionClosedError,
        ConnectionLostError or JetsparkError (no permission to subscribe to the inbox). Raises what
        `Publishing.send` raises.
        """
        reply = self._reply()
        deadline = self._loop.time() + timeout
        frame = self._publishing.frame_replying(subject, payload, reply, headers)
        self._open[reply] = (answer, deadline, subject, timeout, frame if again else None)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        try:
            if len(self._open) + len(self._gathering) == 1:
                # A single request is written at once, and does not wait for others.
                self._outbox.put_now(frame)
            else:
                self._outbox.put(frame)
        except BaseException:
            self.close(reply)
            raise
        return reply

    def ask_here(
        self,
        answer: Answer,
        publishing: Publishing,
        put: Callable[[bytes], bool],
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
    ) -> bytes | None:
        """`ask` in any thread, which looks at the clock itself; None if something is on its way.

        `publishing` is that thread's, `put` its way around the loop. Raises what `Publishing.send`
        raises.
        """
        if self._route is None or self._open or self._gathering:
            return None
        reply = self._next()
        frame = publishing.frame_replying(subject, payload, reply, headers)
        # Whoever takes the entry out ends the request: the reply, the end of the route, or this.
        table = self._open
        table[reply] = (answer, self._loop.time() + timeout, subject, timeout, None)
        try:
            sent = put(frame)
        except BaseException:  # of a signal's handler
            table.pop(reply, None)
            raise
        if not sent and table.pop(reply, None) is not None:
            return None
        if self._open is not table and table.pop(reply, None) is not None:
            answer.set_exception(_own(None, subject, sent=True))
        return reply

    def close(self, reply: bytes) -> None:
        """Remove a request whose caller no longer waits; does nothing if it was answered."""
        if self._open.pop(reply, None) is not None and self._outbox.size:
            self._leave(reply)

    def _leave(self, reply: bytes) -> None:
        """Withdraw a request soon, together with others."""
        if not self._left:
            self._loop.call_later(_TICK, self._withdraw)
        self._left.add(reply)

    def _withdraw(self) -> None:
        self._outbox.withdraw(self._left)
        self._left.clear()

    @contextmanager
    def gathering(
        self,
        subject: str,
        deadline: float,
        max_msgs: int,
        stall: float | None,
        *,
        question: bool = False,
    ) -> Iterator[tuple[Gathering, bytes]]:
        """An entry for many replies, and the reply subject to publish with."""
        reply = self._reply()
        gathering = Gathering(self._loop, subject, deadline, max_msgs, stall, question=question)
        self._gathering[reply] = gathering
        try:
            yield gathering, reply
        finally:
            self._gathering.pop(reply, None)
            if self._outbox.size:
                self._leave(reply)

    @staticmethod
    def check_responders(frame: MessageFrame, subject: str) -> None:
        """Raises NoRespondersError for a frame with that status."""
        block = frame.headers
        if block is not None and not frame.payload:
            status = status_of(block)
            if status is not None and status.code == NO_RESPONDERS:
                raise NoRespondersError(subject)

    def _on_frame(self, frame: MessageFrame) -> None:
        reply = frame.subject
        request = self._open.pop(reply, None)
        if request is not None:
            answer = request[0]
            if not answer.done():
                answer.set_result(frame)
        elif (gathering := self._gathering.get(reply)) is not None:
            gathering.push(frame)

    def _on_end(self, error: JetsparkError | None) -> None:
        self._route = None
        waiting, self._open = self._open, {}
        unsent = self._outbox.never_sent
        for reply in waiting.copy():
            if (request := waiting.pop(reply, None)) is not None and not request[0].done():
                request[0].set_exception(_own(error, request[2], sent=reply not in unsent))
        for reply, gathering in self._gathering.items():
            gathering.fail(_own(error, gathering.subject, sent=reply not in unsent))

    def _on_disconnect(self) -> None:
        for gathering in self._gathering.values():
            gathering.cut()
        again = {reply: one[4] for reply, one in self._open.copy().items() if one[4] is not None}
        unsent = self._outbox.withdraw(again)  # each once; those that have their place first
        for reply in sorted(again, key=lambda reply: reply not in unsent):
            try:
                self._outbox.put(again[reply])
            except JetsparkError:
                return  # it is full, or this is the end of the connection

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        """Fail requests that were refused, by their subject or by the inbox."""
        # Copies: a callback may send another request.
        for reply, (answer, _, subject, *_) in self._open.copy().items():
            if name not in (subject, reply.decode()) or self._open.pop(reply, None) is None:
                continue
            if not answer.done():
                answer.set_exception(copy(error))
        for reply, gathering in list(self._gathering.items()):
            if name in (gathering.subject, reply.decode()):
                gathering.fail(copy(error))

    # -- time ------------------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look_at_the_clock)
        self._timer_at = when

    def _look_at_the_clock(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        now = self._loop.time()
        late = {reply: one for reply, one in self._open.copy().items() if one[1] <= now}
        unsent = self._outbox.withdraw(late) if late else ()
        for reply, (answer, _, subject, timeout, _) in late.items():
            if self._open.pop(reply, None) is not None and not answer.done():
                answer.set_exception(no_reply(subject, timeout, sent=reply not in unsent))
        if others := self._open.copy():
            earliest = min(request[1] for request in others.values())
            self._set_timer(max(earliest, now + _TICK))


def no_reply(subject: str, timeout: float, *, sent: bool = True) -> RequestTimeoutError:
    """The error for a request whose time is over."""
    if sent:
        return RequestTimeoutError(f"No reply from {subject!r} within {timeout:g} s.")
    error = RequestTimeoutError(
        f"The request to {subject!r} could not be sent within {timeout:g} s, and will not be: "
        "there was no connection to a server."
    )
    error.sent = False
    return error


def _own(error: JetsparkError | None, subject: str, *, sent: bool) -> JetsparkError:
    """A copy for one caller: an instance raised in many tasks would mix their tracebacks."""
    if error is None or isinstance(error, ConnectionClosedError):
        own = ConnectionClosedError() if error is None else type(error)()
        own.sent = sent
        if not sent:
            own.args = (f"{own} The request to {subject!r} was not sent, and will not be.",)
        own.__cause__ = error.__cause__ if error is not None else None
        return own
    other = copy(error)
    other.args = (f"No replies can be received: {error}",)
    return other


# -------------------------------------------------------------------------------------------------
# One request, many replies (ADR-47).
#
# Contract: nothing is sent before the first reply is requested. The end is determined when a reply
# arrives, not when it is taken, so a slow reader gets the same replies as a fast one. The entry in
# the request table is removed at the end, on an error, a cancellation, or when the iterator is
# closed; leaving an `async for` early closes it.


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
