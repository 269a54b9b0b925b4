"""Opens sessions to servers of the pool, and records the outcome there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from jetspark.connection.options import ConnectOptions
from jetspark.connection.pool import PooledServer, ServerPool
from jetspark.connection.session import Session
from jetspark.connection.transport import Dial
from jetspark.connection.urls import ServerURL
from jetspark.errors import ConfigError, JetsparkError, NoServersError, user_error

logger = logging.getLogger("jetspark")


class Connector:
    """`make` makes a new session for a server; `report` gets what the user's delay raises."""

    def __init__(
        self,
        options: ConnectOptions,
        dial: Dial,
        make: Callable[[ServerURL], Session],
        report: Callable[[JetsparkError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._dial = dial
        self._make = make
        self._report = report
        self.pool = ServerPool(
            options.urls(),
            wait=options.reconnect_wait,
            jitter=options.reconnect_jitter,
            max_attempts=options.max_reconnect_attempts,
            delay=self._ask_delay if options.reconnect_delay is not None else None,
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

    async def open_first(self) -> tuple[PooledServer, Session]:
        """Try each server once. Raises the only one's error, or NoServersError; ConfigError."""
        servers = self.pool.servers
        last: JetsparkError | None = None
        for server in servers:
            try:
                return server, await self.open(server)
            except JetsparkError as error:
                last = error
                logger.info("%s", error)
                # Files that cannot be read are the same for every server.
                if len(servers) == 1 or isinstance(error, ConfigError):
                    raise
        tried = ", ".join(str(server.url) for server in servers)
        raise NoServersError(f"No NATS server could be reached; tried {tried}.") from last

    def _ask_delay(self, attempts: int) -> float:
        assert self._options.reconnect_delay is not None  # noqa: S101
        try:
            return float(self._options.reconnect_delay(attempts))
        except Exception as error:
            self._report(user_error("reconnect_delay", error))
            return self._options.reconnect_wait
