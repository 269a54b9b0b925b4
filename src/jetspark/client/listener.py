"""The low-level subscription: raw frames, straight from the read loop."""

from __future__ import annotations

from jetspark.connection.routes import Route
from jetspark.connection.supervisor import Supervisor


class Listener:
    """Returned by `Client.listen`. There is no queue and no limit: the handler must keep up."""

    __slots__ = ("_link", "_route")

    def __init__(self, link: Supervisor, route: Route) -> None:
        link.add_route(route)
        self._link = link
        self._route = route

    @property
    def subject(self) -> str:
        """The subject, with its wildcards."""
        return self._route.subject

    @property
    def received(self) -> int:
        """Messages so far."""
        return self._route.received

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._route in self._link.routes

    def close(self) -> None:
        """Unsubscribe; `on_end` is not called. May be called again."""
        self._link.routes.remove(self._route)

    def stop(self) -> None:
        """Unsubscribe at the server; messages in flight still arrive, until `close`."""
        self._link.routes.stop(self._route)

    def __repr__(self) -> str:
        return f"Listener({self.subject!r}, received={self.received})"
