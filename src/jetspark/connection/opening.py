"""Opening a socket, for asyncio and blocking links: addresses, and the user's dialer."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import NO_HOST
from jetspark.errors import ConfigError, TLSError, named, user_error

# The place in the library where it happened.
_OPENSSL: Final = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")
# OpenSSL's codes for an unknown or self-signed issuer, and for another host or address.
_UNTRUSTED: Final = (2, 18, 19, 20, 21)
_ANOTHER_NAME: Final = (62, 64)


def call_dialer(options: ConnectOptions, host: str, port: int) -> socket.socket:
    """The connected socket that the user's dialer returns.

    Raises its OSError; JetsparkError for other exceptions, ConfigError for anything but a socket.
    """
    assert options.dialer is not None  # noqa: S101
    try:
        sock = options.dialer(host, port)
    except OSError:
        raise
    except Exception as error:
        raise user_error("dialer", error) from error
    if type(sock) is not socket.socket:
        raise ConfigError("dialer must return a connected socket.socket, without TLS.")
    return sock


class Attempts:
    """A new socket for each address of a name (ADR-11), and the seconds to connect it.

    The order is random unless `randomize` is off. Each address gets an equal part of the time left,
    so a silent one cannot use it up.
    """

    def __init__(self, options: ConnectOptions, addresses: list[Any]) -> None:
        """`addresses`: the result of getaddrinfo."""
        if options.randomize:
            random.shuffle(addresses)
        self._addresses = addresses
        self._end = time.monotonic() + options.connect_timeout
        self.failure = OSError("the name has no address")
        """Why the last attempt failed."""

    def __iter__(self) -> Iterator[tuple[socket.socket, Any, float]]:
        for tried, (family, kind, protocol, _, address) in enumerate(self._addresses):
            seconds = max(0.001, self._end - time.monotonic()) / (len(self._addresses) - tried)
            yield socket.socket(family, kind, protocol), address, seconds

    @contextmanager
    def connecting(self, sock: socket.socket) -> Iterator[None]:
        """An OSError in the block counts as a failed attempt and closes the socket."""
        try:
            yield
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # TimeoutError, too
            sock.close()
            self.failure = error
        except BaseException:
            sock.close()
            raise


def reason_of(error: BaseException) -> str:
    """Why a link failed or ended, as part of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.removesuffix(".")
    if isinstance(error, ssl.SSLError):
        return _OPENSSL.sub("", str(error))
    if isinstance(error, ConnectionRefusedError | ConnectionResetError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text repeats the address
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError):
        return NO_HOST
    return str(error).removesuffix(".") or type(error).__name__


def tls_failure(server: str, error: OSError | ValueError, options: ConnectOptions) -> TLSError:
    """The error for TLS that failed, with the option that may help."""
    reason = getattr(error, "reason", None) or ""
    code = getattr(error, "verify_code", 0)
    if code in _UNTRUSTED:
        advice = f"; name its authority with {named('tls_ca_file')}"
    elif code in _ANOTHER_NAME:
        advice = f"; connect to a name of the certificate, or set {named('tls_hostname')} to one"
    elif "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        advice = (
            f"; if the server wants a client's certificate, name it with {named('tls_cert_file')}"
        )
    elif "ALERT" not in reason and not code:
        advice = _not_first(options)
    else:
        advice = ""
    return TLSError(f"TLS with {server} failed: {reason_of(error)}{advice}.", server=server)


def too_early(server: str, options: ConnectOptions) -> TLSError:
    """The error for plain bytes, which must not pass for bytes that came through TLS."""
    text = f"{server} sent bytes before TLS began{_not_first(options)}."
    return TLSError(text, server=server)


def _not_first(options: ConnectOptions) -> str:
    return (
        f"; {named('tls_first')} is for servers with handshake_first" if options.tls_first else ""
    )
