"""Reads a range of sequences to its proven end.

An ephemeral pull consumer delivers the messages, and its consumer sequences prove that none is
missing in between. After a gap, silence, a lost link or a lost consumer, a new consumer continues
after the last message in order. The range is complete when a sequence at or after its end was
delivered, or a proven leader (`leaders`) answered that nothing is left before the end. An empty
answer or "pending 0" proves nothing, since a lagging replica gives the same. The stream's creation
time and first sequence are checked before and after, so that a recreated stream, and messages
removed by limits, are always detected.

A range may also be read through a snapshot of its stream (`stream_snapshot`), or by direct gets
(`direct_get`), with the same proofs: their rows move the same position.

Nothing is acknowledged, and nothing is left on the server. The same range gives the same rows as
long as the stream keeps them.
"""

from __future__ import annotations

import logging
import secrets
import time
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.links.leaders import confirmed_facts, linearizable_read
from jetspark.links.link import BlockingLink
from jetspark.links.link_pool import pool
from jetspark.links.retry import CUT_OFF_SECONDS, Retry
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges._overlapping_pull import INACTIVE_SECONDS, OverlappingPull
from jetspark.ranges._stream_head import StreamHead
from jetspark.ranges.arrow import COLUMNS, WITH_PAYLOAD, batches
from jetspark.ranges.direct_get import DirectGetBatches
from jetspark.ranges.losses import Loss, report_loss
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.ranges.stream_snapshot import snapshot_steps
from jetspark.ranges.subject_filter import SubjectFilter, reading_all_is_faster
from jetspark.retries import Backoff, TryAnotherLinkError
from jetspark.wire.kernel import Deliveries

logger = logging.getLogger("jetspark.ranges")

_PAUSES = Backoff(0.02, 2.0)
_MAX_SNAPSHOTS = 3  # attempts, since each sends the whole stream; a consumer reads the rest
_LOG_INTERVAL = 10.0


