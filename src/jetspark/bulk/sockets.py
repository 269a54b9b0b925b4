"""Opens the socket to a server, directly or through a proxy, without asyncio."""

from __future__ import annotations

import socket

from jetspark.connection.opening import Attempts, call_dialer, reason_of
from jetspark.connection.options import ConnectOptions
from jetspark.connection.proxy import Proxy, ask_proxy, following
from jetspark.connection.urls import ServerURL
from jetspark.errors import ConnectTimeoutError, ServerRefusedError


def open_socket(options: ConnectOptions, server: ServerURL) -> socket.socket:
    """A connected socket whose peer is the server, within `connect_timeout`.

    Raises ConnectTimeoutError, ServerRefusedError; JetsparkError for a dialer that fails.
    """
    proxy, timeout = options.proxy_server, options.connect_timeout
    try:
        if proxy is None:
            return _connected(options, server.host, server.port)
        sock = _connected(options, proxy.host, proxy.port)
        try:
            sock.settimeout(timeout)
            _through(sock, proxy, server)
        except BaseException:
            sock.close()
            raise
        return sock
    except TimeoutError:
        way = "" if proxy is None else f" through the proxy {proxy}"
        raise ConnectTimeoutError(
            f"No connection to {server}{way} within {timeout:g} s.", server=str(server)
        ) from None
    except (UnicodeError, OSError) as error:
        reason = reason_of(error)
        if proxy is not None:
            sentence = f"No proxy at {proxy}: {reason}."
        elif isinstance(error, UnicodeError):
            sentence = f"No server at {server}: {reason}."
        else:
            sentence = f"Cannot connect to {server}: {reason}. Is a nats-server running there?"
        raise ServerRefusedError(sentence, server=str(server)) from error


def _connected(options: ConnectOptions, host: str, port: int) -> socket.socket:
    if options.dialer is not None:
        return call_dialer(options, host, port)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    attempts = Attempts(options, found)
    for sock, address, seconds in attempts:
        with attempts.connecting(sock):
            sock.settimeout(seconds)
            sock.connect(address)
            return sock
    raise attempts.failure


def _through(sock: socket.socket, proxy: Proxy, server: ServerURL) -> None:
    steps = ask_proxy(proxy, server)
    step = following(steps)
    while step is not None:
        if isinstance(step, bytes):
            sock.sendall(step)
            step = following(steps)
        else:
            step = following(steps, sock.recv(step))
