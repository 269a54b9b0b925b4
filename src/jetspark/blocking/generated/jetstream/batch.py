# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: batch."""

from __future__ import annotations

from typing import Any

from jetspark.blocking.leaving import EnteringInTurn
from jetspark.documents.streams import PubAck
from jetspark.jetstream.batches import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.publisher import TimeToLive
from jetspark.payloads import Payload
from jetspark.wire.headers import HeadersLike


class GeneratedAtomicBatch(EnteringInTurn):
    """The calls of `AtomicBatch` that hand on to its asyncio twin."""

    _inner: AsyncAtomicBatch

    def _add_message(self, subject: str, payload: Payload, **options: Any) -> int:
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Messages added so far."""
        return self._inner.size

    @property
    def ack(self) -> PubAck | None:
        """What `commit` returned; None before."""
        return self._inner.ack

    def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
    ) -> int:
        """One more message; returns its number in the batch, 1 for the first.

        The options are those of `JetStream.publish`. `expect_last_seq` belongs to the first
        message; `expect_last_subject_seq` cannot follow a message of the batch on that subject.

        Raises ConfigError, BadNameError and UnsupportedByServerError for options that cannot work,
        what `Client.publish` raises, and, about a message added before, BatchError,
        NotEnabledOnStreamError, NoStreamResponseError, RequestTimeoutError, BrokenSocketError and
        APIError for other refusals of the stream.
        """
        return self._add_message(
            subject,
            payload,
            headers=headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
        )

    def flush(self) -> None:
        """Wait until the server has every message, so that all but the commit can have failed.

        Needs nats-server 2.14. Raises as `add`.
        """
        self._run_in_turn(self._inner.flush)

    def commit(self) -> PubAck:
        """Store all: the ack has the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and what `add` raises; nothing is stored then. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        return self._run_in_turn(self._inner.commit)
