"""Keeps one logical link up: connects, reconnects, restores, buffers, closes.

Contract
- Every change of `ConnectionStatus` goes through `_enter`, which refuses those that are not in the
  table `TRANSITIONS`.
- One task, `_run`, opens all links: the first connect, reconnecting, moving off a lame duck. It is
  the only task of a connection; `close` ends it. Everything else runs in callbacks of the loop.
- On a new link the SUBs of all routes are written first, then what the outbox kept.
- A message is handed to at most one link; a frame that a link accepted in part is lost with it.
- A kept message that the new server does not accept (too large, or headers) would end the link
  again and again: it is dropped and reported.
- Publishing and subscribing are accepted while connecting and reconnecting; PING waits, or fails.
- Callbacks are called from the loop, never inside a change of state; what they raise is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import jetspark.errors as errors
from jetspark.connection import events
from jetspark.connection.events import TRANSITIONS, ConnectionEvent, ConnectionStatus
from jetspark.connection.options import ConnectOptions
from jetspark.connection.outbox import Outbox, report_unsent
from jetspark.connection.pool import PooledServer, PoolServer, ServerPool
from jetspark.connection.routes import Route, RouteTable
from jetspark.connection.session import ConnectionTraffic, Session
from jetspark.connection.transports import Dial, dialing
from jetspark.connection.urls import ServerURL
from jetspark.connection.waiting import start_task
from jetspark.wire.documents import ServerInfo
from jetspark.wire.kernel import MAX_MESSAGE

logger = logging.getLogger("jetspark")

MAX_LOGGED = 100
LOG_INTERVAL = 10.0
"""At most MAX_LOGGED errors are logged in so many seconds."""


class LogBudget:
    """Decides which errors are logged, since a server may report any number of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._count = 0

    def spend(self) -> bool:
        """Whether to log one more; says once that others follow, and then how many there were."""
        now = self._clock()
        if now >= self._until:
            if (left_out := self._count - MAX_LOGGED) > 0:
                logger.warning("%d more errors were not logged", left_out)
            self._until, self._count = now + LOG_INTERVAL, 0
        self._count += 1
        if self._count == MAX_LOGGED + 1:
            logger.warning(
                "%d errors within %g s; the next ones are only counted", MAX_LOGGED, LOG_INTERVAL
            )
        return self._count <= MAX_LOGGED


