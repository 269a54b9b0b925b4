# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: publisher."""

from __future__ import annotations

from concurrent.futures import Future

from jetspark.blocking.jetstream.sending import Sending
from jetspark.documents.streams import PubAck
from jetspark.jetstream.publisher import PublishFailure, TimeToLive, WindowedPublishing
from jetspark.payloads import Payload
from jetspark.wire.headers import HeadersLike


class GeneratedPublisher(Sending):
    """The calls of `Publisher` that hand on to its asyncio twin."""

    _inner: WindowedPublishing

    def _send_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
    ) -> int:
        raise NotImplementedError

    def _submit_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
    ) -> Future[PubAck]:
        raise NotImplementedError

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
        return self._inner.window.count()

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._inner.window.sent

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages of `send` that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    def send(
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
        return self._send_message(subject, payload, headers, msg_id, ttl)

    def submit(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> Future[PubAck]:
        """As `send`; returns a future with this message's PubAck or error.

        An error goes to the future only, not to `failed`.
        """
        return self._submit_message(subject, payload, headers, msg_id, ttl)

    def flush(self) -> None:
        """Wait until no message is without an ack or error. Raises nothing of theirs."""
        raise NotImplementedError
