"""A snapshot: the last message of each subject, read with a consumer of last messages.

While others write, no reader gets all subjects as of one moment. The guarantee: every subject that
the stream had when the snapshot was planned is read exactly once, with its last message then or a
later one. After a lost link another consumer continues, and skips subjects already read.

A consumer of last messages selects them at its creation, and leaves out those that are replaced or
removed before their delivery. When it delivers fewer than announced, the leader is asked which
subjects exist, and for the last message of each missing one. Only a proven leader can answer that
nothing is left (`leaders`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.connection.options import ConnectOptions
from jetspark.errors import DataLossError, JetsparkError, MissedHeartbeatError
from jetspark.kv_rules import Operation
from jetspark.links.leaders import confirmed_facts, linearizable_read
from jetspark.links.link import BlockingLink
from jetspark.links.link_pool import pool
from jetspark.links.retry import Retry
from jetspark.links.stream_api import StoredMessage, StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges._overlapping_pull import INACTIVE_SECONDS, OverlappingPull
from jetspark.ranges.arrow import WITH_PAYLOAD, to_batch
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.retries import TryAnotherLinkError
from jetspark.timestamps import parse_isotime
from jetspark.wire.kernel import Deliveries

logger = logging.getLogger("jetspark.ranges")

_MAX_CONSUMERS = 12
"""Attempts to create a consumer on the leader's server; the cluster chooses any replica."""


