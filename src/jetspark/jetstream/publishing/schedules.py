"""Scheduled messages: the stream publishes later, or again and again (ADR-51).

Contract: a schedule is a message on a subject of its own, in a stream with `allow_msg_schedules`;
while it is the subject's last message, the stream publishes what it says to the target, a subject
of the same stream. A new schedule on the subject replaces the old one. Times are the server's. At
one time (`at`): server 2.12; everything else: 2.14.
"""

from __future__ import annotations

from datetime import datetime

from jetspark.arguments import checked
from jetspark.errors import ConfigError, JetStreamError, MessageNotFoundError
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.exact_times import text_of_time
from jetspark.jetstream.publishing.calls import acknowledged
from jetspark.jetstream.publishing.headers import TimeToLive, merged, publish_headers, ttl_text
from jetspark.jetstream.requirements import check_feature
from jetspark.jetstream.stored.calls import StoredCalls
from jetspark.payloads import Payload
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import NANOSECONDS, Seconds, ns_from_now
from jetspark.wire.headers import HeadersLike

SCHEDULE = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
TARGET_TTL = "Nats-Schedule-TTL"
TIME_ZONE = "Nats-Schedule-Time-Zone"
ROLLUP = "Nats-Schedule-Rollup"
SCHEDULER = "Nats-Scheduler"
NEXT = "Nats-Schedule-Next"

_FIELDS = 6
_NAMED = frozenset(
    ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
)


@checked
class ScheduleCalls(StoredCalls):
    """The part of JetStream that is about scheduled messages."""

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

        Exactly one of `at`, a time (aware; one that has passed means now); `every`, a timedelta
        or seconds, at least 1; `cron`, six fields, seconds first, or "@hourly" and the like, in
        UTC or in `time_zone` ("Europe/Amsterdam"). What is published is `payload` with `headers`;
        with `source` it is the last message of that subject, if there is one. `target_ttl`: its
        time to live; `rollup`: it replaces all others on the target. `ttl`: the schedule's own.

        Raises NotEnabledOnStreamError, ConfigError, UnsupportedByServerError, and what `publish`
        raises; BadSubjectError, and APIError for a target or source outside the stream.
        """
        later = (every, cron, time_zone, source, rollup or None)
        first = "schedule" if later == (None,) * len(later) else "schedule other than at a time"
        check_feature(first, (2, 12) if first == "schedule" else (2, 14), self._api.server)
        check_publish_subject(target, what="target")
        if source is not None:
            check_publish_subject(source, what="source")
        if len({subject, target, source}) < 3:
            raise ConfigError("subject, target and source must be different subjects.")
        if time_zone is not None and cron is None:
            raise ConfigError("time_zone goes with cron only.")
        ours = [
            (SCHEDULE, _pattern(at, every, cron)),
            (TARGET, target),
            (SOURCE, source),
            (TARGET_TTL, None if target_ttl is None else ttl_text(target_ttl, "target_ttl")),
            (TIME_ZONE, time_zone),
            (ROLLUP, "sub" if rollup else None),
        ]
        own = publish_headers(self._api.server, headers, msg_id=msg_id, ttl=ttl)
        return await acknowledged(self._api, subject, payload, merged(own, ours), timeout)

    async def cancel_schedule(self, stream: str, subject: str) -> bool:
        """Delete a schedule; False when there is none any more.

        Raises JetStreamError, and deletes nothing, when the subject's last message is not one.
        """
        check_publish_subject(subject)
        try:
            message = await self.get_msg(stream, last_by_subject=subject, direct=False)
            headers = message.headers
            if headers is None or SCHEDULE not in headers:
                raise JetStreamError(
                    f"The last message on {subject!r} of stream {stream!r} is no schedule."
                )
            await self.delete_msg(stream, message.seq)
        except MessageNotFoundError:
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

        `schedule`: its subject. `subject`: any other of the stream; the schedule's target
        publishes early, another one tells that it will not happen. `schedule_seq`: only if the
        schedule with this sequence is still there (WrongLastSequenceError). Raises as `publish`.
        """
        check_feature("end_schedule", (2, 14), self._api.server)
        check_publish_subject(schedule)
        if schedule == subject:
            raise ConfigError("The message that ends a schedule goes to another subject.")
        own = publish_headers(
            self._api.server,
            headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_subject_seq=schedule_seq,
            expect_last_subject_seq_of=None if schedule_seq is None else schedule,
        )
        ours: list[tuple[str, str | None]] = [(NEXT, "purge"), (SCHEDULER, schedule)]
        return await acknowledged(self._api, subject, payload, merged(own, ours), timeout)


def _pattern(at: datetime | None, every: Seconds | None, cron: str | None) -> str:
    if [at, every, cron].count(None) != 2:
        raise ConfigError("A schedule needs exactly one of at, every and cron.")
    if at is not None:
        return f"@at {text_of_time(at)}"
    if every is not None:
        if (ns := ns_from_now("every", every)) < NANOSECONDS:
            raise ConfigError("every is at least 1 second.")
        return f"@every {ns}ns"
    text = (cron or "").strip()
    if text not in _NAMED and (text.startswith("@") or len(text.split()) != _FIELDS):
        raise ConfigError(f"cron is six fields, seconds first, or a name as @hourly: not {cron!r}.")
    return text
