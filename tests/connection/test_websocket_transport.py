"""A client's WebSocket against a scripted one: PINGs, goodbyes, nonsense, back-pressure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest
from tests.support.scripted_server import Peer, ScriptedServer
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

import jetspark
from jetspark.connection.options import make_options
from jetspark.errors import BrokenSocketError

INFO = b'INFO {"server_id":"S","version":"2.99.0","headers":true,"max_payload":8388608}\r\n'


class WebSocketPeer:
    """One client's WebSocket, seen from the server."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.protocol = ServerProtocol()
        self.arrived: deque[Any] = deque()

    @classmethod
    async def accept(cls, server: ScriptedServer) -> Self:
        """The next connection, led through both handshakes."""
        made = cls(await server.accept())
        request = await made.event(Request)
        made.protocol.send_response(made.protocol.accept(request))
        made.protocol.send_binary(INFO)
        made.flush()
        received = b""
        while not received.endswith(b"PING\r\n"):
            received += (await made.event(Frame)).data
        made.send(b"PONG\r\n")
        return made

    def send(self, data: bytes) -> None:
        self.protocol.send_binary(data)
        self.flush()

    def flush(self) -> None:
        self.peer.send(b"".join(self.protocol.data_to_send()))

    async def event(self, kind: type[Any]) -> Any:
        """The next request or frame; None when the client has hung up."""
        while not self.arrived:
            data = await asyncio.wait_for(self.peer.reader.read(65536), 30)
            if not data:
                return None
            self.protocol.receive_data(data)
            self.arrived.extend(self.protocol.events_received())
        event = self.arrived.popleft()
        assert isinstance(event, kind)
        return event


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


class Connected:
    def __init__(self, url: str, **options: Any) -> None:
        self.events: asyncio.Queue[jetspark.ConnectionEvent] = asyncio.Queue()
        self.errors: asyncio.Queue[jetspark.JetsparkError] = asyncio.Queue()
        self.client = jetspark.Client(
            make_options(
                url.replace("nats:", "ws:"), reconnect_wait=0.01, reconnect_jitter=0, **options
            ),
            event_callback=self.events.put_nowait,
            error_callback=self.errors.put_nowait,
        )

    async def event(self, kind: type[Any]) -> Any:
        while not isinstance(event := await asyncio.wait_for(self.events.get(), 30), kind):
            pass
        return event

    async def __aenter__(self) -> Self:
        self.connecting = asyncio.create_task(self.client.connect())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.connecting


async def test_websocket_ping_is_answered_with_pong(server: ScriptedServer) -> None:
    async with Connected(server.url):
        peer = await WebSocketPeer.accept(server)
        peer.protocol.send_ping(b"are you there")
        peer.flush()
        pong = await peer.event(Frame)
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"are you there")


def say_goodbye(peer: WebSocketPeer) -> None:
    peer.protocol.send_close(1001, "going away")
    peer.flush()


def talk_nonsense(peer: WebSocketPeer) -> None:
    peer.peer.send(b"\xff" * 10)


@pytest.mark.parametrize(
    ("end", "reason"), [(say_goodbye, "closed the connection"), (talk_nonsense, "not WebSocket")]
)
async def test_websocket_close_frame_or_bad_frame_ends_link(
    server: ScriptedServer, end: Callable[[WebSocketPeer], None], reason: str
) -> None:
    async with Connected(server.url) as connected:
        peer = await WebSocketPeer.accept(server)
        await connected.connecting
        end(peer)
        lost = await connected.event(jetspark.Disconnected)
        assert isinstance(lost.error, BrokenSocketError)
        assert reason in str(lost.error)
        await WebSocketPeer.accept(server)
        await connected.event(jetspark.Reconnected)
        # Told once, whatever TCP says later.
        assert connected.errors.qsize() == 1


async def test_close_sends_websocket_close_frame(server: ScriptedServer) -> None:
    async with Connected(server.url) as connected:
        peer = await WebSocketPeer.accept(server)
        await connected.connecting
        await connected.client.publish("a", b"last")
        await connected.client.close()
        assert bytes((await peer.event(Frame)).data) == b"PUB a 4\r\nlast\r\n"
        assert (await peer.event(Frame)).opcode is Opcode.CLOSE
        assert await peer.event(Frame) is None


async def test_websocket_back_pressure_refuses_beyond_pending_size(server: ScriptedServer) -> None:
    async with Connected(server.url, pending_size=1 << 20) as connected:
        peer = await WebSocketPeer.accept(server)
        await connected.connecting
        with pytest.raises(jetspark.OutboundBufferError):
            for _ in range(200):
                connected.client.publish_nowait("a", b"x" * 500_000)
                await asyncio.sleep(0)
        peer.peer.reset()
        await connected.event(jetspark.Disconnected)
