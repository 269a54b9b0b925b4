"""Publishing many messages with a bounded window of unacknowledged ones.

Contract. `send` returns as soon as the message is in the outbox; while `window` messages have no
ack it waits. Every message ends in exactly one way: acknowledged (counted in `acked`) or failed
(listed in `failed`, or set on the future that `submit` gave). Leaving the block waits for all,
then raises PublishFailedError for failures since `failed` was last read. With
`raise_failures=False` it never raises.

A message without a responder (503: its stream has no leader now, or there is no stream) is
certainly not stored. It is sent again every 250 ms, for `retry_for` seconds; new messages wait
meanwhile, so that as far as possible they are stored after it. After that it fails with
NoStreamResponseError.

When the link is lost, or no ack arrives within `timeout`, it is unknown whether a message was
stored. `on_disconnect`: "auto" sends those with a Nats-Msg-Id again, which is safe within the
stream's duplicate window, and fails the others; "fail" fails all; "resend" sends all again, and
some may then be stored twice. So by default every message that can be sent again without being
stored twice is, and the others fail as unknown. Messages sent during an outage wait in the client's
buffer as usual; timeouts do not run meanwhile.

A message that is sent again is stored after later messages that were stored at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Self

from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.jetstream.publishing.options import PublisherOptions
from jetspark.jetstream.publishing.results import PublishFailure
from jetspark.jetstream.publishing.windowed import WindowedPublishing
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.errors import JetsparkError
    from jetspark.jetstream.api import Api


class Publisher:
    """See the module and `JetStream.publisher`. For one event loop, and any number of its tasks."""

    def __init__(self, api: Api, options: PublisherOptions) -> None:
        self._loop = api.client.loop
        self._outbox = api.client.publishing.outbox
        self._hooked = api.client.publishing.hooked
        self._inner = WindowedPublishing(api, options, api.client.publishing, self._changed)
        self._window = self._inner.window
        self._senders: deque[asyncio.Future[None]] = deque()
        self._flushers: list[asyncio.Future[None]] = []

    # -- results -------------------------------------------------------------------------------

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.acked

    @property
    def duplicates(self) -> int:
        """Of these, messages whose Nats-Msg-Id was in the stream already."""
        return self._inner.duplicates

    @property
    def pending(self) -> int:
        """Messages that have no ack yet; never more than the window."""
        return self._window.count()

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._window.sent

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages of `send` that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        """Publish, waiting only while the window is full; returns the message's index.

        Raises what `Client.publish` raises; such a message was not taken and has no index.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        return self._inner.publish(subject, payload, headers, msg_id, ttl, None, self._hooked)

    async def submit(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> asyncio.Future[PubAck]:
        """As `send`; returns a future with this message's PubAck or error.

        An error goes to the future only, not to `failed`.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        window = self._window
        while window.count() >= window.limit or self._outbox.crowded:
            await self._wait_for_space()
        future: asyncio.Future[PubAck] = self._loop.create_future()
        told = partial(_resolve, future)
        self._inner.publish(subject, payload, headers, msg_id, ttl, told, self._hooked)
        return future

    async def flush(self) -> None:
        """Wait until no message is without an ack or error. Raises nothing of theirs."""
        while self._window.count():
            flusher = self._loop.create_future()
            self._flushers.append(flusher)
            await flusher

    # -- waiting -------------------------------------------------------------------------------

    async def _wait_for_space(self) -> None:
        try:
            if self._outbox.crowded:
                await self._outbox.wait()
            else:
                space = self._loop.create_future()
                self._senders.append(space)
                await space
        except asyncio.CancelledError:
            self._changed()  # this waking may have been for somebody else
            raise

    def _changed(self) -> None:
        """Wake as many senders as there is space for, and flushes when nothing is pending."""
        window = self._window
        space = window.limit - window.count()
        while space > 0 and self._senders:
            sender = self._senders.popleft()
            if not sender.done():
                sender.set_result(None)
                space -= 1
        if self._flushers and not window.count():
            flushers, self._flushers = self._flushers, []
            for flusher in flushers:
                if not flusher.done():
                    flusher.set_result(None)

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
                await self.flush()
        finally:
            self._inner.close()
        self._inner.tell_failures(error)


def _resolve(future: asyncio.Future[PubAck], fate: PubAck | JetsparkError) -> None:
    if future.done():
        return
    if isinstance(fate, PubAck):
        future.set_result(fate)
    else:
        future.set_exception(fate)
