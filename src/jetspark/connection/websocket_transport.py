"""WebSocket as a `Transport` over another one, with TLS in between for wss://."""

from __future__ import annotations

import asyncio
import ssl

from jetspark.connection.options import ConnectOptions
from jetspark.connection.tls_state import TLSState
from jetspark.connection.transport import Dial, Receiver, Transport
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket import WebSocketCodec
from jetspark.errors import BrokenSocketError, JetsparkError, ServerRefusedError

_HANG_UP = 0.25
"""Seconds after both close frames within which the peer should have ended the link below."""


class WebSocketTransport:
    """The `Receiver` of the transport below it, and the `Transport` of a session."""

    def __init__(self, server: ServerURL, receiver: Receiver, codec: WebSocketCodec) -> None:
        self._server = str(server)
        self._receiver = receiver
        self._codec = codec
        self._below: Transport | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = False
        self._lost = False

    async def open(self, below: Transport) -> None:
        """Ask for the WebSocket. Raises ServerRefusedError, BrokenSocketError."""
        self._below = below
        below.write(self._codec.request())
        await self._opened

    # -- called by the transport below ---------------------------------------------------------

    def bytes_received(self, chunk: memoryview) -> None:
        self._heard = True
        codec = self._codec
        payloads = codec.receive(chunk)
        if self._below is not None and (reply := codec.replies()):
            self._below.write(reply)
        if codec.opened and not self._opened.done():
            self._opened.set_result(None)
        for payload in payloads:
            self._receiver.bytes_received(memoryview(payload))
        if codec.failure is not None:
            self._fail(codec.failure)
        elif codec.closed and self._below is not None:
            # Both sides have sent a close frame: this is the end, whether TCP ends or not.
            below = self._below
            below.close()
            asyncio.get_running_loop().call_later(_HANG_UP, below.abort)
            self.link_lost(None)

    def link_lost(self, error: Exception | None) -> None:
        if not self._opened.done():
            if self._heard:
                self._codec.receive_eof()  # an answer without a length ends here
            if self._codec.failure is not None:
                self._fail(self._codec.failure)
            else:
                text = f"{self._server} ended the connection before it was a WebSocket."
                self._refuse(BrokenSocketError(text, server=self._server))
        if not self._lost:
            self._lost = True
            self._receiver.link_lost(error)

    def _fail(self, reason: str) -> None:
        if not self._opened.done():
            self._refuse(ServerRefusedError(f"{self._server}: {reason}.", server=self._server))
        elif not self._lost:
            self._lost = True
            self._receiver.link_lost(ConnectionError(reason))
        if self._below is not None:
            self._below.abort()

    def _refuse(self, error: JetsparkError) -> None:
        self._opened.set_exception(error)
        self._opened.exception()  # retrieved: if TLS failed first, nothing awaits it

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    # -- called by the session -----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._below is not None and (frame := self._codec.send(data)):
            self._below.write(frame)

    def write_here(self, data: bytes) -> bool:
        return False

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        raise OSError("TLS is below a WebSocket: the URL must be wss://")

    def close(self) -> None:
        if self._below is not None:
            if goodbye := self._codec.goodbye():
                self._below.write(goodbye)
            self._below.close()

    @property
    def unsent(self) -> int:
        return 0 if self._below is None else self._below.unsent

    @property
    def tls(self) -> TLSState | None:
        return None if self._below is None else self._below.tls

    def abort(self) -> None:
        if self._below is not None:
            self._below.abort()


async def dial_websocket(
    server: ServerURL, receiver: Receiver, options: ConnectOptions, dial: Dial
) -> Transport:
    """A WebSocket over the transport that `dial` opens.

    Raises what `dial` raises, ssl.SSLError, BrokenSocketError, ServerRefusedError when what answers
    does not speak WebSocket or refuses the request, ConfigError for unusable TLS files and without
    the library.
    """
    codec = WebSocketCodec(server, options.header_pairs, compression=options.ws_compression)
    transport = WebSocketTransport(server, receiver, codec)
    below = await dial(server, transport)
    try:
        if server.secure:
            await below.start_tls(options.make_ssl_context(), options.tls_hostname_of(server))
        await transport.open(below)
    except BaseException:
        below.abort()
        raise
    return transport
