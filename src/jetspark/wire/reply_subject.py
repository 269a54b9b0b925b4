"""The reply subject of a JetStream delivery holds the message's metadata (ADR-15, row J15)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from jetspark.errors import NotJetStreamMessageError
from jetspark.timestamps import ns_to_datetime

_TIMES_END = 1 << 63
"""Behind the last time that the server's own integers can hold; datetime holds all before."""


class Metadata(msgspec.Struct, frozen=True):
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
    tokens, at = _tokens(reply)
    domain, account = tokens[2:4] if at > 2 else (b"", b"")
    stream, consumer, *numbers = tokens[at : at + 7]
    if not b"".join(numbers).isdigit():  # int() would take signs and spaces
        raise _not_jetstream()
    try:
        deliveries, stream_seq, consumer_seq, timestamp, pending = map(int, numbers)
        if timestamp >= _TIMES_END:
            raise ValueError
        return Metadata(
            stream.decode(),
            consumer.decode(),
            deliveries,
            stream_seq,
            consumer_seq,
            timestamp,
            pending,
            # The server writes "_" for no domain.
            "" if domain == b"_" else domain.decode(),
            account.decode(),
        )
    except ValueError:
        raise _not_jetstream() from None


def stream_sequence(reply: bytes | None) -> int:
    """Only the stream sequence, which is what a loop over many messages asks for."""
    tokens, at = _tokens(reply)
    sequence = tokens[at + 3]
    if not sequence.isdigit():
        raise _not_jetstream()
    return int(sequence)


def delivery_parts(reply: bytes | None) -> tuple[bytes, int, int]:
    """Everything up to the consumer's name and its dot, stream and consumer sequence.

    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    numbers = tokens[at + 3 : at + 5]
    if not b"".join(numbers).isdigit():
        raise _not_jetstream()
    return b".".join(tokens[: at + 2]) + b".", int(numbers[0]), int(numbers[1])


def stream_position(reply: bytes | None) -> tuple[int, int, int]:
    """Stream sequence, time of storing (nanoseconds) and messages still to come: without the names.

    For deliveries that were found to be in order: their numbers are not looked at very closely.
    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    try:
        return int(tokens[at + 3]), int(tokens[at + 5]), int(tokens[at + 6])
    except ValueError:
        raise _not_jetstream() from None


def _tokens(reply: bytes | None) -> tuple[list[bytes], int]:
    """The tokens, and which of them is the stream's name."""
    if reply is not None and reply.startswith(b"$JS.ACK."):
        tokens = reply.split(b".")
        if len(tokens) == 9:
            return tokens, 2
        if len(tokens) >= 11:
            return tokens, 4
    raise _not_jetstream()


def _not_jetstream() -> NotJetStreamMessageError:
    return NotJetStreamMessageError("The message was not delivered by a JetStream consumer.")
