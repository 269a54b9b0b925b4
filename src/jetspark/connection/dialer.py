"""Calls the user's `dialer`, for asyncio (in a thread) and for blocking links."""

from __future__ import annotations

import socket

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, user_error


def call_dialer(options: ConnectOptions, host: str, port: int) -> socket.socket:
    """The connected socket that it returns.

    Raises its OSError; JetsparkError for other exceptions, ConfigError for anything but a socket.
    """
    assert options.dialer is not None  # noqa: S101
    try:
        sock = options.dialer(host, port)
    except OSError:
        raise
    except Exception as error:
        raise user_error("dialer", error) from error
    if type(sock) is not socket.socket:
        raise ConfigError("dialer must return a connected socket.socket, without TLS.")
    return sock
