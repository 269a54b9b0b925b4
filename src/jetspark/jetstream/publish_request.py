"""One JetStream publish: a request whose headers are conditions and whose reply is a PubAck.

`publish_headers` refuses, before anything is sent, options that cannot work or that the connected
server would ignore (ADR-43). Options take precedence over headers of the same name.
"""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec

import jetspark.errors as errors
from jetspark.client.messages import MessageView, Sendable
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.retries import PAUSE
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import NANOSECONDS, ns_from_now
from jetspark.validation import MAX_SEQUENCE, check_whole
from jetspark.wire.documents import ServerInfo, decode_document, decode_json
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.js_api import error_of

# -- headers ---------------------------------------------------------------------------------------

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
"""A timedelta or whole seconds, at least 1; "never": not even by the stream's max_age."""


class MessageOptions(TypedDict, total=False):
    """Options of a publisher's message; see `JetStream.publish`."""

    headers: HeadersLike | None
    msg_id: str | None
    ttl: TimeToLive | None


class BatchOptions(MessageOptions, total=False):
    """Options of a message in a batch."""

    expect_last_seq: int | None
    expect_last_subject_seq: int | None
    expect_last_subject_seq_of: str | None


class PublishMsgOptions(TypedDict, total=False):
    """Options of `JetStream.publish_msg`, whose message has its own headers."""

    msg_id: str | None
    ttl: TimeToLive | None
    expect_stream: str | None
    expect_last_seq: int | None
    expect_last_subject_seq: int | None
    expect_last_subject_seq_of: str | None
    expect_last_msg_id: str | None


class PublishOptions(PublishMsgOptions, total=False):
    """Options of `JetStream.publish`."""

    headers: HeadersLike | None


def publish_headers(
    server: ServerInfo | None,
    headers: HeadersLike | None = None,
    *,
    msg_id: str | None = None,
    ttl: TimeToLive | None = None,
    expect_stream: str | None = None,
    expect_last_seq: int | None = None,
    expect_last_subject_seq: int | None = None,
    expect_last_subject_seq_of: str | None = None,
    expect_last_msg_id: str | None = None,
) -> Headers | None:
    """The caller's headers, copied, with those of the options; None when there are none.

    `server`: the server that answers; None: unknown. Raises ConfigError, BadNameError,
    BadSubjectError, BadHeaderError, UnsupportedByServerError.
    """
    if expect_stream is not None:
        check_name("stream", expect_stream)
    if expect_last_subject_seq_of is not None:
        if expect_last_subject_seq is None:
            raise errors.ConfigError("expect_last_subject_seq_of needs expect_last_subject_seq.")
        check_subscribe_subject(expect_last_subject_seq_of)
        check_feature("expect_last_subject_seq_of", (2, 11), server)
    if ttl is not None:
        check_feature("ttl", (2, 11), server)
    if msg_id == "":  # the server would see no id at all
        raise errors.ConfigError("msg_id is empty: leave it out, or give each message its own.")
    return merged(
        headers,
        [
            (MSG_ID, msg_id),
            (TTL, None if ttl is None else ttl_text(ttl)),
            (EXPECTED_STREAM, expect_stream),
            (EXPECTED_LAST_SEQ, _sequence("expect_last_seq", expect_last_seq)),
            (
                EXPECTED_LAST_SUBJECT_SEQ,
                _sequence("expect_last_subject_seq", expect_last_subject_seq),
            ),
            (EXPECTED_LAST_SUBJECT_SEQ_OF, expect_last_subject_seq_of),
            (EXPECTED_LAST_MSG_ID, expect_last_msg_id),
        ],
    )


def _sequence(option: str, value: int | None) -> str | None:
    return None if value is None else str(check_whole(option, value, 0, MAX_SEQUENCE))


def ttl_text(ttl: TimeToLive, option: str = "ttl") -> str:
    """The TTL as a header's text. Raises ConfigError."""
    if isinstance(ttl, str):
        if ttl == "never":
            return ttl
        raise errors.ConfigError(f'{option} is a timedelta, seconds, or "never".')
    seconds, rest = divmod(ns_from_now(option, ttl), NANOSECONDS)
    if rest or seconds < 1:
        raise errors.ConfigError(f"{option} is whole seconds, at least 1.")
    return str(seconds)


