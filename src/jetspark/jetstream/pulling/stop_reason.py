"""Why `ContinuousPull` has stopped, as it tells its owner."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from jetspark.errors import JetsparkError


class StopReason(Enum):
    """Why it has stopped. An error comes with each, unless it says otherwise."""

    RECONNECTED = auto()
    """The link was lost and is back; no error."""
    GAP = auto()
    """A delivery is missing, and no other client pulls: SequenceMismatchError."""
    MISSED_HEARTBEATS = auto()
    """Neither message nor heartbeat for twice the interval: MissedHeartbeatError."""
    NO_LEADER = auto()
    """The consumer has no leader at the moment, or does not exist: PullError."""
    INVALID = auto()
    """The server will not serve such a request, of whichever consumer: PullError."""
    UNUSABLE = auto()
    """The server will not serve this consumer again: ConsumerDeletedError, PullError …"""
    CLOSED = auto()
    """The connection was closed or the inbox refused: that error, None without one."""


OnStop: TypeAlias = Callable[[StopReason, JetsparkError | None], None]

OnMissing: TypeAlias = Callable[[int], None]
"""Called with the number of deliveries that did not come."""
