"""Core NATS over asyncio.

The surface is being built; signatures are final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jetspark.client.messages import Message
from jetspark.connection.options import ConnectOptions
from jetspark.errors import JetsparkError
from jetspark.wire.documents import ServerInfo
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike


class Client:
    """One connection to a NATS deployment; for one event loop, from one thread."""

    options: ConnectOptions
    loop: asyncio.AbstractEventLoop

    @property
    def status(self) -> Any: raise NotImplementedError  # connection.events.ConnectionStatus

    @property
    def is_connected(self) -> bool: raise NotImplementedError

    @property
    def last_error(self) -> JetsparkError | None: raise NotImplementedError

    @property
    def server_info(self) -> ServerInfo | None: raise NotImplementedError

    @property
    def current_server(self) -> str | None: raise NotImplementedError

    @property
    def servers(self) -> list[str]: raise NotImplementedError

    @property
    def max_payload(self) -> int: raise NotImplementedError

    @property
    def stats(self) -> Any: raise NotImplementedError

    def report(self, error: JetsparkError) -> None:
        """last_error, the log, and the error callback. For errors that no call can raise."""
        raise NotImplementedError

    async def publish(self, subject: str, payload: bytes = b"", *, reply: str | None = None,
                      headers: HeadersLike | None = None) -> None:
        """publish_nowait, after waiting while the transport says stop."""
        raise NotImplementedError

    def publish_nowait(self, subject: str, payload: bytes = b"", *, reply: str | None = None,
                       headers: HeadersLike | None = None) -> None:
        """Raises BadSubjectError, MaxPayloadError, HeadersNotSupportedError, OutboundBufferError,
        ConnectionClosedError."""
        raise NotImplementedError

    def subscribe(self, subject: str, *, queue: str | None = None,
                  callback: Callable[[Message], Awaitable[None] | None] | None = None,
                  max_msgs: int = 0, pending_msgs_limit: int = 524_288,
                  pending_bytes_limit: int = 128 << 20) -> Any:  # Subscription
        raise NotImplementedError

    def listen(self, subject: str, handler: Callable[[MessageFrame], None], *,
               queue: str | None = None, max_msgs: int = 0,
               on_disconnect: Callable[[], None] | None = None,
               on_reconnect: Callable[[], None] | None = None,
               on_end: Callable[[JetsparkError | None], None] | None = None) -> Any:  # Listener
        """handler is called in the read loop with the raw frame; it must not block.

        on_disconnect: the link was lost; the client reconnects by itself.
        on_reconnect: the link is back and the SUBs are replayed.
        on_end: no more frames will come: max_msgs reached (None), permission refused, or the
        connection closed (ConnectionClosedError). Not called by Listener.close() itself.
        Listener: .subject, .received, .active, .close() (sync, any number of times).
        """
        raise NotImplementedError

    async def request(self, subject: str, payload: bytes = b"", *, timeout: float | None = None,
                      headers: HeadersLike | None = None) -> Message:
        raise NotImplementedError

    def new_inbox(self) -> str: raise NotImplementedError

    async def flush(self, timeout: float | None = None) -> None: raise NotImplementedError

    async def rtt(self) -> float: raise NotImplementedError

    async def force_reconnect(self) -> None: raise NotImplementedError

    async def drain(self) -> None: raise NotImplementedError

    async def close(self) -> None: raise NotImplementedError
