"""Atomic batches, without async.

Contract: that of `jetspark.jetstream.batches.atomic`; any number of threads may add. Only what has
to wait for the server changes the thread: the second `add`, `flush` and `commit`.
"""

from __future__ import annotations

import threading
from functools import partial

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.jetstream.fast_ingest import FastIngest
from jetspark.blocking.jetstream.publish import caller_api
from jetspark.blocking.leaving import EnteringInTurn
from jetspark.jetstream.batches.atomic import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.batches.calls import BatchCalls as AsyncBatchCalls
from jetspark.jetstream.batches.fast_ingest import GapPolicy
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class AtomicBatch(EnteringInTurn):
    """See the module and `JetStream.atomic_batch`. Any number of threads may add."""

    _inner: AsyncAtomicBatch

    def __init__(self, client: CallerSide, inner: AsyncAtomicBatch) -> None:
        self._thread = client.thread
        self._inner = inner
        self._turn = threading.Lock()

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

        Raises ConfigError, what `Client.publish` raises, and, about a message added before,
        BatchError, NotEnabledOnStreamError, NoStreamResponseError, RequestTimeoutError,
        BrokenSocketError.
        """
        add = partial(
            self._inner.add,
            subject,
            payload,
            headers=headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
        )
        with self._turn:
            # The second one sends the first, whose answer is waited for.
            return self._thread.run(add) if self._inner.size == 1 else drive(add())

    def flush(self) -> None:
        """Wait until the server has every message, so that all but the commit can have failed.

        Needs nats-server 2.14. Raises as `add`.
        """
        with self._turn:
            self._thread.run(self._inner.flush)

    def commit(self) -> PubAck:
        """Store all: the ack has the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and what `add` raises; nothing is stored then. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        with self._turn:
            return self._thread.run(self._inner.commit)


class BatchCalls:
    """The part of JetStream that is about batches."""

    _caller: CallerSide
    _inner: AsyncJetStream

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        """Store messages together or not at all: `with js.atomic_batch() as batch`.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. The rest is in `AtomicBatch`.
        """
        return AtomicBatch(self._caller, self._calls().atomic_batch(timeout=timeout))

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        """Publish as fast as the stream takes it: `with js.fast_ingest() as ingest`.

        The stream needs `allow_batched` (2.14). `gaps`: what a lost or refused message does,
        "fail" (the batch ends there) or "ok" (it goes on). `ack_every`: most messages for one
        ack; the server says how many it lets be, up to 500 for all who do this at a time.
        `outstanding`: acks that may be missing before `add` waits. `timeout`: seconds of
        connected time without a word from the server; default: the context's. The rest is in
        `FastIngest`.
        """
        inner = self._calls().fast_ingest(
            gaps=gaps, ack_every=ack_every, outstanding=outstanding, timeout=timeout
        )
        return FastIngest(self._caller, inner)

    def _calls(self) -> AsyncBatchCalls:
        """Batches that send from the caller's thread."""
        calls = AsyncBatchCalls()
        calls._api = caller_api(self._caller, self._inner)
        return calls
