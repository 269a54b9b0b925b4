"""A WebSocket with the few calls of a socket that a blocking link makes."""

from __future__ import annotations

import socket
from collections import deque

from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.connection.websocket import WebSocketCodec
from jetspark.errors import BrokenSocketError, ServerRefusedError

_RECEIVE_BYTES = 1 << 18


class WebSocketStream:
    """Frames over `sock`, which is connected, and through TLS if it is wss.

    Made by `open_websocket`. Raises what the socket raises; ConnectionError for bytes that are no
    frames.
    """

    def __init__(self, sock: socket.socket, codec: WebSocketCodec) -> None:
        self._socket = sock
        self._codec = codec
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._payloads: deque[memoryview] = deque()

    def read(self) -> bool:
        """Take in what comes next; False at the end. Empty payloads are left out."""
        count = self._socket.recv_into(self._buffer)
        if count == 0:
            self._codec.receive_eof()
            return False
        payloads = self._codec.receive(self._buffer[:count])
        self._payloads.extend(memoryview(payload) for payload in payloads if payload)
        if replies := self._codec.replies():
            self._socket.sendall(replies)
        return True

    def recv_into(self, buffer: memoryview, /) -> int:
        """The next bytes inside the frames, at most as many as fit; 0 at the end."""
        while not self._payloads:
            if self._codec.failure is not None:
                raise ConnectionError(self._codec.failure)
            if self._codec.closed or not self.read():
                return 0
        payload = self._payloads.popleft()
        count = min(len(payload), len(buffer))
        buffer[:count] = payload[:count]
        if count < len(payload):
            self._payloads.appendleft(payload[count:])
        return count

    def sendall(self, data: bytes) -> None:
        """One frame with all of `data`."""
        self._socket.sendall(self._codec.send(data))

    def settimeout(self, seconds: float) -> None:
        """Of each call from now on."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Without a goodbye: who closes a link has nothing to wait for."""
        self._socket.close()


def open_websocket(
    sock: socket.socket, options: ConnectOptions, server: ServerURL
) -> WebSocketStream:
    """Ask for the WebSocket and wait for the answer.

    Raises TimeoutError and OSError of the socket, ServerRefusedError when what answers does not
    agree, BrokenSocketError when it hangs up, ConfigError without the library.
    """
    codec = WebSocketCodec(server, options.header_pairs, compression=options.ws_compression)
    stream = WebSocketStream(sock, codec)
    sock.sendall(codec.request())
    heard = False
    while not codec.opened and codec.failure is None:
        if not stream.read():
            break
        heard = True
    if codec.failure is not None and heard:
        raise ServerRefusedError(f"{server}: {codec.failure}.", server=str(server))
    if not codec.opened:
        raise BrokenSocketError(
            f"{server} ended the connection before it was a WebSocket.", server=str(server)
        )
    return stream
