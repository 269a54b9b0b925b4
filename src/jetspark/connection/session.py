"""One link to one server, from opening to its end.

Contract: `open` makes the handshake within `connect_timeout` and leaves nothing open when it
raises. `start` begins dispatch: message frames go straight to the handler of their route, in the
read loop, without a task, a future or any decoding; everything else goes to the owner. After
`start` the owner's `session_lost` is called once, at the end. A session has no task of its own: it
runs in the transport's callbacks and one PING timer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import jetspark.errors as errors
from jetspark.connection.handshake import (
    Receive,
    Send,
    StartTLS,
    closed,
    handshake,
    may_be_silent,
    no_answer,
    no_nats,
)
from jetspark.connection.opening import reason_of, tls_failure, too_early
from jetspark.connection.options import ConnectOptions
from jetspark.connection.routes import Route
from jetspark.connection.server_errors import meaning_of
from jetspark.connection.transports import Dial, TLSState, Transport
from jetspark.connection.urls import ServerURL
from jetspark.version import __version__
from jetspark.wire import frames
from jetspark.wire.control import ControlEvent, Err, Info, Ping, Pong
from jetspark.wire.documents import ServerInfo, parse_info
from jetspark.wire.kernel import Event, MessageFrame
from jetspark.wire.parser import Parser
from jetspark.wire.trace import received_lines, sent_lines


class SessionOwner(Protocol):
    """The supervisor, as its sessions call it. No method may raise."""

    def enqueue(self, session: Session, frame: bytes) -> None:
        """Send a control frame after the buffered ones."""

    def info_changed(self, session: Session, info: ServerInfo) -> None:
        """The server sent INFO."""

    def error_reported(self, error: errors.JetsparkError) -> None:
        """An error that does not end the link."""

    def route_exhausted(self, route: Route) -> None:
        """A limited route got its last message."""

    def writing_paused(self, session: Session, paused: bool) -> None:
        """The transport asks to pause writing, or allows it again."""

    def session_lost(self, session: Session, error: errors.JetsparkError) -> None:
        """The link has ended."""


tracer = logging.getLogger("jetspark.trace")

CLOSE_GRACE_SECONDS = 0.25
"""Seconds for a server to close a link after we closed our end; a frozen server does not."""


@dataclass(slots=True)
class ConnectionTraffic:
    """Counts over all links of a connection."""

    messages: int = 0
    payload: int = 0
    """Bytes received, without headers."""
    reconnects: int = 0
    slow_consumers: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the client was created; bytes of payloads in, of protocol out."""

    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    reconnects: int
    slow_consumers: int
    """Episodes in which a subscription dropped messages at a pending limit."""
    pending_msgs: int
    """Messages that have been received, and that nobody has taken yet."""


