"""Scheduled messages, without async.

Contract: that of `jetspark.jetstream.publishing.schedules`.
"""

from __future__ import annotations

from datetime import datetime

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class ScheduleCalls:
    """The part of JetStream that is about scheduled messages."""

    _thread: LoopThread
    _inner: AsyncJetStream

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
        return self._thread.run(
            self._inner.cancel_schedule,
            stream,
            subject,
        )

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
