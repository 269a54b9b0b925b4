"""Publishing to a stream, without async.

Contract: that of `jetspark.jetstream.publishing.calls`.
"""

from __future__ import annotations

from functools import cached_property

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.jetstream.publisher import Publisher
from jetspark.client.prepared import Sendable, parts_of
from jetspark.jetstream.api import Api
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.calls import PublishCalls as AsyncPublishCalls
from jetspark.jetstream.publishing.headers import TimeToLive, headers_of
from jetspark.jetstream.publishing.windowed import RETRY_FOR, DisconnectPolicy, PublisherOptions
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.headers import HeadersLike


class PublishCalls:
    """The part of JetStream that is about publishing."""

    _caller: CallerSide
    _inner: AsyncJetStream

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_stream: str | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
        expect_last_msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Publish, and return where it was stored.

        `msg_id`: stored once, however often it is published inside the stream's duplicate
        window (`duplicate` in the ack says that it was there). `ttl`: removed after so long, a
        timedelta or seconds, whole ones; "never": not even by the stream's max_age (2.11).
        `expect_…`: store only if this stream takes it, and its last sequence, the subject's last
        sequence (or that of the subject `expect_last_subject_seq_of`, 2.11) or the last message
        id is this one. `timeout`: seconds in all, retries included; default: the context's.

        Raises NoStreamResponseError, WrongLastSequenceError, NotEnabledOnStreamError, APIError
        for other refusals of the stream, RequestTimeoutError, UnsupportedByServerError, and what
        `Client.publish` raises.
        """
        return drive(
            self._in_this_thread.publish(
                subject,
                payload,
                headers=headers,
                msg_id=msg_id,
                ttl=ttl,
                expect_stream=expect_stream,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
                expect_last_msg_id=expect_last_msg_id,
                timeout=timeout,
            )
        )

    def publish_msg(
        self,
        message: Sendable,
        *,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_stream: str | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
        expect_last_msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """`publish` a message made before, or one that was received; its `reply` is not used.

        Its headers go along, except that a received message leaves behind the conditions and
        marks of its own publish (Nats-Expected-…, Nats-Batch-…, Nats-Schedule…). The options
        replace headers of the same meaning. Raises as `publish`.
        """
        subject, data, _, _ = parts_of(message)
        return self.publish(
            subject,
            data,
            headers=headers_of(message),
            msg_id=msg_id,
            ttl=ttl,
            expect_stream=expect_stream,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
            expect_last_msg_id=expect_last_msg_id,
            timeout=timeout,
        )

    def publisher(
        self,
        window: int = 4000,
        *,
        timeout: Seconds | None = None,
        on_disconnect: DisconnectPolicy = "auto",
        retry_for: Seconds = RETRY_FOR,
        raise_failures: bool = True,
    ) -> Publisher:
        """Publish many without waiting for each ack: `with js.publisher() as pub`.

        `window`: most messages without an ack at any time. `timeout`: seconds of connected time
        for an ack; default: the context's. `on_disconnect`: what becomes of a message when the link
        is lost, or no ack comes in time, so that nobody knows whether it was stored: "auto" (sent
        again if it has a msg_id, otherwise failed), "fail" or "resend". `retry_for`: seconds of
        connected time for which messages are sent again that are not stored because their stream
        has no leader, or that "auto" and "resend" send again; 0: never. The rest is in `Publisher`.
        """
        api = self._in_this_thread._api
        options = PublisherOptions(
            window=window,
            timeout=api.timeout if timeout is None else in_seconds(timeout),
            on_disconnect=on_disconnect,
            retry_for=in_seconds(retry_for),
            raise_failures=raise_failures,
        )
        return Publisher(self._caller, api, options)

    @cached_property
    def _in_this_thread(self) -> AsyncPublishCalls:
        """The asyncio calls over a client whose messages leave from the caller's thread."""
        calls = AsyncPublishCalls()
        calls._api = caller_api(self._caller, self._inner)
        return calls


def caller_api(caller: CallerSide, inner: AsyncJetStream) -> Api:
    """An API whose messages leave from the caller's thread."""
    return Api(caller, timeout=inner.timeout, api_prefix=inner.api_prefix)
