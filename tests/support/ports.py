"""Ports that stay ours: tests run beside each other, and a server may start seconds later."""

from __future__ import annotations

import atexit
import errno
import socket

from jetspark.server import nats_server

_held: list[socket.socket] = []


def free_port(host: str = "127.0.0.1") -> int:
    """As `jetspark.server.free_port`; nobody else is given the port while this process lives.

    Bound, not listening: a connection is refused. Servers listen on it all the same, since they
    set SO_REUSEADDR.
    """
    while True:
        port = nats_server.free_port(host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            held.bind((host, port))
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        # Only now: set before, two processes could bind the same port.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.append(held)
        return port


@atexit.register
def _let_go() -> None:
    for held in _held:
        held.close()
