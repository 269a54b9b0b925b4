"""TCP as a `Transport`, and TLS over it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from jetspark.connection.options import ConnectOptions
from jetspark.connection.sockets import open_socket
from jetspark.connection.tls_state import TLSState, tls_state_of
from jetspark.connection.transport import Dial, Receiver, Transport
from jetspark.connection.urls import ServerURL

RECEIVE_BUFFER = 256 * 1024
"""Bytes read at most at a time. One buffer for the life of a connection: reading allocates
nothing, and what is in it is only valid during `bytes_received`."""

_HIGH_WATER = 512 * 1024
_LOW_WATER = 128 * 1024
_AT_ONCE = 32 * 1024
"""Bytes that other threads may send themselves: what a socket with room takes whole."""


class TcpTransport(asyncio.BufferedProtocol):
    """TCP, and TLS over it."""

    def __init__(self, receiver: Receiver, sock: socket.socket) -> None:
        self._receiver = receiver
        self._socket: socket.socket | None = sock
        """None when bytes may not go around the transport: there is TLS."""
        self._loop = asyncio.get_running_loop()
        self._rest = b""  # of what another thread has sent in part
        self._view = memoryview(bytearray(RECEIVE_BUFFER))
        self._transport: asyncio.Transport | None = None
        self.tls: TLSState | None = None

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
            if self._rest:
                data = self._rest + data
            self._transport.write(data)
            self._rest = b""  # not before: until then `write_here` keeps away

    def write_here(self, data: bytes) -> bool:
        transport, sock = self._transport, self._socket
        if transport is None or sock is None or self._rest or len(data) > _AT_ONCE:
            return False
        try:
            if transport.get_write_buffer_size():
                return False
            sent = sock.send(data)
        except (OSError, RuntimeError):  # it is full, or gone: `write` finds out
            return False
        if sent < len(data):
            self._rest = data[sent:]
            self._loop.call_soon_threadsafe(self.write, b"")
        return True

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        if self._transport is None:
            raise ConnectionResetError("the link ended before TLS began")
        self._socket = None
        upgraded = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=hostname
        )
        if upgraded is None:
            raise ConnectionResetError("the link ended during the TLS handshake")
        self._use(upgraded)
        self.tls = tls_state_of(upgraded.get_extra_info("ssl_object"))

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


def tcp(options: ConnectOptions) -> Dial:
    """The default `Dial`: TCP as the options say, directly or through a proxy."""

    async def dial(server: ServerURL, receiver: Receiver) -> Transport:
        sock = await open_socket(options, server)
        try:
            _, protocol = await asyncio.get_running_loop().create_connection(
                lambda: TcpTransport(receiver, sock), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        return protocol

    return dial
