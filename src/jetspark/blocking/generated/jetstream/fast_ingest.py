# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: fast ingest."""

from __future__ import annotations

from jetspark.blocking.jetstream.sending import Sending
from jetspark.documents.streams import PubAck
from jetspark.jetstream.batches import Ingesting
from jetspark.jetstream.publisher import PublishFailure, TimeToLive
from jetspark.payloads import Payload
from jetspark.wire.headers import Headers, HeadersLike


class GeneratedFastIngest(Sending):
    """The calls of `FastIngest` that hand on to its asyncio twin."""

    _inner: Ingesting

    def _add_message(self, subject: str, payload: Payload, headers: Headers | None) -> int:
        raise NotImplementedError

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._inner.window.sent

    @property
    def pending(self) -> int:
        """Messages of which nothing is known yet."""
        return self._inner.window.pending

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.window.acked

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far. Reading counts as having looked at them."""
        return self._inner.failed()

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
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
        """Publish, waiting only while too many acks are outstanding; returns the message's index.

        The options are those of `JetStream.publish`. Raises what `Client.publish` raises, and
        ConfigError, BadNameError and UnsupportedByServerError for options that cannot work; such a
        message was not taken and has no index. When the batch is over it raises why.
        """
        return self._add_message(
            subject,
            payload,
            self._inner.headers(
                headers=headers,
                msg_id=msg_id,
                ttl=ttl,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
            ),
        )

    def commit(self) -> PubAck | None:
        """End the batch and wait until the fate of every message is known.

        Returns the server's last word; None when there was none, or nothing was sent. Raises
        ConfigError outside of the block, and nothing that `failed` tells.
        """
        raise NotImplementedError
