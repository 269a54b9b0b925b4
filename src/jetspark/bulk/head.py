"""Whether a stream's head has overtaken the reader of a range.

Limits and purges remove a stream's oldest messages, also while they are read. What is removed
behind the reader is no loss. Where it has delivered every sequence, that is plain. A gap, though,
may be a message that was deleted or filtered out, or one that was removed before its turn. So while
there are gaps, the head is looked at now and then: it only moves forward, and if it has not reached
the first gap by now, nothing that the reader has passed was removed before its turn.

A range from "the earliest message" begins with its first row, wherever the head is then; but if no
row has come and all of it is gone, that is a loss.

In a stream with `max_msgs_per_subject` the head moves on without a loss, as newer messages replace
older ones. There something has to prove a loss: `not_replaced`.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress

from jetspark.bulk import links
from jetspark.bulk.facts import StreamFacts, Witness
from jetspark.bulk.losses import Loss, left_out
from jetspark.bulk.proof import leading, proven
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import JetsparkError, PermissionsError
from jetspark.wire.kernel import Deliveries

logger = logging.getLogger("jetspark.bulk")

_REPLACES_ALL = re.compile(rb"\r\nNats-Rollup: *all\r\n", re.IGNORECASE)
_FIRST_LOOK, _LOOK_EVERY = 1.0, 1.0
_SHARE = 20
"""One part of the time at most goes to looking."""


class Head:
    """The head of a range's stream."""

    def __init__(self, options: ConnectOptions, wanted: SequenceRange) -> None:
        self._options = options
        self._wanted = wanted
        self._begun = not wanted.from_earliest
        self._moves = False
        self._exempt = False
        self._look_at = time.monotonic() + _FIRST_LOOK
        self.passed = wanted.start
        """Each message before this sequence was delivered, or was not stored when its turn came."""

    def matters(self, facts: StreamFacts) -> bool:
        """Whether messages that are removed from the head may be a loss."""
        begun = self._begun or facts.first_seq >= self._wanted.end
        return begun and not self._wanted.last_values

    def seen(self, facts: StreamFacts) -> None:
        """Facts of the stream, before it is read."""
        always_matters = not (self._wanted.last_values or facts.keeps_last_per_subject)
        self._moves = bool(facts.limits) and always_matters

    def not_replaced(
        self, api: StreamAPI, facts: StreamFacts, position: int, end: int, *, ended: bool
    ) -> str:
        """What proves that unread messages, from `position` on, were not all replaced by newer
        ones of their subjects; empty without a proof.

        `end`: of the range; `ended`: it has been read. Raises as `StreamAPI.message`.
        """
        if facts.messages == 0 and position <= facts.last_seq < end:
            return f"the stream is empty, and nothing came after sequence {facts.last_seq}"
        if ended:
            return ""
        name, witness = self._wanted.stream, self._wanted.witness
        with suppress(PermissionsError):
            if facts.stores_many_subjects:
                now = api.message(name, seq=facts.first_seq)
                if now is not None and _REPLACES_ALL.search(now.headers):
                    return f"message {now.seq} has replaced all others (Nats-Rollup: all)"
            if witness is None or witness.seq >= facts.first_seq:
                return ""
            subject = witness.subject
            if not proven(api, [name], lambda api: api.message(name, last_by_subj=subject)):
                return self._testified(facts, witness, position)
        return ""

    def _testified(self, facts: StreamFacts, witness: Witness, position: int) -> str:
        gone = f"message {witness.seq} ({witness.subject!r}) is gone without a newer one"
        if witness.seq >= position:
            return gone
        said = (
            f"Stream {facts.name!r} begins at sequence {facts.first_seq} now, and {gone}. That one "
            f"had been read; whether a purge also removed unread ones from {position} on, is not "
            "known."
        )
        left_out(logger, said, Loss(facts.name, said, f"gone {witness.seq}"))
        return ""

    def delivered(self, rows: Deliveries, had: int, position: int) -> None:
        """Rows have come, from index `had` on. `position`: of the reader, before them."""
        count = len(rows) - had
        if not count:
            return
        if not self._begun:
            self._begun = self._exempt = True
            self._look_at = 0.0
            self.passed = position = rows.sequences(had)[0]
        if self.passed != position:
            return
        if rows.last_sequence - self.passed + 1 == count:
            self.passed += count
            return
        for sequence in rows.sequences(had):
            if sequence != self.passed:
                return
            self.passed += 1

    def watch(self, position: int) -> None:
        """Look at it, if that is due. `position`: of the reader."""
        began = time.monotonic()
        if not self._moves or self.passed >= position or began < self._look_at:
            return
        with suppress(JetsparkError):  # then the next look, or the range's end, decides
            if self._has_not_come_to(self.passed):
                self.passed = position
        now = time.monotonic()
        self._look_at = now + max(_LOOK_EVERY, _SHARE * (now - began))

    def _has_not_come_to(self, passed: int) -> bool:
        name = self._wanted.stream
        with links.borrowed(self._options) as link:
            api = StreamAPI(link)
            facts = api.stream(name)
            if facts.copies > 1:  # a former leader's head is an old one
                facts = leading(api, [name])[name]
        if facts.created != self._wanted.created:
            return False
        # The first rows may have come while the head went on: where there are other reasons for
        # gaps, the range has only begun behind them.
        exempt, self._exempt = self._exempt and self._has_other_gaps(facts), False
        return exempt or facts.first_seq <= passed

    def _has_other_gaps(self, facts: StreamFacts) -> bool:
        return bool(self._wanted.subjects) or facts.deleted > 0
