"""What has come of a consumer's deliveries, against what it says it has sent (row J22).

A consumer numbers its deliveries from 1 without a gap, and says in each idle heartbeat which number
was the last (`Nats-Last-Consumer`). Whoever knows the number before the first delivery that can
come here, and counts what comes, so learns of a lost one although none follows it. Nothing is done
for a message but to count it, which its route does anyway.

Other clients that pull from the same consumer get numbers too: what is missing here was lost or
went to them. A consumer with replicas and acks sends a delivery only when the replicas know of it,
and a heartbeat at once: what is missing is certain only when it has not come a while later.
"""

from __future__ import annotations

from jetspark.errors import NotJetStreamMessageError, SequenceMismatchError
from jetspark.wire.kernel import reply_fields
from jetspark.wire.pull_end import LAST_CONSUMER, number_in

LOOKS = 4
"""How often within one heartbeat interval a clock looks at what has come."""


class GapDetector:
    """Of one subscription. `before`: the number before the first delivery; None: not known.

    `received`, where it is asked for, is how many frames have come, whatever they were.
    """

    __slots__ = ("_beaten", "_beating", "_doubted", "_looks", "_patience", "before", "others")

    def __init__(self, before: int | None) -> None:
        self.before = before
        self.others = 0
        """Frames that were no deliveries."""
        self._doubted = 0
        self._patience = self._looks = 0
        self._beating: set[bytes] = set()
        self._beaten: set[bytes] = set()

    def first(self, reply: bytes | None, received: int) -> None:
        """A delivery while `before` is not known; `received` without it."""
        try:
            self.before = reply_fields(reply)[4] - 1 - (received - self.others)
        except NotJetStreamMessageError:
            pass  # anybody may publish to an inbox

    def last(self, received: int) -> int | None:
        """The number up to which everything has come, or was given up; None: not known."""
        return None if self.before is None else self.before + received - self.others

    def missing(self, heartbeat: bytes | None, received: int) -> int:
        """How many deliveries made before this heartbeat did not come."""
        sent = number_in(heartbeat, LAST_CONSUMER)
        if sent is None:
            return 0
        last = self.last(received)
        if last is None or self.before is None:
            self.before = sent - (received - self.others)
            return 0
        if sent < last:  # it was reset, or something came twice
            self.before -= last - sent
        return max(sent - last, 0)

    # -- when others may have got them, or they may still be on their way ------------------------

    def doubt(self, missing: int, received: int) -> None:
        """Note what is missing: certain when it has not come within half an interval."""
        last = self.last(received)
        if not self._patience and last is not None:
            self._doubted, self._patience = last + missing, LOOKS // 2

    def look(self, received: int) -> int:
        """Called LOOKS times in an interval: what is missing for certain now, told once."""
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._beaten, self._beating = self._beating, set()
        last = self.last(received)
        if not self._patience or last is None or self.before is None:
            return 0
        self._patience -= 1
        if self._patience or last >= self._doubted:
            return 0
        self.before += self._doubted - last
        return self._doubted - last

    def beat(self, reply: bytes) -> None:
        """A heartbeat for the pull with this reply subject."""
        self._beating.add(reply)

    def ended(self, reply: bytes) -> None:
        """The pull with this reply subject waits no more."""
        self._beating.discard(reply)
        self._beaten.discard(reply)

    @property
    def waiting(self) -> int:
        """Pulls that wait at the server: those of which a heartbeat came in the last interval."""
        return len(self._beating | self._beaten)


def not_come(what: str, missing: int, then: str) -> SequenceMismatchError:
    """The error for it; `then`: what becomes of them."""
    messages = "message" if missing == 1 else "messages"
    return SequenceMismatchError(f"{missing} {messages} sent by {what} did not come: {then}.")
