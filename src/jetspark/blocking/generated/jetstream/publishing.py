# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: publishing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jetspark.blocking.jetstream.batch import AtomicBatch
from jetspark.blocking.jetstream.fast_ingest import FastIngest
from jetspark.blocking.jetstream.publisher import Publisher
from jetspark.blocking.jetstream.this_thread import ThisThreadCalls
from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.messages import Sendable, parts_of
from jetspark.documents.streams import PubAck
from jetspark.jetstream.batches import GapPolicy, atomic_batch, fast_ingest
from jetspark.jetstream.publish import Counter, publisher_options
from jetspark.jetstream.publisher import (
    RETRY_FOR,
    DisconnectPolicy,
    TimeToLive,
    headers_of,
    publish_headers,
)
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class GeneratedPublishCalls(ThisThreadCalls):
    """The calls of `PublishCalls` that hand on to its asyncio twin."""

    _thread: LoopThread

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
        for other refusals of the stream, RequestTimeoutError when it is not known whether it was
        stored (or, with `sent` False, when it is not), ConnectionClosedError with the same `sent`,
        UnsupportedByServerError, and what `Client.publish` raises.
        """
        return self._publish(
            subject,
            payload,
            publish_headers(
                self._inner.api.server,
                headers=headers,
                msg_id=msg_id,
                ttl=ttl,
                expect_stream=expect_stream,
                expect_last_seq=expect_last_seq,
                expect_last_subject_seq=expect_last_subject_seq,
                expect_last_subject_seq_of=expect_last_subject_seq_of,
                expect_last_msg_id=expect_last_msg_id,
            ),
            timeout,
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
        return self.publish(
            *parts_of(message)[:2],
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
        has no leader, or that "auto" and "resend" send again; 0: never. Neither bounds an outage:
        without a link a full window, and leaving the block, wait for it. The rest is in
        `Publisher`.
        """
        return Publisher(
            self._caller,
            self._inner.api,
            publisher_options(
                self._inner.api, window, timeout, on_disconnect, retry_for, raise_failures
            ),
        )

    def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, a negative number too, and return its new value.

        It begins at 0. `msg_id`: counted once; when it was counted before, the value is that of
        now. `timeout`: as in `publish`.

        Raises NotEnabledOnStreamError when the stream's `allow_msg_counter` is off, ConfigError,
        UnsupportedByServerError, and what `publish` raises.
        """
        return self._thread.run(
            self._inner.increment, subject, by, headers=headers, msg_id=msg_id, timeout=timeout
        )

    def get_counter(self, stream: str, subject: str) -> Counter:
        """A counter's value, from the stream's leader.

        Raises MessageNotFoundError when nothing was counted yet, JetStreamError for a message
        that is no counter.
        """
        return self._thread.run(self._inner.get_counter, stream, subject)

    def get_counters(self, stream: str, subjects: str | Sequence[str]) -> list[Counter]:
        """The counters of all matching subjects, as of one moment.

        A message that is no counter is reported and left out. See `get_last_msgs` for what it
        needs, raises, and may lag behind.
        """
        return self._thread.run(self._inner.get_counters, stream, subjects)

    def schedule(
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

        Exactly one of `at`, a time (aware; one that has passed means now); `every`, a timedelta
        or seconds, at least 1; `cron`, six fields, seconds first, or "@hourly" and the like, in
        UTC or in `time_zone` ("Europe/Amsterdam"). What is published is `payload` with `headers`;
        with `source` it is the last message of that subject, if there is one. `target_ttl`: its
        time to live; `rollup`: it replaces all others on the target. `ttl`: the schedule's own.

        Raises NotEnabledOnStreamError, ConfigError, UnsupportedByServerError, and what `publish`
        raises; BadSubjectError, and APIError for a target or source outside the stream.
        """
        return self._thread.run(
            self._inner.schedule,
            subject,
            payload,
            target=target,
            at=at,
            every=every,
            cron=cron,
            time_zone=time_zone,
            source=source,
            target_ttl=target_ttl,
            rollup=rollup,
            ttl=ttl,
            headers=headers,
            msg_id=msg_id,
            timeout=timeout,
        )

    def cancel_schedule(self, stream: str, subject: str) -> bool:
        """Delete a schedule; False when there is none any more.

        Raises JetStreamError, and deletes nothing, when the subject's last message is not one.
        """
        return self._thread.run(self._inner.cancel_schedule, stream, subject)

    def end_schedule(
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

        `schedule`: its subject. `subject`: any other of the stream; the schedule's target
        publishes early, another one tells that it will not happen. `schedule_seq`: only if the
        schedule with this sequence is still there (WrongLastSequenceError). Raises as `publish`.
        """
        return self._thread.run(
            self._inner.end_schedule,
            schedule,
            subject,
            payload,
            schedule_seq=schedule_seq,
            headers=headers,
            msg_id=msg_id,
            ttl=ttl,
            timeout=timeout,
        )


class GeneratedBatchCalls(ThisThreadCalls):
    """The calls of `BatchCalls` that hand on to its asyncio twin."""

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        """Store messages together or not at all: `with js.atomic_batch() as batch`.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. The rest is in `AtomicBatch`.
        """
        return AtomicBatch(
            self._caller, atomic_batch(self._inner.api, self._caller.publishing, timeout)
        )

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        """Publish as fast as the stream takes it: `with js.fast_ingest() as ingest`.

        The stream needs `allow_batched` (2.14). `gaps`: what a lost or refused message does,
        "fail" (the batch ends there) or "ok" (it goes on). `ack_every`: most messages for one
        ack; the server says how many it lets be, up to 500 for all who do this at a time.
        `outstanding`: acks that may be missing before `add` waits. `timeout`: seconds of
        connected time without a word from the server; default: the context's. The rest is in
        `FastIngest`.
        """
        return FastIngest(
            self._caller,
            fast_ingest(
                self._inner.api, self._caller.publishing, gaps, ack_every, outstanding, timeout
            ),
        )
