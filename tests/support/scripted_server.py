"""A peer that sends exactly what a test says: for bytes that no real server will send."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, Self

from jetspark import Client
from jetspark.connection.options import make_options

WITHIN = 5.0  # seconds


class Peer:
    """One client's connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def send_info(self, **fields: Any) -> None:
        info = {"server_id": "S", "version": "2.99.0", "headers": True, "max_payload": 1048576}
        self.send(b"INFO " + json.dumps(info | fields).encode() + b"\r\n")

    async def line(self) -> bytes:
        """The next line, without its end; b"" when the client has closed."""
        line = await asyncio.wait_for(self.reader.readline(), WITHIN)
        return line.rstrip(b"\r\n")

    async def expect(self, *lines: bytes) -> None:
        """The next lines are these."""
        for expected in lines:
            line = await self.line()
            assert line == expected, f"{line!r} instead of {expected!r}"

    async def shake_hands(self, **info: Any) -> dict[str, Any]:
        """INFO, CONNECT, PING, PONG; returns the CONNECT document."""
        self.send_info(**info)
        connect = await self.line()
        await self.expect(b"PING")
        self.send(b"PONG\r\n")
        document: dict[str, Any] = json.loads(connect.removeprefix(b"CONNECT "))
        return document

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """End the connection with RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class ScriptedServer:
    """`async with ScriptedServer() as server: peer = await server.accept()`."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[Peer] = asyncio.Queue()
        self._peers: list[Peer] = []
        self.url = ""
        self.port = 0

    async def accept(self) -> Peer:
        """The next connection."""
        return await asyncio.wait_for(self._arrived.get(), WITHIN)

    async def client(
        self, url: str = "", **options: Any
    ) -> tuple[Client, asyncio.Task[None], Peer]:
        """A client, how it connects, and its connection before anything is said."""
        client = Client(make_options(url or self.url, **options))
        connecting = asyncio.create_task(client.connect())
        return client, connecting, await self.accept()

    async def welcome(self, **info: Any) -> Peer:
        """The next connection, after its handshake."""
        peer = await self.accept()
        await peer.shake_hands(**info)
        return peer

    def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._peers.append(peer)
        self._arrived.put_nowait(peer)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._arrive, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self._peers:
            peer.writer.transport.abort()
        await self._server.wait_closed()
