"""The options of a connection: one frozen object, checked when it is made."""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args

from jetspark.connection import contexts
from jetspark.connection.credentials import Credential, find_seed, read_credentials
from jetspark.connection.pool import PoolServer
from jetspark.connection.proxy import Proxy, parse_proxy
from jetspark.connection.urls import DEFAULT_URL, ServerURL, parse_urls
from jetspark.errors import ConfigError, named, safe_repr
from jetspark.files import read_small
from jetspark.nats_py_names import migration_hint
from jetspark.nearest import did_you_mean
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import MAX_SECONDS, Seconds, in_seconds
from jetspark.validation import check_whole, check_word, texts_of
from jetspark.wire.js_api import api_prefix_of

_PEM_FILES = frozenset({".pem", ".crt", ".cer"})


def client_context(
    ca_file: str | os.PathLike[str] | None,
    ca_dir: str | os.PathLike[str] | None,
    cert_file: str | os.PathLike[str] | None,
    key_file: str | os.PathLike[str] | None,
    key_password: str | None,
) -> ssl.SSLContext:
    """A context that verifies the server and its name. Raises ConfigError for unusable files.

    Without `ca_file` and `ca_dir` the system's authorities are trusted.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file, capath=ca_dir)
        if ca_dir is not None:
            _trust_folder(context, ca_dir)
        if cert_file is not None:
            # Always pass a password: without one OpenSSL prompts at the terminal.
            context.load_cert_chain(cert_file, key_file, key_password or "")
    except ssl.SSLError as error:
        hint = ""
        # OpenSSL has no error for "not PEM"; both PEM formats contain this word.
        if cert_file is not None and b"ENCRYPTED" in read_small(key_file or cert_file):
            hint = f" (the key is encrypted: it needs the right {named('tls_key_password')})"
        raise ConfigError(f"The TLS files cannot be used: {_words(error)}{hint}.") from error
    except OSError as error:
        files = (ca_file, cert_file, key_file)  # OpenSSL's errors name none
        missing = (os.fspath(path) for path in files if path and not os.path.exists(path))
        file = error.filename or next(missing, "")
        subject = f"{file}: " if file else ""
        reason = error.strerror or str(error)
        raise ConfigError(f"The TLS files cannot be used: {subject}{reason}.") from error
    return context


def _trust_folder(context: ssl.SSLContext, folder: str | os.PathLike[str]) -> None:
    """Trust the files of a folder: OpenSSL itself finds only those named by hash (c_rehash)."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in _PEM_FILES)
    for path in files:
        context.load_verify_locations(cafile=path)
    hashed = any(path.suffix[1:].isdecimal() for path in Path(folder).iterdir())
    if not files and not hashed:
        raise ConfigError(f"The TLS files cannot be used: no certificates in {folder!r}.")


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "not the PEM that was expected").replace("_", " ").lower()


_TRUST = ("tls_ca_file", "tls_ca_dir", "tls_cert_file", "ssl_context")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


