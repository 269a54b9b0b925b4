"""Chooses the socket for a server's URL: `connection.dialing` for blocking links."""

from __future__ import annotations

import socket
from typing import Protocol

from jetspark.bulk.blocking_websocket import open_websocket
from jetspark.bulk.sockets import open_socket
from jetspark.connection.opening import reason_of, tls_failure
from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.errors import (
    BrokenSocketError,
    ConnectTimeoutError,
    TLSError,
)


class SocketLike(Protocol):
    """The methods of a socket, or of a `BlockingWebSocket`, that a link calls."""

    def settimeout(self, seconds: float, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def close(self) -> None: ...


def dial(options: ConnectOptions, server: ServerURL) -> SocketLike:
    """TCP for nats:// and tls:// (TLS follows in the handshake); a WebSocket for ws and wss.

    Raises ConnectTimeoutError, ServerRefusedError, BrokenSocketError, TLSError; ConfigError for
    unusable TLS files and without the library for WebSockets.
    """
    sock = open_socket(options, server)
    return _websocket(sock, options, server) if server.websocket else sock


def start_tls(
    sock: SocketLike, options: ConnectOptions, server: ServerURL, hostname: str
) -> socket.socket:
    """TLS over a socket, its certificate verified against `hostname`.

    Raises TLSError; ConfigError for unusable TLS files.
    """
    context = options.make_ssl_context()
    if not isinstance(sock, socket.socket):
        raise TLSError("TLS is below a WebSocket: the URL must be wss://.", server=str(server))
    try:
        return context.wrap_socket(sock, server_hostname=hostname)
    except (OSError, ValueError) as error:  # ssl.SSLError; ValueError for an impossible host name
        raise tls_failure(str(server), error, options) from error


def broken(server: str, error: OSError | None) -> BrokenSocketError:
    """The error for a socket that failed, or (None) that the server closed."""
    reason = "closed by the server" if error is None else reason_of(error)
    return BrokenSocketError(f"The connection to {server} broke: {reason}.", server=server)


def _websocket(sock: socket.socket, options: ConnectOptions, server: ServerURL) -> SocketLike:
    try:
        if server.secure:
            hostname = options.tls_hostname_of(server)
            sock = start_tls(sock, options, server, hostname)
        return open_websocket(sock, options, server)
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise ConnectTimeoutError(
                f"{server} did not open a WebSocket within {options.connect_timeout:g} s.",
                server=str(server),
            ) from None
        if isinstance(error, OSError):
            raise broken(str(server), error) from error
        raise
