"""The handshake as a generator that does no I/O: it yields what to receive, send or encrypt.

INFO comes first. TLS follows when either side requires it; with `tls_first` it comes before INFO.
Then CONNECT, with the server's nonce signed, and PING are sent together, and the PONG proves that
the server has accepted the client. A WebSocket has its TLS below all this. asyncio (`session`) and
the blocking reader (`bulk.link`) drive the same generator, so both refuse the same servers with
the same errors.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from jetspark.connection.auth import credentials_of, refusal
from jetspark.connection.options import ConnectOptions
from jetspark.connection.server_errors import error_of
from jetspark.connection.urls import ServerURL
from jetspark.errors import (
    BrokenSocketError,
    ConnectTimeoutError,
    ProtocolError,
    SecureConnectionWantedError,
)
from jetspark.wire import frames
from jetspark.wire.documents import ConnectDocument, ServerInfo, encode_document, parse_info
from jetspark.wire.events import Err, Event, Frame, Info, Ping, Pong


@dataclass(frozen=True, slots=True)
class Receive:
    """Send back the next event that the server's bytes give."""


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


def no_answer(
    server: str, seconds: float, *, greeted: bool, received: int = 0
) -> ConnectTimeoutError:
    """For silence; before the greeting there may be something else than a NATS server.

    `received`: bytes of a line that has not ended.
    """
    if greeted:
        return ConnectTimeoutError(f"{server} did not answer within {seconds:g} s.", server=server)
    sent = f"{received:,} bytes but no whole line" if received else "nothing"
    begins = "begins with one" if received else "speaks first"
    first = "" if received else " If it has handshake_first, set tls_first."
    return ConnectTimeoutError(
        f"{server} accepted the connection and sent {sent} within {seconds:g} s: a NATS server "
        f"{begins}, so is this its client port?{first}",
        server=server,
    )


def closed(server: str, *, greeted: bool) -> BrokenSocketError:
    """For a link that the server has ended."""
    if greeted:
        return BrokenSocketError(f"{server} closed the connection.", server=server)
    return BrokenSocketError(
        f"{server} closed the connection before it said anything: if it has handshake_first, set "
        "tls_first.",
        server=server,
    )


def no_nats(server: str, error: ProtocolError) -> ProtocolError:
    """For bytes in place of the greeting that are not NATS."""
    return ProtocolError(f"{server} is not a NATS server's client port: {error}.")


def handshake(
    options: ConnectOptions, server: ServerURL, client_version: str
) -> Generator[Step, Event | Frame | None, ServerInfo]:
    """Yields what to do; returns the server's INFO when it has accepted the client.

    Raises SecureConnectionWantedError, AuthError, ServerError, ConnectionFailure, ProtocolError;
    ConfigError for credentials that cannot be read or signed with.
    """
    wanted = options.wants_tls(server)
    below = server.websocket  # its TLS, if any, is there before the first byte
    if options.tls_first and not below:
        yield StartTLS(options.tls_hostname_of(server))
        below = True

    first = yield Receive()
    if isinstance(first, Err):
        raise error_of(first.text, str(server))
    if not isinstance(first, Info):
        raise ProtocolError("it did not begin with INFO")
    info = parse_info(first.document)

    if not below and wanted and not (info.tls_required or info.tls_available):
        options.make_ssl_context()  # a file that cannot be read is the likelier mistake
        raise SecureConnectionWantedError(
            f"{server} does not offer TLS, and the options require it.", server=str(server)
        )
    secure = wanted or (info.tls_required and not below)
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
