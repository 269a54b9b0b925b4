"""The statuses that end a pull request, and what each means (ADR-37), for the client and `bulk`.

A status concerns the request to whose reply subject it was sent. Most statuses have the headers
Nats-Pending-Messages and Nats-Pending-Bytes: how much of that request was not delivered.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from jetspark.errors import BadHeaderError, ConsumerDeletedError, ConsumerIsPushError, PullError
from jetspark.wire import status as statuses
from jetspark.wire.headers import parse_headers
from jetspark.wire.status import Status

PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
LAST_CONSUMER: Final = "Nats-Last-Consumer"
"""In an idle heartbeat: the consumer sequence of the last delivery."""

_DELETED, _IS_PUSH = "consumer deleted", "push based"


class PullEnd(Enum):
    """Why the server ended a pull request."""

    ORDINARY = auto()
    """It expired, no message was available, or the batch is complete."""
    TOO_LARGE = auto()
    """The next message is larger than what is left of max_bytes."""
    NO_LEADER = auto()
    """The consumer has no leader: none of the waiting requests will be answered."""
    PIN_LOST = auto()
    """Another client of the priority group is pinned."""
    REFUSED = auto()
    """Only this request was refused; a different or a later one may be served."""
    UNUSABLE = auto()
    """The consumer was deleted or is a push consumer, or the request is invalid."""


def pull_end(status: Status) -> PullEnd:
    """The meaning of a status other than 100."""
    text = status.description.casefold()
    match status.code:
        case statuses.NOT_FOUND | statuses.REQUEST_TIMEOUT | statuses.END_OF_BATCH:
            return PullEnd.ORDINARY
        case statuses.NO_RESPONDERS:
            return PullEnd.NO_LEADER
        case statuses.PIN_MISMATCH:
            return PullEnd.PIN_LOST
        case statuses.BAD_REQUEST:
            return PullEnd.UNUSABLE
    if status.code != statuses.CONFLICT:
        return PullEnd.REFUSED
    if "batch completed" in text:
        return PullEnd.ORDINARY
    if "message size exceeds maxbytes" in text:
        return PullEnd.TOO_LARGE
    if text.startswith(("leadership change", "server shutdown")):
        return PullEnd.NO_LEADER
    if _DELETED in text or _IS_PUSH in text:
        return PullEnd.UNUSABLE
    return PullEnd.REFUSED


def pull_error(status: Status) -> PullError:
    """The exception for a status that ended a pull request."""
    text = status.description.casefold()
    if status.code == statuses.CONFLICT:
        if _DELETED in text:
            return ConsumerDeletedError(status.code, status.description)
        if _IS_PUSH in text:
            return ConsumerIsPushError(status.code, status.description)
    return PullError(status.code, status.description)


def number_in(block: bytes | None, header: str) -> int | None:
    """The number in a header of a status; None if there is none."""
    try:
        headers = parse_headers(block or b"")[0]
    except BadHeaderError:
        return None
    value = headers.get(header, "")
    return int(value) if value and value.isascii() and value.isdigit() else None
