"""Publishing one message and awaiting its acknowledgement (ADR-22).

Contract: a publish is a request whose reply is a PubAck. "No responders" means that no stream
listens on the subject, or that its leader is just changing: two more tries follow, 250 ms apart,
within the same deadline. A missing ack leaves open whether the message was stored; with `msg_id` it
can be published again without harm.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Unpack

import jetspark.errors as errors
from jetspark.client.client import request_and_read
from jetspark.client.messages import Message, Sendable, parts_of
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck
from jetspark.jetstream.api import Api
from jetspark.jetstream.atomic_batch import AtomicBatch, AtomicSender
from jetspark.jetstream.counters import INCREMENT, parse_number, read_counter
from jetspark.jetstream.fast_ingest import FastIngest, GapPolicy, IngestSender
from jetspark.jetstream.publish_request import (
    PublishMsgOptions,
    PublishOptions,
    PublishTries,
    TimeToLive,
    headers_of,
    merged,
    parse_pub_ack,
    publish_headers,
    ttl_text,
)
from jetspark.jetstream.publisher import RETRY_FOR, DisconnectPolicy, Publisher, PublisherSender
from jetspark.jetstream.schedules import (
    NEXT,
    ROLLUP,
    SCHEDULE,
    SCHEDULER,
    SOURCE,
    TARGET,
    TARGET_TTL,
    TIME_ZONE,
    schedule_pattern,
)
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole
from jetspark.wire.headers import Headers, HeadersLike, PayloadCodec, codec_of

_MAX_INCREMENT = 10**4000 - 1
"""Python makes no text of a number that is much longer."""


class PublishCalls:
    """The calls of JetStream that publish: messages, counters, schedules."""

    _api: Api

    async def publish(
        self,
        subject: str,
        payload: Value = b"",
        *,
        timeout: Seconds | None = None,
        codec: PayloadCodec | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Publish; returns where it was stored.

        `msg_id`: stored only once, however often it is published within the stream's duplicate
        window (`duplicate` in the ack: it was stored before). `ttl`: when to remove it, a timedelta
        or whole seconds; "never": not even by the stream's max_age (2.11). `expect_…`: store only
        if the stream, its last sequence, the subject's last sequence (or that of the subject
        `expect_last_subject_seq_of`, 2.11) or the last message id is this one. `timeout`: seconds
        in all, retries included; default: the context's. `codec`: makes the payload of a value.

        Raises NoStreamResponseError, WrongLastSequenceError, NotEnabledOnStreamError, APIError for
        other refusals of the stream, RequestTimeoutError when the outcome is unknown (or, with
        `sent` False, it is not stored), ConnectionClosedError with the same `sent`,
        UnsupportedByServerError, and the errors of `Client.publish`.

        Example:
            ```python
            ack = await js.publish("orders.eu", b"42 apples", msg_id="order-4")
            print(ack.stream, ack.seq, ack.duplicate)  # ORDERS 4 False
            ```
        """
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        all_headers = publish_headers(self._api.server, **options) if options else None
        return await acknowledged(self._api, subject, payload, all_headers, timeout)

    async def publish_msg(
        self,
        message: Sendable,
        *,
        timeout: Seconds | None = None,
        **options: Unpack[PublishMsgOptions],
    ) -> PubAck:
        """`publish` a prepared or received message, without its `reply`.

        It keeps its headers, but a received message loses the conditions and marks of its own
        publish (Nats-Expected-…, Nats-Batch-…, Nats-Schedule…). The options replace headers of the
        same meaning. Raises the errors of `publish`.
        """
        subject, data, _, _ = parts_of(message)
        return await self.publish(
            subject,
            data,
            headers=headers_of(message),
            timeout=timeout,
            **options,
        )

    def publisher(
        self,
        window: int = 4000,
        *,
        timeout: Seconds | None = None,
        on_disconnect: DisconnectPolicy = "auto",
        retry_for: Seconds = RETRY_FOR,
        raise_failures: bool = True,
        duplicate_window: Seconds | None = None,
    ) -> Publisher:
        """Publish many without waiting for each ack, in the block of the publisher that it returns.

        `window`: most messages without an ack at any time. `timeout`: seconds of connected time for
        an ack; default: the context's. `on_disconnect`: what to do when a lost link or a late ack
        leaves open whether a message was stored: "auto" (send it again if it has a msg_id,
        otherwise fail it), "fail" or "resend". `retry_for`: seconds of connected time for sending
        messages again, those of "auto" and "resend" and those refused because their stream has no
        leader; 0: never. An outage has no limit: without a link, a full window and leaving the
        block wait for one. `duplicate_window`: the stream's; default: read from the stream when
        "auto" needs it, for which the user needs permission. More in `Publisher`.

        Example:
            ```python
            async with js.publisher(window=1000) as publisher:
                for number in range(10_000):
                    await publisher.publish("orders.eu", b"%d" % number)

            print("all stored")  # all stored
            ```
        """
        return Publisher(
            PublisherSender(
                self._api,
                window,
                timeout,
                on_disconnect,
                retry_for,
                raise_failures,
                duplicate_window,
            )
        )

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        """Store messages together or not at all, in the block of the batch that it returns.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. More in `AtomicBatch`.

        Example:
            ```python
            async with js.atomic_batch() as batch:
                await batch.publish("orders.eu", b"42 apples")
                await batch.publish("orders.us", b"7 pears")
                ack = await batch.commit()  # so does the end of the block

            print(ack.count)  # 2
            ```
        """
        return AtomicBatch(AtomicSender(self._api, timeout))

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        """Publish as fast as the stream takes it, in the block of the ingest that it returns.

        The stream needs `allow_batched` (2.14). `gaps`: at a lost or refused message, "fail" (end
        the batch there) or "ok" (continue). `ack_every`: most messages for one ack; the server may
        lower it, and allows 500 for all batches together. `outstanding`: acks that may be missing
        before `publish` waits. `timeout`: seconds of connected time without a reply; default: the
        context's. More in `FastIngest`.

        Example:
            ```python
            async with js.fast_ingest(gaps="ok") as ingest:
                for number in range(10_000):
                    await ingest.publish("orders.eu", b"%d" % number)

            print(ingest.acked, ingest.failed)  # 10000 []
            ```
        """
        return FastIngest(IngestSender(self._api, gaps, ack_every, outstanding, timeout))

    # -- counters ------------------------------------------------------------------------------

    async def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, even a negative number; returns its new value.

        Counters begin at 0. `msg_id`: count only once; a repeated one returns the present value.
        `timeout`: as in `publish`.

        Raises NotEnabledOnStreamError when the stream's `allow_msg_counter` is off, ConfigError,
        UnsupportedByServerError, and the errors of `publish`.

        Example:
            ```python
            print(await js.increment("hits.home"))  # 1
            print(await js.increment("hits.home", 10))  # 11
            ```
        """
        if isinstance(by, int) and abs(by) > _MAX_INCREMENT:
            raise errors.ConfigError("by has more than 4,000 digits.")
        by = check_whole("by", by, -_MAX_INCREMENT, _MAX_INCREMENT)
        check_feature("increment", (2, 12), self._api.server)
        with_id = publish_headers(self._api.server, headers, msg_id=msg_id)
        all_headers = merged(with_id, [(INCREMENT, f"{by:+d}")])
        ack = await acknowledged(self._api, subject, b"", all_headers, timeout)
        if ack.duplicate:
            return (await read_counter(self._api, ack.stream, subject)).value
        if ack.val is None:
            raise errors.JetStreamError(
                f"Stream {ack.stream!r} does not count: it stored an ordinary message at "
                f"sequence {ack.seq}."
            )
        return parse_number(ack.val)

    # -- schedules -----------------------------------------------------------------------------

    async def schedule(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        target: str,
        at: datetime | None = None,
        every: Seconds | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        source: str | None = None,
        target_ttl: TimeToLive | None = None,
        rollup: bool = False,
        ttl: TimeToLive | None = None,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Have the stream publish to `target`: once, or again and again.

        Exactly one of `at`, a time (aware; one that has passed means now); `every`, a timedelta or
        seconds, at least 1; `cron`, six fields, seconds first, or "@hourly" and the like, in UTC or
        in `time_zone` ("Europe/Amsterdam"). The stream publishes `payload` with `headers` or, with
        `source`, the last message of that subject, if any. `target_ttl`: the time to live of what
        it publishes; `rollup`: replace all others on the target. `ttl`: the schedule's own.

        Raises NotEnabledOnStreamError, ConfigError, UnsupportedByServerError, and the errors of
        `publish`; BadSubjectError, and APIError for a target or source outside the stream.

        Example:
            ```python
            from datetime import UTC, datetime, timedelta

            soon = datetime.now(UTC) + timedelta(minutes=5)
            await js.schedule("orders.plans.4", b"remind Ann", target="orders.reminders", at=soon)
            ```
        """
        later = (every, cron, time_zone, source, rollup or None)
        first = "schedule" if later == (None,) * len(later) else "schedule other than at a time"
        check_feature(first, (2, 12) if first == "schedule" else (2, 14), self._api.server)
        check_publish_subject(target, label="target")
        if source is not None:
            check_publish_subject(source, label="source")
        if len({subject, target, source}) < 3:
            raise errors.ConfigError("subject, target and source must be different subjects.")
        if time_zone is not None and cron is None:
            raise errors.ConfigError("time_zone goes with cron only.")
        schedule_headers = [
            (SCHEDULE, schedule_pattern(at, every, cron)),
            (TARGET, target),
            (SOURCE, source),
            (TARGET_TTL, None if target_ttl is None else ttl_text(target_ttl, "target_ttl")),
            (TIME_ZONE, time_zone),
            (ROLLUP, "sub" if rollup else None),
        ]
        own = publish_headers(self._api.server, headers, msg_id=msg_id, ttl=ttl)
        return await acknowledged(
            self._api, subject, payload, merged(own, schedule_headers), timeout
        )

    async def end_schedule(
        self,
        schedule: str,
        subject: str,
        payload: Payload = b"",
        *,
        schedule_seq: int | None = None,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Publish a message and end a schedule, both or neither (2.14).

        `schedule`: its subject. `subject`: another one of the stream: the schedule's target to
        publish early, or one that reports its end. `schedule_seq`: only if the schedule still has
        this sequence (WrongLastSequenceError). Raises the errors of `publish`.
        """
        check_feature("end_schedule", (2, 14), self._api.server)
        check_publish_subject(schedule, label="schedule")
        if schedule == subject:
            raise errors.ConfigError("The message that ends a schedule goes to another subject.")
        own = publish_headers(
            self._api.server,
            headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_subject_seq=schedule_seq,
            expect_last_subject_seq_of=None if schedule_seq is None else schedule,
        )
        schedule_headers: list[tuple[str, str | None]] = [(NEXT, "purge"), (SCHEDULER, schedule)]
        return await acknowledged(
            self._api, subject, payload, merged(own, schedule_headers), timeout
        )


async def acknowledged(
    api: Api, subject: str, payload: Value, headers: Headers | None, timeout: Seconds | None
) -> PubAck:
    """Publish and await the ack; retry while there are no responders (ADR-22)."""
    client = api.client
    tries = PublishTries(subject, api.timeout if timeout is None else in_seconds(timeout))
    payload = payload_bytes(payload)  # encoded once, since every try sends the same
    while True:
        try:
            with tries:
                return await request_and_read(
                    client, subject, payload, _pub_ack, timeout=tries.left, headers=headers
                )
        except errors.NoRespondersError:
            await asyncio.sleep(tries.pause())


def _pub_ack(reply: Message) -> PubAck:
    return parse_pub_ack(reply.data)
