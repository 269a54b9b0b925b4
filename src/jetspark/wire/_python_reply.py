"""The plain-Python kernel: the metadata in the reply subject of a delivery (ADR-15)."""

from __future__ import annotations

from typing import TypeAlias

from jetspark.errors import NotJetStreamMessageError

ReplyFields: TypeAlias = tuple[str, str, int, int, int, int, int, str, str]

_NUMBERS_END, _TIMES_END = 1 << 64, 1 << 63
"""One more than the largest number, and time, that the server's integer types can hold."""


def reply_fields(reply: bytes | None) -> ReplyFields:
    """Stream, consumer, deliveries, stream sequence, consumer sequence, time, pending, domain,
    account hash.

    Reads both forms: 9 tokens, or 11 and more with domain and account hash before the stream.
    Raises NotJetStreamMessageError for anything else.
    """
    tokens, at = _tokens(reply)
    domain, account = tokens[2:4] if at > 2 else (b"", b"")
    try:
        return (
            tokens[at].decode(),
            tokens[at + 1].decode(),
            _number(tokens[at + 2]),
            _number(tokens[at + 3]),
            _number(tokens[at + 4]),
            _number(tokens[at + 5], _TIMES_END),
            _number(tokens[at + 6]),
            # "_" stands for no domain.
            "" if domain == b"_" else domain.decode(),
            account.decode(),
        )
    except UnicodeDecodeError:
        raise _not_jetstream() from None


def stream_sequence(reply: bytes | None) -> int:
    """Only the stream sequence, which is what a loop over many messages needs.

    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    return _number(tokens[at + 3])


def stream_position(reply: bytes | None) -> tuple[int, int, int]:
    """Stream sequence, timestamp (nanoseconds) and pending messages, without decoding the names.

    Raises NotJetStreamMessageError.
    """
    tokens, at = _tokens(reply)
    sequence, time, pending = tokens[at + 3], tokens[at + 5], tokens[at + 6]
    return _number(sequence), _number(time, _TIMES_END), _number(pending)


def _tokens(reply: bytes | None) -> tuple[list[bytes], int]:
    """The tokens, and the index of the stream's name."""
    if reply is not None and reply.startswith(b"$JS.ACK."):
        tokens = reply.split(b".")
        if len(tokens) == 9:
            return tokens, 2
        if len(tokens) >= 11:
            return tokens, 4
    raise _not_jetstream()


def _number(token: bytes, end: int = _NUMBERS_END) -> int:
    # int() also accepts signs, spaces and underscores.
    if token.isdigit() and len(token) <= 20 and (number := int(token)) < end:
        return number
    raise _not_jetstream()


def _not_jetstream() -> NotJetStreamMessageError:
    return NotJetStreamMessageError("The message was not delivered by a JetStream consumer.")
