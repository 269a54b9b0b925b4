"""Common to asyncio and blocking links when a socket is opened: addresses, the user's dialer."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


class Attempts:
    """A new socket for each address of a name (ADR-11), and the seconds to connect it.

    The order is random, unless `randomize` is off. Each gets an equal part of the time left, so
    that an address which does not answer cannot take it all.
    """

    def __init__(self, options: ConnectOptions, found: list[Any]) -> None:
        """`found`: from getaddrinfo."""
        if options.randomize:
            random.shuffle(found)
        self._found = found
        self._end = time.monotonic() + options.connect_timeout
        self.failure = OSError("the name has no address")
        """Why the last attempt failed."""

    def __iter__(self) -> Iterator[tuple[socket.socket, Any, float]]:
        for done, (family, kind, protocol, _, address) in enumerate(self._found):
            seconds = max(0.001, self._end - time.monotonic()) / (len(self._found) - done)
            yield socket.socket(family, kind, protocol), address, seconds

    @contextmanager
    def connecting(self, sock: socket.socket) -> Iterator[None]:
        """An OSError in the block is a failed attempt, which closes the socket."""
        try:
            yield
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # TimeoutError, too
            sock.close()
            self.failure = error
        except BaseException:
            sock.close()
            raise