class Session:
    """One link to a server, from dialing to its end.

    `routes` is the live table: sid to route. `known_good`: a server has accepted these
    options before.
    """

    def __init__(
        self,
        server: ServerURL,
        options: ConnectOptions,
        routes: Mapping[int, Route],
        owner: SessionOwner,
        traffic: ConnectionTraffic,
        known_good: bool,
    ) -> None:
        self.server = server
        self.info = ServerInfo()
        self.info_in_clear = False
        """Whether TLS began after `info` had come, so that anyone may have changed it."""
        self.lost: errors.JetsparkError | None = None
        """Why the link has ended; None while it lives."""
        self.proven = False
        """Whether the server answered a PING, and so accepted this link's first SUBs."""
        self._options = options
        self._routes = routes
        self._owner = owner
        self._traffic = traffic
        self._parser = Parser()
        self._transport: Transport | None = None
        self._started = False
        self._greeted = False
        self._may_be_silent = not known_good and may_be_silent(server, options)
        # Before `start`: events for the handshake, and the future of whoever waits for one.
        self._early: deque[Event] = deque()
        self._arrival: asyncio.Future[None] | None = None
        # After `start`: a future for each unanswered PING; None for those of the timer.
        self._pings: deque[asyncio.Future[None] | None] = deque()
        self._unanswered = 0
        self._writing_paused = False
        self._owes_pong = False
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def tls(self) -> TLSState | None:
        """The TLS that protects the link; None in plain text."""
        return None if self._transport is None else self._transport.tls

    # -- opening -------------------------------------------------------------------------------

    async def open(self, dial: Dial) -> None:
        """Dial and shake hands. Raises a ConnectionFailure, ServerError or ProtocolError."""
        server = str(self.server)
        try:
            async with asyncio.timeout(self._options.connect_timeout) as deadline:
                await self._dial(dial)
                await self._shake_hands()
        except TimeoutError as error:
            self.abort()
            if not deadline.expired():
                raise errors.ServerRefusedError(
                    f"{server}: {reason_of(error)}.", server=server
                ) from error
            greeted = self._greeted or self._transport is None or not self._may_be_silent
            waited, received = self._options.connect_timeout, self._parser.pending
            raise no_answer(server, waited, greeted=greeted, received=received) from None
        except errors.ProtocolError as error:
            self.abort()
            if self._greeted:
                raise
            raise no_nats(server, error) from error
        except BaseException:
            self.abort()
            raise

    async def _dial(self, dial: Dial) -> None:
        server = str(self.server)
        try:
            self._transport = await dial(self.server, self)
        except (TimeoutError, errors.JetsparkError):
            raise
        except ssl.SSLError as error:
            raise tls_failure(server, error, self._options) from error
        except (OSError, ValueError) as error:
            raise errors.ServerRefusedError(
                f"No server at {server}: {reason_of(error)}.", server=server
            ) from error

    async def _shake_hands(self) -> None:
        steps = handshake(self._options, self.server, __version__)
        answer: Event | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as finished:
                self.info = finished.value
                return
            self._greeted = self._greeted or answer is not None
            answer = None
            match step:
                case Receive():
                    answer = await self._next_event()
                    self.info_in_clear &= not isinstance(answer, Info)
                case Send(data):
                    self.write(data)
                case StartTLS(hostname):
                    self.info_in_clear = self._greeted
                    await self._start_tls(hostname)

    async def _next_event(self) -> Event:
        while not self._early:
            if self.lost is not None:
                raise self.lost
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._early.popleft()

    async def _start_tls(self, hostname: str) -> None:
        server = str(self.server)
        context = self._options.make_ssl_context()
        assert self._transport is not None  # noqa: S101
        if self.lost is not None:
            raise self.lost
        if self._early:
            raise too_early(server, self._options)
        self._parser = Parser()
        try:
            await self._transport.start_tls(context, hostname)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise tls_failure(server, error, self._options) from error

    def abort(self) -> None:
        """End the link now."""
        if self._transport is not None:
            self._transport.abort()

    # -- living --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin dispatch and the PING timer."""
        self._started = True
        early, self._early = self._early, deque()
        self._dispatch(early)
        self._arm_timer()

    def bytes_received(self, chunk: memoryview) -> None:
        """Called by the transport."""
        if self.lost is not None or self._ended is not None:
            return  # while closing, bytes are read and discarded (see Transport.close)
        events = self._parser.feed(chunk)
        if self._options.trace:
            for line in received_lines(events):
                tracer.debug("<<- %s", line)
        if self._started:
            self._dispatch(events)
        else:
            self._early.extend(events)
            self._wake()
        if self._parser.error is not None:
            self.fail(self._parser.error)

    def _dispatch(self, events: deque[Event] | list[Event]) -> None:
        traffic = self._traffic
        for event in events:
            if not isinstance(event, tuple):
                self._control(event)
                continue
            sid, messages, size = event
            traffic.messages += len(messages)
            traffic.payload += size
            if (route := self._routes.get(sid)) is None:
                continue  # unsubscribed while the message was on its way
            if route.on_run is None or route.max_msgs:
                self._one_by_one(sid, messages)
                continue
            try:
                accepted = route.on_run(messages, size)
            except Exception as error:
                self._report(route, error)
                accepted = True  # it may have taken some, which must not be delivered twice
            if accepted:
                route.received += len(messages)
            else:
                self._one_by_one(sid, messages)

    def _one_by_one(self, sid: int, messages: list[MessageFrame]) -> None:
        for frame in messages:
            if (route := self._routes.get(sid)) is None:
                return  # unsubscribed by the previous message's handler
            route.received += 1
            try:
                route.handler(frame)
            except Exception as error:
                self._report(route, error)
            if route.received == route.max_msgs:
                self._owner.route_exhausted(route)

    def _report(self, route: Route, error: Exception) -> None:
        self._owner.error_reported(errors.user_error(f"The handler of {route.subject!r}", error))

    def _control(self, event: ControlEvent) -> None:
        match event:
            case Ping():
                # One PONG answers all PINGs, and a server that reads none may send any number.
                if self._writing_paused:
                    self._owes_pong = True
                else:
                    self._owner.enqueue(self, frames.PONG)
            case Pong():
                self._answered()
            case Info(document):
                try:
                    self.info = parse_info(document)
                except errors.ProtocolError as error:
                    self._owner.error_reported(error)
                else:
                    self.info_in_clear = False
                    self._owner.info_changed(self, self.info)
            case Err(text):
                problem, ends = meaning_of(text, str(self.server))
                if ends == "link":
                    self.fail(problem)
                else:
                    self._owner.error_reported(problem)

    # -- PING ----------------------------------------------------------------------------------

    def ping(self) -> asyncio.Future[None]:
        """A future of the PONG; ConnectionClosedError when the link ends before it."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings.append(answer)
        self._owner.enqueue(self, frames.PING)
        return answer

    def _answered(self) -> None:
        self._unanswered = 0
        self.proven = True
        if not self._pings:
            return  # an unsolicited PONG; harmless
        answer = self._pings.popleft()
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _arm_timer(self) -> None:
        if self.lost is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.ping_interval, self._check)

    def _check(self) -> None:
        if self._unanswered >= self._options.max_outstanding_pings:
            server = str(self.server)
            self.fail(
                errors.StaleConnectionError(
                    f"{server} did not answer {self._unanswered} PINGs.", server=server
                )
            )
            return
        self._unanswered += 1
        self._pings.append(None)
        self._owner.enqueue(self, frames.PING)
        self._arm_timer()

    # -- writing -------------------------------------------------------------------------------

    @property
    def writer(self) -> Callable[[bytes], None]:
        """`write` for an owner that stops when the session is lost."""
        if self._transport is None or self._options.trace:
            return self.write
        return self._transport.write

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport."""
        if self._transport is not None and self.lost is None:
            if self._options.trace:
                for line in sent_lines(data):
                    tracer.debug("->> %s", line)
            self._transport.write(data)

    def write_here(self, data: bytes) -> bool:
        """`write` in another thread; see `Transport.write_here`."""
        transport = self._transport
        if transport is None or self.lost is not None or self._options.trace:
            return False
        return transport.write_here(data)

    def pause_writing(self) -> None:
        """Called by the transport."""
        self._writing_paused = True
        self._owner.writing_paused(self, True)

    def resume_writing(self) -> None:
        """Called by the transport."""
        self._writing_paused = False
        self._owner.writing_paused(self, False)
        if self._owes_pong:
            self._owes_pong = False
            self._owner.enqueue(self, frames.PONG)

    # -- ending --------------------------------------------------------------------------------

    def fail(self, error: errors.JetsparkError) -> None:
        """End the link now, for this reason."""
        self._end(error)
        self.abort()

    def link_lost(self, error: Exception | None) -> None:
        """Called by the transport."""
        server = str(self.server)
        if isinstance(error, ssl.SSLError):
            self._end(tls_failure(server, error, self._options))
        elif error is not None:
            text = f"The connection to {server} broke: {reason_of(error)}."
            self._end(errors.BrokenSocketError(text, server=server))
        else:
            self._end(closed(server, greeted=self._greeted or not self._may_be_silent))
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _end(self, error: errors.JetsparkError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._timer is not None:
            self._timer.cancel()
        self._wake()
        for answer in self._pings:
            if answer is not None and not answer.done():
                answer.set_exception(_closed_before_pong(error))
        self._pings.clear()
        if self._started:
            self._owner.session_lost(self, error)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def close(self, timeout: float) -> bool:
        """Send what was written and end the link, without `session_lost`.

        Waits at most `timeout` seconds; returns whether the link ended in time.
        """
        self._started = False
        transport = self._transport
        if transport is None or self.lost is not None:
            return True
        self._ended = asyncio.get_running_loop().create_future()
        try:
            transport.close()
            done, _ = await asyncio.wait({self._ended}, timeout=min(CLOSE_GRACE_SECONDS, timeout))
            if not done and transport.unsent:
                done, _ = await asyncio.wait({self._ended}, timeout=timeout - CLOSE_GRACE_SECONDS)
            complete = bool(done) or not transport.unsent
        finally:
            self._end(errors.ConnectionClosedError(server=str(self.server)))
            transport.abort()
        return complete


def _closed_before_pong(cause: errors.JetsparkError) -> errors.ConnectionClosedError:
    error = errors.ConnectionClosedError(
        "The link was lost: the last publishes may not have arrived."
    )
    error.__cause__ = cause
    return error
