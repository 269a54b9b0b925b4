"""The calls of a client that ask the server for a PONG."""

from __future__ import annotations

import asyncio
import time

from jetspark.arguments import checked
from jetspark.client.request_calls import seconds_of
from jetspark.connection.options import ConnectOptions
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import RequestTimeoutError
from jetspark.timestamps import Seconds


@checked
class RoundTrips:
    """Mixed into the client."""

    options: ConnectOptions
    _link: Supervisor

    def check_loop(self) -> None:
        """Raises ConfigError in another event loop or thread than the client's."""
        raise NotImplementedError

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Return when the server has processed everything published before.

        While the client is connecting or reconnecting it waits for the link. `timeout` in seconds,
        default: request_timeout. Raises RequestTimeoutError, ConnectionClosedError when the client
        is closed or the link is lost meanwhile (`status` tells which: then it reconnects, and what
        was sent over the lost link may not have arrived), BadTimeoutError, BadTimeError.
        """
        await self._ping(seconds_of(timeout, self.options), wait=True)

    async def rtt(self, timeout: Seconds | None = None) -> float:
        """Seconds of one round trip to the server.

        `timeout` in seconds, default: request_timeout. Raises RequestTimeoutError,
        ConnectionClosedError when there is no link or it is lost meanwhile, BadTimeoutError,
        BadTimeError.
        """
        start = time.perf_counter()
        await self._ping(seconds_of(timeout, self.options), wait=False)
        return time.perf_counter() - start

    async def _ping(self, limit: float, *, wait: bool) -> None:
        self.check_loop()
        try:
            async with asyncio.timeout(limit):
                if wait:
                    await self._link.linked()
                await self._link.ping()
        except TimeoutError:
            raise RequestTimeoutError(
                f"There was no link to a server within {limit:g} s."
                if self._link.present is None
                else f"The server did not answer a PING within {limit:g} s."
            ) from None
