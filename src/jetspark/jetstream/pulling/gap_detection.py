"""Gap detection: the deliveries received, compared with those that the consumer says it has sent.

A consumer numbers its deliveries from 1 without a gap (consumer sequences), and each idle heartbeat
names the last one (Nats-Last-Consumer). Counting the deliveries received is enough to notice a lost
one even when none follows it, and the route counts them anyway.

Other clients that pull from the same consumer get sequences too: a missing delivery was lost or
went to them. A consumer with replicas and acks sends a delivery only when the replicas know of it,
but a heartbeat at once: so a delivery counts as missing only when it has not come a while later.
"""

from __future__ import annotations

from jetspark.errors import (
    MissedHeartbeatError,
    NotJetStreamMessageError,
    SequenceMismatchError,
)
from jetspark.wire.kernel import reply_fields
from jetspark.wire.pull_end import LAST_CONSUMER, number_in

LOOKS = 4
"""How often the received messages are checked within one heartbeat interval."""


class GapDetector:
    """For one subscription. `before`: the consumer sequence before the first delivery, or None.

    None means unknown. `received` is the number of frames that have come, of any kind.
    """

    __slots__ = ("_doubted", "_heard", "_heard_before", "_looks", "_looks_left", "before", "others")

    def __init__(self, before: int | None) -> None:
        self.before = before
        self.others = 0
        """Frames that were not deliveries."""
        self._doubted = 0
        self._looks_left = self._looks = 0
        self._heard: set[bytes] = set()
        self._heard_before: set[bytes] = set()

    def first(self, reply: bytes | None, received: int) -> None:
        """Take `before` from a delivery; `received` without that one."""
        try:
            self.before = reply_fields(reply)[4] - 1 - (received - self.others)
        except NotJetStreamMessageError:
            pass  # anyone may publish to an inbox

    def last(self, received: int) -> int | None:
        """The sequence up to which everything has come or was given up; None: unknown."""
        return None if self.before is None else self.before + received - self.others

    def missing(self, heartbeat: bytes | None, received: int) -> int:
        """How many deliveries sent before this heartbeat did not come."""
        sent = number_in(heartbeat, LAST_CONSUMER)
        if sent is None:
            return 0
        last = self.last(received)
        if last is None or self.before is None:
            self.before = sent - (received - self.others)
            return 0
        if sent < last:  # the consumer was reset, or a frame came twice
            self.before -= last - sent
        return max(sent - last, 0)

    # -- when others may have got them, or they may still be on their way ------------------------

    def doubt(self, missing: int, received: int) -> None:
        """Note missing deliveries, which count when they have not come within half an interval."""
        last = self.last(received)
        if not self._looks_left and last is not None:
            self._doubted, self._looks_left = last + missing, LOOKS // 2

    def look(self, received: int) -> int:
        """Called LOOKS times in an interval: how many are missing for certain now, told once."""
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._heard_before, self._heard = self._heard, set()
        last = self.last(received)
        if not self._looks_left or last is None or self.before is None:
            return 0
        self._looks_left -= 1
        if self._looks_left or last >= self._doubted:
            return 0
        self.before += self._doubted - last
        return self._doubted - last

    def beat(self, reply: bytes) -> None:
        """A heartbeat came for the request with this reply subject."""
        self._heard.add(reply)

    def ended(self, reply: bytes) -> None:
        """The request with this reply subject has ended."""
        self._heard.discard(reply)
        self._heard_before.discard(reply)

    @property
    def waiting(self) -> int:
        """Requests that wait at the server: those with a heartbeat in the last interval."""
        return len(self._heard | self._heard_before)


def not_come(what: str, missing: int, then: str) -> SequenceMismatchError:
    """The error for missing deliveries; `then`: what becomes of them."""
    messages = "message" if missing == 1 else "messages"
    return SequenceMismatchError(f"{missing} {messages} sent by {what} did not come: {then}.")


def silence_error(who: str, heartbeat: float) -> MissedHeartbeatError:
    """The error for a consumer that has been silent for two heartbeat intervals (seconds)."""
    return MissedHeartbeatError(
        f"{who} sent nothing for {2 * heartbeat:g} s, twice the heartbeat interval."
    )
