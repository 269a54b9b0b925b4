"""Atomic batches over a blocking link (ADR-50): stored as a whole, in one row, or not at all.

Here is only the encoding and the reading of the answer; when to send, and what an answer that did
not come means, is the business of `batch_copier`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from jetspark.bulk.encoded_messages import EncodedMessage
from jetspark.errors import JetStreamError
from jetspark.wire import js_api
from jetspark.wire.batch_headers import COMMIT, MARKS, STAGED

MOST_MESSAGES = 1000
"""What a server takes in one batch, unless it is configured otherwise."""

_EMPTY = b"NATS/1.0\r\n\r\n"


class BatchAck(msgspec.Struct, frozen=True):
    """Where a batch was stored: `seq` is the sequence of its last message."""

    stream: str
    seq: int
    count: int = 0

    @property
    def first_seq(self) -> int:
        """The sequence of its first message."""
        return self.seq - self.count + 1


def new_batch_id() -> str:
    """A name for a batch that nobody else uses."""
    return secrets.token_urlsafe(12)


def encode_batch(batch_id: str, messages: Sequence[EncodedMessage], reply: str) -> bytes:
    """The frames of a batch, to be sent at once. The answer comes to `reply`."""
    encoded, last = batch_id.encode(), len(messages)
    frames: list[bytes] = []
    for number, (subject, block, payload) in enumerate(messages, 1):
        commit = COMMIT if number == last else STAGED
        full = (_EMPTY if block is None else block)[:-2] + MARKS % (encoded, number, commit)
        frames.append(
            b"HPUB %b%b %d %d\r\n%b%b\r\n"
            % (
                subject,
                b" %b" % reply.encode() if number == last else b"",
                len(full),
                len(full) + len(payload),
                full,
                payload,
            )
        )
    return b"".join(frames)


def parse_batch_ack(payload: bytes, stream: str) -> BatchAck:
    """Raises the stream's typed error, JetStreamError for what is no ack."""
    try:
        answer = msgspec.json.decode(payload)
        if error := answer.get("error"):
            raise js_api.error_of(error, {"stream": stream})
        return msgspec.convert(answer, BatchAck)
    except (msgspec.MsgspecError, AttributeError):
        raise JetStreamError(f"Unreadable ack of a batch: {payload[:80]!r}.") from None