class Connector:
    """Opens sessions to servers of the pool, and records the outcome there.

    `make` makes a session for a server; `report` gets the errors of failed attempts and of the
    user's callables.
    """

    def __init__(
        self,
        options: ConnectOptions,
        dial: Dial,
        make: Callable[[ServerURL], Session],
        report: Callable[[errors.JetsparkError, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._dial = dial
        self._make = make
        self._report = report
        self._failure: errors.JetsparkError | None = None
        self.pool = ServerPool(
            options.urls(),
            wait=options.reconnect_wait,
            jitter=options.reconnect_jitter,
            max_attempts=options.max_reconnect_attempts,
            delay=self._ask_delay if options.reconnect_delay is not None else None,
            choose=self._ask_choice if options.choose_server is not None else None,
            retry_auth_errors=options.retry_auth_errors,
            randomize=options.randomize,
            clock=clock,
        )

    async def open(self, server: PooledServer) -> Session:
        """Make one attempt at one server.

        Raises the errors of `Session.open`, and ConfigError, which does not count against the
        server.
        """
        self.pool.attempt(server)
        session = self._make(server.url)
        try:
            await session.open(self._dial)
            if session.lost is not None:
                raise session.lost
        except errors.ConfigError:
            raise
        except errors.JetsparkError as error:
            self.pool.failed(server, error)
            raise
        self.pool.succeeded(server)
        return session

    async def open_first(self, wake: asyncio.Event) -> tuple[PooledServer, Session]:
        """Connect as the option `first_connect` says; `wake`: see `open_any`.

        Raises the error of the only server, NoServersError, ConfigError.
        """
        if self._options.first_connect == "once":
            return await self._open_once()
        if (opened := await self.open_any(wake, first=True)) is None:
            raise _none("No NATS server is left to try", self._failure)
        return opened

    async def _open_once(self) -> tuple[PooledServer, Session]:
        servers = self.pool.servers
        untried = list(servers)
        last: errors.JetsparkError | None = None
        while untried:
            server = self.pool.choose(untried)
            untried.remove(server)
            try:
                return server, await self.open(server)
            except errors.JetsparkError as error:
                last = error
                logger.info("%s", error)
                # Unreadable files would be the same for every server.
                if len(servers) == 1 or isinstance(error, errors.ConfigError):
                    raise
        tried = ", ".join(str(server.url) for server in servers)
        raise _none(f"No NATS server could be reached; tried {tried}", last)

    async def open_any(
        self, wake: asyncio.Event, *, first: bool = False
    ) -> tuple[PooledServer, Session] | None:
        """Try servers until one accepts; None when none is left. Failures are reported.

        `wake` ends a wait early, since another server may be due. `first`: raises ConfigError,
        since unreadable files would be the same for every server. A repeated error is logged as
        information, or a long outage would fill the log.
        """
        seen: set[str] = set()
        while (picked := self.pool.next()) is not None:
            server, delay = picked
            if delay > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), delay)
                    wake.clear()
                    continue
            try:
                return server, await self.open(server)
            except errors.JetsparkError as error:
                if first and isinstance(error, errors.ConfigError):
                    raise
                self._failure = error
                self._report(error, logging.INFO if str(error) in seen else logging.WARNING)
                seen.add(str(error))
        return None

    def _ask_choice(self, servers: tuple[PoolServer, ...]) -> PoolServer | None:
        assert self._options.choose_server is not None  # noqa: S101
        try:
            chosen = self._options.choose_server(servers)
            if chosen is not None and chosen not in servers:
                raise errors.ConfigError("choose_server must return one of its servers.")
        except Exception as error:
            self._report(errors.user_error("choose_server", error), logging.WARNING)
            return None
        return chosen

    def _ask_delay(self, attempts: int) -> float:
        assert self._options.reconnect_delay is not None  # noqa: S101
        try:
            return float(self._options.reconnect_delay(attempts))
        except Exception as error:
            self._report(errors.user_error("reconnect_delay", error), logging.WARNING)
            return self._options.reconnect_wait


def _none(problem: str, last: errors.JetsparkError | None) -> errors.NoServersError:
    """The error with the reason in its text: events and the log show no `__cause__`."""
    error = errors.NoServersError(
        f"{problem}." if last is None else f"{problem}; the last one failed: {last}"
    )
    error.__cause__ = last
    return error


CLOSE_TIMEOUT = 2.0
"""Seconds that closing waits for buffered bytes to leave."""


class _Link(NamedTuple):
    server: PooledServer
    session: Session


class Supervisor:
    """`on_event` and `on_error` are called during changes of state, so they must only schedule."""

    def __init__(
        self,
        options: ConnectOptions,
        *,
        on_event: Callable[[ConnectionEvent], None],
        on_error: Callable[[errors.JetsparkError], None],
        dial: Dial | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._on_event = on_event
        self.on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._connector = Connector(
            options,
            dialing(options, dial),
            lambda url: Session(
                url, options, self.routes.by_sid, self, self.traffic, self.info is not None
            ),
            self.report,
            clock,
        )
        self.pool = self._connector.pool
        self.outbox = Outbox(options.pending_size, self._loop)
        self.routes = RouteTable(self.outbox.put_control, self.report)
        self.traffic = ConnectionTraffic()
        self.status = ConnectionStatus.CLOSED
        self.last_error: errors.JetsparkError | None = None
        self._log_budget = LogBudget()
        self.info: ServerInfo | None = None
        """INFO of the present server, or of the last one while there is none."""
        self.max_payload = MAX_MESSAGE
        """Maximum payload in bytes, from the last INFO."""
        self._link: _Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        """Wakes the task."""
        self._settled = asyncio.Event()
        """Set while connected or closed."""
        self._closing: asyncio.Task[None] | None = None

    # -- state ---------------------------------------------------------------------------------

    @property
    def present(self) -> Session | None:
        """The present link; None without one."""
        return None if self._link is None else self._link.session

    def _enter(self, status: ConnectionStatus) -> None:
        if status not in TRANSITIONS[self.status]:
            raise AssertionError(f"{self.status} may not become {status}")
        self.status = status
        if status in (ConnectionStatus.CONNECTED, ConnectionStatus.CLOSED):
            self._settled.set()
        else:
            self._settled.clear()

    def require_open(self) -> None:
        """Raise ConnectionClosedError when closed."""
        if self.status is ConnectionStatus.CLOSED:
            raise errors.ConnectionClosedError from self.last_error

    def report(self, error: errors.JetsparkError, level: int = logging.WARNING) -> None:
        """To last_error, the log and the error callback."""
        self.traffic.slow_consumers += isinstance(error, errors.SlowConsumerError)
        if self.status is not ConnectionStatus.CLOSED:  # afterwards last_error says why it closed
            self.last_error = error
        if self._log_budget.spend():
            logger.log(level, "%s", error)
        self.on_error(error)

    # -- connecting ----------------------------------------------------------------------------

    async def connect(self) -> None:
        """See `Client.connect`. A closed connection stays closed."""
        if self.status is ConnectionStatus.CLOSED:
            if self._task or self._closing:
                raise errors.ConnectionClosedError(
                    "The connection is closed for good: create a new client with connect()."
                ) from self.last_error
            self._enter(ConnectionStatus.CONNECTING)
            self.outbox.open()
            self._task = start_task(self._run(), name="jetspark-link")
            try:
                await self._connected()
            except asyncio.CancelledError:
                await self.close()
                raise
        else:
            await self._connected()

    async def _connected(self) -> None:
        """Wait for the first connect, except in the background. Raises its error."""
        if self._options.first_connect == "background":
            return
        if self.status is ConnectionStatus.CONNECTING:
            await self._settled.wait()
        if self.status is ConnectionStatus.CLOSED:
            raise self.last_error or errors.ConnectionClosedError()

    async def _run(self) -> None:
        try:
            self._adopt(_Link(*await self._connector.open_first(self._wake)))
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self.status is ConnectionStatus.CLOSED:
                    return
                if self.status is ConnectionStatus.RECONNECTING:
                    if (opened := await self._connector.open_any(self._wake)) is None:
                        self._shut(self.last_error)
                        return
                    self._adopt(_Link(*opened))
                elif self.status is ConnectionStatus.CONNECTED and self.info and self.info.ldm:
                    await self._move_off()
        except errors.JetsparkError as error:
            self._shut(error)
        except Exception as error:
            # Even after a bug, callers must not wait for ever.
            logger.exception("The connection's task failed")
            self._shut(errors.user_error("The connection's task", error))

    def _adopt(self, link: _Link) -> None:
        """Use a new link. Must not await: nothing may happen in between."""
        first = self.status is ConnectionStatus.CONNECTING
        session = link.session
        self._link = link
        self._take_info(session.info)
        self.last_error = None
        session.write(self.routes.replay())
        self._enter(ConnectionStatus.CONNECTED)
        dropped = self.outbox.keep(session.info)
        self.outbox.attach(session.writer, session.write_here)
        url = str(session.server)
        if first:
            self._on_event(events.Connected(url))
        else:
            self.traffic.reconnects += 1
            self._on_event(events.Reconnected(url))
        self._learn(link)
        session.start()
        if not first:
            self.routes.tell_reconnect()
        for publish in dropped:
            self.routes.drop(publish)

    # -- leaving a server ----------------------------------------------------------------------

    async def _move_off(self) -> None:
        """Open the next link before the lame duck ends this one; stay if there is none."""
        old = self._link
        if old is None:
            return
        untried = [server for server in self.pool.servers if server is not old.server]
        while untried:
            candidate = self.pool.choose(untried)
            untried.remove(candidate)
            try:
                session = await self._connector.open(candidate)
            except errors.JetsparkError as error:
                self.report(error)
                continue
            try:
                if self._link is old:
                    await self._leave(old)
            except BaseException:
                session.abort()
                raise
            # In the meantime, the old link, the new one or the whole connection may have ended.
            if self.status is ConnectionStatus.RECONNECTING and session.lost is None:
                self._adopt(_Link(candidate, session))
            else:
                session.abort()
                self._wake.set()
            return

    async def _leave(self, link: _Link) -> None:
        """End the present link on purpose; nothing that was written is lost."""
        self.outbox.flush(anyway=True)
        self._detach()
        self.pool.lost(link.server)
        self._enter(ConnectionStatus.RECONNECTING)
        self._on_event(events.Disconnected(str(link.session.server), None))
        self.routes.tell_disconnect()
        await self._hang_up(link.session)

    async def force_reconnect(self) -> None:
        """See `Client.force_reconnect`."""
        self.require_open()
        self.pool.hurry()
        try:
            if self.status is ConnectionStatus.CONNECTED and self._link:
                await self._leave(self._link)
        finally:
            self._wake.set()
        await self.linked()

    # -- called by the session (SessionOwner) --------------------------------------------------

    def enqueue(self, session: Session, frame: bytes) -> None:
        """Send a control frame over the present link."""
        if session is self.present:
            self.outbox.put_control(frame)

    def writing_paused(self, session: Session, paused: bool) -> None:
        """The present link asks to pause writing, or allows it again."""
        if session is self.present:
            (self.outbox.pause if paused else self.outbox.resume)()

    def info_changed(self, session: Session, info: ServerInfo) -> None:
        """INFO came again: servers joined or left, or this one is about to stop."""
        link = self._link
        if link is None or session is not link.session:
            return
        was_leaving = self.info is not None and self.info.ldm
        self._take_info(info)
        self._learn(link)
        if info.ldm:
            if not was_leaving:
                logger.info("%s is in lame-duck mode", session.server)
                self._on_event(events.LameDuck(str(session.server)))
            self._wake.set()

    def _take_info(self, info: ServerInfo) -> None:
        self.info = info
        self.max_payload = info.max_payload

    def replace_servers(self, urls: Iterable[ServerURL]) -> None:
        """Use these servers from the next attempt on; the present link stays."""
        self.pool.replace(urls)
        self._wake.set()

    def _learn(self, link: _Link) -> None:
        session = link.session
        urls = [] if self._options.ignore_discovered_servers else session.info.connect_urls
        secure, in_clear = session.tls is not None, session.info_in_clear
        if new := self.pool.learn(urls, link.server, secure=secure, in_clear=in_clear):
            self._on_event(events.ServersDiscovered(tuple(new)))

    def error_reported(self, error: errors.JetsparkError) -> None:
        """An error that ends one subscription at most, not the link."""
        if (route := self.routes.find_refused(error)) is not None:
            self.routes.refuse(route, error)
        elif isinstance(error, errors.PermissionsError):
            self.routes.tell_refused(error.subject, error)
        self.report(error)

    def route_exhausted(self, route: Route) -> None:
        """The route got its last message."""
        self.routes.end(route, None)

    def session_lost(self, session: Session, error: errors.JetsparkError) -> None:
        """The link ended by itself."""
        link = self._link
        if link is None or session is not link.session:
            return
        self.pool.lost(link.server, error)
        self._detach()
        # Would a replayed SUB end the next link too? The first time, it may have been a publish,
        # which is gone with the link.
        would_repeat = isinstance(error, errors.ControlLineError) and not session.proven
        if would_repeat and (route := self.routes.longest()) is not None:
            self.routes.end(route, error)
        self.report(error)
        self._on_event(events.Disconnected(str(session.server), error))
        if self.status is ConnectionStatus.DRAINING or not self._options.reconnect:
            self._shut(error)
            return
        self._enter(ConnectionStatus.RECONNECTING)
        self.routes.tell_disconnect()
        self._wake.set()

    def _detach(self) -> None:
        self.outbox.detach()
        self._link = None

    # -- on behalf of the client ---------------------------------------------------------------

    def add_route(self, route: Route, *, while_draining: bool = False) -> None:
        """Subscribe now, or on the next link. Raises ConnectionClosedError."""
        self.require_open()
        if self.status is ConnectionStatus.DRAINING and not while_draining:
            raise errors.ConnectionClosedError("The connection is draining: no new subscriptions.")
        self.routes.add(route)

    async def linked(self) -> None:
        """Wait for a link. Raises ConnectionClosedError; ConnectionLostError if none comes."""
        self.require_open()
        while self._link is None:
            await self._settled.wait()
            if self.status is ConnectionStatus.CLOSED:
                raise self._closed_by(self.last_error)

    async def ping(self) -> None:
        """A round trip. Raises ConnectionClosedError without a link, and when the link is lost."""
        if self._link is None:
            raise errors.ConnectionClosedError(f"There is no link to ping ({self.status}).")
        await self._link.session.ping()

    # -- ending --------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Refuse new subscriptions, and end with the link, from here on."""
        self._enter(ConnectionStatus.DRAINING)
        self._on_event(events.Draining())

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Send buffered publishes, end the link, fail pending calls. May be called again.

        `timeout`: seconds for what is buffered. Completes even when the caller is cancelled.
        """
        if self._closing is None or self._closing.cancelled():
            closing = self._close(max(min(timeout, CLOSE_TIMEOUT), 0))
            self._closing = start_task(closing, name="jetspark-close")
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if session := self.present:
            self.outbox.flush(anyway=True)
        self._shut(None)
        if session:
            await self._hang_up(session, timeout)

    async def _hang_up(self, session: Session, timeout: float = CLOSE_TIMEOUT) -> None:
        if not await session.close(timeout):
            logger.warning("Some published messages could not be sent to %s", session.server)

    @staticmethod
    def _closed_by(error: errors.JetsparkError | None) -> errors.ConnectionClosedError:
        """The error of calls that wait; `error`: why the link is lost, None: closed on purpose."""
        closed = errors.ConnectionClosedError() if error is None else errors.ConnectionLostError()
        closed.__cause__ = error
        return closed

    def _shut(self, error: errors.JetsparkError | None) -> None:
        """End at once: from here on every call raises ConnectionClosedError."""
        if self.status is ConnectionStatus.CLOSED:
            return
        if self._link is not None:
            self._detach()
        self._enter(ConnectionStatus.CLOSED)
        report_unsent(self.outbox.size, self.on_error)
        self.outbox.close(error)
        # None after a close on purpose, to tell it from a lost connection.
        self.last_error = error
        closed = self._closed_by(error)
        for route in self.routes:
            self.routes.end(route, closed)
        self._on_event(events.Closed(error))
        self._wake.set()
