"""Retries: which errors are transient, and the pauses before another attempt. Pure.

Who retries in the client (`links.retry` has the table of the readers and writers without an event
loop):

| who | what | after | pauses | until |
|---|---|---|---|---|
| `connection.pool` | a server | any failure | the options | `max_reconnect_attempts` |
| `publish` | the message (ADR-22) | no responders | `PAUSE` | its `timeout` |
| publishers | a message | a transient refusal, not FULL | `PAUSE` | `retry_for` |
| consuming, `fetch` | the pull | no leader, a refusal | `PAUSE` | it ends |
| ordered consumers | a later consumer | any but its stream's end | `RECREATING` | it ends |
| watches | the consumer | transient, after a first entry | `PAUSE` | it ends |
| locks | the question, the write | transient | `PAUSE` | the lease, `timeout` |
| group members | joining | transient | `PAUSE` | it ends |
| object transfers | the chunks | transient, not FULL | `PAUSE` | 30 s without progress |
| other calls for objects | the info | transient, not FULL | `PAUSE` | the context's timeout |
| dead letters | the letter | any | `REDELIVERY` | it is stored |
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import jetspark.err_codes as err_codes
import jetspark.errors as errors

ELECTING: Final = frozenset({err_codes.CLUSTER_NOT_AVAIL, err_codes.CLUSTER_NOT_LEADER})
"""The stream, or the cluster, has no leader at the moment."""
NO_JETSTREAM: Final = frozenset({err_codes.NOT_ENABLED})
"""The server runs without JetStream, or has not started it yet; another server may have it."""
BUSY: Final = frozenset({err_codes.STREAM_TOO_MANY_REQUESTS})
"""The server's queue is full."""
FULL: Final = frozenset({err_codes.INSUFFICIENT_RESOURCES})
"""No memory or storage is left, or no server has room for what is to be created."""
REPLICATING: Final = frozenset(
    {err_codes.STREAM_DUPLICATE_MESSAGE_CONFLICT, err_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT}
)
"""An earlier message with this id, or of this subject, is neither stored nor refused yet."""

TRANSIENT_CODES: Final = ELECTING | NO_JETSTREAM | BUSY | FULL | REPLICATING
"""The `err_code` of every transient refusal."""


class TryAnotherLinkError(errors.JetsparkError):
    """Data that came over a link is unusable or incomplete: another link, or consumer, may do.

    Readers and writers raise IncompleteRangeError in its place in the end.
    """


_TRANSIENT: Final = (
    errors.ConnectionFailure,
    errors.ConsumerDeletedError,
    errors.MissedHeartbeatError,
    errors.NoRespondersError,
    errors.NoStreamResponseError,
    errors.OutboundBufferError,
    errors.ProtocolError,
    errors.RequestTimeoutError,
    TryAnotherLinkError,
)
# Failures of the connection that need a person: credentials, certificates, options.
LASTING: Final = (errors.AuthError, errors.SecureConnectionWantedError, errors.TLSError)


class Backoff(NamedTuple):
    """Pauses in seconds, which double from `first` up to `longest`."""

    first: float
    longest: float

    def pause(self, attempts: int) -> float:
        """The pause after so many attempts, at least one."""
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.longest)


PAUSE: Final = 0.25
"""Seconds before another attempt where pauses do not grow."""
RECREATING: Final = Backoff(PAUSE, 5.0)
REDELIVERY: Final = Backoff(0.5, 30.0)


def is_transient(error: errors.JetsparkError, *, but: Collection[int] = ()) -> bool:
    """Whether the same call may succeed a little later, or over a new link.

    `but`: transient codes that are final for this caller.
    """
    if isinstance(error, errors.APIError):
        # A leader that has just stepped down answers 503 without an err_code.
        if (error.code, error.err_code) == (503, 0):
            return True
        return error.err_code in TRANSIENT_CODES and error.err_code not in but
    return isinstance(error, _TRANSIENT) and not isinstance(error, LASTING)


def is_transient_for_client(error: errors.JetsparkError, *, but: Collection[int] = ()) -> bool:
    """Whether a client may retry: it makes new links itself, but a closed one stays closed."""
    return is_transient(error, but=but) and not isinstance(error, errors.ConnectionClosedError)
