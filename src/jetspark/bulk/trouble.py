"""What goes away by itself, on a new link or a little later, and what is told at once."""

from __future__ import annotations

from typing import Final

from jetspark.errors import (
    APIError,
    AuthError,
    ConnectionFailure,
    ConsumerDeletedError,
    JetsparkError,
    MissedHeartbeatError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
    SecureConnectionWantedError,
    TLSError,
)
from jetspark.wire import js_api

PASSING_CODES: Final = frozenset(
    {
        js_api.CLUSTER_NOT_AVAILABLE,
        js_api.NOT_LEADER,
        js_api.INSUFFICIENT_RESOURCES,
        js_api.NOT_ENABLED,
        js_api.TOO_MANY_REQUESTS,
        js_api.ID_IN_PROCESS,  # sent again; the replicas have not agreed on the first one yet
    }
)
"""Error codes of a server or stream that will do it a little later."""

_FINAL = (AuthError, SecureConnectionWantedError, TLSError)
_PASSING = (
    ConnectionFailure,
    ConsumerDeletedError,
    MissedHeartbeatError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
)


def passes(error: JetsparkError) -> bool:
    """Whether it may not happen again on a new link, or a little later."""
    if isinstance(error, APIError):
        return error.err_code in PASSING_CODES
    return isinstance(error, _PASSING) and not isinstance(error, _FINAL)


def answer_within(timeout: float) -> float:
    """Seconds to wait for one answer, of all those that there are for success."""
    return min(5.0, timeout / 4)
