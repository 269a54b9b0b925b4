"""Publishing many messages with a bounded window of unacknowledged ones.

Contract. `send` returns as soon as the message is in the outbox; while `window` messages have no
ack it waits. Every message ends in exactly one way: acknowledged (counted in `acked`) or failed
(listed in `failed`, or set on the future that `submit` gave). Leaving the block waits for all,
then raises PublishFailedError for failures since `failed` was last read. With
`raise_failures=False` it never raises.

A message without a responder (503: its stream has no leader now, or there is no stream) is
certainly not stored. It is sent again every 250 ms, for `retry_for` seconds; new messages wait
meanwhile, so that as far as possible they are stored after it. After that it fails with
NoStreamResponseError.

When the link is lost, or no ack arrives within `timeout`, it is unknown whether a message was
stored. `on_disconnect`: "auto" sends those with a Nats-Msg-Id again, which is safe within the
stream's duplicate window, and fails the others; "fail" fails all; "resend" sends all again, and
some may then be stored twice. So by default every message that can be sent again without being
stored twice is, and the others fail as unknown. Messages sent during an outage wait in the client's
buffer as usual; timeouts do not run meanwhile.

A message that is sent again is stored after later messages that were stored at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import operator
from collections import deque
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import msgspec

from jetspark.arguments import MOST_SEQUENCE, check_whole
from jetspark.client.messages import MessageView, Sendable
from jetspark.client.publishing import NumberedPublishes
from jetspark.client.tasks import background
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.err_codes import ID_IN_PROCESS
from jetspark.errors import (
    APIError,
    BrokenSocketError,
    ConfigError,
    ConnectionClosedError,
    DocumentError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
    PublishFailedError,
    RequestTimeoutError,
)
from jetspark.payloads import Payload, payload_bytes
from jetspark.retries import FULL, PAUSE, is_transient
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import NANOSECONDS, ns_from_now
from jetspark.wire.documents import decode_document, decode_json
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.js_api import error_of
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.client.hooks import HookRunner
    from jetspark.client.publishing import Publishing
    from jetspark.client.subscription import Listener
    from jetspark.jetstream.api import Api
    from jetspark.wire.documents import ServerInfo
    from jetspark.wire.kernel import MessageFrame

# -------------------------------------------------------------------------------------------------
# The headers that a JetStream publish may carry: message id, expectations, time to live (ADR-43).
#
# Contract: `publish_headers` is the one place where the options of a publish become headers. It
# refuses, before anything is sent, whatever cannot work or the connected server would ignore. The
# options take precedence over headers of the same name.


MSG_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID: Final = "Nats-Expected-Last-Msg-Id"

_OF_ITS_OWN_PUBLISH: Final = (
    "Nats-Expected-",
    "Nats-Batch-",
    "Nats-Schedule",
    "Nats-Stream-Source",
)

TimeToLive: TypeAlias = timedelta | float | Literal["never"]
"""A timedelta or seconds, whole ones, at least 1; "never": not even by the stream's max_age."""


def publish_headers(
    server: ServerInfo | None,
    headers: HeadersLike | None,
    *,
    msg_id: str | None = None,
    ttl: TimeToLive | None = None,
    expect_stream: str | None = None,
    expect_last_seq: int | None = None,
    expect_last_subject_seq: int | None = None,
    expect_last_subject_seq_of: str | None = None,
    expect_last_msg_id: str | None = None,
) -> Headers | None:
    """A copy of the caller's headers with what the options add; None when there are none at all.

    `server`: the one that answers, None when that is not known. Raises ConfigError, BadNameError,
    BadSubjectError, BadHeaderError, UnsupportedByServerError.
    """
    if (
        headers is None
        and msg_id is None
        and ttl is None
        and expect_stream is None
        and expect_last_seq is None
        and expect_last_subject_seq is None
        and expect_last_subject_seq_of is None
        and expect_last_msg_id is None
    ):
        return None  # most publishes
    if expect_stream is not None:
        check_name("stream", expect_stream)
    if expect_last_subject_seq_of is not None:
        if expect_last_subject_seq is None:
            raise ConfigError("expect_last_subject_seq_of needs expect_last_subject_seq.")
        check_subscribe_subject(expect_last_subject_seq_of)
        check_feature("expect_last_subject_seq_of", (2, 11), server)
    if ttl is not None:
        check_feature("ttl", (2, 11), server)
    copy = Headers(() if headers is None else headers)
    if msg_id is not None:
        if isinstance(msg_id, str) and not msg_id:  # to the server, no id at all
            raise ConfigError("msg_id is empty: leave it out, or give each message its own.")
        copy.set(MSG_ID, msg_id)
    if ttl is not None:
        copy.set(TTL, ttl_text(ttl))
    if expect_stream is not None:
        copy.set(EXPECTED_STREAM, expect_stream)
    if expect_last_seq is not None:
        copy.set(EXPECTED_LAST_SEQ, _sequence("expect_last_seq", expect_last_seq))
    if expect_last_subject_seq is not None:
        sequence = _sequence("expect_last_subject_seq", expect_last_subject_seq)
        copy.set(EXPECTED_LAST_SUBJECT_SEQ, sequence)
    if expect_last_subject_seq_of is not None:
        copy.set(EXPECTED_LAST_SUBJECT_SEQ_OF, expect_last_subject_seq_of)
    if expect_last_msg_id is not None:
        copy.set(EXPECTED_LAST_MSG_ID, expect_last_msg_id)
    return copy


