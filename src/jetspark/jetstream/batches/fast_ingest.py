"""Fast ingest: an open-ended batch with one ack for hundreds of messages (ADR-50).

Contract. `add` returns as soon as the message is in the outbox; it waits while `outstanding` acks
are missing, each of which covers as many messages as the server decides. Every message ends in
exactly one way: acknowledged (counted in `acked`) or failed (listed in `failed`). Leaving the block
ends the batch, waits for its final ack, then raises PublishFailedError for failures since
`failed` was last read.

`gaps="fail"`: the first message that is lost or refused ends the batch; all messages before it are
stored, in order, and all after it fail with NotStoredError. `gaps="ok"`: the batch continues, and
lost or refused messages are listed. Nothing is sent a second time, except the first message while
there are no responders for it (ADR-22). The server reports a refused
message (an expectation, a limit of the stream) only once; its acks and the final ack count that
message as the others. If the report is lost, the message counts as acknowledged, and no client can
know. So "ok" is for messages that the stream will not refuse; the acks of "fail" are exact.

A message that no server accepts, by permission or size, fails at once: with "fail" the batch ends
before it.

The server drops a batch after 10 s without a message: a ping keeps it alive, and requests overdue
acks and, after a reconnect, what was lost. A restarted server does not know the batch: it is over,
and messages without an ack may be stored or not. The same applies when nothing is received within
`timeout` seconds of connected time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from jetspark.jetstream.batches.ingesting import Ingesting
from jetspark.payloads import Payload, payload_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.jetstream.documents import PubAck
    from jetspark.jetstream.publishing.headers import TimeToLive
    from jetspark.jetstream.publishing.results import PublishFailure
    from jetspark.wire.headers import HeadersLike


class FastIngest:
    """See the module and `JetStream.fast_ingest`. For one event loop; many tasks may add."""

    def __init__(self, inner: Ingesting) -> None:
        self._inner = inner
        self._window = inner.window
        self._outbox = inner.outbox
        self._loop = inner.client.loop
        self._waiting: list[asyncio.Future[None]] = []
        inner.changed = self._changed

    # -- results -------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._window.sent

    @property
    def pending(self) -> int:
        """Messages of which nothing is known yet."""
        return self._window.pending

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._window.acked

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
        return self._inner.ack

    # -- sending -------------------------------------------------------------------------------

    async def add(
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

        The options are those of `JetStream.publish`. Raises what `Client.publish` raises, and
        ConfigError, BadNameError and UnsupportedByServerError for options that cannot work; such a
        message was not taken and has no index. When the batch is over it raises why.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now, not when there is room
        inner, window = self._inner, self._window
        while window.sent >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        kept = inner.headers(
            headers,
            msg_id,
            ttl,
            expect_last_seq,
            expect_last_subject_seq,
            expect_last_subject_seq_of,
        )
        return inner.add(subject, payload, kept)

    async def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        ConfigError outside of the block, and nothing that `failed` tells.
        """
        self._inner.finish()
        while self._inner.over is None:
            await self._change()
        return self._inner.ack

    # -- waiting -------------------------------------------------------------------------------

    async def _wait_for_space(self) -> None:
        self._inner.check_open()
        if self._outbox.crowded:
            await self._outbox.wait()
        else:
            await self._change()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _changed(self) -> None:
        """Wake all who wait, if there is space or the end; they look for themselves."""
        if self._waiting and (not self._window.full or self._inner.over is not None):
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._inner.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.commit()
        finally:
            self._inner.close()
        self._inner.tell_failures(error)
