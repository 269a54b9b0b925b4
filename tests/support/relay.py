"""Carries connections between clients and a server on the loopback.

Proxies say what they do to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

Way: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CHUNK: Final = 1 << 16


class Relay:
    """In front of 127.0.0.1:`target`; clients connect to `url`."""

    port: int

    def __init__(self, target: int) -> None:
        self.target = target
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _ways(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> tuple[Way, Way]:
        """How the bytes of a new connection go to the server, and to the client."""
        raise NotImplementedError

    def _accepted(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """No coroutine: its task may be cancelled before its first step, which closes nothing."""
        task = asyncio.ensure_future(self._carry(reader, client))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, client))

    def _ended(self, client: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        client.transport.abort()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):
            raise error

    async def _carry(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_connection("127.0.0.1", self.target)
        up, down = self._ways(client, server)
        ways = [
            asyncio.ensure_future(up(reader, server)),
            asyncio.ensure_future(down(from_server, client)),
        ]
        try:
            # A connection whose one half ends, ends.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            found = await asyncio.gather(*ways, return_exceptions=True)
            server.transport.abort()
        for error in found:
            if isinstance(error, Exception) and not isinstance(error, OSError):
                raise error  # a mistake of the test's, which would look like a broken link

    async def _end_all(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
