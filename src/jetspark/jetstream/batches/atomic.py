"""Atomic batches: messages that are stored together or not at all (ADR-50).

Contract. `add` sends a message to the server, which stages it; `commit` stores all of them, one
after the other with nothing in between, and returns the ack of the last one. Leaving the block
commits, unless that was done; leaving it by an exception abandons the batch.

The newest message is held back, because the last message of a batch has the commit header; only
`flush` sends it earlier. So the refusal of a message may be raised by a later call, at the latest
by `commit`. Expectations are checked when the batch is committed: if one fails, the batch is
refused. After an error before the commit was sent, nothing is stored. After that, without a reply
it is unknown whether all or nothing was stored; if one message of the batch has an expectation, it
is safe to publish the batch again.

The server abandons a batch after 10 s without a message, at more than 1,000 messages, and at more
than 50 batches at a time in a stream; a lost connection ends it as well. Any number of tasks may
add, one after the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from jetspark.errors import JetsparkError, NoStreamResponseError
from jetspark.jetstream.batches.staging import Staging, interrupted, refusal_in
from jetspark.jetstream.publishing.pub_ack import PublishTries, parse_pub_ack
from jetspark.jetstream.requirements import check_feature
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.batch_headers import STAGED

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.jetstream.batches.atomic_window import BatchMessage
    from jetspark.jetstream.documents import PubAck
    from jetspark.jetstream.publishing.headers import TimeToLive
    from jetspark.wire.events import MessageFrame
    from jetspark.wire.headers import HeadersLike


class AtomicBatch:
    """See the module and `JetStream.atomic_batch`. For one event loop."""

    def __init__(self, inner: Staging) -> None:
        self._inner = inner
        self._window = inner.window
        self._outbox = inner.outbox
        self._loop = inner.client.loop
        self._turn = asyncio.Lock()

    @property
    def size(self) -> int:
        """Messages added so far."""
        return self._window.size

    @property
    def ack(self) -> PubAck | None:
        """What `commit` returned; None before."""
        return self._window.ack

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
        """One more message; returns its number in the batch, 1 for the first.

        The options are those of `JetStream.publish`. `expect_last_seq` belongs to the first
        message; `expect_last_subject_seq` cannot follow a message of the batch on that subject.

        Raises ConfigError, BadNameError and UnsupportedByServerError for options that cannot work,
        what `Client.publish` raises, and, about a message added before, BatchError,
        NotEnabledOnStreamError, NoStreamResponseError, RequestTimeoutError, BrokenSocketError and
        APIError for other refusals of the stream.
        """
        payload = payload_bytes(payload)  # as it is now: it is sent with a later call
        async with self._turn:
            message = self._inner.message(
                subject,
                payload,
                headers,
                msg_id,
                ttl,
                expect_last_seq,
                expect_last_subject_seq,
                expect_last_subject_seq_of,
            )
            if self._window.waits:
                await self._stage()
            elif self._outbox.crowded:
                await self._outbox.wait()
            return self._inner.add(message)

    async def flush(self) -> None:
        """Wait until the server has every message, so that all but the commit can have failed.

        Needs nats-server 2.14. Raises as `add`.
        """
        async with self._turn:
            self._window.check_open()
            check_feature("flush of an atomic batch", (2, 14), self._inner.server)
            await self._stage()

    async def commit(self) -> PubAck:
        """Store all: the ack has the last message's `seq` and the `count` of messages.

        Raises WrongLastSequenceError when an expectation does not hold, BatchError, APIError for
        other refusals, and what `add` raises; nothing is stored then. RequestTimeoutError,
        BrokenSocketError and ConnectionClosedError leave open whether all or nothing is.
        """
        async with self._turn:
            self._window.check_open()
            frame = await self._ask(*self._window.commit())
            ack = parse_pub_ack(frame.payload)
            self._window.acked(ack)
            return ack

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
            if kind is None and self._window.size and not self._window.committing:
                await self.commit()
        finally:
            self._inner.close()

    # -- asking --------------------------------------------------------------------------------

    async def _stage(self) -> None:
        """Send the message that is held, if any, and wait until the server keeps it."""
        if (held := self._window.release()) is not None:
            self._inner.kept(await self._ask(*held, STAGED))

    async def _ask(self, number: int, message: BatchMessage, mark: bytes) -> MessageFrame:
        """Send and await the reply; retry without responders as in ADR-22."""
        inner, loop = self._inner, self._loop
        deadline = loop.time() + inner.timeout
        tries = PublishTries(message.subject, inner.timeout)
        try:
            while True:
                if self._outbox.crowded:
                    await self._outbox.wait()
                answer: asyncio.Future[MessageFrame] = loop.create_future()
                inner.ask(number, message, mark, answer)
                async with asyncio.timeout_at(deadline):
                    frame = await answer
                refused = refusal_in(frame, message.subject)
                if refused is None:
                    return frame
                if not isinstance(refused, NoStreamResponseError):
                    raise refused
                await asyncio.sleep(tries.pause())
        except JetsparkError as error:
            self._window.failed(error)
            raise
        except TimeoutError:
            late = self._window.expired(inner.timeout)
            self._window.failed(late)
            raise late from None
        except BaseException:
            self._window.failed(interrupted(number))
            raise
        finally:
            inner.stop_asking()