def read_last_per_subject(
    options: ConnectOptions,
    sequence_range: SequenceRange,
    limits: ReadLimits,
    *,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Read the last message of each subject under `sequence_range.subjects`, which is required.

    The range's `end` is the sequence after the stream's last message when this was planned: each
    subject's last message then, or a later one, is read. Yields record batches of `columns`. Raises
    StreamRecreatedError, StreamNotFoundError, DataLossError; IncompleteRangeError without progress
    for `limits.timeout` seconds; and every error that is not transient, such as AuthError.
    """
    return _CurrentValuesReader(options, sequence_range, limits, columns).run()


def read_current_values(
    options: ConnectOptions,
    sequence_range: SequenceRange,
    limits: ReadLimits,
    *,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Read the present values of a Key-Value bucket, without the keys that are deleted.

    Arguments and errors are those of `read_last_per_subject`.
    """
    with_operation = list(dict.fromkeys((*columns, "operation")))
    for batch in read_last_per_subject(options, sequence_range, limits, columns=with_operation):
        values = batch.filter(pc.equal(batch.column("operation"), Operation.PUT.value))
        yield values.select(list(columns))


class _ConsumerResult(NamedTuple):
    """How far one consumer of last messages has delivered them."""

    last_sequence: int
    """The sequence of the last message delivered."""
    all_selected: bool
    """Whether it certainly delivered the last message of every subject that it had selected."""


@dataclass
class _CurrentValuesReader:
    """Reads the last message of each subject once, over as many links and consumers as it takes.

    It remembers the subjects that were read, so that another consumer's messages of these are
    skipped.
    """

    _options: ConnectOptions
    _range: SequenceRange
    _limits: ReadLimits
    _columns: Sequence[str]

    def __post_init__(self) -> None:
        self._read_subjects: set[bytes] = set()  # whose last messages were yielded
        self._retry = Retry(self._limits.timeout)

    def run(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches, and continue over another link after a transient error.

        Raises the errors of `read_last_per_subject`.
        """
        complete = self._range.end <= self._range.start
        while not complete:
            try:
                complete = yield from self._read_with_one_link()
            except JetsparkError as error:
                self._retry.wait_to_continue_reading(self._range.stream, error)
                logger.info("%s: reading continues: %s", self._range.stream, error)

    def _read_with_one_link(self) -> Generator[pa.RecordBatch, None, bool]:
        """Read the last message of each subject with one consumer, and yield the batches.

        Returns True when every subject was read; otherwise raises TryAnotherLinkError.
        """
        with pool.link(self._options) as link:
            api = StreamAPI(link)
            facts = self._check_planned_stream(api)
            result = yield from self._read_with_one_consumer(link, api, facts)
            complete = self._nothing_left(api, result.last_sequence)
            # A consumer leaves out messages that are replaced or removed before their delivery. Of
            # these subjects the leader is asked for the last message now.
            if complete and not result.all_selected:
                yield from self._new_rows(self._fetch_missing(api))
        if complete:
            return True
        raise TryAnotherLinkError("the consumer is behind the stream's leader")

    def _check_planned_stream(self, api: StreamAPI) -> StreamFacts:
        """Request the stream's facts from a server that has all messages up to the planned end.

        Raises StreamRecreatedError, and DataLossError when even a proven leader lacks some of them.
        """
        sequence_range = self._range
        facts = api.stream(sequence_range.stream)
        # If this server seems to lack something, it may only be behind: ask a proven leader.
        if facts.created != sequence_range.created or facts.last_seq + 1 < sequence_range.end:
            facts = confirmed_facts(api, [sequence_range.stream])[sequence_range.stream]
        if facts.created != sequence_range.created:
            raise facts.recreated_error(sequence_range.created)
        if facts.last_seq + 1 < sequence_range.end:
            first, end = facts.last_seq + 1, sequence_range.end
            raise DataLossError(facts.name, first, end - 1, facts.lost_tail_message(end))
        return facts

    def _create_consumer(self, api: StreamAPI, consumer: str, facts: StreamFacts) -> int:
        """Create a consumer of last messages on the stream leader's server, which gave `facts`.

        Elsewhere it could deliver an older message of a subject as its last one, since a replica
        may lag. `consumer`: its name. Returns how many messages it has to deliver.
        """
        for _ in range(_MAX_CONSUMERS):
            created = api.create_reader(
                facts.name,
                consumer,
                start=1,
                subjects=self._range.subjects,
                inactive=INACTIVE_SECONDS,
                headers_only=not WITH_PAYLOAD & set(self._columns),
                last_per_subject=True,
            )
            if facts.copies == 1 or created.server == facts.leader:
                return created.pending
            api.delete_reader(facts.name, consumer)
        raise TryAnotherLinkError("no consumer was created on the server of the stream's leader")

    def _read_with_one_consumer(
        self, link: BlockingLink, api: StreamAPI, facts: StreamFacts
    ) -> Generator[pa.RecordBatch, None, _ConsumerResult]:
        """Create a consumer of the last message of each subject, and yield what it delivers.

        Skips subjects that were read before. `facts`: the stream's state before the consumer was
        created. Returns how far it came.
        """
        stream, consumer = facts.name, f"jetspark_{secrets.token_hex(8)}"
        selected = self._create_consumer(api, consumer, facts)
        # The consumer also delivers what is stored later, possibly without end: stop after this.
        last_at_start = api.stream(stream).last_seq
        pull = OverlappingPull(link, stream, consumer, self._limits)
        pull.decoder.pending = selected
        last = delivered = 0
        while pull.decoder.pending and last <= last_at_start:
            rows = self._pull_batch(pull)
            last = rows.last_sequence
            # Only messages older than the consumer are certainly among the selected ones. Counting
            # too few is safe: then the leader is asked what is missing.
            delivered += sum(sequence <= facts.last_seq for sequence in rows.sequences())
            yield from self._new_rows(rows)
        pull.stop()
        api.delete_reader(stream, consumer)
        return _ConsumerResult(last, all_selected=delivered >= selected)

    def _pull_batch(self, pull: OverlappingPull) -> Deliveries:
        """Pull messages of a consumer until they fill a batch, or none is pending.

        Raises MissedHeartbeatError after silence, and the errors of `OverlappingPull`.
        """
        rows, limits = Deliveries(), self._limits
        silence = 2 * limits.heartbeat
        while pull.decoder.pending and len(rows) < limits.max_rows and rows.size < limits.max_bytes:
            pull.top_up(pull.decoder.pending)
            if pull.take(rows):
                self._retry.since = time.monotonic()
            elif self._retry.idle > silence:
                raise MissedHeartbeatError(f"no message for {silence:g} s")
            pull.check()
        return rows

    def _nothing_left(self, api: StreamAPI, last: int) -> bool:
        """Whether no message after sequence `last`, which was read, is before the planned end.

        A consumer that has ended does not prove it, since it may be on a lagging replica.
        """
        stream, end = self._range.stream, self._range.end
        if last + 1 >= end:
            return True

        def next_stored(api: StreamAPI) -> int | None:
            return api.next_sequence(stream, last + 1, self._range.subjects)

        sequence = next_stored(api)
        if sequence is None:  # the server may be behind; one that has a sequence has all before it
            sequence = linearizable_read(api, [stream], next_stored)
        return sequence is None or sequence >= end

    def _fetch_missing(self, api: StreamAPI) -> Deliveries:
        """Read the last message of each subject that was not read yet, from a proven leader."""
        rows = Deliveries()
        for message in linearizable_read(api, [self._range.stream], self._unread_messages):
            rows.append(
                message.subject.encode(),
                message.seq,
                parse_isotime(message.time),
                message.headers or None,
                message.data,
            )
        return rows

    def _unread_messages(self, api: StreamAPI) -> list[StoredMessage]:
        """List the subjects that were not read yet, and request the last message of each.

        The answers count only from a proven leader (`_fetch_missing`).
        """
        stream = self._range.stream
        return [
            message
            for pattern in self._range.subjects
            for subject in sorted(api.subjects(stream, pattern))
            if subject.encode() not in self._read_subjects
            and (message := api.message(stream, last_by_subj=subject)) is not None
        ]

    def _new_rows(self, rows: Deliveries) -> Generator[pa.RecordBatch, None, None]:
        """Yield a batch of the rows whose subjects were not read before, if there are any.

        From here on these subjects count as read.
        """
        subjects = rows.subjects()
        # Usually all are new, which is quickly seen; then no row is looked at by itself.
        if len(set(subjects)) == len(subjects) and self._read_subjects.isdisjoint(subjects):
            self._read_subjects.update(subjects)
        else:
            new = []  # indexes of these rows
            for row, subject in enumerate(subjects):
                if subject not in self._read_subjects:
                    self._read_subjects.add(subject)
                    new.append(row)
            rows.keep(new)
        if len(rows):
            yield to_batch(self._range.stream, rows.take(), self._columns)
        self._retry.since = time.monotonic()
