"""How long a large transfer puts up with a server that is away."""

from __future__ import annotations

import asyncio
from typing import Final

from jetspark.errors import (
    APIError,
    BrokenSocketError,
    ConnectionClosedError,
    JetsparkError,
    JetStreamNotEnabledError,
    NoStreamResponseError,
    OutboundBufferError,
    RequestTimeoutError,
)

WAIT: Final = 0.25
"""Seconds between two attempts."""

LONGEST: Final = 30.0
"""Seconds without any progress until it is given up."""

_PASSING = (BrokenSocketError, NoStreamResponseError, OutboundBufferError, RequestTimeoutError)
_NO_LEADER = (10008, 10009)  # of the cluster, for a while; a full store is a 503, too


class TransferRetry:
    """One for each transfer: `await retry.wait(error)` between two attempts."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def progress(self) -> None:
        """Something has succeeded: the time begins anew."""
        self._since = None

    async def wait(self, error: JetsparkError) -> None:
        """Raises the error when it will not pass by itself, or has lasted for too long."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        if not _passes(error) or now - self._since > LONGEST:
            raise error
        await asyncio.sleep(WAIT)


def _passes(error: JetsparkError) -> bool:
    """No link, no leader, no answer in time; but no connection that is closed for good."""
    if isinstance(error, APIError):
        return isinstance(error, JetStreamNotEnabledError) or error.err_code in _NO_LEADER
    return isinstance(error, _PASSING) and not isinstance(error, ConnectionClosedError)
