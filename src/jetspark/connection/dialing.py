"""Chooses the transport for a server's URL: the only place that distinguishes TCP and WebSocket."""

from __future__ import annotations

from jetspark.connection.options import ConnectOptions
from jetspark.connection.transport import Dial, Receiver, Transport
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket_transport import dial_websocket


def dialing(options: ConnectOptions, stream: Dial) -> Dial:
    """A `Dial` for nats://, tls://, ws:// and wss:// over whatever `stream` opens.

    `stream` is TCP unless a caller brings its own: a way to the server that carries bytes both
    ways and can be upgraded to TLS, such as one through a proxy.
    """

    async def dial(server: ServerURL, receiver: Receiver) -> Transport:
        if server.websocket:
            return await dial_websocket(server, receiver, options, stream)
        return await stream(server, receiver)

    return dial
