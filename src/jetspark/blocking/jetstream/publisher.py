"""Publishing many messages with a bounded window of unacknowledged ones, without async.

Contract: that of `jetspark.jetstream.publisher`; any number of threads may send. Sending changes
no thread while the window has space: the message gets its place in the window and goes to the
publish buffer here, and its ack is counted in the event loop's read loop.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.leaving import Entering
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publish_headers import TimeToLive
from jetspark.jetstream.publish_results import PublishFailure
from jetspark.jetstream.publisher import Publisher as AsyncPublisher
from jetspark.wire.headers import HeadersLike


class Publisher(Entering):
    """See the module and `JetStream.publisher`. Any number of threads may send."""

    _inner: AsyncPublisher

    def __init__(self, client: CallerSide, inner: AsyncPublisher) -> None:
        self._thread = client.thread
        self._buffer = client.buffer
        self._inner = inner
        # Only one thread takes places in the window; the loop's thread gives them back.
        self._sending = threading.Lock()

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.acked

    @property
    def duplicates(self) -> int:
        """Of these, messages whose Nats-Msg-Id was in the stream already."""
        return self._inner.duplicates

    # -- sending -------------------------------------------------------------------------------

    def send(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        """Publish, waiting only while the window is full; returns the message's index.

        Raises what `Client.publish` raises; such a message was not taken and has no index.
        """
        with self._sending:
            self._wait_for_space()
            return self._inner._publish(subject, payload, headers, msg_id, ttl, None)

    def submit(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> Future[PubAck]:
        """As `send`; returns a future with this message's PubAck or error.

        An error goes to the future only, not to `failed`.
        """
        answer: asyncio.Future[PubAck] = self._thread.loop.create_future()
        with self._sending:
            self._wait_for_space()
            self._inner._publish(subject, payload, headers, msg_id, ttl, answer)
        future: Future[PubAck] = Future()
        self._thread.post(lambda: answer.add_done_callback(lambda done: _copy(done, future)))
        return future

    def _wait_for_space(self) -> None:
        """In the window and in the buffer. Raises Suspended in the loop's own thread."""
        inner = self._inner
        while True:
            if len(inner._pending) >= inner._window:
                self._thread.run(self._space)
            elif self._buffer.crowded:
                self._buffer.block()
            else:
                return

    async def _space(self) -> None:
        # Looked at again where acks arrive: the last one may have come meanwhile.
        if len(self._inner._pending) >= self._inner._window:
            await self._inner._wait_for_space()

    # -- results -------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Messages that have no ack yet; never more than the window."""
        return self._inner.pending

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._inner.sent

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages of `send` that failed so far. Reading counts as having looked at them."""
        return self._inner.failed

    def flush(self) -> None:
        """Wait until no message is without an ack or error. Raises nothing of theirs."""
        self._thread.run(self._inner.flush)


def _copy(done: asyncio.Future[PubAck], future: Future[PubAck]) -> None:
    if not future.set_running_or_notify_cancel():
        done.exception()  # seen
    elif (error := done.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())
