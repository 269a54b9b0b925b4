"""Why pulling without end has stopped, as `engine` tells its owner."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from jetspark.errors import JetsparkError


class StopReason(Enum):
    """Why the engine has stopped. The error that comes with it is None only where it says so."""

    RECONNECTED = auto()
    """The link was lost and is back; no error."""
    GAP = auto()
    """The consumer has sent more than has come, and nobody else pulls: SequenceMismatchError."""
    MISSED_HEARTBEATS = auto()
    """Neither message nor heartbeat for twice the interval: MissedHeartbeatError."""
    NO_LEADER = auto()
    """Nobody serves the consumer at the moment, or it is gone: PullError."""
    UNUSABLE = auto()
    """The server will not serve this consumer again: ConsumerDeletedError, PullError …"""
    CLOSED = auto()
    """The connection is closed, or the inbox refused: that error, if there is one."""


OnStop: TypeAlias = Callable[[StopReason, JetsparkError | None], None]

OnMissing: TypeAlias = Callable[[int], None]
"""Told how many deliveries did not come."""
