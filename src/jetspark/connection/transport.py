"""The seam between a session and whatever carries its bytes.

A session is a `Receiver` and drives a `Transport`; a `Dial` makes the one for the other. TCP with
TLS is here. Anything else that carries the same bytes (a scripted double, WebSocket) implements
`Transport` and comes with its own `Dial`; nothing above this seam knows the difference.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, cast

from jetspark.connection.urls import ServerURL

RECEIVE_BUFFER = 256 * 1024
"""Bytes read at most at a time. One buffer for the life of a connection: reading allocates
nothing, and what is in it is only valid during `bytes_received`."""

_HIGH_WATER = 512 * 1024
_LOW_WATER = 128 * 1024


class Receiver(Protocol):
    """What a transport calls, always from the event loop. None of these may raise."""

    def bytes_received(self, chunk: memoryview) -> None:
        """Bytes of the server, valid during this call only."""

    def link_lost(self, error: Exception | None) -> None:
        """The last call: the link has ended, by an error or (None) by either side's closing."""

    def pause_writing(self) -> None:
        """Too much is buffered: hold back."""

    def resume_writing(self) -> None:
        """There is room again."""


class Transport(Protocol):
    """What a session calls."""

    def write(self, data: bytes) -> None:
        """Send, buffering what the network does not take. Silently nothing after the end."""

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Upgrade the link. Raises OSError (ssl.SSLError is one)."""

    def close(self) -> None:
        """Send what is buffered and say that no more comes; the link ends when the peer agrees."""

    @property
    def unsent(self) -> int:
        """Bytes that the network has not taken yet."""

    def abort(self) -> None:
        """End the link now."""


Dial: TypeAlias = Callable[[ServerURL, Receiver], Awaitable[Transport]]
"""Opens a transport to a server. Raises OSError."""


class TcpTransport(asyncio.BufferedProtocol):
    """TCP, and TLS over it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._view = memoryview(bytearray(RECEIVE_BUFFER))
        self._transport: asyncio.Transport | None = None

    # -- called by asyncio ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._use(cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._receiver.bytes_received(self._view[:nbytes])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None  # asyncio's may fail when it is aborted after its end
        self._receiver.link_lost(exc)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    # -- called by the session -----------------------------------------------------------------

    def _use(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=_HIGH_WATER, low=_LOW_WATER)
        self._transport = transport

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        if self._transport is None:
            raise ConnectionResetError("the link ended before TLS began")
        upgraded = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=hostname
        )
        if upgraded is None:
            raise ConnectionResetError("the link ended during the TLS handshake")
        self._use(upgraded)

    def close(self) -> None:
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            # Closing outright while the server still sends would make the kernel answer it with
            # a reset, and the server throw away what it has not read of ours.
            self._transport.write_eof()
        else:
            self._transport.close()

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def dial_tcp(server: ServerURL, receiver: Receiver) -> Transport:
    """The default `Dial`."""
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: TcpTransport(receiver), server.host, server.port
    )
    return protocol


def reason_of(error: BaseException) -> str:
    """Why a link could not be made or ended, for a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ConnectionRefusedError | ConnectionResetError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text repeats the address
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
