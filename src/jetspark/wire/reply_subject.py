"""The metadata in the reply subject of a JetStream delivery (ADR-15)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from jetspark.timestamps import ns_to_datetime
from jetspark.wire.kernel import reply_fields


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of a delivered message."""

    stream: str
    consumer: str
    deliveries: int
    """Deliveries of the message by this consumer, including this one."""
    stream_seq: int
    consumer_seq: int
    timestamp_ns: int
    """When the message was stored, in nanoseconds since the epoch."""
    pending: int
    """Messages that the consumer has not delivered yet."""
    domain: str = ""
    account_hash: str = ""

    @property
    def timestamp(self) -> datetime:
        """When the message was stored, as an aware datetime (microseconds)."""
        return ns_to_datetime(self.timestamp_ns)


def parse_reply_subject(reply: bytes | None) -> Metadata:
    """Parses both forms: 9 tokens, or 11 and more with domain and account hash before the stream.

    Raises NotJetStreamMessageError for anything else.
    """
    return Metadata(*reply_fields(reply))


def delivery_parts(reply: bytes | None) -> tuple[bytes, int, int]:
    """The prefix up to the dot after the consumer's name, stream sequence, consumer sequence.

    Raises NotJetStreamMessageError.
    """
    _, _, _, stream_seq, consumer_seq, *_ = reply_fields(reply)
    assert reply is not None  # noqa: S101
    tokens = reply.split(b".")
    return b".".join(tokens[: 4 if len(tokens) == 9 else 6]) + b".", stream_seq, consumer_seq
