"""The acknowledgement of a JetStream publish."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Any

import msgspec

from jetspark.err_codes import ID_IN_PROCESS
from jetspark.errors import (
    APIError,
    ConfigError,
    ConnectionClosedError,
    DocumentError,
    JetsparkError,
    JetStreamError,
    NoStreamResponseError,
    RequestTimeoutError,
)
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.publishing.results import closed_before_ack, no_ack_in_time
from jetspark.transient import FULL, is_transient
from jetspark.wire.documents import decode_document, decode_json
from jetspark.wire.js_api import error_of

RETRIES = 2
"""How often a publish without responders is retried (ADR-22)."""

RETRY_WAIT = 0.25
"""Seconds before each of them."""


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
        self.left = self._deadline - monotonic() - RETRY_WAIT
        if self._retries == RETRIES or self.left <= 0:
            raise NoStreamResponseError(self._subject) from None
        self._retries += 1
        return RETRY_WAIT


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
