"""Opens sessions to servers of the pool, and records the outcome there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from jetspark.connection.callables import answer_of
from jetspark.connection.options import ConnectOptions
from jetspark.connection.pool import PooledServer, ServerPool
from jetspark.connection.pool_server import PoolServer
from jetspark.connection.session import Session
from jetspark.connection.transport import Dial
from jetspark.connection.urls import ServerURL
from jetspark.errors import ConfigError, JetsparkError, NoServersError, user_error

logger = logging.getLogger("jetspark")


class Connector:
    """`make` makes a new session for a server; `report` gets failed attempts and
    what the user's callables raise."""

    def __init__(
        self,
        options: ConnectOptions,
        dial: Dial,
        make: Callable[[ServerURL], Session],
        report: Callable[[JetsparkError, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._dial = dial
        self._make = make
        self._report = report
        self._failure: JetsparkError | None = None
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
        """One attempt at one server. A failure is recorded in the pool and raised.

        Raises what `Session.open` raises, and ConfigError, which does not count against the server.
        """
        self.pool.attempt(server)
        session = self._make(server.url)
        try:
            await session.open(self._dial)
            if session.lost is not None:
                raise session.lost
        except ConfigError:
            raise
        except JetsparkError as error:
            self.pool.failed(server, error)
            raise
        self.pool.succeeded(server)
        return session

    async def open_first(self, wake: asyncio.Event) -> tuple[PooledServer, Session]:
        """As the option `first_connect` says. Raises the only one's error, or NoServersError;
        ConfigError. `wake`: as for `open_any`."""
        if self._options.first_connect == "once":
            return await self._open_once()
        if (opened := await self.open_any(wake, first=True)) is None:
            raise _none("No NATS server is left to try", self._failure)
        return opened

    async def _open_once(self) -> tuple[PooledServer, Session]:
        servers = self.pool.servers
        untried = list(servers)
        last: JetsparkError | None = None
        while untried:
            server = self.pool.choose(untried)
            untried.remove(server)
            try:
                return server, await self.open(server)
            except JetsparkError as error:
                last = error
                logger.info("%s", error)
                # Files that cannot be read are the same for every server.
                if len(servers) == 1 or isinstance(error, ConfigError):
                    raise
        tried = ", ".join(str(server.url) for server in servers)
        raise _none(f"No NATS server could be reached; tried {tried}", last)

    async def open_any(
        self, wake: asyncio.Event, *, first: bool = False
    ) -> tuple[PooledServer, Session] | None:
        """Try servers until one accepts; None when none is left. Failures are reported.

        `wake` ends a wait for a server early: another one may be due. `first`: raises ConfigError,
        since files that cannot be read are the same for every server. What is reported again is
        only information in the log: a long outage would fill it.
        """
        said: set[str] = set()
        while (picked := self.pool.next()) is not None:
            server, delay = picked
            if delay > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), delay)
                    wake.clear()
                    continue
            try:
                return server, await self.open(server)
            except JetsparkError as error:
                if first and isinstance(error, ConfigError):
                    raise
                self._failure = error
                self._report(error, logging.INFO if str(error) in said else logging.WARNING)
                said.add(str(error))
        return None

    def _ask_choice(self, servers: tuple[PoolServer, ...]) -> PoolServer | None:
        assert self._options.choose_server is not None  # noqa: S101
        try:
            chosen = answer_of("choose_server", self._options.choose_server, servers)
            if chosen is not None and chosen not in servers:
                raise ConfigError("choose_server must return one of the servers that it was given.")
        except Exception as error:
            self._report(user_error("choose_server", error), logging.WARNING)
            return None
        return chosen

    def _ask_delay(self, attempts: int) -> float:
        assert self._options.reconnect_delay is not None  # noqa: S101
        try:
            return float(answer_of("reconnect_delay", self._options.reconnect_delay, attempts))
        except Exception as error:
            self._report(user_error("reconnect_delay", error), logging.WARNING)
            return self._options.reconnect_wait


def _none(what: str, last: JetsparkError | None) -> NoServersError:
    """The error with the reason in its text: events and the log show no `__cause__`."""
    error = NoServersError(f"{what}." if last is None else f"{what}; the last one failed: {last}")
    error.__cause__ = last
    return error
