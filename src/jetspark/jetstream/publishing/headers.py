"""The headers that a JetStream publish may carry: message id, expectations, time to live (ADR-43).

Contract: `publish_headers` is the one place where the options of a publish become headers.
It refuses, before anything is sent, whatever cannot work or the connected server would ignore.
The options take precedence over headers of the same name.
"""

from __future__ import annotations

from datetime import timedelta
from operator import index
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from jetspark.arguments import MOST_SEQUENCE, check_whole
from jetspark.client.messages import MessageView
from jetspark.client.prepared import Sendable
from jetspark.errors import ConfigError
from jetspark.jetstream.requirements import check_feature
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import NANOSECONDS, ns_from_now
from jetspark.wire.headers import Headers, HeadersLike

if TYPE_CHECKING:
    from jetspark.wire.documents import ServerInfo

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
    return str(index(value))