FirstConnect: TypeAlias = Literal["once", "wait", "background"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectOptions:
    """Options of connecting and staying connected. Times in seconds, sizes in bytes.

    Raises ConfigError for a value that cannot work. Credentials are in no repr.
    """

    servers: str | tuple[str, ...] = field(default=DEFAULT_URL, repr=False)
    """One URL, a tuple of several, or one text with commas. They may hold secrets."""
    name: str = ""
    """Shown by the server's monitoring."""
    user: Credential | None = field(default=None, repr=False)
    password: Credential | None = field(default=None, repr=False)
    token: Credential | None = field(default=None, repr=False)
    """The token of a server with tokens. A `Credential` may be a callable without arguments that
    returns the text; each connect calls it in the event loop, so it must be quick. Callables cannot
    be sent to Spark's executors."""
    creds_file: str | os.PathLike[str] | None = None
    """Path of a `.creds` file (JWT and seed), read at every connect and reconnect."""
    creds: Credential | None = field(default=None, repr=False)
    """The text of a `.creds` file."""
    nkey_seed_file: str | os.PathLike[str] | None = None
    """Path of a file with a user's NKey seed, read at every connect and reconnect."""
    nkey_seed: Credential | None = field(default=None, repr=False)
    """A user's NKey seed, SU…"""
    jwt: Credential | None = field(default=None, repr=False)
    """A user's JWT: with a seed or `sign`, or alone when it is a bearer JWT."""
    sign: Callable[[bytes], bytes] | None = field(default=None, repr=False)
    """Signs the bytes of the server's nonce at every connect; returns the 64 bytes of the Ed25519
    signature. Called in the event loop, so it must be quick. Goes with `jwt` or `nkey`. Cannot be
    sent to Spark's executors."""
    nkey: str | None = None
    """The public NKey, U…, of the key that `sign` uses, when there is no `jwt`."""
    proxy: str | None = field(default=None, repr=False)
    """The proxy to the servers: `http://host:port` (HTTP CONNECT) or `socks5://host:port`, with
    `user:password@` before the host if it requires a login. It looks up the servers' names.
    """
    dialer: Callable[[str, int], Any] | None = field(default=None, repr=False)
    """Connects to a host and port (the proxy's if there is one) and returns a `socket.socket`,
    which TLS and WebSocket use. Called in a thread, and may take `connect_timeout`. Cannot be sent
    to Spark's executors."""
    tls: bool = False
    """Require TLS from every server. Authorities, a certificate or an `ssl_context` also require
    it, except from ws:// servers; `tls://` or `wss://` in a URL requires it from that server."""
    tls_first: bool = False
    """Start TLS before the server's INFO, for servers with `handshake_first`. Implies `tls`."""
    tls_ca_file: str | os.PathLike[str] | None = None
    """PEM file with the authorities to trust; default: the system's."""
    tls_ca_dir: str | os.PathLike[str] | None = None
    """Folder of PEM files (.pem, .crt, .cer, or hashed as OpenSSL does) with authorities."""
    tls_cert_file: str | os.PathLike[str] | None = None
    """PEM file with the client's certificate (and key, unless `tls_key_file` names it)."""
    tls_key_file: str | os.PathLike[str] | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    """Decrypts `tls_key_file`. Without it an encrypted key is refused, not prompted for."""
    tls_hostname: str | None = None
    """Verify the server's certificate against this name instead of the URL's host."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """A context to use instead of the tls_… files. Cannot be sent to Spark's executors."""
    ws_headers: Mapping[str, str] | Sequence[tuple[str, str]] = field(default=(), repr=False)
    """HTTP headers for the request that opens a WebSocket; kept as a tuple of pairs."""
    ws_compression: bool = True
    """Compress a WebSocket (permessage-deflate) if the server supports it."""
    verbose: bool = False
    pedantic: bool = False
    echo: bool = True
    """Whether this connection's subscriptions receive its own publishes."""
    randomize: bool = True
    """Try the servers, and the addresses of a host name, in random order."""
    first_connect: FirstConnect = "once"
    """"once": connecting tries each server once, then raises. "wait": it keeps trying, as after a
    lost link, until a server accepts or none is left (`max_reconnect_attempts`). "background": it
    returns at once and keeps trying; publishes and subscriptions are buffered until the event
    Connected or Closed."""
    ignore_discovered_servers: bool = False
    """Connect only to the servers given here, not to those that the cluster advertises."""
    choose_server: Callable[[tuple[PoolServer, ...]], PoolServer | None] | None = None
    """Called before each attempt with the servers in their usual order; returns the one to try, or
    None for the first. Called in the event loop, so it must be quick. An exception is reported, and
    the first server tried.
    """
    connect_timeout: float = 2.0
    reconnect: bool = True
    reconnect_wait: float = 2.0
    """Seconds between two attempts at the same server, at least."""
    reconnect_jitter: float = 0.1
    """Random extra wait up to this many seconds."""
    reconnect_delay: Callable[[int], float] | None = None
    """Called with the number of failed attempts in a row at one server; returns the seconds until
    the next attempt there, in place of `reconnect_wait`.
    """
    max_reconnect_attempts: int = 60
    """A server is removed after more failed attempts in a row than this; -1: never removed."""
    retry_auth_errors: bool = False
    """Keep trying a server that refused the credentials twice in a row, instead of removing it."""
    ping_interval: float = 120.0
    max_outstanding_pings: int = 2
    request_timeout: float = 10.0
    check_subjects: bool = True
    """Check subjects fully before sending; those that break the protocol are always refused."""
    inbox_prefix: str = "_INBOX"
    max_control_line: int = 4096
    """Maximum bytes of a protocol line (subject, reply subject, queue group); longer ones are
    refused. Set it to the servers' `max_control_line`, which INFO does not have: they close a link
    that exceeds it.
    """
    pending_size: int = 8 * 1024 * 1024
    """Bytes buffered while the link is lost or blocked."""
    jetstream_domain: str | None = None
    """The JetStream domain, unless `nc.jetstream()` names a domain or a prefix."""
    jetstream_api_prefix: str | None = None
    """The whole API prefix, instead of a domain; default: "$JS.API"."""
    trace: bool = False
    """Log each protocol line to "jetspark.trace" at level DEBUG, without payloads and secrets."""

    def __post_init__(self) -> None:
        for option in _TIMES:
            object.__setattr__(self, option, in_seconds(getattr(self, option)))
        for option, minimum in _NUMBERS.items():
            check_whole(option, getattr(self, option), minimum)
        for option in _SWITCHES:
            if not isinstance(value := getattr(self, option), bool):  # "no" would be true
                hint = (
                    ": give a context as ssl_context" if isinstance(value, ssl.SSLContext) else ""
                )
                raise ConfigError(f"is True or False, not {safe_repr(value)}{hint}.", option=option)
        if not isinstance(self.name, str | None):  # the server would close the link
            raise ConfigError(f"name is a text, not {safe_repr(self.name)}.")
        check_word("first_connect", self.first_connect, get_args(FirstConnect))
        self.urls()
        for option in ("connect_timeout", "ping_interval", "request_timeout"):
            if not getattr(self, option) > 0:
                raise ConfigError("must be more than 0 seconds.", option=option)
        for option in ("reconnect_wait", "reconnect_jitter"):
            if not 0 <= getattr(self, option) < MAX_SECONDS:
                raise ConfigError("cannot be negative or infinite.", option=option)
        self._check_credentials()
        _ = self.proxy_server
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ConfigError(f"needs {named('tls_cert_file')}.", option="tls_key_file")
        if (self.tls or self.tls_first) and any(url.scheme == "ws" for url in self.urls()):
            raise ConfigError("TLS over WebSocket is written wss:// in the URL.")
        _ = self.api_prefix
        object.__setattr__(self, "ws_headers", _header_pairs(self.ws_headers))
        check_publish_subject(self.inbox_prefix, label=named("inbox_prefix"))

    def _check_credentials(self) -> None:
        """At most one user or token, and one key or JWT. Raises ConfigError without values."""
        if (self.user is None) != (self.password is None):
            raise ConfigError(f"{named('user')} and {named('password')} go together.")
        if self.user is not None and self.token is not None:
            raise ConfigError(
                f"Give one kind of credentials, not {named('user')} and {named('token')} together."
            )
        kinds = [name for name in _IDENTITIES if getattr(self, name) is not None]
        if len(kinds) > 1 and not (len(kinds) == 2 and kinds[0] == "jwt" and kinds[1] in _SIGNERS):
            names = " and ".join(map(named, kinds))
            raise ConfigError(f"Give one kind of credentials, not {names} together.")
        if kinds == ["sign"] and self.nkey is None:
            raise ConfigError("sign needs jwt, or the public key as nkey.")
        if self.nkey is not None and kinds != ["sign"]:
            raise ConfigError("nkey is the public key for sign; no other key or JWT goes with it.")

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """`ws_headers` as pairs."""
        return tuple(self.ws_headers)  # type: ignore[arg-type]

    @property
    def proxy_server(self) -> Proxy | None:
        """`proxy`, parsed."""
        return None if self.proxy is None else parse_proxy(self.proxy)

    @property
    def api_prefix(self) -> str:
        """The prefix of the JetStream API's subjects."""
        return api_prefix_of(self.jetstream_domain, self.jetstream_api_prefix)

    def urls(self) -> tuple[ServerURL, ...]:
        """The servers, parsed."""
        return parse_urls(self.servers)

    def wants_tls(self, server: ServerURL) -> bool:
        """Whether the options or the URL require TLS from this server."""
        if self.tls or self.tls_first or server.secure:
            return True
        return not server.websocket and any(getattr(self, name) is not None for name in _TRUST)

    def tls_hostname_of(self, server: ServerURL) -> str:
        """The name that the server's certificate must have."""
        return self.tls_hostname or server.tls_name or server.host

    def make_ssl_context(self) -> ssl.SSLContext:
        """The context to use. Raises ConfigError for files that cannot be read."""
        return self.ssl_context or client_context(
            self.tls_ca_file,
            self.tls_ca_dir,
            self.tls_cert_file,
            self.tls_key_file,
            self.tls_key_password,
        )

    def with_contents(self) -> ConnectOptions:
        """A copy with the contents of credentials' files in their place, for another machine.

        Raises ConfigError.
        """
        changes: dict[str, Any] = {}
        if self.creds_file is not None:
            text = read_credentials(named("creds_file"), self.creds_file)
            changes = {"creds_file": None, "creds": text}
        if self.nkey_seed_file is not None:
            text = read_credentials(named("nkey_seed_file"), self.nkey_seed_file)
            seed = find_seed(text, f"{named('nkey_seed_file')} {self.nkey_seed_file!r}")
            changes = {"nkey_seed_file": None, "nkey_seed": seed}
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_context(
        cls,
        name: str = "",
        /,
        *,
        servers: str | Iterable[str] | None = None,
        **options: Unpack[ConnectionSettings],
    ) -> ConnectOptions:
        """The options of a context of the `nats` command (ADR-21); `options` win over them.

        `name`: the context; "" is the selected one. Raises ConfigError when there is none, or when
        it needs something that jetspark does not support.
        """
        return make_options(servers, context=name, **options)


class ConnectionSettings(TypedDict, total=False):
    """The fields of ConnectOptions but `servers`, as options of a call, for type checkers."""

    name: str
    user: Credential | None
    password: Credential | None
    token: Credential | None
    creds_file: str | os.PathLike[str] | None
    creds: Credential | None
    nkey_seed_file: str | os.PathLike[str] | None
    nkey_seed: Credential | None
    jwt: Credential | None
    sign: Callable[[bytes], bytes] | None
    nkey: str | None
    proxy: str | None
    dialer: Callable[[str, int], Any] | None
    tls: bool
    tls_first: bool
    tls_ca_file: str | os.PathLike[str] | None
    tls_ca_dir: str | os.PathLike[str] | None
    tls_cert_file: str | os.PathLike[str] | None
    tls_key_file: str | os.PathLike[str] | None
    tls_key_password: str | None
    tls_hostname: str | None
    ssl_context: ssl.SSLContext | None
    ws_headers: Mapping[str, str] | Sequence[tuple[str, str]]
    ws_compression: bool
    verbose: bool
    pedantic: bool
    echo: bool
    randomize: bool
    first_connect: FirstConnect
    ignore_discovered_servers: bool
    choose_server: Callable[[tuple[PoolServer, ...]], PoolServer | None] | None
    connect_timeout: Seconds
    reconnect: bool
    reconnect_wait: Seconds
    reconnect_jitter: Seconds
    reconnect_delay: Callable[[int], float] | None
    max_reconnect_attempts: int
    retry_auth_errors: bool
    ping_interval: Seconds
    max_outstanding_pings: int
    request_timeout: Seconds
    check_subjects: bool
    inbox_prefix: str
    max_control_line: int
    pending_size: int
    jetstream_domain: str | None
    jetstream_api_prefix: str | None
    trace: bool


class ConnectionOptions(ConnectionSettings, total=False):
    """The options of `connect`, for type checkers."""

    context: str | None
    """A context of the `nats` command; "" is the selected one."""


_TIMES = (
    "connect_timeout",
    "ping_interval",
    "reconnect_jitter",
    "reconnect_wait",
    "request_timeout",
)
"""Seconds; a timedelta becomes seconds."""

_NUMBERS = {
    "max_reconnect_attempts": -1,
    "max_outstanding_pings": 1,
    "max_control_line": 256,
    "pending_size": 0,
}
"""Whole numbers, and the minimum of each."""

_NAMES = tuple(f.name for f in dataclasses.fields(ConnectOptions))
_SWITCHES = tuple(f.name for f in dataclasses.fields(ConnectOptions) if f.type == "bool")
_SIGNERS = ("nkey_seed_file", "nkey_seed", "sign")
_IDENTITIES = ("creds_file", "creds", "jwt", *_SIGNERS)
CREDENTIALS = frozenset({"user", "password", "token", "nkey", *_IDENTITIES})
"""The options that authenticate."""


def make_options(
    servers: str | Iterable[str] | None = None,
    /,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> ConnectOptions:
    """Options from keyword arguments. An unknown name raises ConfigError with the nearest one.

    `context` names a context of the `nats` command, "" the selected one. Without servers and
    context, the environment (`environ`, default os.environ) sets them: see `contexts`. `options`
    win over both; credentials are replaced as a whole.
    """
    for name in options:
        if name not in _NAMES:
            if sentence := migration_hint("connect", name):
                raise ConfigError(sentence)
            hint = did_you_mean(name, (*_NAMES, "context"), f"; known: {', '.join(_NAMES)}.")
            raise ConfigError(f"Unknown connection option {name!r}{hint}")
    if servers is not None:
        if "servers" in options:
            raise ConfigError("Name the servers once: as first argument or as servers=….")
        options["servers"] = servers
    if isinstance(several := options.get("servers"), Iterable) and not isinstance(several, str):
        options["servers"] = tuple(texts_of("servers", several))
    environ = os.environ if environ is None else environ
    defaults: dict[str, Any] = {}
    if context is not None:
        defaults = contexts.from_context(context, environ)
    elif "servers" not in options:
        defaults = contexts.from_environment(environ)
    if options.keys() & CREDENTIALS:
        defaults = {name: value for name, value in defaults.items() if name not in CREDENTIALS}
    return ConnectOptions(**(defaults | options))


def _header_pairs(
    headers: Mapping[str, str] | Sequence[tuple[str, str]],
) -> tuple[tuple[str, str], ...]:
    pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
    for name, value in pairs:
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"ws_headers: {name!r} is not the name of an HTTP header.")
        if not value.isascii() or not value.isprintable():
            raise ConfigError(f"ws_headers: the value of {name!r} must be printable ASCII.")
    return pairs
