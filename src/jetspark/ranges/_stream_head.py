"""Decides whether a stream's head has overtaken the reader of a range.

Limits and purges remove a stream's oldest messages, also while they are read. Removal behind the
reader is no loss. That is certain where it has delivered every sequence. But a gap may be a
message that was deleted or filtered out, or one that was removed before its turn. So while there
are gaps, the head is checked now and then: it only moves forward, and if it has not reached the
first gap, nothing was removed before its turn.

A range from "the earliest message" begins with its first row, wherever the head is; but it is a
loss if all of it is gone before a row has come.

In a stream with `max_msgs_per_subject` the head moves without a loss, as newer messages replace
older ones. There a loss needs a proof: `StreamHead.proof_of_removal`.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.links.leaders import confirmed_facts, linearizable_read
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts, Witness
from jetspark.ranges.losses import Loss, report_loss
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.wire.kernel import Deliveries

logger = logging.getLogger("jetspark.ranges")

_REPLACES_ALL = re.compile(rb"\r\nNats-Rollup: *all\r\n", re.IGNORECASE)
_CHECK_INTERVAL = 1.0
_MIN_REST_FACTOR = 20
"""The head is checked for at most one part in so many of the time."""


class StreamHead:
    """The head of a range's stream."""

    def __init__(self, options: ConnectOptions, sequence_range: SequenceRange) -> None:
        self._options = options
        self._range = sequence_range
        self._has_begun = not sequence_range.from_earliest
        self._moves = False
        self._exempt = False
        self._check_at = time.monotonic() + _CHECK_INTERVAL
        self.unbroken_until = sequence_range.start
        """All messages before this were delivered, or not stored when their turn came."""

    def may_lose_messages(self, facts: StreamFacts) -> bool:
        """Whether messages removed from the head may be a loss."""
        has_begun = self._has_begun or facts.first_seq >= self._range.end
        return has_begun and not self._range.last_values

    def update(self, facts: StreamFacts) -> None:
        """The facts of the stream before it is read."""
        always_matters = not (self._range.last_values or facts.keeps_last_per_subject)
        self._moves = bool(facts.limits) and always_matters

    def proof_of_removal(
        self, api: StreamAPI, facts: StreamFacts, position: int, end: int, *, ended: bool
    ) -> str:
        """The proof that newer messages did not replace all unread ones from `position` on; or "".

        `end`: the range's; `ended`: it was read. Raises the errors of `StreamAPI.message`.
        """
        if facts.messages == 0 and position <= facts.last_seq < end:
            return f"the stream is empty, and nothing came after sequence {facts.last_seq}"
        if ended:
            return ""
        name, witness = self._range.stream, self._range.witness
        with suppress(errors.PermissionsError):
            if facts.stores_many_subjects:
                replacement = api.message(name, seq=facts.first_seq)
                if replacement is not None and _REPLACES_ALL.search(replacement.headers):
                    return f"message {replacement.seq} has replaced all others (Nats-Rollup: all)"
            if witness is None or witness.seq >= facts.first_seq:
                return ""
            subject = witness.subject
            if not linearizable_read(
                api, [name], lambda api: api.message(name, last_by_subj=subject)
            ):
                return self._witness_proof(facts, witness, position)
        return ""

    def _witness_proof(self, facts: StreamFacts, witness: Witness, position: int) -> str:
        finding = f"message {witness.seq} ({witness.subject!r}) is gone without a newer one"
        if witness.seq >= position:
            return finding
        report = (
            f"Stream {facts.name!r} begins at sequence {facts.first_seq} now, and {finding}. That "
            f"one had been read; a purge may also have removed unread ones from {position} on."
        )
        report_loss(logger, report, Loss(facts.name, report, f"gone {witness.seq}"))
        return ""

    def advance(self, rows: Deliveries, first_row: int, position: int) -> None:
        """Rows were delivered, from index `first_row` on. `position`: the reader's, before them."""
        count = len(rows) - first_row
        if not count:
            return
        if not self._has_begun:
            self._has_begun = self._exempt = True
            self._check_at = 0.0
            self.unbroken_until = position = rows.sequences(first_row)[0]
        if self.unbroken_until != position:
            return
        if rows.last_sequence - self.unbroken_until + 1 == count:
            self.unbroken_until += count
            return
        for sequence in rows.sequences(first_row):
            if sequence != self.unbroken_until:
                return
            self.unbroken_until += 1

    def check_if_due(self, position: int) -> None:
        """Check the head, if that is due. `position`: the reader's."""
        began = time.monotonic()
        if not self._moves or self.unbroken_until >= position or began < self._check_at:
            return
        with suppress(errors.JetsparkError):  # the next check, or the range's end, decides
            if self._has_not_reached(self.unbroken_until):
                self.unbroken_until = position
        ended = time.monotonic()
        self._check_at = ended + max(_CHECK_INTERVAL, _MIN_REST_FACTOR * (ended - began))

    def _has_not_reached(self, sequence: int) -> bool:
        name = self._range.stream
        with pool.link(self._options) as link:
            api = StreamAPI(link)
            facts = api.stream(name)
            if facts.copies > 1:  # a former leader's head may be old
                facts = confirmed_facts(api, [name])[name]
        if facts.created != self._range.created:
            return False
        # The first rows may have come while the head moved: with other reasons for gaps, the range
        # only begins after them.
        has_other_gaps = bool(self._range.subjects) or facts.deleted > 0
        exempt, self._exempt = self._exempt and has_other_gaps, False
        return exempt or facts.first_seq <= sequence
