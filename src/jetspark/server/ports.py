"""Free ports, and what a running server says about the ones it opened."""

from __future__ import annotations

import errno
import json
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

from jetspark.errors import EmbeddedServerError

# Below the ports that systems hand to outgoing connections (32768 and up on Linux, 49152
# elsewhere). A port from those may be taken by any client while a server restarts, and a client
# that keeps dialling one on the loopback can even end up connected to itself.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port at `host` that nobody uses at this moment.

    Raises:
        EmbeddedServerError: `host` is no address of this machine, or no port is free.
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
    # Without SO_REUSEADDR: a port that somebody has bound and will listen on later is not free.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def read_ports_file(folder: Path) -> list[str] | None:
    """The client URLs in the ports file that a server wrote into `folder`; None: not there yet."""
    for file in folder.glob("*.ports"):
        try:
            urls = json.loads(file.read_text("utf-8")).get("nats")
        except (OSError, ValueError):
            return None  # still being written
        return [str(url) for url in urls] if urls else None
    return None


def best_url(urls: list[str]) -> str:
    """Of the URLs of all interfaces the loopback one, else the first."""
    for url in urls:
        if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost"):
            return url
    return urls[0]
