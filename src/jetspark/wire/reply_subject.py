"""The reply subject of a JetStream delivery holds the message's metadata (ADR-15, row J15)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jetspark.errors import NotJetStreamMessageError
from jetspark.timestamps import ns_to_datetime

_TIMES_END = 1 << 63
"""Behind the last time that the server's own integers can hold; datetime holds all before."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where a delivered message comes from."""

    stream: str
    consumer: str
    deliveries: int
    """How often this message was delivered to this consumer, this time included."""
    stream_seq: int
    consumer_seq: int
    timestamp_ns: int
    """When the stream stored it, nanoseconds since the epoch."""
    pending: int
    """Messages still to come for the consumer."""
    domain: str = ""
    account_hash: str = ""

    @property
    def timestamp(self) -> datetime:
        """The time of storing as an aware datetime (microseconds)."""
        return ns_to_datetime(self.timestamp_ns)


def parse_reply_subject(reply: bytes | None) -> Metadata:
    """Both forms: 9 tokens, or 11 and more with domain and account hash before the stream.

    Raises NotJetStreamMessageError for anything else.
    """
    tokens = (reply or b"").decode("utf-8", "replace").split(".")
    try:
        if tokens[0] != "$JS" or tokens[1] != "ACK":
            raise ValueError
        if len(tokens) == 9:
            domain = account = ""
            rest = tokens[2:]
        elif len(tokens) >= 11:
            domain, account = tokens[2:4]
            # The server writes "_" for no domain.
            domain = "" if domain == "_" else domain
            rest = tokens[4:11]
        else:
            raise ValueError
        stream, consumer, *numbers = rest
        deliveries, stream_seq, consumer_seq, timestamp, pending = map(int, numbers)
        if not 0 <= timestamp < _TIMES_END:
            raise ValueError
    except (ValueError, IndexError):
        raise NotJetStreamMessageError(
            "The message was not delivered by a JetStream consumer."
        ) from None
    return Metadata(
        stream,
        consumer,
        deliveries,
        stream_seq,
        consumer_seq,
        timestamp,
        pending,
        domain,
        account,
    )
