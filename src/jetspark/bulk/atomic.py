"""Atomic batches (ADR-50), stored as a whole and without a gap, or not at all: bytes only.

`batch_copier` sends them, and decides what a missing answer means.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from jetspark.bulk.encoded_messages import EncodedMessage
from jetspark.wire import js_api
from jetspark.wire.batch_headers import COMMIT, MARKS, STAGED
from jetspark.wire.documents import convert_document

MOST_MESSAGES = 1000
"""The server's default limit for one batch."""

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
    """A unique name for a batch."""
    return secrets.token_urlsafe(12)


def encode_batch(batch_id: str, messages: Sequence[EncodedMessage], reply: str) -> bytes:
    """The frames of a batch, to be sent in one go. The ack comes to `reply`."""
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
    """The ack of a batch. Raises the stream's typed error; JetStreamError if it is no ack."""
    answer = js_api.parse_document("A batch", payload, {"stream": stream})
    return convert_document(answer, BatchAck, "ack of a batch")
