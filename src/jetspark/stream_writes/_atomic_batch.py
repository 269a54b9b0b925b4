"""Atomic batches (ADR-50), which a stream stores as a whole and without a gap, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jetspark.stream_writes.encoded_messages import EncodedMessage
from jetspark.wire import frames, js_api
from jetspark.wire.documents import convert_document
from jetspark.wire.headers import COMMIT, MARKS, STAGED

MAX_MESSAGES = 1000
"""The server's default limit for one batch."""
_EMPTY_HEADERS = b"NATS/1.0\r\n\r\n"


class BatchAck(msgspec.Struct, frozen=True):
    """The stream's ack of an atomic batch: `seq` is the sequence of its last message."""

    stream: str
    seq: int
    count: int = 0

    @property
    def first_seq(self) -> int:
        """The sequence of its first message."""
        return self.seq - self.count + 1


def encode_batch(batch_id: str, messages: Sequence[EncodedMessage], reply: str) -> bytes:
    """Encode messages as the frames of one atomic batch, to be sent at once.

    The last message commits the batch, and the ack goes to the subject `reply`.
    """
    encoded_id = batch_id.encode()
    encoded_frames: list[bytes] = []
    for number, (subject, block, payload) in enumerate(messages, 1):
        subject_and_reply, step = subject, STAGED
        if number == len(messages):
            subject_and_reply, step = b"%b %b" % (subject, reply.encode()), COMMIT
        # The batch's headers follow the message's own, before the empty line that ends them.
        headers = (block or _EMPTY_HEADERS)[:-2] + MARKS % (encoded_id, number, step)
        encoded_frames.append(frames.message(subject_and_reply, headers, payload))
    return b"".join(encoded_frames)


def parse_batch_ack(payload: bytes, stream: str) -> BatchAck:
    """Decode the answer to an atomic batch: its ack.

    Raises the typed error with which the stream refused it; JetStreamError for anything else.
    """
    answer = js_api.parse_document("A batch", payload, {"stream": stream})
    return convert_document(answer, BatchAck, "ack of a batch")
