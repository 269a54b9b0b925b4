"""Chooses the transport for a server's URL: the only place that distinguishes TCP and WebSocket."""

from __future__ import annotations

from jetspark.connection.options import ConnectOptions
from jetspark.connection.tcp_transport import tcp
from jetspark.connection.transport import Dial, Receiver, Transport
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket_transport import dial_websocket


def dialing(options: ConnectOptions, own: Dial | None) -> Dial:
    """A `Dial` for nats://, tls://, ws:// and wss:// over TCP, or over what the caller's `own`
    opens: a stream to the server that can be upgraded to TLS.
    """
    stream = own or tcp(options)

    async def dial(server: ServerURL, receiver: Receiver) -> Transport:
        if server.websocket:
            return await dial_websocket(server, receiver, options, stream)
        return await stream(server, receiver)

    return dial
