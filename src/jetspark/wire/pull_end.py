"""What a status line that ends a pull request means (ADR-37): the one table, for client and bulk.

A status is about the request whose reply subject it came to. Most statuses say in
Nats-Pending-Messages and Nats-Pending-Bytes how much of that request was not delivered.
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
"""In an idle heartbeat: the consumer's last delivery."""

_DELETED, _IS_PUSH = "consumer deleted", "push based"


class PullEnd(Enum):
    """Why the server ended a pull request."""

    ORDINARY = auto()
    """It expired, nothing is stored, or the batch is complete."""
    TOO_LARGE = auto()
    """The next message has more bytes than are left of max_bytes."""
    NO_LEADER = auto()
    """The consumer has no leader now: no waiting request will be answered."""
    PIN_LOST = auto()
    """Another client of the priority group is pinned."""
    REFUSED = auto()
    """This request was refused; another one, or a later one, may be served."""
    UNUSABLE = auto()
    """The consumer is deleted or a push consumer, or the server does not understand the request."""


def pull_end(status: Status) -> PullEnd:
    """The meaning of a status line other than 100."""
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
    """The exception for it."""
    text = status.description.casefold()
    if status.code == statuses.CONFLICT:
        if _DELETED in text:
            return ConsumerDeletedError(status.code, status.description)
        if _IS_PUSH in text:
            return ConsumerIsPushError(status.code, status.description)
    return PullError(status.code, status.description)


def number_in(block: bytes | None, header: str) -> int | None:
    """The number that a status has in this header; None when it has none."""
    try:
        headers = parse_headers(block or b"")[0]
    except BadHeaderError:
        return None
    value = headers.get(header, "")
    return int(value) if value and value.isascii() and value.isdigit() else None
