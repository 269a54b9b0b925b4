"""The states of a connection, and what it tells about itself (row C2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from jetspark.errors import JetsparkError


class ConnectionStatus(StrEnum):
    """Where a connection stands; the diagram is in docs/architecture.md."""

    CLOSED = "closed"
    """Not connected yet, or never again."""
    CONNECTING = "connecting"
    """Trying each server once. Publishing and subscribing is buffered."""
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    """The link was lost; servers are tried. Publishing and subscribing is buffered."""
    DRAINING = "draining"
    """Finishing what was begun before closing; a lost link is not made again."""


_S = ConnectionStatus
TRANSITIONS: dict[ConnectionStatus, tuple[ConnectionStatus, ...]] = {
    _S.CLOSED: (_S.CONNECTING,),
    _S.CONNECTING: (_S.CONNECTED, _S.CLOSED),
    _S.CONNECTED: (_S.RECONNECTING, _S.DRAINING, _S.CLOSED),
    _S.RECONNECTING: (_S.CONNECTED, _S.CLOSED),
    _S.DRAINING: (_S.CLOSED,),
}
"""docs/architecture.md draws this table."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The first link is up."""

    server: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The link was lost. `error` is None when it was ours to end (force_reconnect)."""

    server: str
    error: JetsparkError | None


@dataclass(frozen=True, slots=True)
class Reconnected:
    """A link is up again and the subscriptions are restored."""

    server: str


@dataclass(frozen=True, slots=True)
class LameDuck:
    """The server will stop soon; the connection moves to another one if there is one."""

    server: str


@dataclass(frozen=True, slots=True)
class ServersDiscovered:
    """The cluster named servers that were not known yet."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Draining:
    """drain() was called."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Never to be connected again. `error` is None when it was closed on purpose."""

    error: JetsparkError | None


ConnectionEvent: TypeAlias = (
    Connected | Disconnected | Reconnected | LameDuck | ServersDiscovered | Draining | Closed
)
