"""The states of a connection, and the events that report its changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from jetspark.errors import JetsparkError


class ConnectionStatus(StrEnum):
    """The state of a connection; docs/architecture.md has the diagram."""

    CLOSED = "closed"
    """Not connected yet, or closed for good."""
    CONNECTING = "connecting"
    """Trying each server once. Publishes and subscriptions are buffered."""
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    """The link was lost; it tries servers. Publishes and subscriptions are buffered."""
    DRAINING = "draining"
    """Finishing before it closes; a lost link is not replaced."""


_S = ConnectionStatus
TRANSITIONS: dict[ConnectionStatus, tuple[ConnectionStatus, ...]] = {
    _S.CLOSED: (_S.CONNECTING,),
    _S.CONNECTING: (_S.CONNECTED, _S.CLOSED),
    _S.CONNECTED: (_S.RECONNECTING, _S.DRAINING, _S.CLOSED),
    _S.RECONNECTING: (_S.CONNECTED, _S.CLOSED),
    _S.DRAINING: (_S.CLOSED,),
}
"""The allowed changes of state, as drawn in docs/architecture.md."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The first link is up."""

    server: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The link was lost. `error` is None when this side ended it (force_reconnect)."""

    server: str
    error: JetsparkError | None


@dataclass(frozen=True, slots=True)
class Reconnected:
    """A link is up again and the subscriptions are restored."""

    server: str


@dataclass(frozen=True, slots=True)
class LameDuck:
    """The server will stop soon; the connection moves to another one if it can."""

    server: str


@dataclass(frozen=True, slots=True)
class ServersDiscovered:
    """The cluster advertised servers that were not known yet."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Draining:
    """drain() was called."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Closed for good. `error` is None when it was closed on purpose."""

    error: JetsparkError | None


ConnectionEvent: TypeAlias = (
    Connected | Disconnected | Reconnected | LameDuck | ServersDiscovered | Draining | Closed
)
