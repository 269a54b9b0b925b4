"""Publishing one message and awaiting its acknowledgement (ADR-22).

Contract: a publish is a request whose reply is a PubAck. "No responders" means that no stream
listens on the subject, or that its leader is just changing: two more tries follow, 250 ms apart,
within the same deadline. A missing ack leaves open whether the message was stored; with `msg_id` it
can be published again without harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack

import jetspark.errors as errors
from jetspark.client.client import request_and_read
from jetspark.client.messages import Message, Sendable, parts_of
from jetspark.documents.document import text_of_time
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import PubAck, StoredMsg
from jetspark.jetstream.api import Api
from jetspark.jetstream.atomic_batch import AtomicBatch, AtomicSender
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
from jetspark.jetstream.stored import StoredCalls
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import NANOSECONDS, Seconds, in_seconds, ns_from_now
from jetspark.validation import check_moment, check_text, check_whole
from jetspark.wire.documents import decode_document, decode_json
from jetspark.wire.headers import Headers, HeadersLike, PayloadCodec, codec_of

_MAX_INCREMENT = 10**4000
"""Python makes no text of a number that is much longer."""


class PublishCalls(StoredCalls):
    """The calls of JetStream that publish: messages, counters, schedules."""

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
        before `add` waits. `timeout`: seconds of connected time without a reply; default: the
        context's. More in `FastIngest`.
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
        """
        by = check_whole("by", by, -_MAX_INCREMENT, _MAX_INCREMENT)
        check_feature("increment", (2, 12), self._api.server)
        with_id = publish_headers(self._api.server, headers, msg_id=msg_id)
        all_headers = merged(with_id, [(INCREMENT, f"{by:+d}")])
        ack = await acknowledged(self._api, subject, b"", all_headers, timeout)
        if ack.duplicate:
            return (await self.get_counter(ack.stream, subject)).value
        if ack.val is None:
            raise errors.JetStreamError(
                f"Stream {ack.stream!r} does not count: it stored an ordinary message at "
                f"sequence {ack.seq}."
            )
        return _number(ack.val)

    async def get_counter(self, stream: str, subject: str) -> Counter:
        """A counter's value, from the stream's leader.

        Raises MessageNotFoundError when nothing was counted yet, JetStreamError for a message that
        is not a counter.
        """
        check_publish_subject(subject)
        return _counter(await self.get_msg(stream, last_by_subject=subject, direct=False))

    async def get_counters(self, stream: str, subjects: str | Sequence[str]) -> list[Counter]:
        """The counters of all matching subjects, as of one moment.

        A message that is not a counter is reported and left out. See `get_last_msgs` for its
        conditions, errors and lag.
        """
        counters = []
        async for message in self.get_last_msgs(stream, subjects):
            try:
                counters.append(_counter(message))
            except errors.JetStreamError as error:
                self._api.client.report(error)
        return counters

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
            (SCHEDULE, _pattern(at, every, cron)),
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

    async def cancel_schedule(self, stream: str, subject: str) -> bool:
        """Delete a schedule; False when there is none.

        Raises JetStreamError, and deletes nothing, when the subject's last message is not a
        schedule.
        """
        check_publish_subject(subject)
        try:
            message = await self.get_msg(stream, last_by_subject=subject, direct=False)
            headers = message.headers
            if headers is None or SCHEDULE not in headers:
                raise errors.JetStreamError(
                    f"The last message on {subject!r} of stream {stream!r} is not a schedule."
                )
            await self.delete_msg(stream, message.seq)
        except errors.MessageNotFoundError:
            return False
        return True

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
        check_publish_subject(schedule)
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


# -------------------------------------------------------------------------------------------------
# Counters: a subject whose stream adds up the published numbers (ADR-49).
#
# Contract: the stream (`allow_msg_counter`, 2.12) does the arithmetic, in whole numbers of any
# size; `increment` returns the sum. A missing ack leaves open whether it was counted; with `msg_id`
# it can be repeated without counting twice.


INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter as stored last."""

    subject: str
    value: int
    increment: int
    """The number added last."""
    sources: Mapping[str, Mapping[str, int]]
    """The parts of other streams: stream, subject there, value there."""
    seq: int
    """The stream's sequence of this value."""


def _counter(message: StoredMsg) -> Counter:
    try:
        headers = message.headers
        if headers is None:
            raise KeyError(INCREMENT)
        sources: dict[str, dict[str, str]] = {}
        if text := headers.get(SOURCES):
            sources = decode_json(text, dict[str, dict[str, str]], "sources")
        body = decode_document(message.data, "counter")
        return Counter(
            subject=message.subject,
            value=_number(body["val"]),
            increment=_number(headers[INCREMENT]),
            sources={
                stream: {subject: _number(value) for subject, value in values.items()}
                for stream, values in sources.items()
            },
            seq=message.seq,
        )
    except (errors.DocumentError, KeyError):
        raise errors.JetStreamError(
            f"The last message on {message.subject!r}, at sequence {message.seq}, is not a counter."
        ) from None


def _number(text: Any) -> int:
    """Raise JetStreamError for anything but a number that Python can read."""
    try:
        return int(text)
    except (TypeError, ValueError):
        raise errors.JetStreamError(f"A counter has the value {str(text)[:40]!r}.") from None


# -------------------------------------------------------------------------------------------------
# Scheduled messages: the stream publishes later, or again and again (ADR-51).
#
# Contract: a schedule is a message on a subject of its own, in a stream with `allow_msg_schedules`;
# while it is the subject's last message, the stream publishes to the target, a subject of the same
# stream. A new schedule on the subject replaces the old one. Times are the server's. At one time
# (`at`): server 2.12; everything else: 2.14.


SCHEDULE = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
TARGET_TTL = "Nats-Schedule-TTL"
TIME_ZONE = "Nats-Schedule-Time-Zone"
ROLLUP = "Nats-Schedule-Rollup"
SCHEDULER = "Nats-Scheduler"
NEXT = "Nats-Schedule-Next"


def _pattern(at: datetime | None, every: Seconds | None, cron: str | None) -> str:
    if [at, every, cron].count(None) != 2:
        raise errors.ConfigError("A schedule needs exactly one of at, every and cron.")
    if at is not None:
        moment = check_moment("at", at)
        return f"@at {text_of_time(moment)}"
    if every is not None:
        if (ns := ns_from_now("every", every)) < NANOSECONDS:
            raise errors.ConfigError("every is at least 1 second.")
        return f"@every {ns}ns"
    text = check_text("cron", cron or "").strip()
    if not text:  # the server would see no schedule at all
        raise errors.ConfigError("cron is empty.")
    return text