def headers_of(message: Sendable) -> Headers | None:
    """The headers with which `message` can be published again.

    A stream keeps the expectations and batch headers of the original publish, and would check them
    again: of a received message they are left out.
    """
    headers = message.headers or None
    if headers is None or not isinstance(message, MessageView):
        return headers
    kept = [item for item in headers.items() if not item[0].startswith(_OF_ITS_OWN_PUBLISH)]
    return Headers(kept) if kept else None


def merged(headers: HeadersLike | None, ours: list[tuple[str, str | None]]) -> Headers | None:
    """A copy of the headers in which each of ours that is not None replaces theirs."""
    wanted = [(name, value) for name, value in ours if value is not None]
    if headers is None and not wanted:
        return None
    copy = Headers(() if headers is None else headers)
    for name, value in wanted:
        copy.set(name, value)
    return copy


def ttl_text(ttl: TimeToLive, option: str = "ttl") -> str:
    """The header's text. Raises ConfigError."""
    if isinstance(ttl, str):
        if ttl == "never":
            return ttl
        raise ConfigError(f'{option} is a timedelta, seconds, or "never".')
    seconds, rest = divmod(ns_from_now(option, ttl), NANOSECONDS)
    if rest or seconds < 1:
        raise ConfigError(f"{option} is whole seconds, at least 1.")
    return str(seconds)


def _sequence(option: str, value: int) -> str:
    check_whole(option, value, 0, MOST_SEQUENCE)
    return str(operator.index(value))


# -------------------------------------------------------------------------------------------------
# The options of a publisher.


DisconnectPolicy: TypeAlias = Literal["auto", "fail", "resend"]

RETRY_FOR: Final = 30.0
"""Seconds; several times what a cluster needs for a new leader."""


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """What `JetStream.publisher` takes. Raises ConfigError for what cannot work."""

    window: int
    timeout: float
    on_disconnect: DisconnectPolicy
    retry_for: float
    raise_failures: bool

    def __post_init__(self) -> None:
        check_whole("window", self.window)
        if not self.timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        if self.on_disconnect not in ("auto", "fail", "resend"):
            raise ConfigError('on_disconnect must be "auto", "fail" or "resend".')
        if not self.retry_for >= 0:
            raise ConfigError("retry_for cannot be negative.")


# -------------------------------------------------------------------------------------------------
# The outcomes of a `Publisher`'s messages.


class PublishFailure:
    """A message that was not acknowledged: `index` (0 for the first sent), `subject`, `error`."""

    __slots__ = ("error", "index", "subject")

    def __init__(self, index: int, subject: str, error: JetsparkError) -> None:
        self.index = index
        self.subject = subject
        self.error = error

    def __repr__(self) -> str:
        return f"PublishFailure({self.index}, {self.subject!r}, {self.error!r})"


def tell_failures(unseen: list[PublishFailure], error: BaseException | None) -> None:
    """The unread failures at the end of a block that may have raised `error`."""
    if not unseen:
        return
    failure = PublishFailedError(unseen)
    if error is None:
        raise failure
    # The block's own error goes on; what we know goes with it.
    error.add_note(str(failure))


def no_ack_in_time(message: str, subject: str, timeout: float) -> RequestTimeoutError:
    """The stream did not answer. `message`: "message 3"."""
    return RequestTimeoutError(
        f"No ack for {message} on {subject!r} within {timeout:g} s: "
        "it is not known whether it was stored."
    )


def closed_before_ack(error: ConnectionClosedError, subject: str) -> ConnectionClosedError:
    """The same, of a publish that was sent."""
    own = copy(error)
    own.args = (
        f"{error} No ack for the message on {subject!r} had come: "
        "it is not known whether it was stored.",
    )
    return own


