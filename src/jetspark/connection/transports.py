"""Transports: TCP, TLS and WebSocket under a session, and which one for a server's URL.

A session is the `Receiver` and drives a `Transport`, which a `Dial` opens. The layers above do not
know which transport it is.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from jetspark.connection.opening import Attempts, call_dialer, reason_of
from jetspark.connection.options import ConnectOptions
from jetspark.connection.proxy import Proxy, ask_proxy, following
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket import WebSocketCodec
from jetspark.errors import BrokenSocketError, JetsparkError, ServerRefusedError


@dataclass(frozen=True, slots=True)
class TLSState:
    """The TLS of a link, as agreed in the handshake."""

    version: str
    """The protocol's version, such as "TLSv1.3"."""
    cipher: str
    """The cipher suite, such as "TLS_AES_256_GCM_SHA384"."""
    certificate: bytes
    """The server's certificate, DER encoded."""
    peer: Mapping[str, Any]
    """The fields of the server's certificate, as `ssl.SSLSocket.getpeercert` has them: subject,
    subjectAltName, notAfter and others; empty if an `ssl_context` did not verify it."""


def tls_state_of(tls: ssl.SSLObject) -> TLSState:
    """The state after the handshake."""
    cipher = tls.cipher()
    return TLSState(
        version=tls.version() or "",
        cipher=cipher[0] if cipher else "",
        certificate=tls.getpeercert(binary_form=True) or b"",
        peer=tls.getpeercert() or {},
    )


class Receiver(Protocol):
    """A session, as its transport calls it in the event loop. No method may raise."""

    def bytes_received(self, chunk: memoryview) -> None:
        """Bytes of the server, valid during this call only."""

    def link_lost(self, error: Exception | None) -> None:
        """The last call: the link ended with an error, or (None) because either side closed it."""

    def pause_writing(self) -> None:
        """Too much is buffered: hold back."""

    def resume_writing(self) -> None:
        """Go on writing: there is room again."""


class Transport(Protocol):
    """A link's transport, as a session calls it."""

    def write(self, data: bytes) -> None:
        """Send, and buffer what the network does not take. Does nothing after the end."""

    def write_here(self, data: bytes) -> bool:
        """Send now from any thread, one at a time with `write`; returns whether it did.

        False: nothing was sent; use `write`.
        """

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Upgrade the link. Raises OSError (ssl.SSLError is one)."""

    def close(self) -> None:
        """Send buffered bytes and then our end; the link ends when the peer agrees."""

    @property
    def unsent(self) -> int:
        """Bytes that the network has not taken yet."""

    @property
    def tls(self) -> TLSState | None:
        """The TLS that protects the link; None in plain text."""

    def abort(self) -> None:
        """End the link now."""


Dial: TypeAlias = Callable[[ServerURL, Receiver], Awaitable[Transport]]
"""Opens a transport to a server. Raises OSError (ssl.SSLError is one), UnicodeError for an
impossible host name, or a JetsparkError."""


# -- the socket to a server, directly or through a proxy ---------------------------------------


async def open_socket(options: ConnectOptions, server: ServerURL) -> socket.socket:
    """A connected non-blocking socket whose peer is the server.

    Raises OSError, UnicodeError for an impossible host name, ServerRefusedError from a proxy,
    JetsparkError for a dialer that fails.
    """
    proxy = options.proxy_server
    if proxy is None:
        return await _connected(options, server.host, server.port)
    try:
        sock = await _connected(options, proxy.host, proxy.port)
    except TimeoutError:
        raise
    except (OSError, UnicodeError) as error:
        raise ServerRefusedError(
            f"No proxy at {proxy}: {reason_of(error)}.", server=str(server)
        ) from error
    try:
        await _through(sock, proxy, server)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connected(options: ConnectOptions, host: str, port: int) -> socket.socket:
    if options.dialer is not None:
        return await _dialled(options, host, port)
    loop = asyncio.get_running_loop()
    try:
        # An address needs no look-up, so no thread.
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        addresses = await loop.run_in_executor(None, look_up)
    attempts = Attempts(options, addresses)
    for sock, address, seconds in attempts:
        with attempts.connecting(sock):
            sock.setblocking(False)
            async with asyncio.timeout(seconds):
                await _connect(sock, address)
            return sock
    raise attempts.failure


async def _connect(sock: socket.socket, address: Any) -> None:
    """`sock_connect` of asyncio's own loops. Raises OSError.

    uvloop's also looks up addresses, in libuv's threads. A child forked later does not have these
    threads, but libuv joins them at its exit: a segmentation fault.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        await loop.sock_connect(sock, address)
        return
    try:
        sock.connect(address)
    except BlockingIOError:
        connected = asyncio.Event()
        loop.add_writer(sock, connected.set)
        try:
            await connected.wait()
        finally:
            loop.remove_writer(sock)
        if failure := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(failure, os.strerror(failure)) from None


