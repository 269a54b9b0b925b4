"""Publishing one message and awaiting its acknowledgement (ADR-22).

Contract: a publish is a request whose reply is a PubAck. "No responders" means that no stream
listens on the subject, or that its leader is just changing: it is tried twice more, 250 ms apart,
inside the one deadline. An ack that does not come leaves open whether the message was stored;
with `msg_id` it can be published again without harm.
"""

from __future__ import annotations

import asyncio

from jetspark.arguments import checked, checked_but
from jetspark.client.messages import Message
from jetspark.client.prepared import Sendable, parts_of
from jetspark.client.read_reply import request_and_read
from jetspark.errors import NoRespondersError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive, headers_of, publish_headers
from jetspark.jetstream.publishing.options import RETRY_FOR, DisconnectPolicy, PublisherOptions
from jetspark.jetstream.publishing.pub_ack import PublishTries, parse_pub_ack
from jetspark.jetstream.publishing.publisher import Publisher
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.headers import Headers, HeadersLike


@checked_but("publish", "publish_msg")
class PublishCalls:
    """The part of JetStream that is about publishing."""

    _api: Api

    async def publish(
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
        for other refusals of the stream, RequestTimeoutError when it is not known whether it was
        stored (or, with `sent` False, when it is not), ConnectionClosedError with the same `sent`,
        UnsupportedByServerError, and what `Client.publish` raises.
        """
        all_headers = publish_headers(
            self._api.server,
            headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_stream=expect_stream,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
            expect_last_msg_id=expect_last_msg_id,
        )
        return await acknowledged(self._api, subject, payload, all_headers, timeout)

    async def publish_msg(
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
        return await self.publish(
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
        """Publish many without waiting for each ack: `async with js.publisher() as pub`.

        `window`: most messages without an ack at any time. `timeout`: seconds of connected time
        for an ack; default: the context's. `on_disconnect`: what becomes of a message when the link
        is lost, or no ack comes in time, so that nobody knows whether it was stored: "auto" (sent
        again if it has a msg_id, otherwise failed), "fail" or "resend". `retry_for`: seconds of
        connected time for which messages are sent again that are not stored because their stream
        has no leader, or that "auto" and "resend" send again; 0: never. Neither bounds an outage:
        without a link a full window, and leaving the block, wait for it. The rest is in
        `Publisher`.
        """
        options = publisher_options(
            self._api, window, timeout, on_disconnect, retry_for, raise_failures
        )
        return Publisher(self._api, options)


@checked  # the blocking client calls it, too
def publisher_options(
    api: Api,
    window: int,
    timeout: Seconds | None,
    on_disconnect: DisconnectPolicy,
    retry_for: Seconds,
    raise_failures: bool,
) -> PublisherOptions:
    """Those of `publisher`, in seconds. Raises ConfigError, BadTimeError."""
    return PublisherOptions(
        window=window,
        timeout=api.timeout if timeout is None else in_seconds(timeout),
        on_disconnect=on_disconnect,
        retry_for=in_seconds(retry_for),
        raise_failures=raise_failures,
    )


async def acknowledged(
    api: Api, subject: str, payload: Payload, headers: Headers | None, timeout: Seconds | None
) -> PubAck:
    """Publish and await the ack; retry while there is no responder (ADR-22)."""
    client = api.client
    tries = PublishTries(subject, api.timeout if timeout is None else in_seconds(timeout))
    payload = payload_bytes(payload)  # once: every try sends the same
    while True:
        try:
            with tries:
                return await request_and_read(
                    client, subject, payload, _pub_ack, timeout=tries.left, headers=headers
                )
        except NoRespondersError:
            await asyncio.sleep(tries.pause())


def _pub_ack(reply: Message) -> PubAck:
    return parse_pub_ack(reply.data)
