"""Waits until a starting nats-server is ready, or finds out why it did not start."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jetspark.errors import DocumentError, EmbeddedServerError
from jetspark.server.ports import best_url, read_ports_file
from jetspark.wire.documents import decode_document

if TYPE_CHECKING:
    from pathlib import Path

    from jetspark.server.process import ChildProcess

_LOOK_EVERY = (
    0.003  # seconds between two checks of the ports file; the exit of the child ends the wait
)
_INFO_TIMEOUT = 0.5  # seconds
_MAX_INFO = 1 << 20  # bytes

ADDRESS_IN_USE = "address already in use"
_LISTEN_ERROR = re.compile(r"listen tcp (?P<address>\S+): bind: (?P<why>[^\"\n]+)")
_LOG_PREFIX = re.compile(r"^\[\d+\] \S+ \S+ \[(?P<level>\w+)\] ")


def wait_until_ready(
    child: ChildProcess, ports_folder: Path, log: Path, *, jetstream: bool, timeout: float
) -> str:
    """Returns the client URL when the server accepts clients (and JetStream is ready, if wanted).

    The server writes its ports file after it has opened its listeners; its INFO line then shows
    that it answers, and whether JetStream is enabled.

    Raises:
        EmbeddedServerError: the server ended, or is not ready after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.wait(_LOOK_EVERY) is not None:
            raise EmbeddedServerError(f"nats-server did not start: {failure_reason(log)}.")
        urls = read_ports_file(ports_folder)
        if urls and _answers(best_url(urls), log, jetstream=jetstream):
            return best_url(urls)
    raise EmbeddedServerError(
        f"nats-server was not ready after {timeout:g} s; its log ends with: {failure_reason(log)}."
    )


def _answers(url: str, log: Path, *, jetstream: bool) -> bool:
    parts = urlsplit(url)
    assert parts.hostname is not None  # noqa: S101 - the server writes host and port
    assert parts.port is not None  # noqa: S101
    try:
        info = read_info(parts.hostname, parts.port)
    except TimeoutError:
        # A server with `handshake_first` sends nothing before the TLS client hello.
        return parts.scheme == "tls" and "Server is ready" in read_log(log)
    except (OSError, DocumentError):
        return False
    return not jetstream or info.get("jetstream") is True


def read_info(host: str, port: int) -> dict[str, object]:
    """The INFO document that a server sends to a new client.

    Raises:
        OSError: no connection, or no INFO within half a second (TimeoutError).
        DocumentError: the peer is not a NATS server.
    """
    received = b""
    with socket.create_connection((host, port), timeout=_INFO_TIMEOUT) as link:
        while b"\r\n" not in received and len(received) < _MAX_INFO:
            if not (chunk := link.recv(65536)):
                break
            received += chunk
    verb, _, document = received.partition(b"\r\n")[0].partition(b" ")
    if verb != b"INFO":
        raise DocumentError("INFO", "it is not of a NATS server")
    return decode_document(document, "INFO")


def read_log(log: Path) -> str:
    """The text of the log file; empty when there is none."""
    try:
        return log.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def failure_reason(log: Path) -> str:
    """The server's reason for its end, without time stamps and without a full stop."""
    lines = [line for line in read_log(log).splitlines() if line.strip()]
    line = next((found for found in map(_complaint, lines) if found), None)
    if line is None:
        line = _LOG_PREFIX.sub("", lines[-1]) if lines else "it said nothing"
    if listen := _LISTEN_ERROR.search(line):
        line = f"{listen['address']}: {listen['why']}"
    return " ".join(line.split()).rstrip(".")


def _complaint(line: str) -> str | None:
    # Fatal errors are log lines; errors in the configuration or the arguments are plain text.
    if prefix := _LOG_PREFIX.match(line):
        return line[prefix.end() :] if prefix["level"] == "FTL" else None
    for start in ("nats-server: ", "flag provided", "invalid value"):
        if line.startswith(start):
            return line.removeprefix("nats-server: ")
    return None
