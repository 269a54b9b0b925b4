"""A server of the pool as users see it: what `choose_server` chooses from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolServer:
    """A server that may be tried next."""

    url: str
    """Without credentials."""
    discovered: bool
    """Whether the cluster advertised it; otherwise it was given by the user."""
    failures: int
    """Failed attempts since the last success."""
    wait: float
    """Seconds until its next attempt may begin (`reconnect_wait`); 0: now."""
