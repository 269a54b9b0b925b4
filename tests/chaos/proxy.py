"""A TCP proxy on the loopback between clients and a server, which can be made to misbehave.

A thread of its own runs it; all methods may be called from any other one and have taken effect
when they return. A single nats-server tells clients no other address, so they stay behind it; in
a cluster start the servers with `cluster { no_advertise: true }`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

from tests.support.ports import free_port
from tests.support.relay import CHUNK, Relay, Way

T = TypeVar("T")

_TICK = 0.02  # seconds between the pieces of a slow link


class _Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writers = client, server
        self.dead = False
        """A half-open connection never carries a byte again, whatever becomes of the network."""

    def reset(self) -> None:
        for writer in self.writers:
            with suppress(OSError, RuntimeError):
                writer.transport.abort()


class Proxy(Relay):
    """Made to misbehave by its methods, until `heal`."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.port = free_port()
        self.connections = 0
        """Accepted so far."""
        self.corrupted = 0
        """How often what `corrupt` was given has changed something."""
        self._links: set[_Link] = set()
        self._half_open = False
        self._rate: int | None = None
        self._spoil: Callable[[bytes], bytes] | None = None
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    # -- faults --------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset all connections; how many there were. New ones are welcome."""
        return self._do(self._cut)

    def refuse(self) -> None:
        """Reset all connections and accept no new ones, until `heal`."""

        def act() -> None:
            self._stop_listening()
            self._cut()

        self._do(act)

    def half_open(self) -> None:
        """Swallow all bytes, both ways, without closing anything; connections of this time stay
        dead after `heal`, as they would with a router that has forgotten them."""

        def act() -> None:
            self._half_open = True
            for link in self._links:
                link.dead = True

        self._do(act)

    def slow(self, bytes_per_second: int | None) -> None:
        """Carry only so much towards the client on each connection; None: as fast as it goes."""
        self._rate = bytes_per_second

    def corrupt(self, spoil: Callable[[bytes], bytes]) -> None:
        """Pass each piece from the server through `spoil`, until it has changed one."""
        self._spoil = spoil

    def heal(self) -> None:
        """The network is well again: listens, carries, at full speed, unchanged."""
        self._half_open, self._rate, self._spoil = False, None, None
        if self._server is None:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    # -- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, act: Callable[[], T]) -> T:
        async def call() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    async def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._server = await asyncio.start_server(self._accepted, sock=listener)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _cut(self) -> int:
        count = len(self._links)
        for link in self._links:
            link.reset()
        return count

    async def _close(self) -> None:
        self._stop_listening()
        self._cut()
        await self._end_all()

    # -- carrying ------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        super()._accepted(reader, client)

    def _ways(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> tuple[Way, Way]:
        link = _Link(client, server)
        link.dead = self._half_open
        self._links.add(link)
        return partial(self._pump, link, down=False), partial(self._pump, link, down=True)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool
    ) -> None:
        try:
            while data := await reader.read(self._piece()):
                if link.dead:
                    continue
                if down:
                    data = self._spoiled(data)
                    if self._rate is not None:
                        await asyncio.sleep(len(data) / self._rate)
                writer.write(data)
                await writer.drain()
        finally:
            self._links.discard(link)

    def _piece(self) -> int:
        return CHUNK if self._rate is None else max(int(self._rate * _TICK), 64)

    def _spoiled(self, data: bytes) -> bytes:
        if self._spoil is None:
            return data
        spoiled = self._spoil(data)
        if spoiled != data:
            self.corrupted += 1
            self._spoil = None
        return spoiled