async def _dialled(options: ConnectOptions, host: str, port: int) -> socket.socket:
    """Call the dialer in a thread, since it may block."""
    assert options.dialer is not None  # noqa: S101
    dialling = asyncio.ensure_future(asyncio.to_thread(call_dialer, options, host, port))
    try:
        sock = await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_close_late)
        raise
    sock.setblocking(False)
    return sock


def _close_late(dialling: asyncio.Future[socket.socket]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()


async def _through(sock: socket.socket, proxy: Proxy, server: ServerURL) -> None:
    loop = asyncio.get_running_loop()
    steps = ask_proxy(proxy, server)
    step = following(steps)
    while step is not None:
        if isinstance(step, bytes):
            await loop.sock_sendall(sock, step)
            step = following(steps)
        else:
            step = following(steps, await loop.sock_recv(sock, step))


# -- TCP, and TLS over it ----------------------------------------------------------------------

RECEIVE_BUFFER = 256 * 1024
"""Most bytes read at a time. One buffer serves a connection's whole life: reading allocates
nothing, and its content is only valid during `bytes_received`."""

_HIGH_WATER = 512 * 1024
_LOW_WATER = 128 * 1024
_AT_ONCE = 32 * 1024
"""Most bytes that other threads may send themselves: a socket with room takes them whole."""


class TcpTransport(asyncio.BufferedProtocol):
    """TCP, and TLS over it."""

    def __init__(self, receiver: Receiver, sock: socket.socket) -> None:
        self._receiver = receiver
        self._socket: socket.socket | None = sock
        """None under TLS, when bytes may not bypass the transport."""
        self._loop = asyncio.get_running_loop()
        self._rest = b""  # the rest of what another thread sent in part
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
        self._transport = None  # aborting asyncio's transport after its end may fail
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
            self._rest = b""  # only now: until here `write_here` stays away

    def write_here(self, data: bytes) -> bool:
        transport, sock = self._transport, self._socket
        if transport is None or sock is None or self._rest or len(data) > _AT_ONCE:
            return False
        size, sent = len(data), list[int]()
        try:
            if transport.get_write_buffer_size():
                return False
            # Noted in the same call in C: a signal handler's exception must not hide a part.
            sent.extend(map(sock.send, (data,)))
        except (OSError, RuntimeError):  # full or gone: `write` finds out
            return False
        finally:
            if sent and sent[0] < size:
                self._rest = data[sent[0] :]
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
            # If we closed while the server still sends, the kernel would answer it with a reset,
            # and the server would throw away our bytes that it has not read.
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
    """The default `Dial`: TCP, directly or through the proxy of the options."""

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


# -- WebSocket over another transport, with TLS in between for wss:// --------------------------

_HANG_UP = 0.25
"""Seconds after both close frames for the peer to end the link below."""


class WebSocketTransport:
    """The `Receiver` of the transport below, and the `Transport` of a session."""

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
            # Both sides sent a close frame: this is the end, whether TCP ends or not.
            below = self._below
            below.close()
            asyncio.get_running_loop().call_later(_HANG_UP, below.abort)
            self.link_lost(None)

    def link_lost(self, error: Exception | None) -> None:
        if not self._opened.done():
            if self._heard:
                self._codec.receive_eof()  # a response without a length ends here
            if self._codec.failure is not None:
                self._fail(self._codec.failure)
            else:
                text = f"{self._server} closed the connection before opening the WebSocket."
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
        self._opened.exception()  # mark it as retrieved: if TLS failed first, nobody awaits it

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

    Raises the errors of `dial`, ssl.SSLError, BrokenSocketError, ServerRefusedError when the peer
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


def dialing(options: ConnectOptions, own: Dial | None) -> Dial:
    """A `Dial` for nats://, tls://, ws:// and wss:// over TCP, or over the caller's `own`."""
    stream = own or tcp(options)

    async def dial(server: ServerURL, receiver: Receiver) -> Transport:
        if server.websocket:
            return await dial_websocket(server, receiver, options, stream)
        return await stream(server, receiver)

    return dial
