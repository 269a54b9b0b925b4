"""Carries connections between clients and a server on the loopback.

Proxies say what they do to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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

    async def _accepted(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, client)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            client.transport.abort()

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
            await asyncio.gather(*ways, return_exceptions=True)
            server.transport.abort()

    async def _end_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