def link_lost(index: int, subject: str) -> BrokenSocketError:
    """The link went down between the message and its ack."""
    return BrokenSocketError(
        "The connection was lost before the ack came: "
        f"it is not known whether message {index} on {subject!r} was stored."
    )


def no_more_acks(cause: JetsparkError | None) -> JetsparkError:
    """The end of the subscription for acks: that of the connection, or the server refused it.

    One error for each message: an instance raised in many tasks would mix tracebacks.
    """
    if cause is not None and not isinstance(cause, ConnectionClosedError):
        own = copy(cause)
        own.args = (f"No ack can be received, so nobody knows what was stored: {cause}",)
        return own
    error = ConnectionClosedError("The connection was closed before the ack came.")
    error.__cause__ = cause
    return error


# -------------------------------------------------------------------------------------------------
# The acknowledgement of a JetStream publish.


RETRIES = 2
"""How often a publish without responders is retried (ADR-22)."""


class PublishTries:
    """One publish that is retried while there are no responders, within `seconds` in total.

    `with` it around each try: when no ack came in time, the error says what that means.

    Raises ConfigError for seconds that cannot work.
    """

    __slots__ = ("_deadline", "_retries", "_seconds", "_subject", "left")

    def __init__(self, subject: str, seconds: float) -> None:
        if not seconds > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        self.left = seconds
        """Seconds that the next try may take."""
        self._subject = subject
        self._seconds = seconds
        self._deadline = monotonic() + seconds
        self._retries = 0

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, ConnectionClosedError) and error.sent:
            raise closed_before_ack(error, self._subject) from error.__cause__
        if type(error) is RequestTimeoutError and error.sent:
            raise no_ack_in_time("the message", self._subject, self._seconds) from None

    def pause(self) -> float:
        """Nobody answered: seconds to wait before the next try. Raises NoStreamResponseError."""
        self.left = self._deadline - monotonic() - PAUSE
        if self._retries == RETRIES or self.left <= 0:
            raise NoStreamResponseError(self._subject) from None
        self._retries += 1
        return PAUSE