def read_range(
    options: ConnectOptions,
    sequence_range: SequenceRange,
    limits: ReadLimits | None = None,
    *,
    columns: Sequence[str] = COLUMNS,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Read the messages of a range, in order, as record batches of `arrow.schema_of(columns)`.

    Without the columns data and headers, the server does not send the payloads. With
    `fail_on_data_loss=False`, lost messages are left out, with a warning in the log.

    Raises DataLossError, StreamRecreatedError, StreamNotFoundError; IncompleteRangeError without
    progress for `limits.timeout` seconds, caused by the last failure; UnsupportedByServerError; and
    every error that is not transient, such as AuthError, PermissionsError, PullError.
    """
    return _RangeReader(
        options, sequence_range, limits or ReadLimits(), columns, fail_on_data_loss
    ).run()


@dataclass
class _RangeReader:
    """Reads one range of a stream, over as many links and consumers as it takes.

    "The rest" of the range are the sequences from `_next`, the position, to before `_end`.
    """

    _options: ConnectOptions
    _range: SequenceRange
    _limits: ReadLimits
    _columns: Sequence[str]
    _strict: bool
    """Whether lost messages are an error (`failOnDataLoss`), and not only reported."""

    def __post_init__(self) -> None:
        """Prepare the reading of a range: nothing of it has been read yet."""
        self._next, self._end = self._range.start, self._range.end
        """What is left: everything before `_next` was delivered, or is not stored."""
        self._rows = Deliveries()
        """Messages read but not yielded yet."""
        self._head = StreamHead(self._options, self._range)
        self._reads_all_subjects = False
        """Whether the consumer sends all subjects, and `_subject_filter` picks the range's."""
        # A consumer sends only messages under these subjects, a snapshot sends all.
        filters_here = self._range.snapshot and self._range.subjects
        self._subject_filter = SubjectFilter(self._range.subjects) if filters_here else None
        self._last_stored = self._range.end - 1  # the stream's last sequence, as far as known
        self._inactive_seconds = INACTIVE_SECONDS  # after which the server removes a consumer
        self._snapshots_left = _MAX_SNAPSHOTS if self._range.snapshot else 0
        self._retry = Retry(self._limits.timeout, _PAUSES)

    def run(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of the range, and continue over another link after transient errors.

        Raises the errors of `read_range`.
        """
        self._retry.since = time.monotonic()
        complete = len(self._range) == 0
        while not complete:
            before = self._next
            try:
                complete = yield from self._read_with_one_link()
            except errors.JetsparkError as error:
                self._retry.wait_to_continue_reading(
                    self._name,
                    error,
                    f" at sequence {self._next} of {self._range.start} to {self._end - 1}",
                    first_pause=self._next > before,
                )
                level = logging.WARNING if self._range.snapshot else logging.INFO
                message = "%s: continuing from sequence %d: %s"
                logger.log(level, message, self._name, self._next, error)
        yield from self._flush()  # also rows of a stream that is gone

    @property
    def _name(self) -> str:
        return self._range.stream

    # -- one link --------------------------------------------------------------------------

    def _read_with_one_link(self) -> Generator[pa.RecordBatch, None, bool]:
        """Read the rest of the range over one link, and check the stream before and after.

        Returns True when the range is complete, or the stream is gone and may be left out;
        otherwise raises TryAnotherLinkError.
        """
        with pool.link(self._options) as link:
            api = StreamAPI(link)
            if not self._check_stream(api):
                return True
            if self._range.direct:  # a consumer would remove messages of a work queue
                complete = yield from self._read_by_direct_gets(link, api)
            # A snapshot sends the whole stream, which is not worth it for a small rest.
            elif self._snapshots_left and self._end - self._next > len(self._range) // 2:
                self._snapshots_left -= 1
                complete = yield from self._read_with_a_snapshot(link)
            else:
                complete = yield from self._read_with_one_consumer(link, api)
            if complete:
                self._check_stream(api, after_reading=True)
        if not complete:
            raise TryAnotherLinkError("the consumer is behind the stream's leader")
        return True

    def _read_with_one_consumer(
        self, link: BlockingLink, api: StreamAPI
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Create a consumer, and pull until the range's end or the consumer's last message.

        Returns True when it is proven that the rest of the range has no message.
        """
        consumer, pending = self._create_consumer(api)
        pull = OverlappingPull(link, self._name, consumer, self._limits)
        silent_since = time.monotonic()
        while pending and self._next < self._end:
            pull.top_up(self._end - self._next)
            if self._take_pulled(pull):
                pending = pull.decoder.pending
                yield from self._flush_if_full()
                silent_since = time.monotonic()
            elif link.incomplete_bytes:
                # A part of a large message has arrived: wait for the rest.
                silent_since = self._retry.since = time.monotonic()
            elif time.monotonic() - silent_since > 2 * self._limits.heartbeat:
                # Only heartbeats: the pending messages may have been removed.
                break
        pull.stop()
        api.delete_reader(self._name, consumer)
        return self._next >= self._end or self._nothing_left(api)

    def _read_with_a_snapshot(self, link: BlockingLink) -> Generator[pa.RecordBatch, None, bool]:
        """Read the rest of the range from a snapshot of the stream.

        Returns True when the snapshot reached the end of the range.
        """
        rest = replace(self._range, start=self._next, end=self._end)
        first_row, log_at = len(self._rows), time.monotonic() + _LOG_INTERVAL
        steps = snapshot_steps(link, self._options, rest, self._rows, self._limits.timeout)
        with closing(steps):
            for last_sequence in steps:  # each has appended rows up to this sequence
                self._advance(first_row, last_sequence + 1)
                yield from self._flush_if_full()
                first_row = len(self._rows)
                if time.monotonic() > log_at:
                    log_at = time.monotonic() + _LOG_INTERVAL
                    message = "%s: read up to sequence %d by a snapshot"
                    logger.info(message, self._name, last_sequence)
        return self._next >= self._end

    def _create_consumer(self, api: StreamAPI) -> tuple[str, int]:
        """Create a consumer from the position on; returns its name and its number of messages.

        It has no end, so it may also deliver messages after the range. If the server would take
        longer to filter by subjects than to send everything, the consumer has no filter, and this
        reader filters from here on.
        """
        subjects = () if self._reads_all_subjects else self._range.subjects
        consumer = f"jetspark_{secrets.token_hex(8)}"
        pending = api.create_reader(
            self._name,
            consumer,
            start=self._next,
            subjects=subjects,
            inactive=self._inactive_seconds,
            headers_only=not WITH_PAYLOAD & set(self._columns),
        ).pending
        if not reading_all_is_faster(subjects, pending, self._last_stored - self._next + 1):
            return consumer, pending
        api.delete_reader(self._name, consumer)
        self._reads_all_subjects, self._subject_filter = True, SubjectFilter(subjects)
        return self._create_consumer(api)

    def _read_by_direct_gets(
        self, link: BlockingLink, api: StreamAPI
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Request batches by direct gets until the range's end is reached, or one is empty.

        Returns True when it is proven that the rest of the range has no message.
        """
        direct_gets = DirectGetBatches(link, self._range, self._limits)
        while self._next < self._end:
            first_row = len(self._rows)
            try:
                next_sequence = direct_gets.next_batch(self._next, self._rows, self._end)
            except BaseException:
                self._rows.truncate(first_row)  # they are read again later
                raise
            if next_sequence is None:
                break
            self._advance(first_row, next_sequence)
            yield from self._flush_if_full()
        direct_gets.stop()
        return self._next >= self._end or self._nothing_left(api)

    def _take_pulled(self, pull: OverlappingPull) -> int:
        """Append the messages that arrive next to the rows; returns how many have arrived.

        Messages after the range's end are counted, but dropped: they prove that it is complete.
        """
        rows, first_row = self._rows, len(self._rows)
        count = pull.take(rows)
        if count:
            last = rows.last_sequence
            if last >= self._end:
                rows.truncate(first_row + bisect_left(rows.sequences(first_row), self._end))
            self._advance(first_row, last + 1)
        pull.check()
        return count

    def _advance(self, first_row: int, next_sequence: int) -> None:
        """Move the position forward to `next_sequence`, at most to the range's end.

        `first_row`: the index of the first row that is new since the last call.
        """
        self._head.advance(self._rows, first_row, self._next)
        self._next = max(self._next, min(next_sequence, self._end))
        self._retry.since = time.monotonic()

    # -- proofs ----------------------------------------------------------------------------

    def _nothing_left(self, api: StreamAPI) -> bool:
        """Ask whether the rest of the range has no message, by an answer that is certain."""
        sequence = self._next_stored(api)
        if sequence is not None:  # a server that has a sequence has all before it: it is certain
            return sequence >= self._end

        # This server may be behind. Ask a proven leader, which also says where the stream ends.
        def next_stored_or_end(api: StreamAPI) -> int:
            stored = self._next_stored(api)
            return api.stream(self._name).last_seq + 1 if stored is None else stored

        return linearizable_read(api, [self._name], next_stored_or_end) >= self._end

    def _next_stored(self, api: StreamAPI) -> int | None:
        """Look up the first stored sequence from the position on; None if this server has none."""
        return api.next_sequence(self._name, self._next, self._range.subjects)

    def _check_stream(self, api: StreamAPI, *, after_reading: bool = False) -> bool:
        """Check that the stream is the planned one, and has not lost messages of the range.

        Raises DataLossError, StreamRecreatedError or StreamNotFoundError; if lost messages may be
        left out, it only reports the loss. Returns False when the stream is gone or another one, so
        that there is nothing to read. `after_reading`: the range has been read.
        """
        try:
            facts = api.stream(self._name)
            # A replaced leader that is behind may have given them. Where that would matter, ask a
            # proven one.
            is_worse = facts.created != self._range.created or facts.last_seq < self._end - 1
            # A head that has moved needs no proof: an outdated leader would show an earlier one.
            if is_worse or (after_reading and self._may_hide_a_loss(facts)):
                facts = confirmed_facts(api, [self._name])[self._name]
        except errors.StreamNotFoundError as error:
            return self._on_stream_gone(api, error)
        if facts.created != self._range.created:
            if self._strict:
                without = errors.switching("fail_on_data_loss", False)
                advice = f"{without} to continue without unread messages of the old one."
                raise facts.recreated_error(self._range.created, advice)
            advice = "The unread messages of the old one are left out."
            report = facts.recreated_error(self._range.created, advice)
            self._report_left_out(str(report), key=f"made {facts.created}")
            return False
        limit = facts.max_inactive_seconds
        self._inactive_seconds = min(INACTIVE_SECONDS, limit or INACTIVE_SECONDS)
        self._check_head(api, facts, after_reading=after_reading)
        self._head.update(facts)
        self._last_stored = facts.last_seq
        if facts.last_seq < self._end - 1:
            self._report_lost(
                facts.last_seq + 1,
                self._end - 1,
                facts.lost_tail_message(self._end),
                "lost by the server, which had acknowledged them",
            )
            self._end = max(facts.last_seq + 1, self._next)
        return True

    def _on_stream_gone(self, api: StreamAPI, error: errors.StreamNotFoundError) -> bool:
        """Raise StreamNotFoundError for a stream that no longer exists, or report it as a loss.

        Returns False after the report: there is nothing to read. Raises TryAnotherLinkError if the
        stream was only not found for a moment.
        """
        if self._strict:
            raise errors.StreamNotFoundError(
                error.code,
                error.err_code,
                error.description,
                f"{error} {errors.switching('fail_on_data_loss', False)} to continue without it.",
            ) from None
        try:
            # Rows are left out for this, so it must not be the answer of an isolated leader.
            api.stream(self._name, not_found_for=CUT_OFF_SECONDS)
        except errors.StreamNotFoundError:
            self._report_left_out(
                f"{error} Its messages are left out.", key=f"gone {self._range.created}"
            )
            return False
        raise TryAnotherLinkError(f"the stream was not found for a moment: {error}") from error

    def _may_hide_a_loss(self, facts: StreamFacts) -> bool:
        """Whether these facts, if they are outdated, may hide that unread messages were removed.

        Then a proven leader must give them. That is not needed if lost messages may be left out, or
        everything was delivered without a gap. Where newer messages replace older ones, a former
        leader's proof stays true.
        """
        if not self._strict or facts.keeps_last_per_subject:
            return False
        return self._head.may_lose_messages(facts) and self._head.unbroken_until < self._end

    def _check_head(self, api: StreamAPI, facts: StreamFacts, *, after_reading: bool) -> None:
        """Raise DataLossError, or report a loss, if unread messages were removed at the head.

        `facts`: the stream's present state; `after_reading`: the range has been read.
        """
        replaces = facts.keeps_last_per_subject
        # The first sequence that is not known to have been delivered, or missing in its turn.
        first = self._next if replaces else self._head.unbroken_until
        new_first = min(facts.first_seq, self._end)
        if (
            first >= new_first
            or facts.has_a_gap_at(first)  # somebody deleted this one message
            or not self._head.may_lose_messages(facts)
        ):
            return
        reason = f"removed {facts.removed_by}"
        if replaces:
            proof = self._head.proof_of_removal(api, facts, first, self._end, ended=after_reading)
            if not proof:
                return
            reason = f"removed before they were read, not all by newer messages: {proof}"
        message = (
            f"Stream {self._name!r} begins at sequence {facts.first_seq} now: sequences {first} to "
            f"{new_first - 1} were {reason}."
        )
        self._report_lost(first, new_first - 1, message, reason)

    def _check_copy(self) -> None:
        """Raise DataLossError, or report a loss, if the stream was replaced by an older copy.

        That is seen when the message that was the stream's last one when the range was planned is
        read: its time is another one then.
        """
        rows, planned = self._rows, self._range.last
        if planned is None or rows.last_sequence != planned.seq:
            return
        (stored_ns,) = rows.times(len(rows) - 1)
        if stored_ns == planned.ns:
            return
        message = planned.replaced_message(self._name, stored_ns)
        if self._strict:
            hint = (
                ", after this read was planned: load the DataFrame again, or "
                f"{errors.switching('fail_on_data_loss', False)} to read what is there."
            )
            raise errors.DataLossError(self._name, planned.seq, planned.seq, message + hint)
        self._report_left_out(f"{message}; what is there is read.", key="")

    def _report_left_out(self, sentence: str, key: str) -> None:
        """Report that messages are left out whose sequences are not known. `key`: see `Loss`."""
        report_loss(logger, sentence, Loss(self._name, sentence, key))

    def _report_lost(self, first: int, last: int, message: str, reason: str) -> None:
        """Raise DataLossError for the sequences `first` to `last`; or report them as left out.

        `message`: the whole sentence; `reason`: only what happened to the messages.
        """
        if self._strict:
            hint = f" {errors.switching('fail_on_data_loss', False)} to continue without them."
            raise errors.DataLossError(self._name, first, last, message + hint)
        loss = Loss(self._name, reason, self._range.created, first, last)
        report_loss(logger, f"{message} They are left out.", loss)

    # -- batches ---------------------------------------------------------------------------

    def _flush_if_full(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as batches if they fill one; check the stream's head if that is due."""
        self._head.check_if_due(self._next)
        if len(self._rows) >= self._limits.max_rows or self._rows.size >= self._limits.max_bytes:
            yield from self._flush()

    def _flush(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows that were read as batches, if there are any, and forget them."""
        if not len(self._rows):
            return
        self._check_copy()
        yield from batches(
            self._name, self._rows.take(), self._subject_filter, self._columns, self._limits
        )
        # The caller's time with these batches is not silence of the link.
        self._retry.since = time.monotonic()
