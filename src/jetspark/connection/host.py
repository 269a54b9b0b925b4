"""What a session tells, and asks of, whoever keeps it: the seam to the supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetspark.connection.routes import Route
from jetspark.errors import JetsparkError
from jetspark.wire.documents import ServerInfo

if TYPE_CHECKING:
    from jetspark.connection.session import Session


class Host(Protocol):
    """What a session needs of its supervisor. None of these may raise."""

    def enqueue(self, session: Session, frame: bytes) -> None:
        """Send a control frame behind what is waiting."""

    def info_changed(self, session: Session, info: ServerInfo) -> None:
        """The server sent INFO."""

    def error_reported(self, error: JetsparkError) -> None:
        """Something went wrong that does not end the link."""

    def route_exhausted(self, route: Route) -> None:
        """A limited route got its last message."""

    def writing_paused(self, session: Session, paused: bool) -> None:
        """Back-pressure of the transport."""

    def session_lost(self, session: Session, error: JetsparkError) -> None:
        """The link has ended."""
