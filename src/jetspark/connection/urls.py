"""Server URLs: `[scheme://][user[:password]@|token@]host[:port]`, schemes nats and tls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from jetspark.errors import ConfigError

DEFAULT_PORT = 4222
DEFAULT_URL = "nats://127.0.0.1:4222"

_SCHEMES = ("nats", "tls")


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
    """Name to verify the certificate against, when it is not `host`: an address that the cluster
    gossiped is verified against the name that the user wrote."""

    @property
    def secure(self) -> bool:
        """Whether this URL asks for TLS."""
        return self.scheme == "tls"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_url(text: str) -> ServerURL:
    """Raises ConfigError, which never repeats credentials."""
    shown = text.rpartition("@")[2]
    bare = text.strip()
    if "://" not in bare:
        bare = f"nats://{bare}"
    try:
        parts = urlsplit(bare)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ConfigError(
            f"Bad server URL {shown!r}: write nats://host:port, with a port of 1 to 65535."
        ) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError(f"Bad server URL {shown!r}: the scheme must be one of nats, tls.")
    if not parts.hostname or any(c.isspace() for c in parts.hostname):
        raise ConfigError(f"Bad server URL {shown!r}: it has no host; write nats://host:port.")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"Bad server URL {shown!r}: nothing may follow the port.")
    user = password = token = None
    if parts.username is not None:
        if parts.password is None:
            token = unquote(parts.username)
        else:
            user, password = unquote(parts.username), unquote(parts.password)
    return ServerURL(parts.hostname, port, parts.scheme, user, password, token)


def parse_urls(servers: str | Iterable[str]) -> tuple[ServerURL, ...]:
    """Several URLs: a list, or one text with commas. Raises ConfigError, also for none at all."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    urls = tuple(parse_url(text) for text in texts if text.strip())
    if not urls:
        raise ConfigError("No server named: write for example servers='nats://127.0.0.1:4222'.")
    return urls
