"""A few lines of NATS over a blocking socket, so that fixtures do not depend on what they test."""

from __future__ import annotations

import json
import socket
from typing import Any, Self
from urllib.parse import urlsplit

_INBOX = "_INBOX.raw"


class RawClient:
    """One connection: publish, and one request at a time. Timeouts in seconds."""

    def __init__(self, url: str, *, timeout: float = 20.0, **connect: object) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection(
            (parts.hostname or "127.0.0.1", parts.port or 4222), timeout=timeout
        )
        self._file = self._socket.makefile("rb")
        self.info: dict[str, Any] = json.loads(self._file.readline().removeprefix(b"INFO "))
        options = {"verbose": False, "headers": True, "no_responders": True, **connect}
        self.send(b"CONNECT %b\r\nSUB %b 1\r\n" % (json.dumps(options).encode(), _INBOX.encode()))
        self.ping()

    def ping(self) -> None:
        """Returns when the server has handled everything sent before."""
        self.send(b"PING\r\n")
        while (line := self._file.readline()) != b"PONG\r\n":
            if line.startswith(b"-ERR") or not line:
                raise ConnectionError(line.decode() or "the server closed the connection")

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        head = " ".join(filter(None, ("PUB", subject, reply, str(len(payload)))))
        self.send(head.encode() + b"\r\n" + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"") -> bytes:
        """The reply's payload; ConnectionError when nobody listens."""
        self.publish(subject, payload, _INBOX)
        while line := self._file.readline():
            verb, *fields = line.split()
            if verb == b"PING":
                self.send(b"PONG\r\n")
            elif verb in (b"MSG", b"HMSG"):
                body = self._file.read(int(fields[-1]) + 2)[:-2]
                if verb == b"MSG":
                    return body
                header, body = body[: int(fields[-2])], body[int(fields[-2]) :]
                if header.startswith(b"NATS/1.0 503"):
                    raise ConnectionError(f"no responders on {subject}")
                return body
            elif verb == b"-ERR":
                raise ConnectionError(line.decode())
        raise ConnectionError("the server closed the connection")

    def api(self, name: str, document: object = None) -> dict[str, Any]:
        """One call of the JetStream API: `api("STREAM.CREATE.S", {...})`."""
        payload = b"" if document is None else json.dumps(document).encode()
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{name}", payload))
        return answer

    def set_timeout(self, timeout: float) -> None:
        self._socket.settimeout(timeout)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
