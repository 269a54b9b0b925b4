"""Scheduled messages: the stream publishes later, or again and again (ADR-51).

Contract: a schedule is a message on a subject of its own, in a stream with `allow_msg_schedules`;
while it is the subject's last message, the stream publishes to the target, a subject of the same
stream. A new schedule on the subject replaces the old one. Times are the server's. At one time
(`at`): server 2.12; everything else: 2.14.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import jetspark.errors as errors
from jetspark.documents.document import text_of_time
from jetspark.jetstream.stored import StoredCalls
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import NANOSECONDS, Seconds, ns_from_now
from jetspark.validation import check_moment, check_text

SCHEDULE = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
TARGET_TTL = "Nats-Schedule-TTL"
TIME_ZONE = "Nats-Schedule-Time-Zone"
ROLLUP = "Nats-Schedule-Rollup"
SCHEDULER = "Nats-Scheduler"
NEXT = "Nats-Schedule-Next"


def schedule_pattern(at: datetime | None, every: Seconds | None, cron: str | None) -> str:
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


class ScheduleCalls(StoredCalls):
    """The call of a stream that deletes a schedule."""

    async def cancel_schedule(self, subject: str) -> bool:
        """Delete a schedule; False when there is none.

        Raises JetStreamError, and deletes nothing, when the subject's last message is not a
        schedule.
        """
        check_publish_subject(subject)
        while True:
            try:
                message = await self.get(last_by_subject=subject, direct=False)
            except errors.MessageNotFoundError:
                return False
            headers = message.headers
            if headers is None or SCHEDULE not in headers:
                raise errors.JetStreamError(
                    f"The last message on {subject!r} of stream {self.name!r} is not a schedule."
                )
            with suppress(errors.MessageNotFoundError):  # a new schedule may have replaced it
                await self.delete_msg(message.seq)
                return True
