"""A WebSocket with the methods of a socket that a blocking link calls."""

from __future__ import annotations

import socket

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket import WebSocketCodec

_BUFFER_BYTES = 1 << 18


class BlockingWebSocket:
    """A WebSocket over `sock`, with the methods of a socket; created by `open_websocket`.

    `sock`: a connected socket, for wss:// with TLS; `codec`: encodes and decodes frames. Reading
    and sending raise the socket's OSError and TimeoutError, and ConnectionError for malformed
    frames.
    """

    def __init__(self, sock: socket.socket, codec: WebSocketCodec) -> None:
        """Use `sock` for frames of `codec`; the opening handshake is the caller's."""
        self._socket = sock
        self._codec = codec
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._unread = memoryview(b"")
        """Payload bytes received, but not taken by `recv_into` yet."""

    def receive(self) -> bool:
        """Receive from the socket once, and keep the payloads of frames for `recv_into`.

        False when the server has closed the connection.
        """
        count = self._socket.recv_into(self._buffer)
        if count == 0:
            self._codec.receive_eof()
            return False
        payloads = self._codec.receive(self._buffer[:count])
        self._unread = memoryview(b"".join((self._unread, *payloads)))
        if replies := self._codec.replies():  # to pings and to a close frame
            self._socket.sendall(replies)
        return True

    def recv_into(self, buffer: memoryview, /) -> int:
        """Copy payload bytes into `buffer`, up to its size; returns their number, 0 at the end."""
        while not self._unread:
            if self._codec.failure is not None:
                raise ConnectionError(self._codec.failure)
            if self._codec.closed or not self.receive():
                return 0
        count = min(len(self._unread), len(buffer))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count

    def sendall(self, data: bytes) -> None:
        """Send all of `data` in one frame."""
        self._socket.sendall(self._codec.send(data))

    def settimeout(self, seconds: float) -> None:
        """Set the timeout of all further calls."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close without the closing handshake, since a closed link would not wait for its end."""
        self._socket.close()


def open_websocket(
    sock: socket.socket, options: ConnectOptions, server: ServerURL
) -> BlockingWebSocket:
    """Open a WebSocket over a connected socket, by its opening handshake (HTTP).

    Raises TimeoutError and OSError of the socket, ServerRefusedError when the server refuses or
    does not speak WebSocket, BrokenSocketError when it closes the connection, ConfigError without
    the library.
    """
    codec = WebSocketCodec(server, options.header_pairs, compression=options.ws_compression)
    websocket = BlockingWebSocket(sock, codec)
    sock.sendall(codec.request())
    has_answered = False
    while not codec.opened and codec.failure is None and websocket.receive():
        has_answered = True
    # A failure without any answer only means that the connection was closed.
    if codec.failure is not None and has_answered:
        raise errors.ServerRefusedError(f"{server}: {codec.failure}.", server=str(server))
    if not codec.opened:
        raise errors.BrokenSocketError(
            f"{server} closed the connection before opening the WebSocket.", server=str(server)
        )
    return websocket
