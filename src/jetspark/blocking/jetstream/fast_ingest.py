"""Fast ingest, without async.

Contract: that of `jetspark.jetstream.batches.fast_ingest`; any number of threads may add. Adding
changes no thread while there is space: the message goes to the publish buffer here, and acks are
counted in the event loop's read loop.
"""

from __future__ import annotations

import threading

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.leaving import EnteringInTurn
from jetspark.blocking.loop_thread import Suspended
from jetspark.jetstream.batches.fast_ingest import FastIngest as AsyncFastIngest
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.jetstream.publishing.results import PublishFailure
from jetspark.payloads import Payload
from jetspark.wire.headers import HeadersLike


class FastIngest(EnteringInTurn):
    """See the module and `JetStream.fast_ingest`. Any number of threads may add."""

    _inner: AsyncFastIngest

    def __init__(self, client: CallerSide, inner: AsyncFastIngest) -> None:
        self._thread = client.thread
        self._inner = inner
        # Only one thread takes places; the loop's thread gives them back.
        self._turn = threading.Lock()

    # -- results -------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._inner.sent

    @property
    def pending(self) -> int:
        """Messages of which nothing is known yet."""
        return self._inner.pending

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.acked

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far. Reading counts as having looked at them."""
        return self._inner.failed

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
        return self._inner.ack

    # -- sending -------------------------------------------------------------------------------

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
        """Publish, waiting only while too many acks are outstanding; returns the message's index.

        The options are those of `JetStream.publish`. Raises what `Client.publish` raises; such a
        message was not taken and has no index. When the batch is over it raises why.
        """
        inner = self._inner
        with self._turn:
            while True:
                while inner._sent >= inner._limit:
                    self._thread.run(self._space)
                try:
                    return drive(
                        inner.add(
                            subject,
                            payload,
                            headers=headers,
                            msg_id=msg_id,
                            ttl=ttl,
                            expect_last_seq=expect_last_seq,
                            expect_last_subject_seq=expect_last_subject_seq,
                            expect_last_subject_seq_of=expect_last_subject_seq_of,
                        )
                    )
                except Suspended:
                    # A failure took the space between two looks, or this is the loop's own thread.
                    if self._thread.is_current:
                        raise

    async def _space(self) -> None:
        # Looked at again where acks arrive: the last one may have come meanwhile.
        if self._inner._sent >= self._inner._limit:
            await self._inner._wait_for_space()

    def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        nothing that `failed` tells.
        """
        with self._turn:  # a message that is just being added belongs to the batch
            return self._thread.run(self._inner.commit)
