"""The interface between a session and the transport that carries its bytes.

A session is a `Receiver` and drives a `Transport`; a `Dial` opens the one for the other. The
layers above do not know the transport: `tcp_transport` and `websocket_transport` implement it, and
`dialing` chooses one of them for a server's URL. A proxy is another `Dial`.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from jetspark.connection.tls_state import TLSState
from jetspark.connection.urls import ServerURL


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

    def write_here(self, data: bytes) -> bool:
        """In any thread, one at a time with `write`: send now what goes at once; whether it did.

        When it returns False nothing was sent, and `write` is the way.
        """

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Upgrade the link. Raises OSError (ssl.SSLError is one)."""

    def close(self) -> None:
        """Send what is buffered and say that no more comes; the link ends when the peer agrees."""

    @property
    def unsent(self) -> int:
        """Bytes that the network has not taken yet."""

    @property
    def tls(self) -> TLSState | None:
        """The TLS that protects the link; None in plain text."""

    def abort(self) -> None:
        """End the link now."""


Dial: TypeAlias = Callable[[ServerURL, Receiver], Awaitable[Transport]]
"""Opens a transport to a server. Raises OSError (ssl.SSLError is one), UnicodeError for a name
that no host can have, or a JetsparkError."""
