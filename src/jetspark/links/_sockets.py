"""Opens the socket of a blocking link: TCP, TLS or a WebSocket, directly or through a proxy."""

from __future__ import annotations

import socket
from typing import Protocol

import jetspark.errors as errors
from jetspark.connection.opening import Attempts, call_dialer, reason_of, tls_failure
from jetspark.connection.options import ConnectOptions
from jetspark.connection.proxy import Proxy, ask_proxy, following
from jetspark.connection.urls import ServerURL
from jetspark.links._websocket import open_websocket


class SocketLike(Protocol):
    """The methods of a socket, or of a `BlockingWebSocket`, that a link calls."""

    def settimeout(self, seconds: float, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def close(self) -> None: ...


def dial(options: ConnectOptions, server: ServerURL) -> SocketLike:
    """Open the socket of a link: TCP for nats:// and tls:// URLs, a WebSocket for ws:// and wss://.

    TLS for tls:// follows later, in the handshake of NATS. Raises ConnectTimeoutError,
    ServerRefusedError, BrokenSocketError, TLSError; ConfigError for unusable TLS files and without
    the library for WebSockets.
    """
    sock = open_socket(options, server)
    return _start_websocket(sock, options, server) if server.websocket else sock


def start_tls(
    sock: SocketLike, options: ConnectOptions, server: ServerURL, hostname: str
) -> socket.socket:
    """Start TLS over a socket, and verify the certificate against `hostname`.

    Raises TLSError; ConfigError for unusable TLS files.
    """
    context = options.make_ssl_context()
    if not isinstance(sock, socket.socket):
        raise errors.TLSError(
            "TLS is below a WebSocket: the URL must be wss://.", server=str(server)
        )
    try:
        return context.wrap_socket(sock, server_hostname=hostname)
    except (OSError, ValueError) as error:  # ssl.SSLError; ValueError for an impossible host name
        raise tls_failure(str(server), error, options) from error


def broken_connection(server: str, error: OSError | None) -> errors.BrokenSocketError:
    """The error for a socket that failed or, with None, that the server closed."""
    reason = "closed by the server" if error is None else reason_of(error)
    return errors.BrokenSocketError(f"The connection to {server} broke: {reason}.", server=server)


def _start_websocket(sock: socket.socket, options: ConnectOptions, server: ServerURL) -> SocketLike:
    """Open a WebSocket over a connected socket, for wss:// with TLS below it.

    Closes the socket on failure, and raises as `dial`.
    """
    try:
        if server.secure:
            hostname = options.tls_hostname_of(server)
            sock = start_tls(sock, options, server, hostname)
        return open_websocket(sock, options, server)
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise errors.ConnectTimeoutError(
                f"{server} did not open a WebSocket within {options.connect_timeout:g} s.",
                server=str(server),
            ) from None
        if isinstance(error, OSError):
            raise broken_connection(str(server), error) from error
        raise


def open_socket(options: ConnectOptions, server: ServerURL) -> socket.socket:
    """Connect to the server by TCP, directly or through the proxy, within `connect_timeout`.

    Raises ConnectTimeoutError, ServerRefusedError; JetsparkError for a dialer that fails.
    """
    proxy, timeout = options.proxy_server, options.connect_timeout
    try:
        if proxy is None:
            return _connect_directly(options, server.host, server.port)
        sock = _connect_directly(options, proxy.host, proxy.port)
        try:
            sock.settimeout(timeout)
            _pass_proxy(sock, proxy, server)
        except BaseException:
            sock.close()
            raise
        return sock
    except TimeoutError:
        via = "" if proxy is None else f" through the proxy {proxy}"
        raise errors.ConnectTimeoutError(
            f"No connection to {server}{via} within {timeout:g} s.", server=str(server)
        ) from None
    except (UnicodeError, OSError) as error:
        peer = f"server at {server}" if proxy is None else f"proxy at {proxy}"
        raise errors.ServerRefusedError(
            f"No {peer}: {reason_of(error)}.", server=str(server)
        ) from error


def _connect_directly(options: ConnectOptions, host: str, port: int) -> socket.socket:
    """Open a TCP connection to the first address of the host that answers.

    The user's `dialer`, if there is one, opens it instead.
    """
    if options.dialer is not None:
        return call_dialer(options, host, port)
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    attempts = Attempts(options, addresses)
    for sock, address, seconds in attempts:
        with attempts.connecting(sock):  # suppresses an OSError: the next address is tried
            sock.settimeout(seconds)
            sock.connect(address)
            return sock
    raise attempts.failure


def _pass_proxy(sock: socket.socket, proxy: Proxy, server: ServerURL) -> None:
    """Ask the proxy at the other end of the socket to connect it with the server."""
    steps = ask_proxy(proxy, server)  # bytes to send, or how many bytes to receive
    step = following(steps)  # None after the last step
    while step is not None:
        if isinstance(step, bytes):
            sock.sendall(step)
            step = following(steps)
        else:
            step = following(steps, sock.recv(step))
