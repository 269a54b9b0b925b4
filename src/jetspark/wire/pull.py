"""The statuses that end a pull request, and what each means (ADR-37), for the client and `ranges`.

A status is sent to the reply subject of its request. Most have the headers Nats-Pending-Messages
and Nats-Pending-Bytes: how much of the request was not delivered.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

import jetspark.errors as errors
from jetspark.wire import status as statuses
from jetspark.wire.documents import encode_document
from jetspark.wire.headers import parse_headers
from jetspark.wire.reply_subject import delivery_parts
from jetspark.wire.status import Status

if TYPE_CHECKING:
    from jetspark.wire.kernel import MessageFrame

# -------------------------------------------------------------------------------------------------
# The pull request's document (ADR-13, ADR-37, ADR-42), for the client and `ranges`.


class PullRequest(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The request of CONSUMER.MSG.NEXT. Fields with their default are not sent."""

    batch: int
    """Maximum messages to deliver."""
    max_bytes: int = 0
    """Maximum bytes to deliver; 0: no limit."""
    no_wait: bool = False
    """Deliver what is available and end the request."""
    expires: int = 0
    """Nanoseconds that the request may wait at the server."""
    idle_heartbeat: int = 0
    """Nanoseconds between idle heartbeats; 0: none."""
    group: str | None = None
    """The priority group."""
    id: str | None = None
    """The pin id of this client (Nats-Pin-Id), in a pinned priority group."""
    min_pending: int | None = None
    min_ack_pending: int | None = None
    priority: int | None = None
    """0 to 9; lower numbers are served first."""

    def encode(self) -> bytes:
        """The request as JSON."""
        return encode_document(self)


def delivery_size(frame: MessageFrame) -> int:
    """Bytes of a delivery, as the server counts them for `max_bytes`."""
    return (
        len(frame.subject)
        + len(frame.reply or b"")
        + len(frame.headers or b"")
        + len(frame.payload)
    )


PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
LAST_CONSUMER: Final = "Nats-Last-Consumer"
"""Consumer sequence of the last delivery, in an idle heartbeat."""

_DELETED, _IS_PUSH = "consumer deleted", "push based"

# The server writes a number, or a duration of Go such as "1m30s" or "500ms".
_LIMIT = re.compile(r"exceeded maxrequest(batch|maxbytes|expires) of (\S+)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|[uµμ]s|ns))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|[uµμ]s|ns)")
_SECONDS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


class PullEnd(Enum):
    """Why the server ended a pull request."""

    ORDINARY = auto()
    """It expired, no message was available, or the batch is complete."""
    TOO_LARGE = auto()
    """The next message is larger than the rest of max_bytes."""
    NO_LEADER = auto()
    """The consumer has no leader: none of the waiting requests will be answered."""
    PIN_LOST = auto()
    """Another client of the priority group is pinned."""
    REFUSED = auto()
    """Only this request was refused; a later one may succeed."""
    LIMITED = auto()
    """The request exceeded a limit of the consumer (`limit_of`); a smaller one may succeed."""
    INVALID = auto()
    """The server does not understand the request, and will not understand the next one."""
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
    """A consumer's limit for a request. One field is set: messages, bytes or seconds."""

    batch: int | None = None
    max_bytes: int | None = None
    expires: float | None = None


def limit_of(status: Status) -> PullLimit | None:
    """The limit that a request exceeded; None when the status names none."""
    match = _LIMIT.fullmatch(status.description.casefold())
    if match is None:
        return None
    limited, limit = match.groups()
    if limited == "expires":
        if _DURATION.fullmatch(limit) is None:
            return None
        seconds = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(limit))
        return PullLimit(expires=seconds) if seconds > 0 else None
    if not (limit.isascii() and limit.isdigit() and int(limit)):
        return None
    return PullLimit(batch=int(limit)) if limited == "batch" else PullLimit(max_bytes=int(limit))


def pull_error(status: Status) -> errors.PullError:
    """The exception for a status that ended a pull request."""
    text = status.description.casefold()
    if status.code == statuses.CONFLICT:
        if _DELETED in text:
            return errors.ConsumerDeletedError(status.code, status.description)
        if _IS_PUSH in text:
            return errors.ConsumerIsPushError(status.code, status.description)
    return errors.PullError(status.code, status.description)


def number_in(block: bytes | None, header: str) -> int | None:
    """The number in a header of a status; None if there is none."""
    try:
        headers = parse_headers(block or b"")[0]
    except errors.BadHeaderError:
        return None
    value = headers.get(header, "")
    return int(value) if value and value.isascii() and value.isdigit() else None


