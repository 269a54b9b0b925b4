"""A range by batched direct gets (ADR-31), for streams where a consumer would remove messages.

The batches are small, since large ones delay the stream's publishers. Any replica may answer, and
may lag, so the end of a batch proves nothing; the reader asks the leader. Each message has the
sequence of the one sent before it, and the end of a batch the last one's, so that a lost message is
detected.
"""

from __future__ import annotations

import time

import jetspark.errors as errors
from jetspark.links.link import BlockingLink
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.retries import TryAnotherLinkError
from jetspark.subjects import subject_matches
from jetspark.wire import frames, js_api
from jetspark.wire.direct_get import parse_direct_reply, parse_end_of_batch
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import Deliveries, MessageFrame
from jetspark.wire.status import END_OF_BATCH, NOT_FOUND, Status, status_of

_BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 * 1024 * 1024


class DirectGetBatches:
    """Reads a range by direct gets: requests of many messages, which any replica answers.

    One batch is requested after the other. After an error, create another object. Raises
    UnsupportedByServerError before nats-server 2.11.
    """

    def __init__(
        self, link: BlockingLink, sequence_range: SequenceRange, limits: ReadLimits
    ) -> None:
        """Subscribe to the replies. `limits`: how long silence may last."""
        if not link.info.at_least(2, 11):
            raise errors.UnsupportedByServerError(
                "Reading a range by direct gets", "2.11", link.info.version
            )
        self._link = link
        self._silence = 2 * limits.heartbeat
        self._subjects = sequence_range.subjects
        # The server takes one filter; with several, messages are filtered here.
        self._filter = sequence_range.subjects[0] if len(sequence_range.subjects) == 1 else None
        self._inbox = link.new_inbox()
        self._sid = link.subscribe(self._inbox)
        self._subject = js_api.subject_of(
            link.api_prefix, js_api.DIRECT_GET, {"stream": sequence_range.stream}
        )

    def next_batch(self, start: int, into: Deliveries, end: int) -> int | None:
        """Request one batch from sequence `start` on; append its messages before `end` to `into`.

        Returns the sequence after the last message of the batch; None if the batch is empty, which
        proves nothing, since the replica that answered may lag. Raises MissedHeartbeatError
        (silence), TryAnotherLinkError (a lost message), NoRespondersError, APIError for a refusal,
        and the errors of `BlockingLink.messages`.
        """
        request: dict[str, int | str] = {
            "seq": start,
            "batch": min(_BATCH_MESSAGES, end - start),
            "max_bytes": _BATCH_BYTES,
        }
        if self._filter is not None:
            request["next_by_subj"] = self._filter
        body = encode_document(request)
        self._link.send(frames.pub(self._subject, body, self._inbox))
        next_sequence: int | None = None
        last_sequence = 0
        while True:
            for frame in self._frames():
                message = parse_direct_reply(frame.headers)
                if message is None:
                    self._check_end_of_batch(frame, last_sequence)
                    return next_sequence
                # Each message names the one sent before it in this batch; the first names 0.
                if message.before != last_sequence:
                    raise TryAnotherLinkError(
                        f"sequences {last_sequence} to {message.before} did not arrive"
                    )
                last_sequence = message.seq
                next_sequence = message.seq + 1
                if message.seq < end and self._matches(message.subject):
                    into.append(
                        message.subject.encode(),
                        message.seq,
                        message.time_ns,
                        message.hdrs,
                        frame.payload,
                    )

    def stop(self) -> None:
        """Unsubscribe from the replies."""
        self._link.unsubscribe(self._sid)

    def _matches(self, subject: str) -> bool:
        """Whether a message of this subject belongs to the range.

        The server itself filters by a single subject, but not by several.
        """
        # With one subject, or without any, the server has sent only messages of the range.
        return len(self._subjects) < 2 or any(
            subject_matches(pattern, subject) for pattern in self._subjects
        )

    def _frames(self) -> list[MessageFrame]:
        """Wait for replies once, and return them. Raises MissedHeartbeatError after silence."""
        try:
            return self._link.messages(time.monotonic() + self._silence)
        except errors.RequestTimeoutError:
            raise errors.MissedHeartbeatError(
                f"nothing from {self._link.server} for {self._silence:g} s"
            ) from None

    def _check_end_of_batch(self, frame: MessageFrame, last_sequence: int) -> None:
        """Check the status that ends a batch, whose last message to arrive was `last_sequence`.

        Raises the errors of `next_batch` for a refusal, and when later messages were lost.
        """
        status = status_of(frame.headers) or Status(0)
        if status.is_no_responders:
            raise errors.NoRespondersError(self._subject)
        if status.code not in (END_OF_BATCH, NOT_FOUND):
            raise errors.APIError(status.code, 0, f"direct get refused: {status.description}")
        if status.code == NOT_FOUND:  # an empty batch
            return
        last_sent = parse_end_of_batch(frame.headers or b"").last_seq
        if last_sent != last_sequence:
            raise TryAnotherLinkError(f"sequences {last_sequence} to {last_sent} did not arrive")
