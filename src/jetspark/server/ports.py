"""Free ports, and the ports that a running server has opened."""

from __future__ import annotations

import errno
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from jetspark.errors import DocumentError, EmbeddedServerError
from jetspark.wire.documents import decode_json

# Below the ephemeral ports of outgoing connections (from 32768 on Linux, 49152 elsewhere). Any
# client may take one of those while a server restarts, and a client that keeps connecting to one on
# the loopback interface can even connect to itself.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port at `host` that is free at this moment.

    Raises:
        EmbeddedServerError: `host` is not an address of this machine, or no port is free.
    """
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        for _ in range(_ATTEMPTS):
            port = secrets.choice(_RANGE)
            if _is_free(host, port, family):
                return port
    except OSError as error:
        raise EmbeddedServerError(f"Cannot listen on {host!r}: {error.strerror}.") from error
    raise EmbeddedServerError(f"No free port found on {host!r}.")


def _is_free(host: str, port: int, family: int) -> bool:
    # Without SO_REUSEADDR: a port that is bound, but not listened on yet, is not free.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


class _Ports(msgspec.Struct):
    nats: list[str] = []


def read_ports_file(folder: Path) -> list[str] | None:
    """The client URLs in a server's ports file in `folder`; None while there is none."""
    for file in folder.glob("*.ports"):
        try:
            urls = decode_json(file.read_bytes(), _Ports, "ports file").nats
        except (OSError, DocumentError):
            return None  # still being written
        return urls or None
    return None


def best_url(urls: list[str]) -> str:
    """The loopback URL if there is one, else the first."""
    for url in urls:
        if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost"):
            return url
    return urls[0]