# -------------------------------------------------------------------------------------------------
# Gaps in a consumer's deliveries (ADR-17).
#
# A consumer numbers its deliveries from 1 on, and the reply subject has this consumer sequence. For
# speed only this token is parsed; the tokens before it are compared as one prefix.


_NEVER = b"\x00"
_NOTHING = [b"", b"0", b"", b"0"]


class ConsumerOrder:
    """The position in the deliveries of a consumer, and of those created to replace it.

    A new consumer is in order when its first delivery has consumer sequence 1 and a stream sequence
    after the last one. To look ahead, use a `copy`.

    A consumer that gives the last message of each subject, and is lost before `snapshot_end`, can
    only be replaced by one that gives them anew. What it repeats is refused with `is_repeated`.
    After `snapshot_end` it lacks messages that have been superseded: those are refused with
    `is_past_snapshot`, and the next consumer begins there.
    """

    __slots__ = (
        *("_cut", "_last", "_next", "_prefix", "_replay_prefix"),
        *("is_past_snapshot", "is_repeated", "snapshot_end"),
    )

    def __init__(self) -> None:
        self._prefix = _NEVER
        self._cut = 0
        self._next = 1
        self._last = _NOTHING
        """The sequences of the last delivery in order."""
        self._replay_prefix = b""
        """The prefix of the consumer that gives the last messages anew; empty: none does."""
        self.snapshot_end = 0
        """The stream's last sequence when the last messages were chosen; 0: they are not wanted."""
        self.is_repeated = False
        """Whether the delivery just refused came before: skip it."""
        self.is_past_snapshot = False
        """Whether the delivery just refused comes from the next consumer."""

    def follows(self, reply: bytes | None) -> bool:
        """Whether this delivery is the next one; if so, move on to it."""
        if reply is None or not reply.startswith(self._prefix):
            return self._follows_change(reply)
        # <deliveries>.<stream sequence>.<consumer sequence>.<rest>
        fields = reply[self._cut :].split(b".", 3)
        try:
            if int(fields[2]) != self._next:
                return False
        except (IndexError, ValueError):
            return False
        self._next += 1
        self._last = fields
        return True

    def _follows_change(self, reply: bytes | None) -> bool:
        self.is_repeated = self.is_past_snapshot = False
        try:
            prefix, stream_seq, consumer_seq = delivery_parts(reply)
        except errors.NotJetStreamMessageError:
            return False
        repeats = prefix == self._replay_prefix
        if reply is None or consumer_seq != (self._next if repeats else 1):
            return False
        if repeats or (self.is_amid_snapshot and (self._prefix != _NEVER or self._replay_prefix)):
            return self._follows_snapshot(reply, prefix, stream_seq)
        if stream_seq <= self.stream_seq:
            return False
        self._prefix, self._cut, self._replay_prefix = prefix, len(prefix), b""
        self._next = 2
        self._last = reply[self._cut :].split(b".", 3)
        return True

    def _follows_snapshot(self, reply: bytes, prefix: bytes, stream_seq: int) -> bool:
        self._next = self._next + 1 if prefix == self._replay_prefix else 2
        self._replay_prefix, self._prefix = prefix, _NEVER
        self.is_past_snapshot = stream_seq > self.snapshot_end
        self.is_repeated = stream_seq <= self.stream_seq
        if self.is_past_snapshot or self.is_repeated:
            return False
        self._last = reply[len(prefix) :].split(b".", 3)
        return True

    @property
    def is_amid_snapshot(self) -> bool:
        """Whether the next consumer has to give the last message of each subject anew."""
        return self.stream_seq < self.snapshot_end

    def replace_first(self) -> None:
        """The first consumer is lost before its first delivery."""
        self._replay_prefix = _NEVER

    def end_snapshot(self) -> None:
        """Move on to `snapshot_end`: the next consumer begins after it."""
        self._last = [b"", b"%d" % self.snapshot_end, b"", b"0"]
        self._replay_prefix, self.snapshot_end = b"", 0

    @property
    def stream_seq(self) -> int:
        """Stream sequence of the last delivery in order; 0 before the first."""
        return int(self._last[1])

    @property
    def time_ns(self) -> int:
        """When that message was stored, in nanoseconds since the epoch; 0 before the first."""
        try:
            return int(self._last[3].partition(b".")[0])
        except (IndexError, ValueError):
            return 0

    @property
    def expected(self) -> int:
        """The consumer sequence of the next delivery."""
        return self._next

    def copy(self) -> ConsumerOrder:
        """An independent copy at the same position."""
        order = ConsumerOrder()
        order._prefix, order._cut = self._prefix, self._cut
        order._next, order._last = self._next, self._last
        order._replay_prefix, order.snapshot_end = self._replay_prefix, self.snapshot_end
        return order