def merged(
    headers: HeadersLike | None, replacements: list[tuple[str, str | None]]
) -> Headers | None:
    """A copy of the headers with each of ours that is not None in place of theirs."""
    pairs = [(name, value) for name, value in replacements if value is not None]
    if headers is None:
        return Headers(pairs) if pairs else None
    both = Headers(headers)
    for name, value in pairs:
        both.set(name, value)
    return both


def headers_of(message: Sendable) -> Headers | None:
    """The headers for publishing `message` again.

    A stored message keeps the expectations and batch headers of its publish, which a stream would
    check again, so those of a received message are left out.
    """
    headers = message.headers or None
    if headers is None or not isinstance(message, MessageView):
        return headers
    pairs = [item for item in headers.items() if not item[0].startswith(_OF_ITS_OWN_PUBLISH)]
    return Headers(pairs) if pairs else None


# -- the ack ---------------------------------------------------------------------------------------


class _PlainAck(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The answer of a server without a domain to an ordinary publish."""

    stream: str
    seq: int


def parse_pub_ack(data: bytes) -> PubAck:
    """The ack of a reply's payload. Raises the typed error in it, or JetStreamError."""
    try:
        plain = decode_json(data, _PlainAck, "ack")
    except errors.DocumentError:
        return from_wire(PubAck, ack_document(data))
    return PubAck(stream=plain.stream, seq=plain.seq)


def ack_document(data: bytes) -> dict[str, Any]:
    """The JSON object of an ack. Raises the typed error in it, or JetStreamError."""
    try:
        document = decode_document(data, "ack")
    except errors.DocumentError:
        raise errors.JetStreamError(
            f"The reply to a publish is no PubAck: {data[:80]!r}."
        ) from None
    if error := document.get("error"):
        raise refusal(error)
    document.pop("type", None)
    return document


def refusal(error: Any) -> errors.JetStreamError:
    """The exception for the `error` of an ack."""
    try:
        return error_of(error, {})
    except errors.DocumentError:
        return errors.JetStreamError(f"The reply to a publish holds no readable error: {error!r}.")


def plain_ack_head(payload: bytes, document: dict[str, Any]) -> bytes | None:
    """The beginning of acks like this one, up to the sequence; None if it has more fields."""
    head = payload[: payload.rfind(b":") + 1]
    plain = document.keys() == {"stream", "seq"} and payload == head + b"%d}" % document["seq"]
    return head if plain else None


def ack_timeout(message: str, subject: str, timeout: float) -> errors.RequestTimeoutError:
    """The error when the stream did not answer. `message`: "message 3"."""
    return errors.RequestTimeoutError(
        f"No ack for {message} on {subject!r} within {timeout:g} s: "
        "it is not known whether it was stored."
    )


def stored_as_ordinary(feature: str, ack: PubAck) -> errors.JetStreamError:
    """The error when a server stored the first message of a `feature` that it does not have.

    `feature`: such as "fast ingest".
    """
    return errors.JetStreamError(
        f"The server does not support {feature}: it stored the first message as an ordinary one, "
        f"in {ack.stream} at sequence {ack.seq}. The others were not sent."
    )


# -- retries (ADR-22) ------------------------------------------------------------------------------

RETRIES = 2
"""Retries of a publish without responders."""


class PublishTries:
    """One publish that is retried while there are no responders, within `seconds` in total.

    Each try is a `with` block, so that a timeout's error says what it means.

    Raises ConfigError for seconds that cannot work.
    """

    __slots__ = ("_deadline", "_retries", "_seconds", "_subject", "left")

    def __init__(self, subject: str, seconds: float) -> None:
        if not seconds > 0:
            raise errors.ConfigError("timeout must be more than 0 seconds.")
        self.left = seconds
        """Seconds for the next try."""
        self._subject = subject
        self._seconds = seconds
        self._deadline = monotonic() + seconds
        self._retries = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, errors.ConnectionClosedError) and error.sent:
            own = copy(error)
            own.replace_message(
                f"{error.message} No ack for the message on {self._subject!r} had arrived: "
                "it is not known whether it was stored."
            )
            raise own from error.__cause__
        if type(error) is errors.RequestTimeoutError and error.sent:
            raise ack_timeout("the message", self._subject, self._seconds) from None

    def pause(self) -> float:
        """No responders: the seconds before the next try. Raises NoStreamResponseError."""
        self.left = self._deadline - monotonic() - PAUSE
        if self._retries == RETRIES or self.left <= 0:
            raise errors.NoStreamResponseError(self._subject) from None
        self._retries += 1
        return PAUSE
