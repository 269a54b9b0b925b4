"""Requests over one shared inbox.

Contract: all requests of a connection share one wildcard subscription, made by the first one, even
while draining, when callbacks still run and may send requests. A request is an entry in a table
until its reply, timeout, cancellation or the connection's end, whichever comes first; a reply
without an entry is dropped. A reconnect does not change the table: the inbox is subscribed again
before anything else is sent, so a reply may still come. A request that ends before a link could
send it is not sent later.

`ask_here` is for another thread than the loop's. It needs no lock, since it only adds entries, and
all loops over the entries use a copy.

One timer for the earliest deadline serves all requests, so a request that is answered in time
starts none. A timeout is at most `_TICK` late.

A request for many replies (ADR-47) has a `ReplyQueue`. Arriving replies determine its end, not
replies taken, so a slow reader gets the same ones as a fast one.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Final, Protocol, Self

from msgspec import Struct

import jetspark.errors as errors
from jetspark.client.messages import Message
from jetspark.client.publishing import FrameOutbox, Publishing
from jetspark.client.tasks import move_on_after
from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor
from jetspark.payload_bytes import Payload
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import NO_RESPONDERS, status_of

_TICK: Final = 0.005
"""Minimum seconds between two checks of the deadlines, so that many timeouts need few checks."""


def new_inbox(prefix: str) -> str:
    """A fresh subject below `prefix`, 128 random bits."""
    return f"{prefix}.{secrets.token_urlsafe(16)}"


class ReplyReceiver(Protocol):
    """Receives the reply: a future of the loop, or an object that another thread waits for."""

    def done(self) -> bool:
        """Whether the caller no longer waits."""

    def set_result(self, frame: MessageFrame, /) -> None:
        """The reply."""

    def set_exception(self, error: errors.JetsparkError, /) -> None:
        """No reply will come, because of this error."""


class _Request(Struct):
    answer: ReplyReceiver
    deadline: float
    subject: str
    timeout: float
    resend_frame: bytes | None
    """The frame to send again after a lost link."""


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
        # Keyed by reply subject.
        self._open: dict[bytes, _Request] = {}
        self._queues: dict[bytes, ReplyQueue] = {}
        self._abandoned: set[bytes] = set()
        """Requests that lost their caller, perhaps before they were sent."""
        self._counter = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        """Number of requests that wait for a reply."""
        return len(self._open) + len(self._queues)

    def _new_reply(self) -> bytes:
        """The reply subject of a new request, subscribed to before this returns."""
        if self._route is None:
            route = Route(
                self._inbox + "*",
                self._on_frame,
                on_run=self._on_frames,
                on_disconnect=self._on_disconnect,
                on_refused=self._on_refused,
                on_end=self._on_end,
            )
            self._link.add_route(route, while_draining=True)
            self._route = route
        return b"%b%x" % (self._prefix, next(self._counter))

    def ask(
        self,
        answer: ReplyReceiver,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
        *,
        resend: bool = False,
        spent: float = 0.0,
    ) -> bytes:
        """Publish a request; returns its reply subject, for `close` when its caller stops waiting.

        `resend`: if the link is lost before the reply, send it on the next one, too. `spent`: the
        part of the timeout that its caller has waited already.

        The answer gets the reply's frame, RequestTimeoutError, ConnectionClosedError,
        ConnectionLostError or JetsparkError (no permission to subscribe to the inbox). Raises the
        errors of `Publishing.send`.
        """
        reply = self._new_reply()
        deadline = self._loop.time() + timeout - spent
        frame = self._publishing.frame_replying(subject, payload, reply, headers)
        self._open[reply] = _Request(answer, deadline, subject, timeout, frame if resend else None)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        try:
            if len(self._open) == 1 and not self._queues:
                # A lone request is written at once, since there are no others to wait for.
                self._outbox.put_now(frame)
            else:
                self._outbox.put(frame)
        except BaseException:
            self.close(reply)
            raise
        return reply

    def ask_here(
        self,
        answer: ReplyReceiver,
        publishing: Publishing,
        put: Callable[[bytes], bool],
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        timeout: float,
    ) -> bytes | None:
        """`ask` in any thread, which checks the deadline itself; None if another request is open.

        `publishing` is that thread's; `put` bypasses the loop. Raises the errors of
        `Publishing.send`.
        """
        if self._route is None or self._open or self._queues:
            return None
        reply = b"%b%x" % (self._prefix, next(self._counter))
        frame = publishing.frame_replying(subject, payload, reply, headers)
        # Whoever removes the entry ends the request: the reply, the route's end, or this.
        table = self._open
        table[reply] = _Request(answer, self._loop.time() + timeout, subject, timeout, None)
        try:
            sent = put(frame)
        except BaseException:  # from a signal handler
            table.pop(reply, None)
            raise
        if not sent and table.pop(reply, None) is not None:
            return None
        if self._open is not table and table.pop(reply, None) is not None:
            answer.set_exception(_for_caller(None, subject, sent=True))
        return reply

    def close(self, reply: bytes) -> None:
        """Remove a request whose caller no longer waits; does nothing if it was answered."""
        if self._open.pop(reply, None) is not None:
            self._withdraw_soon(reply)

    def _withdraw_soon(self, reply: bytes) -> None:
        if not self._outbox.size:
            return
        if not self._abandoned:
            self._loop.call_later(_TICK, self._withdraw)
        self._abandoned.add(reply)

    def _withdraw(self) -> None:
        self._outbox.withdraw(self._abandoned)
        self._abandoned.clear()

    @contextmanager
    def reply_queue(
        self,
        subject: str,
        deadline: float,
        max_msgs: int = 0,
        stall: float | None = None,
        *,
        question: bool = False,
    ) -> Iterator[tuple[ReplyQueue, bytes]]:
        """An entry for many replies, and the reply subject to publish with."""
        reply = self._new_reply()
        queue = ReplyQueue(self._loop, subject, deadline, max_msgs, stall, question=question)
        self._queues[reply] = queue
        try:
            yield queue, reply
        finally:
            self._queues.pop(reply, None)
            self._withdraw_soon(reply)

    @staticmethod
    def check_responders(frame: MessageFrame, subject: str) -> None:
        """Raise NoRespondersError for a frame with that status."""
        block = frame.headers
        if block is not None and not frame.payload:
            status = status_of(block)
            if status is not None and status.code == NO_RESPONDERS:
                raise errors.NoRespondersError(subject)

    # -- called by the route -------------------------------------------------------------------

    def _on_frame(self, frame: MessageFrame) -> None:
        self._on_frames([frame], 0)

    def _on_frames(self, frames: list[MessageFrame], size: int) -> bool:
        for frame in frames:
            reply = frame.subject
            if (request := self._open.pop(reply, None)) is not None:
                if not (answer := request.answer).done():
                    answer.set_result(frame)
            elif (queue := self._queues.get(reply)) is not None:
                queue.push(frame)
        return True

    def _on_end(self, error: errors.JetsparkError | None) -> None:
        self._route = None
        waiting, self._open = self._open, {}
        unsent = self._outbox.never_sent
        for reply in waiting.copy():
            if (request := waiting.pop(reply, None)) is not None and not request.answer.done():
                sent = reply not in unsent
                request.answer.set_exception(_for_caller(error, request.subject, sent=sent))
        for reply, queue in self._queues.items():
            queue.fail(_for_caller(error, queue.subject, sent=reply not in unsent))

    def _on_disconnect(self) -> None:
        for queue in self._queues.values():
            queue.cut()
        pending = self._open.copy().items()
        frames = {reply: frame for reply, request in pending if (frame := request.resend_frame)}
        unsent = self._outbox.withdraw(frames)  # each error once; the position keeps the first
        for reply in sorted(frames, key=lambda reply: reply not in unsent):
            try:
                self._outbox.put(frames[reply])
            except errors.JetsparkError:
                return  # the buffer is full, or the connection ends

    def _on_refused(self, name: str, error: errors.JetsparkError) -> None:
        """Fail requests whose subject or reply subject was refused."""
        # Copies: a callback may send another request.
        for reply, request in self._open.copy().items():
            if name not in (request.subject, reply.decode()) or not self._open.pop(reply, None):
                continue
            if not request.answer.done():
                request.answer.set_exception(copy(error))
        for reply, queue in list(self._queues.items()):
            if name in (queue.subject, reply.decode()):
                queue.fail(copy(error))

    # -- deadlines -----------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check_deadlines)
        self._timer_at = when

    def _check_deadlines(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        now = self._loop.time()
        pending = self._open.copy().items()
        late = {reply: request for reply, request in pending if request.deadline <= now}
        unsent = self._outbox.withdraw(late) if late else ()
        for reply, request in late.items():
            if self._open.pop(reply, None) is not None and not request.answer.done():
                sent = reply not in unsent
                request.answer.set_exception(no_reply(request.subject, request.timeout, sent=sent))
        if open_requests := self._open.copy():
            earliest = min(request.deadline for request in open_requests.values())
            self._set_timer(max(earliest, now + _TICK))


def no_reply(subject: str, timeout: float, *, sent: bool = True) -> errors.RequestTimeoutError:
    """The error of a request after its timeout."""
    if sent:
        return errors.RequestTimeoutError(f"No reply from {subject!r} within {timeout:g} s.")
    error = errors.RequestTimeoutError(
        f"The request to {subject!r} could not be sent within {timeout:g} s, and will not be: "
        "there was no connection to a server, or it took no more."
    )
    error.sent = False
    return error


async def room_within(outbox: FrameOutbox, subject: str, timeout: float) -> float:
    """Wait until a request may be sent; returns the seconds spent. Raises as a late reply does."""
    clock = asyncio.get_running_loop().time
    start = clock()
    async with move_on_after(timeout):
        await outbox.wait()
        if (spent := clock() - start) < timeout:
            return spent
    raise no_reply(subject, timeout, sent=False)


def _for_caller(
    error: errors.JetsparkError | None, subject: str, *, sent: bool
) -> errors.JetsparkError:
    """A copy for one caller: tasks that raised the same instance would mix their tracebacks."""
    if error is None or isinstance(error, errors.ConnectionClosedError):
        own = errors.ConnectionClosedError() if error is None else type(error)()
        own.sent = sent
        if not sent:
            own.replace_message(
                f"{own.message} The request to {subject!r} was not sent, and will not be."
            )
        own.__cause__ = error.__cause__ if error is not None else None
        return own
    copied = copy(error)
    copied.replace_message(f"No replies can be received: {error.message}")
    return copied


class ReplyQueue:
    """The replies to one request, filled by the read loop.

    It ends after `max_msgs` frames (0: no limit), at `deadline` (of the loop's clock), `stall`
    seconds after the last frame (None: no limit), at `cut` if it is a `question`, or at `fail`.
    """

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
        self._question = question
        self.was_cut = False
        self._deadline = self._end = deadline
        self._left = max_msgs
        self._stall = stall
        self._frames: deque[MessageFrame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: errors.JetsparkError | None = None

    def push(self, frame: MessageFrame) -> None:
        """A reply came."""
        now = self._loop.time()
        if self._ended or now >= self._end:
            return
        self._frames.append(frame)
        if self._stall is not None:
            self._end = min(self._deadline, now + self._stall)
        if self._left:
            self._left -= 1
            self._ended = not self._left
        self._wake()

    def cut(self) -> None:
        """The link was lost, and with it the rest of the replies to a question."""
        if self._question and not self._ended:
            self._ended = self.was_cut = True
            self._wake()

    def fail(self, error: errors.JetsparkError) -> None:
        """No more replies will come, because of this error."""
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
    """The replies to `Client.request_many`: `async for`, or `await replies.all()`; once.

    Nothing is sent before the first reply is needed. The end of an `async with` block, `aclose`,
    and leaving an `async for` early end the request.

    Example:
        ```python
        replies = nc.request_many("ping", stall=0.2)
        try:
            print([reply.data async for reply in replies])
        except jetspark.NoRespondersError:
            print("nobody answers")  # nobody answers
        ```
    """

    def __init__(self, replies: AsyncGenerator[Message]) -> None:
        self._replies = replies

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._replies

    async def all(self) -> list[Message]:
        """Every reply in a list. Raises the errors of iterating."""
        return [message async for message in self._replies]

    async def aclose(self) -> None:
        """Accept no more replies."""
        await self._replies.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
