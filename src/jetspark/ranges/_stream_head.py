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
from functools import partial

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
"""The head is checked at most for this share of the time: 1 / _MIN_REST_FACTOR."""


class StreamHead:
    """Decides for the reader of a range whether the stream lost messages before they were read.

    A stream's limits remove its oldest messages, so that its head (the first sequence) moves
    forward, perhaps past the reader. This object follows both: the deliveries, and by checks the
    head.
    """

    def __init__(self, options: ConnectOptions, sequence_range: SequenceRange) -> None:
        """`options`: for links to check the head; `sequence_range`: what the reader reads."""
        self._options = options
        self._range = sequence_range
        self._has_begun = not sequence_range.from_earliest
        """Whether removed messages count. A range from the earliest begins with its first row."""
        self._needs_checks = False
        """Whether the stream has limits that may remove messages while they are read."""
        self._accepts_next_check = False
        """Whether the first rows of a range from the earliest message have just come."""
        self._check_at = time.monotonic() + _CHECK_INTERVAL
        self.unbroken_until = sequence_range.start
        """All messages before this were delivered, or not stored when their turn came."""

    def may_lose_messages(self, facts: StreamFacts) -> bool:
        """Whether messages that are gone from the stream's head may be a loss for this range.

        Not before the first row of a range from the earliest message, unless all of the range is
        gone; and never for a reader of last values only.
        """
        has_begun = self._has_begun or facts.first_seq >= self._range.end
        return has_begun and not self._range.last_values

    def update(self, facts: StreamFacts) -> None:
        """Note from the stream's configuration whether its head must be checked while it is read.

        Not where only newer messages replace older ones, since then the head moves without a loss.
        """
        replaces_only = self._range.last_values or facts.keeps_last_per_subject
        self._needs_checks = bool(facts.limits) and not replaces_only

    def proof_of_removal(
        self, api: StreamAPI, facts: StreamFacts, position: int, end: int, *, ended: bool
    ) -> str:
        """Find a proof that unread messages were removed, and not all replaced by newer ones.

        For streams where a newer message replaces the older one of its subject. Returns the proof
        in words, "" without one. `position`: the next unread sequence; `end`: the range's end;
        `ended`: whether it was read up to there, when only an empty stream is a proof. Raises the
        errors of `StreamAPI.message`.
        """
        if facts.messages == 0 and position <= facts.last_seq < end:
            return f"the stream is empty, and nothing came after sequence {facts.last_seq}"
        if ended:
            return ""
        name, witness = self._range.stream, self._range.witness
        # A user who may not get messages gets no proof.
        with suppress(errors.PermissionsError):
            if facts.stores_many_subjects:
                replacement = api.message(name, seq=facts.first_seq)
                if replacement is not None and _REPLACES_ALL.search(replacement.headers):
                    return f"message {replacement.seq} has replaced all others (Nats-Rollup: all)"
            # The witness is a message known from before, whose subject must still have a message.
            if witness is None or witness.seq >= facts.first_seq:
                return ""
            read_newest = partial(StreamAPI.message, stream=name, last_by_subj=witness.subject)
            if linearizable_read(api, [name], read_newest) is None:
                return self._judge_missing_witness(facts, witness, position)
        return ""

    def _judge_missing_witness(self, facts: StreamFacts, witness: Witness, position: int) -> str:
        """Judge that a known message (`witness`) is gone, and its subject has no newer one.

        Returns this as the proof of a removal, in words, if the message had not been read. If it
        had, that is only a doubt about the others: reports it as a possible loss, and returns "".
        """
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
        """Move `unbroken_until` forward over new rows, up to the first missing sequence.

        `first_row`: the index of the first new row; `position`: the sequence that the reader
        expected next, before these rows.
        """
        count = len(rows) - first_row
        if not count:
            return
        if not self._has_begun:
            self._has_begun = self._accepts_next_check = True
            self._check_at = 0.0  # at once
            self.unbroken_until = position = rows.sequences(first_row)[0]
        if self.unbroken_until != position:  # a sequence before these rows is missing already
            return
        if rows.last_sequence - self.unbroken_until + 1 == count:  # there is no gap
            self.unbroken_until += count
            return
        for sequence in rows.sequences(first_row):
            if sequence != self.unbroken_until:
                return
            self.unbroken_until += 1

    def check_if_due(self, position: int) -> None:
        """Request the stream's head now and then, while sequences before `position` are missing.

        If the head has not reached the first missing one, no limit has removed any of them yet, so
        `unbroken_until` moves to `position`, the reader's next sequence.
        """
        began = time.monotonic()
        if not self._needs_checks or self.unbroken_until >= position or began < self._check_at:
            return
        with suppress(errors.JetsparkError):  # the next check, or the range's end, decides
            if self._has_not_reached(self.unbroken_until):
                self.unbroken_until = position
        ended = time.monotonic()
        self._check_at = ended + max(_CHECK_INTERVAL, _MIN_REST_FACTOR * (ended - began))

    def _has_not_reached(self, sequence: int) -> bool:
        """Request whether the stream's first sequence is at or before `sequence`, so none is lost.

        False also for a stream that was recreated.
        """
        name = self._range.stream
        with pool.link(self._options) as link:
            api = StreamAPI(link)
            facts = api.stream(name)
            if facts.copies > 1:  # a former leader's head may be old
                facts = confirmed_facts(api, [name])[name]
        if facts.created != self._range.created:
            return False
        # When the first rows of a range from the earliest message came, the head may have moved
        # past them already. If gaps may have other reasons (deleted messages, other subjects), the
        # range only counts as begun after these rows, wherever the head is.
        has_other_gaps = bool(self._range.subjects) or facts.deleted > 0
        accepted, self._accepts_next_check = self._accepts_next_check and has_other_gaps, False
        return accepted or facts.first_seq <= sequence
