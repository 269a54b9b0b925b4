"""The handshake as a generator that does no I/O: it yields what to receive, send or encrypt.

INFO comes first. TLS follows when either side requires it; with `tls_first` it comes before INFO.
Then CONNECT, with the server's nonce signed, and PING are sent together, and the PONG proves that
the server has accepted the client. The TLS of a WebSocket lies below all this. asyncio (`session`)
and the blocking reader (`links.link`) drive the same generator, so both refuse the same servers
with the same errors.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import jetspark.errors as errors
from jetspark.connection.credentials import (
    Identity,
    find_seed,
    identity_of_creds,
    jwt_expiry,
    open_seed,
    read_credentials,
    text_of,
)
from jetspark.connection.options import ConnectOptions
from jetspark.connection.server_errors import error_of
from jetspark.connection.urls import ServerURL
from jetspark.wire import frames
from jetspark.wire.control import Err, Info, Ping, Pong
from jetspark.wire.documents import ConnectDocument, ServerInfo, encode_document, parse_info
from jetspark.wire.kernel import Event
from jetspark.wire.parser import Frame

# -------------------------------------------------------------------------------------------------
# The credentials that CONNECT carries.


def credentials_of(options: ConnectOptions, server: ServerURL, nonce: str = "") -> dict[str, str]:
    """The CONNECT fields for one server: its URL takes precedence over the options.

    Reads the files, calls the callables, and signs `nonce` from the server's INFO. Sends a user or
    token together with a key or JWT: each server uses what it checks. Raises ConfigError.
    """
    if server.token is not None:
        return {"auth_token": server.token}
    if server.user is not None:
        return {"user": server.user, "password": server.password or ""}
    fields: dict[str, str] = {}
    if options.token is not None:
        fields["auth_token"] = text_of("token", options.token)
    if options.user is not None and options.password is not None:
        fields["user"] = text_of("user", options.user)
        fields["password"] = text_of("password", options.password)
    identity = identity_of(options)
    return fields if identity is None else fields | identity.fields(nonce)


def identity_of(options: ConnectOptions) -> Identity | None:
    """The NKey or JWT that the options name; None when they name neither. Raises ConfigError."""
    if options.creds_file is not None:
        text = read_credentials(errors.named("creds_file"), options.creds_file)
        return identity_of_creds(text, f"{errors.named('creds_file')} {options.creds_file!r}")
    if options.creds is not None:
        return identity_of_creds(
            text_of(errors.named("creds"), options.creds), errors.named("creds")
        )
    jwt = "" if options.jwt is None else text_of(errors.named("jwt"), options.jwt)
    if options.nkey_seed_file is not None:
        source = f"{errors.named('nkey_seed_file')} {options.nkey_seed_file!r}"
        text = read_credentials(errors.named("nkey_seed_file"), options.nkey_seed_file)
        public, sign = open_seed(find_seed(text, source), source)
        return Identity(jwt, public, sign)
    if options.nkey_seed is not None:
        public, sign = open_seed(
            text_of(errors.named("nkey_seed"), options.nkey_seed), errors.named("nkey_seed")
        )
        return Identity(jwt, public, sign)
    if jwt or options.sign is not None:
        return Identity(jwt, options.nkey or "", options.sign)
    return None


def refusal(error: errors.JetsparkError, credentials: Mapping[str, str]) -> errors.JetsparkError:
    """The exception for a refused CONNECT with these credentials.

    The server does not say that a JWT has expired. This machine's clock decides, which is safe,
    because the CONNECT was refused in any case.
    """
    if not isinstance(error, errors.AuthorizationError):
        return error
    if not credentials:
        return errors.AuthorizationError(
            f"{error.server} wants credentials, and none were given (authorization violation): put "
            "user and password or a token into the URL, or name a context or a creds file.",
            server=error.server,
        )
    expires = jwt_expiry(credentials.get("jwt", ""))
    if expires is not None and expires <= time.time():
        return errors.AuthExpiredError(
            f"{error.server} refused the user's JWT, which has expired.", server=error.server
        )
    return error


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive bytes until they complete an event, and send it back."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes

    def __repr__(self) -> str:
        return f"Send({len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class StartTLS:
    """Upgrade the link to TLS and verify the certificate against `hostname`."""

    hostname: str


Step: TypeAlias = Receive | Send | StartTLS


def may_be_silent(server: ServerURL, options: ConnectOptions) -> bool:
    """Whether a server with handshake_first would wait here for us to begin TLS."""
    return not (options.tls_first or server.websocket)


def no_answer(
    server: str, seconds: float, *, greeted: bool, received: int = 0
) -> errors.ConnectTimeoutError:
    """The error for silence; before the greeting, the peer may not be a NATS server.

    `received`: bytes of an incomplete line.
    """
    if greeted:
        return errors.ConnectTimeoutError(
            f"{server} did not answer within {seconds:g} s.", server=server
        )
    sent = f"{received:,} bytes but no whole line" if received else "nothing"
    begins = "begins with one" if received else "speaks first"
    first = "" if received else f" If it has handshake_first, set {errors.named('tls_first')}."
    return errors.ConnectTimeoutError(
        f"{server} accepted the connection and sent {sent} within {seconds:g} s: a NATS server "
        f"{begins}, so is this its client port?{first}",
        server=server,
    )


def closed(server: str, *, greeted: bool) -> errors.BrokenSocketError:
    """The error for a link that the server closed."""
    if greeted:
        return errors.BrokenSocketError(f"{server} closed the connection.", server=server)
    return errors.BrokenSocketError(
        f"{server} closed the connection before it said anything: if it has handshake_first, "
        f"{errors.switching('tls_first', True)}.",
        server=server,
    )


def no_nats(server: str, error: errors.ProtocolError) -> errors.ProtocolError:
    """The error for bytes that are not NATS in place of the greeting."""
    return errors.ProtocolError(f"{server} is not a NATS server's client port: {error}.")


def handshake(
    options: ConnectOptions, server: ServerURL, client_version: str
) -> Generator[Step, Event | Frame | None, ServerInfo]:
    """Yields the next steps; returns the server's INFO when it has accepted the client.

    Raises SecureConnectionWantedError, AuthError, ServerError, ConnectionFailure, ProtocolError;
    ConfigError for credentials that cannot be read or signed with.
    """
    wants_tls = options.wants_tls(server)
    below = server.websocket  # its TLS, if any, is there before the first byte
    if options.tls_first and not below:
        yield StartTLS(options.tls_hostname_of(server))
        below = True

    first = yield Receive()
    if isinstance(first, Err):
        raise error_of(first.text, str(server))
    if not isinstance(first, Info):
        raise errors.ProtocolError("it did not begin with INFO")
    info = parse_info(first.document)

    if not below and wants_tls and not (info.tls_required or info.tls_available):
        options.make_ssl_context()  # an unreadable file is the likelier mistake
        raise errors.SecureConnectionWantedError(
            f"{server} does not offer TLS, and the options require it.", server=str(server)
        )
    secure = wants_tls or (info.tls_required and not below)
    if secure and not below:
        yield StartTLS(options.tls_hostname_of(server))

    credentials = credentials_of(options, server, info.nonce)
    document = ConnectDocument(
        verbose=options.verbose,
        pedantic=options.pedantic,
        echo=options.echo,
        headers=info.headers,
        no_responders=info.headers,
        tls_required=secure,
        lang="python",
        version=client_version,
        protocol=1,
        name=options.name or f"jetspark-{platform.node()}",
        **credentials,
    )
    yield Send(frames.connect(encode_document(document)) + frames.PING)
    while True:
        event = yield Receive()
        if isinstance(event, Pong):
            return info
        if isinstance(event, Err):
            raise refusal(error_of(event.text, str(server)), credentials)
        if isinstance(event, Info):
            info = parse_info(event.document)
        if isinstance(event, Ping):
            yield Send(frames.PONG)
