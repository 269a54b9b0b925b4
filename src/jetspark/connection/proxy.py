"""Proxies on the way to a server: HTTP CONNECT and SOCKS5 (RFC 1928, 1929), without I/O.

The proxy looks up the server's name. TLS and WebSocket are between the client and the server, so a
proxy carries all four schemes and cannot read what TLS protects.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from jetspark.connection.urls import NO_HOST, ServerURL
from jetspark.errors import ConfigError, ServerRefusedError
from jetspark.validation import check_text

Steps: TypeAlias = Generator[bytes | int, bytes | None, None]
_Receiving: TypeAlias = Generator[bytes | int, bytes | None, bytes]

_LONGEST_ANSWER = 16 * 1024
_LONGEST_TEXT = 255
_REFUSALS = {
    1: "general failure",
    2: "the proxy's rules do not allow it",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "the time to live has expired",
    7: "the proxy does not support CONNECT",
    8: "the proxy does not support this kind of address",
}
_ADDRESS_BYTES = {1: 4, 4: 16}


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy; its text holds no credentials."""

    scheme: str
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_proxy(text: str) -> Proxy:
    """Parse `http://[user[:password]@]host:port` or `socks5://…`. Raises ConfigError."""
    check_text("proxy", text)
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
    if scheme not in ("http", "socks5") or not parts.hostname or not port:
        raise ConfigError("proxy: write http://host:port or socks5://host:port.")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError("proxy: nothing may follow the port.")
    user = None if parts.username is None else unquote(parts.username)
    password = unquote(parts.password or "")
    for secret in (user or "", password):
        if len(secret.encode()) > _LONGEST_TEXT:
            raise ConfigError("proxy: user and password may have at most 255 bytes.")
    return Proxy(scheme, parts.hostname, port, user, password)


def ask_proxy(proxy: Proxy, server: ServerURL) -> Steps:
    """Yields bytes to send, or the most to receive, since the server's may follow.

    Driven by `following`. Afterwards the socket is the server's. Raises
    ServerRefusedError.
    """
    try:
        yield from (_connect if proxy.scheme == "http" else _socks5)(proxy, server)
    except UnicodeError as error:
        raise ServerRefusedError(
            f"No server at {server}: {NO_HOST}.", server=str(server)
        ) from error


def following(steps: Steps, received: bytes | None = None) -> bytes | int | None:
    """The next step after receiving bytes (b"": the proxy closed); None at the end."""
    try:
        return steps.send(received)
    except StopIteration:
        return None


def _refusal(proxy: Proxy, server: ServerURL, reason: str) -> ServerRefusedError:
    return ServerRefusedError(
        f"The proxy {proxy} did not connect to {server}: {reason}.", server=str(server)
    )


def _exactly(proxy: Proxy, server: ServerURL, count: int) -> _Receiving:
    data = b""
    while len(data) < count:
        if not (more := (yield count - len(data))):
            raise _refusal(proxy, server, "it closed the connection")
        data += more
    return data


def _connect(proxy: Proxy, server: ServerURL) -> Steps:
    host = server.host if ":" in server.host else server.host.encode("idna").decode()
    address = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    if proxy.user is not None:
        login = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    yield "\r\n".join([*lines, "", ""]).encode()
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        if len(answer) > _LONGEST_ANSWER or not answer.startswith(b"HTTP/"[: len(answer)]):
            raise _refusal(proxy, server, "it is not an HTTP proxy")
        answer += yield from _exactly(proxy, server, 1)
    status = answer.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")[2]
    if not status.startswith("2"):
        raise _refusal(proxy, server, status.strip() or "it is not an HTTP proxy")


def _socks5(proxy: Proxy, server: ServerURL) -> Steps:
    yield b"\x05\x01\x00" if proxy.user is None else b"\x05\x02\x00\x02"
    version, method = yield from _exactly(proxy, server, 2)
    if version != 5:
        raise _refusal(proxy, server, "it is not a SOCKS5 proxy")
    if method == 2 and proxy.user is not None:
        user, password = proxy.user.encode(), proxy.password.encode()
        yield b"\x01" + _counted(user) + _counted(password)
        if (yield from _exactly(proxy, server, 2))[1] != 0:
            raise _refusal(proxy, server, "it refused the user or password")
    elif method != 0:
        advice = "" if proxy.user is not None else "; write socks5://user:password@host:port"
        raise _refusal(proxy, server, f"it requires another login{advice}")
    yield b"\x05\x01\x00" + _address(server.host) + server.port.to_bytes(2)
    version, status, _, kind = yield from _exactly(proxy, server, 4)
    if version != 5 or status:
        raise _refusal(proxy, server, _REFUSALS.get(status, f"SOCKS error {status}"))
    size = _ADDRESS_BYTES.get(kind) or (yield from _exactly(proxy, server, 1))[0]
    yield from _exactly(proxy, server, size + 2)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return b"\x03" + _counted(host.encode("idna"))
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _counted(text: bytes) -> bytes:
    return bytes([len(text)]) + text
