"""Server URLs: `[scheme://][user[:password]@|token@]host[:port][/path]`.

Schemes: nats and tls, or ws and wss for WebSocket, where a path may follow. The port is 4222; for
ws it is 80 and for wss 443, as in the other NATS clients. One connection uses one of the two kinds,
because a cluster advertises a different list of servers for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from jetspark.errors import ConfigError
from jetspark.subjects import NO_TEXT
from jetspark.validation import texts_of

DEFAULT_PORT = 4222
DEFAULT_URL = "nats://127.0.0.1:4222"

NO_HOST = "no host can have this name"
"""Why a name with an empty or too long part cannot be looked up, for a sentence."""

_PORTS = {"nats": DEFAULT_PORT, "tls": DEFAULT_PORT, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class ServerURL:
    """One server. Credentials in a URL win over those in the options, for this server only."""

    host: str
    port: int = DEFAULT_PORT
    scheme: str = "nats"
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_name: str | None = None
    """Name to verify the certificate against, if not `host`: an address that the cluster advertised
    is verified against the name that the user wrote.
    """
    path: str = ""
    """The WebSocket's path: what follows the port, with its slash."""

    @property
    def secure(self) -> bool:
        """Whether this URL asks for TLS."""
        return self.scheme in ("tls", "wss")

    @property
    def websocket(self) -> bool:
        """Whether this server is reached over WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def address(self) -> str:
        """`host:port`, with the brackets of an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


def _unescaped(safe_text: str) -> ConfigError:
    return ConfigError(
        f"Bad server URL {safe_text!r}: percent-encode what its user and password have of / ? "
        "# [ ] @ : % and commas, such as %2F for / and %23 for #; or give them as the options "
        "user and password."
    )


def parse_url(text: str) -> ServerURL:
    """Raises ConfigError, without the credentials."""
    safe_text = text.rpartition("@")[2]
    bare = text.strip()
    if NO_TEXT.search(text) or not bare.replace(" ", "").isprintable():
        raise ConfigError(f"Bad server URL {safe_text!r}: it is not valid text.")
    if "://" not in bare:
        bare = f"nats://{bare}"
    try:
        parts = urlsplit(bare)
        port = parts.port
        if port == 0:
            raise ValueError
    except ValueError:
        login, at, _ = bare.partition("://")[2].rpartition("@")
        if at and set(login) & set("/?#[]"):
            raise _unescaped(safe_text) from None
        raise ConfigError(
            f"Bad server URL {safe_text!r}: write nats://host:port, with a port of 1 to 65535."
        ) from None
    if parts.scheme not in _PORTS:
        schemes = ", ".join(_PORTS)
        raise ConfigError(f"Bad server URL {safe_text!r}: the scheme must be one of {schemes}.")
    if not parts.hostname or any(c.isspace() for c in parts.hostname):
        raise ConfigError(f"Bad server URL {safe_text!r}: it has no host; write nats://host:port.")
    path = "" if parts.path == "/" else parts.path
    if parts.scheme in ("nats", "tls") and "@" in path + parts.query + parts.fragment:
        raise _unescaped(safe_text)
    if parts.query or parts.fragment or (path and parts.scheme not in ("ws", "wss")):
        raise ConfigError(
            f"Bad server URL {safe_text!r}: nothing may follow the port"
            f"{' but a path' if parts.scheme in ('ws', 'wss') else ''}."
        )
    if any(c.isspace() or not c.isascii() for c in path):
        raise ConfigError(f"Bad server URL {safe_text!r}: percent-encode the path.")
    user = password = token = None
    if parts.username is not None:
        if parts.password is None:
            token = unquote(parts.username)
        else:
            user, password = unquote(parts.username), unquote(parts.password)
    return ServerURL(
        parts.hostname,
        port or _PORTS[parts.scheme],
        parts.scheme,
        user,
        password,
        token,
        path=path,
    )


def parse_urls(servers: str | Iterable[str]) -> tuple[ServerURL, ...]:
    """Several URLs: a list, or one text with commas.

    Raises ConfigError, also for an empty list and for WebSocket URLs mixed with others.
    """
    texts = servers.split(",") if isinstance(servers, str) else texts_of("servers", servers)
    try:
        urls = tuple(parse_url(text) for text in texts if text.strip())
    except ConfigError:
        if isinstance(servers, str) and len(texts) > 1 and "@" in servers:
            # A part may be the beginning of a password with a comma.
            raise _unescaped(servers.rpartition("@")[2]) from None
        raise
    if not urls:
        raise ConfigError("No server named: write for example servers='nats://127.0.0.1:4222'.")
    if len({url.websocket for url in urls}) > 1:
        raise ConfigError(
            "WebSocket servers (ws, wss) and others (nats, tls) cannot be mixed in one connection."
        )
    return urls