class _PlainAck(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What a server without a domain answers to an ordinary publish."""

    stream: str
    seq: int


def parse_pub_ack(data: bytes) -> PubAck:
    """The ack of a reply's payload. Raises the typed error in it, or JetStreamError."""
    try:
        plain = decode_json(data, _PlainAck, "ack")
    except DocumentError:
        return from_wire(PubAck, ack_document(data))
    return PubAck(stream=plain.stream, seq=plain.seq)


def ack_document(data: bytes) -> dict[str, Any]:
    """The JSON object of an ack. Raises the typed error in it, or JetStreamError."""
    try:
        document = decode_document(data, "ack")
    except DocumentError:
        raise JetStreamError(f"The reply to a publish is no PubAck: {data[:80]!r}.") from None
    if error := document.get("error"):
        raise refusal(error)
    document.pop("type", None)
    return document


def refusal(error: Any) -> JetStreamError:
    """The exception for the `error` of an ack, whatever it is."""
    try:
        return error_of(error, {})
    except DocumentError:
        return JetStreamError(f"The reply to a publish holds no readable error: {error!r}.")


def is_passing(error: JetsparkError) -> bool:
    """Whether a message that was answered so is not stored, and may be taken a little later.

    With a Nats-Msg-Id see also `is_in_process`.
    """
    refused = isinstance(error, APIError | NoStreamResponseError)
    return refused and is_transient(error, but=FULL)


def is_in_process(error: JetsparkError) -> bool:
    """Whether a message with this Nats-Msg-Id is on its way into the stream already."""
    return isinstance(error, APIError) and error.err_code == ID_IN_PROCESS


def plain_ack_head(payload: bytes, document: dict[str, Any]) -> bytes | None:
    """What an ack like this one begins with, up to the sequence; None if more is in it."""
    head = payload[: payload.rfind(b":") + 1]
    plain = document.keys() == {"stream", "seq"} and payload == head + b"%d}" % document["seq"]
    return head if plain else None


# -------------------------------------------------------------------------------------------------
# The window of a publisher: messages in flight, until they are acknowledged or fail.
#
# Contract. No I/O, no event loop, no clock: times are numbers that the caller gives. A message
# ends exactly once: by `take`, when its reply has arrived, or in a list that `overdue`, `lost` or
# `close` returns. A message that was `refused` temporarily keeps its place, and the window is
# held: in each round one message of each subject is tried again, and one new message is admitted,
# which shows whether only some subjects are refused. When one of them gets a reply, the others are
# sent again in their order, and then new ones.
#
# Messages are sent again if they are certainly not stored; if that is unknown, `unknown_again`
# decides. After `retry_for` seconds they fail. Those that are refused later fail at the same time
# as the first one if nothing was acknowledged since: a whole window has waited already.
#
# Threads. `reserve` and `withdraw` are for senders, one at a time, in any thread; all the rest is
# for the event loop's thread; `count`, `limit` and `sent` may be read anywhere. Both sides use one
# dict, whose single operations are atomic, and which is only iterated as a copy. Where two
# operations belong together there is a lock, which a successful message does not need.


Told: TypeAlias = "Callable[[PubAck | JetsparkError], None]"
"""Called once with the ack or the error of one message, in the event loop's thread."""

Unacked: TypeAlias = "tuple[str, bytes, Headers | None, float, Told | None]"
"""(subject, payload, headers, deadline, told); a plain tuple, since there is one per message."""

CLOSED = -1


class Window:
    """`size`: most messages in flight. Closed until `open`."""

    __slots__ = (
        "_closed",
        "_entries",
        "_held_at",
        "_lock",
        "_refused",
        "_refused_at",
        "_refused_since",
        "_retry_for",
        "_unknown",
        "_unknown_again",
        "_waiting",
        "count",
        "deadline",
        "find",
        "held",
        "limit",
        "released",
        "sent",
        "size",
        "take",
        "troubled",
    )

    def __init__(
        self, size: int, *, retry_for: float, unknown_again: Callable[[Unacked], bool]
    ) -> None:
        self.size = size
        self.limit = size
        """Senders wait at this count: `size`, or less while messages are refused."""
        self.sent = 0
        """Messages accepted so far."""
        self.held = False
        """Whether messages were refused, without a reply to one since."""
        self.released = False
        """Whether that is over, and the other refused ones can be sent `again` at once."""
        self.deadline = 0.0
        """When a message that is sent now becomes overdue; the owner updates it."""
        self.troubled: dict[int, float] = {}
        """Messages with a failed attempt, and when to give up on them."""
        self._retry_for = retry_for
        self._unknown_again = unknown_again
        self._entries: dict[int, Unacked] = {}
        self._waiting: set[int] = set()  # of the troubled: to be sent again
        self._refused: set[int] = set()  # of the troubled: that kept new ones out
        self._unknown: set[int] = set()  # of the troubled: they may be stored
        self._refused_since: float | None = None
        """When the first message was refused, if none was acknowledged since."""
        self._refused_at = 0.0  # the last one
        self._held_at = 0
        self._closed = True
        self._lock = Lock()
        # Methods of the dict itself: they are called for every message.
        self.count = self._entries.__len__
        """Messages that have not ended."""
        self.find = self._entries.get
        """The entry of an index; None when it has ended."""
        self.take = self._entries.pop
        """Remove and return the entry of an index. KeyError when it has ended."""

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""
        return self.count() >= self.limit

    # -- senders -------------------------------------------------------------------------------

    def reserve(
        self, subject: str, payload: bytes, headers: Headers | None, told: Told | None
    ) -> int:
        """Add a message and return its index; CLOSED when the window is closed. Never waits."""
        index = self.sent
        # In this order: either `close` finds the entry, or we find that it is closed.
        self._entries[index] = (subject, payload, headers, self.deadline, told)
        self.sent = index + 1
        if self._closed and self.withdraw(index):
            return CLOSED
        return index

    def withdraw(self, index: int) -> bool:
        """Remove the newest message, which was not sent. False: it has ended already."""
        with self._lock:
            if index in self.troubled or self._entries.pop(index, None) is None:
                return False
            self.sent = index
            return True

    # -- the loop's thread: answers ------------------------------------------------------------

    def acknowledged(self, index: int) -> None:
        """A message that was taken is stored. Needed only while the window is `watched`."""
        self._refused_since = None
        self.settled(index)

    def settled(self, index: int) -> None:
        """A message that was taken has ended. Needed only while the window is `watched`."""
        if self._forget(index) or index >= self._held_at:
            self._let_in()

    def _forget(self, index: int) -> bool:
        """Whether it was troubled."""
        for some in (self._waiting, self._refused, self._unknown):
            some.discard(index)
        return self.troubled.pop(index, None) is not None

    def refused(self, index: int, now: float, *, stored: bool = False) -> bool:
        """It was not stored and waits to be sent again. False: its time is over, give it up.

        `stored`: an earlier attempt may be stored.
        """
        if self._refused_since is None or now - self._refused_at > self._retry_for:
            self._refused_since = now
        self._refused_at = now
        if self.troubled.setdefault(index, self._refused_since + self._retry_for) <= now:
            return False
        if stored:
            self._unknown.add(index)
        self._waiting.add(index)
        if index not in self._refused:
            self._refused.add(index)
            self.hold()
        return True

    def hold(self) -> None:
        """Messages are refused: until one gets a reply, admit only one new message per round."""
        self._held_at = self.sent
        self.held, self.released = True, False
        self.limit = 0

    @property
    def watched(self) -> bool:
        """Whether `settled` and `acknowledged` have to be called."""
        return self.held or self._refused_since is not None or bool(self.troubled)

    def _let_in(self) -> None:
        """Admit new messages; after a hold, first send the waiting ones again."""
        self.released = bool(self._waiting) and (self.held or self.released)
        self.held = False
        self.limit = 0 if self.released else self.size

    def may_be_stored(self, index: int) -> bool:
        """Whether an attempt to send it may have succeeded."""
        return index in self._unknown

    # -- the loop's thread: time and the link ----------------------------------------------------

    def overdue(self, now: float) -> list[tuple[int, Unacked]]:
        """Remove and return messages without a reply in time, unless they are sent again."""
        return self._end([item for item in self._on_their_way() if item[1][3] <= now], now)

    def lost(self, now: float) -> list[tuple[int, Unacked]]:
        """The link was lost: as `overdue`, for all messages in flight."""
        return self._end(self._on_their_way(), now)

    def refused_for_good(self, is_so: Callable[[int, Unacked], bool]) -> list[tuple[int, Unacked]]:
        """Remove and return those in flight for which `is_so`: they never reached a stream."""
        return self._out([item for item in self._on_their_way() if is_so(*item)])

    def due(self, now: float) -> list[int]:
        """Start a round: the indexes to send `again` now, in order."""
        indexes = sorted(self._waiting)
        if not self.held:
            return indexes
        self.limit = min(self.size, self.count() + 1)
        tried: set[str] = set()
        due = []
        for index in indexes:
            subject = self._entries[index][0]
            # The first of its subject, or its last attempt.
            if subject not in tried or self.troubled[index] <= now:
                tried.add(subject)
                due.append(index)
        return due

    def again(self, index: int) -> Unacked | None:
        """The entry of one that is `due`, to be sent now. None: no longer needed."""
        if index not in self._waiting:
            return None
        self._waiting.discard(index)
        subject, payload, headers, _, told = self._entries[index]
        entry = self._entries[index] = (subject, payload, headers, self.deadline, told)
        if self.released and not self._waiting:
            self._let_in()
        return entry

    def open(self) -> None:
        """Accept messages from now on."""
        self.held = self.released = False
        self.limit = self.size
        self._closed = False

    def close(self) -> list[tuple[int, Unacked]]:
        """Accept no more; remove and return all."""
        self._closed = True
        return self._out(list(self._entries.copy().items()))

    def _on_their_way(self) -> list[tuple[int, Unacked]]:
        items = self._entries.copy().items()
        return [item for item in items if item[0] not in self._waiting]

    def _end(self, items: list[tuple[int, Unacked]], now: float) -> list[tuple[int, Unacked]]:
        out = []
        for index, entry in items:
            until = self.troubled.get(index, now + self._retry_for)
            if until <= now or not self._unknown_again(entry):
                out.append((index, entry))
                continue
            with self._lock:
                if index in self._entries:
                    self.troubled[index] = until
                    self._unknown.add(index)
                    self._waiting.add(index)
        return self._out(out)

    def _out(self, items: list[tuple[int, Unacked]]) -> list[tuple[int, Unacked]]:
        out = [item for item in items if self._entries.pop(item[0], None) is not None]
        for index, _ in out:
            self._forget(index)
        if self.released and not self._waiting:
            self._let_in()
        return out


# -------------------------------------------------------------------------------------------------
# The core of publishers with a window, whether their senders are tasks or threads.
#
# Contract. `publish` may be called in any thread, one at a time; `open`, `close` and everything
# below them run in the event loop's thread; properties may be read anywhere. A sender that has to
# wait, for space or for the end, waits in the publisher that owns this one: `changed` is called
# whenever messages were acknowledged or failed. Acks arrive on one wildcard inbox, whose handler
# runs in the read loop, once for all that arrive together. There is one timer; no task, future or
# timer is created for a message.


logger = logging.getLogger("jetspark")

_WARN_AFTER: Final = 1.0  # seconds
_LOOKS: Final = 20  # how often within one timeout the clock is looked at


class WindowedPublishing:
    """Sends messages and follows each to its ack or failure.

    `publishing`: how they are sent. `changed`: called without arguments in the event loop's thread,
    and by `publish` when it gives a place in the window back.
    """

    def __init__(
        self,
        api: Api,
        options: PublisherOptions,
        publishing: Publishing,
        changed: Callable[[], None],
    ) -> None:
        self.raise_failures = options.raise_failures
        self._api = api
        self._client = api.client
        self._publishing = publishing
        self._outbox = publishing.outbox
        self._changed = changed
        self._timeout = options.timeout
        self._retry_for = options.retry_for
        self._policy = options.on_disconnect
        self.window = Window(
            options.window, retry_for=options.retry_for, unknown_again=self._unknown_again
        )
        self._failed: list[PublishFailure] = []
        self._looked_at = 0
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resending: asyncio.Task[None] | None = None
        self._round_at = 0.0
        self._refusal: JetsparkError | None = None  # the first one of this time of trouble
        self._warn_at = 0.0
        self._told = False  # of the first refusal of all
        self._left_at: float | None = None  # when the link was lost
        self._away = 0.0  # seconds without a link
        self._send = NumberedPublishes(publishing, b"").send
        self._inbox = ""
        self._inbox_length = 0
        self._ended: JetsparkError | None = None  # no acks can come any more
        self._plain_ack = b"{}"
        self._acked = 0
        self._acked_before = 0  # at the last look at the clock
        self._duplicates = 0

    # -- results -------------------------------------------------------------------------------

    @property
    def acked(self) -> int:
        """Messages acknowledged."""
        return self._acked

    @property
    def duplicates(self) -> int:
        """Of `acked`, messages whose Nats-Msg-Id was in the stream already."""
        return self._duplicates

    def failed(self) -> list[PublishFailure]:
        """The failures that no future got; they count as looked at from now on."""
        failed = self._failed.copy()
        self._looked_at = len(failed)
        return failed

    def tell_failures(self, error: BaseException | None) -> None:
        """At the end of a block that may have raised `error`: raises PublishFailedError.

        Only for failures that nobody has looked at; to another error they are added as a note.
        """
        if self.raise_failures:
            tell_failures(self._failed[self._looked_at :], error)

    # -- sending -------------------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        told: Told | None,
        hooked: HookRunner | None,
    ) -> int:
        """Take a place in the window and send: the message's index.

        `told`, if given, is called with its ack or error. Raises what `Publishing.send` and
        `publish_headers` raise, ConfigError when not open, and ConnectionClosedError or
        JetsparkError when no more acks can come; such a message has no index. `hooked` is
        told of it once, in the sender's thread, however often it is sent.
        """
        if hooked is not None:
            put = partial(
                self.publish, subject, payload, msg_id=msg_id, ttl=ttl, told=told, hooked=None
            )
            return hooked.send(subject, payload, None, headers, put)
        kept = None
        if headers is not None or msg_id is not None or ttl is not None:
            # A copy: the caller may go on changing theirs.
            kept = publish_headers(self._api.server, headers, msg_id=msg_id, ttl=ttl)
        # Before it is sent: its ack may be counted in the loop's thread while we are still here.
        index = self.window.reserve(subject, payload, kept, told)
        if index == CLOSED:
            raise self._not_open()
        try:
            self._send(index, subject, payload, kept)
        except BaseException as error:
            withdrawn = self.window.withdraw(index)
            self._changed()  # somebody else may wait for the place
            if withdrawn or not isinstance(error, JetsparkError):
                raise
        return index

    def _not_open(self) -> JetsparkError:
        if self._listener is None:
            return ConfigError("The publisher is not open: use it inside its with block.")
        return no_more_acks(self._ended)

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on. Raises as `Client.listen`."""
        inbox = self._inbox = self._client.new_inbox() + "."
        self._send = NumberedPublishes(self._publishing, inbox.encode()).send
        self._inbox_length = len(inbox.encode())
        self._listener = self._client.listen(
            f"{inbox}*",
            self._on_ack,
            on_run=self._on_acks,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=self._on_end,
        )
        self._left_at = None if self._client.is_connected else self._client.loop.time()
        self.window.open()
        self._look_at_the_clock()

    def close(self) -> None:
        """Accept no more messages; pending ones fail."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
        self._stop_resending()
        for index, entry in self.window.close():
            left = JetStreamError("The publisher was left before the ack came.")
            self._fail(index, entry, left)
        self._changed()

    # -- acks: called in the read loop -----------------------------------------------------------

    def _on_ack(self, frame: MessageFrame) -> None:
        self._on_acks([frame])

    def _on_acks(self, frames: list[MessageFrame], _size: int = 0) -> bool:
        window, inbox = self.window, self._inbox_length
        take, watched = window.take, window.watched
        plain, acked = self._plain_ack, 0
        for frame in frames:
            payload = frame.payload
            # Nearly all acks of a publisher are equal up to the number at the end.
            if not (payload.startswith(plain) and payload[len(plain) : -1].isdigit()):
                self._on_other_ack(frame)
                plain, watched = self._plain_ack, window.watched
                continue
            try:
                index = int(frame.subject[inbox:])
                told = take(index)[4]
            except (KeyError, ValueError):
                continue  # late: it has failed, or was sent again and acknowledged twice
            acked += 1
            if watched:
                window.acknowledged(index)
            if told is not None:
                told(from_wire(PubAck, ack_document(payload)))
        self._acked += acked
        if window.released:
            self._round(self._clock())
        self._changed()
        return True

    def _on_other_ack(self, frame: MessageFrame) -> None:
        try:
            index = int(frame.subject[self._inbox_length :])
        except ValueError:
            return
        entry = self.window.find(index)
        if entry is None:
            return  # late, as above
        status = status_of(frame.headers)
        try:
            if status is not None and status.is_no_responders:
                raise NoStreamResponseError(entry[0])
            document = ack_document(frame.payload)
            ack = from_wire(PubAck, document)
        except JetsparkError as error:
            self._on_refusal(index, entry, error)
            return
        self.window.take(index)
        self.window.acknowledged(index)
        self._acked += 1
        self._duplicates += ack.duplicate
        self._plain_ack = plain_ack_head(frame.payload, document) or self._plain_ack
        if entry[4] is not None:
            entry[4](ack)

    def _on_refusal(self, index: int, entry: Unacked, error: JetsparkError) -> None:
        """While a stream has no leader it takes nothing, which passes; other refusals are final."""
        window = self.window
        if is_passing(error):
            if window.refused(index, self._clock(), stored=is_in_process(error)):
                if self._refusal is None:
                    self._refusal, self._warn_at = error, self._clock() + _WARN_AFTER
                if not self._told:
                    self._told = True
                    self._client.report(error)
                return
            if window.may_be_stored(index):
                error = no_ack_in_time(f"message {index}", entry[0], self._timeout)
        window.take(index)
        window.settled(index)
        self._fail(index, entry, error)

    def _warn(self, now: float) -> None:
        """Once when refusals go on for a second: senders may have to wait for long."""
        if not self.window.troubled:
            self._refusal = None
        elif self._refusal is not None and now > self._warn_at:
            self._warn_at = math.inf
            logger.warning("%s It is sent again for %g s.", self._refusal, self._retry_for)

    def _fail(self, index: int, entry: Unacked, error: JetsparkError) -> None:
        """Tell the failure of a message that was taken out of the window."""
        if entry[4] is None:
            self._failed.append(PublishFailure(index, entry[0], error))
        else:
            entry[4](error)

    # -- ends, time, and the link ----------------------------------------------------------------

    def _unknown_again(self, entry: Unacked) -> bool:
        """Whether to send a message again if it is unknown whether it is stored."""
        if self._policy == "auto":
            return entry[2] is not None and MSG_ID in entry[2]
        return self._policy == "resend"

    def _clock(self) -> float:
        """Seconds of connected time."""
        now = self._client.loop.time() if self._left_at is None else self._left_at
        return now - self._away

    def _look_at_the_clock(self) -> None:
        """Every twentieth of the timeout, in place of a timer for each message."""
        window = self.window
        pause = min(self._timeout / _LOOKS, PAUSE)
        now = self._clock()
        # Valid until the next look: never too early, at most two looks too late.
        window.deadline = now + self._timeout + pause
        if self._left_at is None:
            late = window.overdue(now)
            for index, entry in late:
                self._fail(
                    index, entry, no_ack_in_time(f"message {index}", entry[0], self._timeout)
                )
            if late and self._acked == self._acked_before:
                window.hold()  # a leader that hangs loses what it is sent
            self._acked_before = self._acked
            if now >= self._round_at and window.watched:
                self._round(now)
            self._warn(now)
            self._changed()
        self._timer = self._client.loop.call_later(pause, self._look_at_the_clock)

    def _round(self, now: float) -> None:
        """Send the due messages again, unless the previous round has not finished."""
        if self._resending is None or self._resending.done():
            self._round_at = now + PAUSE
            self._resending = background(
                self._resend(self.window.due(now)), "Sending again", self._client.report
            )

    async def _resend(self, due: list[int]) -> None:
        window, held = self.window, self.window.held
        for index in due:
            if self._outbox.crowded:
                await self._outbox.wait()
            if window.held and not held:
                break  # there is no leader after all: the others would be refused as well
            if (entry := window.again(index)) is not None:
                try:
                    self._send(index, *entry[:3])
                except JetsparkError as error:
                    window.take(index)
                    window.settled(index)
                    self._fail(index, entry, error)
        self._changed()

    def _stop_resending(self) -> None:
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None

    def _on_disconnect(self) -> None:
        self._stop_resending()
        for index, entry in self.window.lost(self._clock()):
            self._fail(index, entry, link_lost(index, entry[0]))
        self._left_at = self._client.loop.time()
        self._changed()

    def _on_reconnect(self) -> None:
        if self._left_at is not None:
            self._away += self._client.loop.time() - self._left_at
            self._left_at = None
        self._round(self._clock())

    def _on_refused(self, name: str, error: JetsparkError) -> None:
        refused = self.window.refused_for_good(
            lambda index, entry: name in (entry[0], f"{self._inbox}{index}")
        )
        for index, entry in refused:
            self._fail(index, entry, copy(error))
        self._changed()

    def _on_end(self, error: JetsparkError | None) -> None:
        self._ended = error
        for index, entry in self.window.close():
            self._fail(index, entry, no_more_acks(error))
        self._changed()


