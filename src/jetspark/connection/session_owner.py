"""The events that a session reports to its owner: the interface of `session` and `supervisor`."""

from __future__ import annotations

from typing import Protocol

from jetspark.connection.routes import Route
from jetspark.connection.tls_state import TLSState
from jetspark.connection.urls import ServerURL
from jetspark.errors import JetsparkError
from jetspark.wire.documents import ServerInfo


class Link(Protocol):
    """The session that calls, as its owner sees it."""

    server: ServerURL
    info: ServerInfo
    proven: bool
    """Whether the server has answered a PING behind what began this link."""

    @property
    def tls(self) -> TLSState | None:
        """The TLS that protects it."""


class SessionOwner(Protocol):
    """What a session calls. None of these may raise."""

    def enqueue(self, link: Link, frame: bytes) -> None:
        """Send a control frame after the buffered ones."""

    def info_changed(self, link: Link, info: ServerInfo) -> None:
        """The server sent INFO."""

    def error_reported(self, error: JetsparkError) -> None:
        """An error that does not end the link."""

    def route_exhausted(self, route: Route) -> None:
        """A limited route got its last message."""

    def writing_paused(self, link: Link, paused: bool) -> None:
        """Back-pressure of the transport."""

    def session_lost(self, link: Link, error: JetsparkError) -> None:
        """The link has ended."""
