"""The statuses that end a pull request, and what each means (ADR-37), for the client and `bulk`.

A status concerns the request to whose reply subject it was sent. Most statuses have the headers
Nats-Pending-Messages and Nats-Pending-Bytes: how much of that request was not delivered.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from jetspark.errors import BadHeaderError, ConsumerDeletedError, ConsumerIsPushError, PullError
from jetspark.wire import status as statuses
from jetspark.wire.headers import parse_headers
from jetspark.wire.status import Status

PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
LAST_CONSUMER: Final = "Nats-Last-Consumer"
"""In an idle heartbeat: the consumer sequence of the last delivery."""

_DELETED, _IS_PUSH = "consumer deleted", "push based"

# As the server writes them: a number, or a duration of Go such as "1m30s" or "500ms".
_LIMIT = re.compile(r"exceeded maxrequest(batch|maxbytes|expires) of (\S+)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|[uµμ]s|ns))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|[uµμ]s|ns)")
_SECONDS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


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
    """Only this request was refused; a later one may be served."""
    LIMITED = auto()
    """The request was beyond a limit of the consumer (`limit_of`); a smaller one is served."""
    INVALID = auto()
    """The server does not understand the request; it will not understand the next one either."""
    UNUSABLE = auto()
    """The consumer was deleted or is a push consumer."""


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
            return PullEnd.INVALID
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
    if text.startswith("exceeded maxrequest"):
        return PullEnd.INVALID if limit_of(status) is None else PullEnd.LIMITED
    return PullEnd.REFUSED


class PullLimit(NamedTuple):
    """A limit of a consumer. One field is given: messages, bytes or seconds of a request."""

    batch: int | None = None
    max_bytes: int | None = None
    expires: float | None = None


def limit_of(status: Status) -> PullLimit | None:
    """The limit that a request exceeded; None when the status names none."""
    match = _LIMIT.fullmatch(status.description.casefold())
    if match is None:
        return None
    what, limit = match.groups()
    if what == "expires":
        if _DURATION.fullmatch(limit) is None:
            return None
        seconds = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(limit))
        return PullLimit(expires=seconds) if seconds > 0 else None
    if not (limit.isascii() and limit.isdigit() and int(limit)):
        return None
    return PullLimit(batch=int(limit)) if what == "batch" else PullLimit(max_bytes=int(limit))


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