class Publisher:
    """See the module and `JetStream.publisher`. For one event loop, and any number of its tasks."""

    def __init__(self, api: Api, options: PublisherOptions) -> None:
        self._loop = api.client.loop
        self._outbox = api.client.publishing.outbox
        self._hooked = api.client.publishing.hooked
        self._inner = WindowedPublishing(api, options, api.client.publishing, self._changed)
        self._window = self._inner.window
        self._senders: deque[asyncio.Future[None]] = deque()
        self._flushers: list[asyncio.Future[None]] = []

    # -- results -------------------------------------------------------------------------------

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.acked

    @property
    def duplicates(self) -> int:
        """Of these, messages whose Nats-Msg-Id was in the stream already."""
        return self._inner.duplicates

    @property
    def pending(self) -> int:
        """Messages that have no ack yet; never more than the window."""
        return self._window.count()

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._window.sent

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages of `send` that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        """Publish, waiting only while the window is full; returns the message's index.

        Raises what `Client.publish` raises; such a message was not taken and has no index.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        return self._inner.publish(subject, payload, headers, msg_id, ttl, None, self._hooked)

    async def submit(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> asyncio.Future[PubAck]:
        """As `send`; returns a future with this message's PubAck or error.

        An error goes to the future only, not to `failed`.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        future: asyncio.Future[PubAck] = self._loop.create_future()
        told = partial(_resolve, future)
        self._inner.publish(subject, payload, headers, msg_id, ttl, told, self._hooked)
        return future

    async def flush(self) -> None:
        """Wait until no message is without an ack or error. Raises nothing of theirs."""
        while self._window.count():
            flusher = self._loop.create_future()
            self._flushers.append(flusher)
            await flusher

    # -- waiting -------------------------------------------------------------------------------

    async def _wait_for_space(self) -> None:
        try:
            if self._outbox.crowded:
                await self._outbox.wait()
            else:
                space = self._loop.create_future()
                self._senders.append(space)
                await space
        except asyncio.CancelledError:
            self._changed()  # this waking may have been for somebody else
            raise

    def _changed(self) -> None:
        """Wake as many senders as there is space for, and flushes when nothing is pending."""
        window = self._window
        space = window.limit - window.count()
        while space > 0 and self._senders:
            sender = self._senders.popleft()
            if not sender.done():
                sender.set_result(None)
                space -= 1
        if self._flushers and not window.count():
            flushers, self._flushers = self._flushers, []
            for flusher in flushers:
                if not flusher.done():
                    flusher.set_result(None)

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._inner.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.flush()
        finally:
            self._inner.close()
        self._inner.tell_failures(error)


def _resolve(future: asyncio.Future[PubAck], fate: PubAck | JetsparkError) -> None:
    if future.done():
        return
    if isinstance(fate, PubAck):
        future.set_result(fate)
    else:
        future.set_exception(fate)
