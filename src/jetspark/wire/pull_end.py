"""What a status line that ends a pull means (ADR-37), for one fetch and for consuming alike.

A status is about the request whose reply subject it came to. How much of that request was not
delivered stands in Nats-Pending-Messages and Nats-Pending-Bytes, with most statuses.
"""

from __future__ import annotations

from enum import Enum, auto

from jetspark.errors import BadHeaderError, ConsumerDeletedError, ConsumerIsPushError, PullError
from jetspark.wire import status as statuses
from jetspark.wire.headers import parse_headers
from jetspark.wire.status import Status

LEFT, BYTES_LEFT = "Nats-Pending-Messages", "Nats-Pending-Bytes"


class End(Enum):
    """Why the server ended a pull."""

    ORDINARY = auto()
    """Time is over, nothing there, or the batch is complete."""
    TOO_LARGE = auto()
    """The next message has more bytes than are left of max_bytes."""
    NO_LEADER = auto()
    """Nobody serves the consumer now: no pull that waits will be answered."""
    PIN_LOST = auto()
    """Another client of the priority group is pinned."""
    REFUSED = auto()
    """This request was not taken; another one, or a later one, may be."""
    USELESS = auto()
    """The consumer is gone or no pull consumer, or the server does not understand us."""


def end_of(status: Status) -> End:
    """The meaning of a status line other than 100."""
    text = status.description.casefold()
    match status.code:
        case statuses.NOT_FOUND | statuses.REQUEST_TIMEOUT | statuses.END_OF_BATCH:
            return End.ORDINARY
        case statuses.NO_RESPONDERS:
            return End.NO_LEADER
        case statuses.PIN_MISMATCH:
            return End.PIN_LOST
        case statuses.BAD_REQUEST:
            return End.USELESS
    if status.code != statuses.CONFLICT:
        return End.REFUSED
    if "batch completed" in text:
        return End.ORDINARY
    if "message size exceeds maxbytes" in text:
        return End.TOO_LARGE
    if text.startswith(("leadership change", "server shutdown")):
        return End.NO_LEADER
    if "consumer deleted" in text or "push based" in text:
        return End.USELESS
    return End.REFUSED


def error_of(status: Status) -> PullError:
    """The exception for it."""
    text = status.description.casefold()
    if status.code == statuses.CONFLICT:
        if "consumer deleted" in text:
            return ConsumerDeletedError(status.code, status.description)
        if "push based" in text:
            return ConsumerIsPushError(status.code, status.description)
    return PullError(status.code, status.description)


def number_in(block: bytes | None, header: str) -> int | None:
    """What a status says in this header; None when it says nothing."""
    try:
        headers = parse_headers(block or b"")[0]
    except BadHeaderError:
        return None
    value = headers.get(header, "")
    return int(value) if value and value.isascii() and value.isdigit() else None
