"""The NATS protocol inside WebSocket frames (RFC 6455), without I/O.

Built on the sans-I/O layer of the library `websockets` (the extra `ws`), imported when a ws:// or
wss:// server is dialled. Each write becomes one binary frame; what arrives is handed on frame by
frame, since NATS has its own framing inside. The server's PINGs are answered here. It offers the
only compression that nats-server understands: without context between messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from jetspark.connection.urls import ServerURL
from jetspark.errors import ConfigError

MAX_FRAME = 256 * 1024 * 1024
"""Most decompressed bytes of one frame: more than a server sends, less than would do harm."""

# Not a real logger: debug output would have every frame, with CONNECT's secrets.
_SILENT = logging.Logger("jetspark.websocket", logging.CRITICAL + 1)


class WebSocketCodec:
    """One WebSocket of a client. Raises ConfigError when the library is missing.

    Send `request()` first, then feed what arrives to `receive`, and always send `replies()`.
    """

    def __init__(
        self, server: ServerURL, headers: Iterable[tuple[str, str]] = (), *, compression: bool
    ) -> None:
        try:
            from websockets.client import ClientProtocol
            from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
            from websockets.frames import Opcode
            from websockets.uri import WebSocketURI
        except ImportError:
            raise ConfigError(
                "ws:// and wss:// need the library websockets: pip install 'jetspark[ws]'."
            ) from None
        offer = ClientPerMessageDeflateFactory(
            server_no_context_takeover=True,
            client_no_context_takeover=True,
            client_max_window_bits=None,
        )
        self._protocol = ClientProtocol(
            WebSocketURI(server.scheme == "wss", server.host, server.port, server.path, ""),
            extensions=[offer] if compression else None,
            max_size=MAX_FRAME,
            logger=_SILENT,
        )
        self._headers = tuple(headers)
        self._data = frozenset({Opcode.BINARY, Opcode.TEXT, Opcode.CONT})
        self._close = Opcode.CLOSE
        self.opened = False
        """Whether the server has accepted the WebSocket."""
        self.closed = False
        """Whether a close frame was received or sent: nothing more will come."""
        self.failure: str | None = None
        """Why it never was a WebSocket, or no longer is one."""

    @property
    def compressed(self) -> bool:
        """Whether both sides agreed to compress."""
        return bool(self._protocol.extensions)

    def request(self) -> bytes:
        """The HTTP request that opens the WebSocket."""
        request = self._protocol.connect()
        for name, value in self._headers:
            request.headers[name] = value
        self._protocol.send_request(request)
        return self.replies()

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        """The payloads that `chunk` completes. Never raises: see `failure` and `closed`."""
        if self.failure is not None or self.closed:
            return []
        self._protocol.receive_data(bytes(chunk))
        return self._take()

    def receive_eof(self) -> None:
        """The link ended, and with it an HTTP response without a length."""
        if self.failure is None and not self.closed:
            self._protocol.receive_eof()
            self._take()

    def _take(self) -> list[bytes]:
        from websockets.frames import Frame

        payloads: list[bytes] = []
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                self.opened = self._protocol.handshake_exc is None
            elif event.opcode in self._data:
                payloads.append(bytes(event.data))
            elif event.opcode is self._close:
                self.closed = True
        handshake_error = self._protocol.handshake_exc
        broken = self._protocol.parser_exc
        if handshake_error is not None:
            response = getattr(handshake_error, "response", None)
            reason = handshake_error if response is None else f"HTTP {response.status_code}"
            self.failure = f"it did not open a WebSocket ({reason})"
        elif broken is not None:
            self.failure = f"it sent bytes that are not WebSocket ({broken})"
        return payloads

    def send(self, data: bytes) -> bytes:
        """The frame with `data`; empty for no data."""
        if not data or self.closed or self.failure is not None:
            return b""
        self._protocol.send_binary(data)
        return self.replies()

    def goodbye(self) -> bytes:
        """The close frame; empty when the link cannot take it."""
        if not self.opened or self.closed or self.failure is not None:
            return b""
        self.closed = True
        self._protocol.send_close(1000)
        return self.replies()

    def replies(self) -> bytes:
        """Bytes that the protocol itself has to send: PONGs, the reply to a close frame."""
        return b"".join(self._protocol.data_to_send())
