"""The options of a connection: one frozen object, checked when it is made (row C1)."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from jetspark.connection.urls import DEFAULT_URL, ServerURL, parse_urls
from jetspark.errors import ConfigError
from jetspark.subjects import check_publish_subject, nearest_name


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectOptions:
    """How to connect and stay connected. Times in seconds, sizes in bytes.

    Raises ConfigError for a value that cannot work. Credentials are in no repr.
    """

    servers: str | tuple[str, ...] = field(default=DEFAULT_URL, repr=False)
    """One URL, several in a tuple, or several in one text with commas. They may hold secrets."""
    name: str = ""
    """Shown by the server's monitoring."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    """Require TLS of every server; `tls://` in a URL requires it of that one."""
    tls_ca_file: str | None = None
    """PEM file with the authorities to trust; the system's when None."""
    tls_cert_file: str | None = None
    """PEM file with the client's certificate (and key, unless `tls_key_file` names it)."""
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    """Verify the server's certificate against this name instead of the URL's host."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """A ready context instead of the tls_… files. Cannot be sent to Spark's executors."""
    verbose: bool = False
    pedantic: bool = False
    echo: bool = True
    """Whether this connection's subscriptions get what it publishes itself."""
    randomize: bool = True
    """Try the servers in random order."""
    connect_timeout: float = 2.0
    reconnect: bool = True
    reconnect_wait: float = 2.0
    """Least time between two attempts at the same server."""
    reconnect_jitter: float = 0.1
    """Random extra wait, up to this."""
    reconnect_delay: Callable[[int], float] | None = None
    """Called with the count of failed attempts in a row at one server; returns the seconds until
    the next one there, in place of `reconnect_wait`."""
    max_reconnect_attempts: int = 60
    """A server is given up when more attempts in a row than this have failed; -1 for never."""
    ping_interval: float = 120.0
    max_outstanding_pings: int = 2
    request_timeout: float = 10.0
    check_subjects: bool = True
    """Check subjects fully before sending; what would break the protocol is always refused."""
    inbox_prefix: str = "_INBOX"
    pending_size: int = 8 * 1024 * 1024
    """Bytes kept for sending while there is no connection, or while it takes no more."""
    trace: bool = False
    """Log each protocol line to "jetspark.trace" at level DEBUG: no payloads, secrets masked."""

    def __post_init__(self) -> None:
        self.urls()
        for option in ("connect_timeout", "ping_interval", "request_timeout"):
            if not getattr(self, option) > 0:
                raise ConfigError(f"{option} must be more than 0 seconds.")
        for option in ("reconnect_wait", "reconnect_jitter"):
            if getattr(self, option) < 0:
                raise ConfigError(f"{option} cannot be negative.")
        if self.max_reconnect_attempts < -1:
            raise ConfigError("max_reconnect_attempts must be -1 (for ever), 0 or more.")
        if self.max_outstanding_pings < 1:
            raise ConfigError("max_outstanding_pings must be at least 1.")
        if self.pending_size < 0:
            raise ConfigError("pending_size cannot be negative.")
        if self.token is not None and self.user is not None:
            raise ConfigError("Give either token, or user and password.")
        if (self.user is None) != (self.password is None):
            raise ConfigError("user and password go together.")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ConfigError("tls_key_file needs tls_cert_file.")
        check_publish_subject(self.inbox_prefix)

    def urls(self) -> tuple[ServerURL, ...]:
        """The servers, parsed."""
        return parse_urls(self.servers)

    def wants_tls(self, server: ServerURL) -> bool:
        """Whether this side requires TLS of a server."""
        return self.tls or server.secure

    def make_ssl_context(self) -> ssl.SSLContext:
        """The context to use; raises ConfigError for files that cannot be read."""
        if self.ssl_context is not None:
            return self.ssl_context
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            if self.tls_cert_file is not None:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"The TLS files cannot be used: {error}.") from error
        return context


_NAMES = tuple(f.name for f in dataclasses.fields(ConnectOptions))


def make_options(servers: str | Iterable[str] | None = None, /, **options: Any) -> ConnectOptions:
    """Options from keyword arguments. An unknown name raises ConfigError with the nearest one."""
    for name in options:
        if name not in _NAMES:
            near = nearest_name(name, _NAMES)
            hint = f"; did you mean {near!r}?" if near else f"; known: {', '.join(_NAMES)}."
            raise ConfigError(f"Unknown connection option {name!r}{hint}")
    if servers is not None:
        if "servers" in options:
            raise ConfigError("Name the servers once: as first argument or as servers=….")
        options["servers"] = servers
    if "servers" in options and not isinstance(options["servers"], str):
        options["servers"] = tuple(options["servers"])
    return ConnectOptions(**options)
