"""Reads a range of sequences to its proven end.

An ephemeral pull consumer delivers the messages, and its consumer sequences prove that none is
missing in between. After a gap, silence, a lost link or a lost consumer, a new consumer continues
after the last message in order. The range is complete when a sequence at or after its end was
delivered, or a proven leader (`leaders`) answered that nothing is left before the end. An empty
answer or "pending 0" proves nothing, since a lagging replica gives the same. The stream's creation
time and first sequence are checked before and after, so that a recreated stream, and messages
removed by limits, are always detected.

A range may also be read through a snapshot of its stream (`backfill`), or by direct gets
(`direct`), with the same proofs: their rows move the same position.

Nothing is acknowledged, and nothing is left on the server. The same range gives the same rows as
long as the stream keeps them.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

import jetspark.errors as errors
from jetspark.bulk import links
from jetspark.bulk.arrow import COLUMNS, WITH_PAYLOAD, SubjectChoice, batches, reading_all_is_faster
from jetspark.bulk.backfill import snapshot_steps
from jetspark.bulk.direct import DirectBatches
from jetspark.bulk.leaders import confirmed_facts, linearizable_read
from jetspark.bulk.links import BlockingLink
from jetspark.bulk.ranges import Loss, ReadLimits, SequenceRange, left_out
from jetspark.bulk.retry import CUT_OFF_SECONDS, Retry, stop_reading
from jetspark.bulk.stream_api import StreamAPI, StreamFacts, Witness
from jetspark.connection.options import ConnectOptions
from jetspark.retries import Backoff, TryAnotherLinkError
from jetspark.timestamps import NANOSECONDS
from jetspark.wire import frames, js_api
from jetspark.wire.kernel import Deliveries, DeliveryDecoder, MessageFrame
from jetspark.wire.pull import (
    LAST_CONSUMER,
    PENDING_MESSAGES,
    PullEnd,
    PullRequest,
    limit_of,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.status import CONTROL, NO_RESPONDERS, status_of

# -------------------------------------------------------------------------------------------------
# Whether a stream's head has overtaken the reader of a range.
#
# Limits and purges remove a stream's oldest messages, also while they are read. Removal behind the
# reader is no loss. That is certain where it has delivered every sequence. But a gap may be a
# message that was deleted or filtered out, or one that was removed before its turn. So while there
# are gaps, the head is checked now and then: it only moves forward, and if it has not reached the
# first gap, nothing was removed before its turn.
#
# A range from "the earliest message" begins with its first row, wherever the head is; but it is a
# loss if all of it is gone before a row has come.
#
# In a stream with `max_msgs_per_subject` the head moves without a loss, as newer messages replace
# older ones. There a loss needs a proof: `not_replaced`.

logger = logging.getLogger("jetspark.bulk")

_REPLACES_ALL = re.compile(rb"\r\nNats-Rollup: *all\r\n", re.IGNORECASE)
_CHECK_EVERY = 1.0
_SHARE = 20
"""The head is checked for at most one part in so many of the time."""


class Head:
    """The head of a range's stream."""

    def __init__(self, options: ConnectOptions, wanted: SequenceRange) -> None:
        self._options = options
        self._wanted = wanted
        self._begun = not wanted.from_earliest
        self._moves = False
        self._exempt = False
        self._check_at = time.monotonic() + _CHECK_EVERY
        self.passed = wanted.start
        """All messages before this were delivered, or not stored when their turn came."""

    def matters(self, facts: StreamFacts) -> bool:
        """Whether messages removed from the head may be a loss."""
        begun = self._begun or facts.first_seq >= self._wanted.end
        return begun and not self._wanted.last_values

    def seen(self, facts: StreamFacts) -> None:
        """The facts of the stream before it is read."""
        always_matters = not (self._wanted.last_values or facts.keeps_last_per_subject)
        self._moves = bool(facts.limits) and always_matters

    def not_replaced(
        self, api: StreamAPI, facts: StreamFacts, position: int, end: int, *, ended: bool
    ) -> str:
        """The proof that newer messages did not replace all unread ones from `position` on; or "".

        `end`: the range's; `ended`: it was read. Raises the errors of `StreamAPI.message`.
        """
        if facts.messages == 0 and position <= facts.last_seq < end:
            return f"the stream is empty, and nothing came after sequence {facts.last_seq}"
        if ended:
            return ""
        name, witness = self._wanted.stream, self._wanted.witness
        with suppress(errors.PermissionsError):
            if facts.stores_many_subjects:
                now = api.message(name, seq=facts.first_seq)
                if now is not None and _REPLACES_ALL.search(now.headers):
                    return f"message {now.seq} has replaced all others (Nats-Rollup: all)"
            if witness is None or witness.seq >= facts.first_seq:
                return ""
            subject = witness.subject
            if not linearizable_read(
                api, [name], lambda api: api.message(name, last_by_subj=subject)
            ):
                return self._testified(facts, witness, position)
        return ""

    def _testified(self, facts: StreamFacts, witness: Witness, position: int) -> str:
        gone = f"message {witness.seq} ({witness.subject!r}) is gone without a newer one"
        if witness.seq >= position:
            return gone
        said = (
            f"Stream {facts.name!r} begins at sequence {facts.first_seq} now, and {gone}. That one "
            f"had been read; a purge may also have removed unread ones from {position} on."
        )
        left_out(logger, said, Loss(facts.name, said, f"gone {witness.seq}"))
        return ""

    def delivered(self, rows: Deliveries, had: int, position: int) -> None:
        """Rows were delivered, from index `had` on. `position`: the reader's, before them."""
        count = len(rows) - had
        if not count:
            return
        if not self._begun:
            self._begun = self._exempt = True
            self._check_at = 0.0
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
        """Check the head, if that is due. `position`: the reader's."""
        began = time.monotonic()
        if not self._moves or self.passed >= position or began < self._check_at:
            return
        with suppress(errors.JetsparkError):  # the next check, or the range's end, decides
            if self._has_not_reached(self.passed):
                self.passed = position
        now = time.monotonic()
        self._check_at = now + max(_CHECK_EVERY, _SHARE * (now - began))

    def _has_not_reached(self, passed: int) -> bool:
        name = self._wanted.stream
        with links.pool.link(self._options) as link:
            api = StreamAPI(link)
            facts = api.stream(name)
            if facts.copies > 1:  # a former leader's head may be old
                facts = confirmed_facts(api, [name])[name]
        if facts.created != self._wanted.created:
            return False
        # The first rows may have come while the head moved: with other reasons for gaps, the range
        # only begins after them.
        has_other_gaps = bool(self._wanted.subjects) or facts.deleted > 0
        exempt, self._exempt = self._exempt and has_other_gaps, False
        return exempt or facts.first_seq <= passed


# -------------------------------------------------------------------------------------------------
# Reading from one consumer with overlapping pull requests: the next one is sent before the last one
# ends.
#
# The server serves waiting requests in turn, so only the total of undelivered messages is tracked,
# not each request. The status of a request that ends early has its undelivered messages (ADR-13).

_EXPIRES_SECONDS = 30.0
_HEADROOM = 64 * 1024


class OverlappingPull:
    """Keeps two requests in flight. After an error the caller creates another consumer."""

    def __init__(self, link: BlockingLink, stream: str, consumer: str, limits: ReadLimits) -> None:
        self.decoder = DeliveryDecoder(stream, consumer)
        self._link = link
        self._statuses: list[MessageFrame] = []
        self._subject = js_api.subject_of(
            link.api_prefix, js_api.MSG_NEXT, {"stream": stream, "consumer": consumer}
        )
        self._batch = limits.pull_messages
        # The server refuses a request without room for the largest message.
        self._bytes = max(limits.pull_bytes, link.info.max_payload + _HEADROOM)
        self._expires = _EXPIRES_SECONDS
        self._heartbeat = limits.heartbeat
        self._inbox = link.new_inbox()
        self._sid = link.subscribe(self._inbox)
        self._owed = 0
        """Messages requested, but neither received nor given up."""

    def top_up(self, wanted: int) -> None:
        """Request more unless `wanted` messages are outstanding; two requests at most."""
        requests = b""
        while self._owed <= self._batch and self._owed < wanted:
            count = min(self._batch, wanted - self._owed)
            requests += self._request(count)
            self._owed += count
        if requests:
            self._link.send(requests)

    def _request(self, count: int) -> bytes:
        request = PullRequest(
            batch=count,
            max_bytes=self._bytes,
            expires=round(self._expires * NANOSECONDS),
            idle_heartbeat=round(self._heartbeat * NANOSECONDS),
        )
        return frames.pub(self._subject, request.encode(), self._inbox)

    def take(self, rows: Deliveries) -> int:
        """Append the next messages; returns their number. An error appends none.

        Raises MissedHeartbeatError, TryAnotherLinkError (messages are missing in between), and the
        errors of `BlockingLink.deliveries`. Call `check` when the messages are accounted for.
        """
        had, seen = len(rows), self.decoder.consumer_sequence
        silence = 2 * self._heartbeat
        try:
            self._statuses = self._link.deliveries(self.decoder, rows, time.monotonic() + silence)
            new = len(rows) - had
            if new and self.decoder.consumer_sequence != seen + new:
                raise TryAnotherLinkError(
                    f"deliveries {seen + 1} to {self.decoder.consumer_sequence} came with gaps"
                )
        except errors.RequestTimeoutError:
            raise errors.MissedHeartbeatError(
                f"nothing from {self._link.server} for {silence:g} s"
            ) from None
        except BaseException:
            rows.truncate(had)
            raise
        self._owed = max(0, self._owed - new)
        return new

    def check(self) -> None:
        """Handle the statuses that came with the messages.

        Raises ConsumerDeletedError, TryAnotherLinkError (the server has sent more than arrived),
        NoRespondersError: create a new consumer; ConsumerIsPushError, PullError: give up.
        """
        for frame in self._statuses:
            self._on_status(frame)

    def _on_status(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers) if frame.sid == self._sid else None
        if status is None:
            return
        if status.code == CONTROL:
            sent = number_in(frame.headers, LAST_CONSUMER)
            if sent is not None and sent > self.decoder.consumer_sequence:
                raise TryAnotherLinkError(
                    f"The server has sent {sent} messages, {self.decoder.consumer_sequence} "
                    "arrived."
                )
            return
        end = pull_end(status)
        if end is PullEnd.UNUSABLE or end is PullEnd.INVALID:
            raise pull_error(status)
        if status.code == NO_RESPONDERS:
            raise errors.NoRespondersError(self._subject)
        if end is PullEnd.NO_LEADER:
            # A server takes its ephemeral consumers in memory with it.
            raise errors.ConsumerDeletedError(status.code, status.description)
        if end is PullEnd.TOO_LARGE:
            # A stored message is larger than this connection may publish.
            self._bytes *= 2
        if end is PullEnd.LIMITED and (limit := limit_of(status)) is not None:
            # The server's default, which every consumer has.
            self._batch = min(self._batch, limit.batch or self._batch)
            self._bytes = min(self._bytes, limit.max_bytes or self._bytes)
            self._expires = min(self._expires, limit.expires or self._expires)
            self._heartbeat = min(self._heartbeat, self._expires / 2)
        left = number_in(frame.headers, PENDING_MESSAGES)
        self._owed = 0 if left is None else max(0, self._owed - left)

    def stop(self) -> None:
        """Unsubscribe; the link's next reader drops messages in flight."""
        self._link.unsubscribe(self._sid)


# -- ranges --------------------------------------------------------------------------------------

INACTIVE_SECONDS = 30.0
"""Seconds without a pull until the server removes the consumer."""
_PAUSES = Backoff(0.02, 2.0)
_SNAPSHOTS = 3  # attempts, since each sends the whole stream; a consumer reads the rest
_LOG_EVERY = 10.0


def read_range(
    options: ConnectOptions,
    wanted: SequenceRange,
    limits: ReadLimits | None = None,
    *,
    columns: Sequence[str] = COLUMNS,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The messages of a range, in order, as record batches of `arrow.schema_of(columns)`.

    Without the columns data and headers, the server does not send the payloads. With
    `fail_on_data_loss=False`, lost messages are left out, with a warning in the log.

    Raises DataLossError, StreamRecreatedError, StreamNotFoundError; IncompleteRangeError without
    progress for `limits.timeout` seconds, caused by the last failure; UnsupportedByServerError; and
    every error that is not transient, such as AuthError, PermissionsError, PullError.
    """
    return _RangeReader(options, wanted, limits or ReadLimits(), columns, fail_on_data_loss).run()


class _RangeReader:
    def __init__(
        self,
        options: ConnectOptions,
        wanted: SequenceRange,
        limits: ReadLimits,
        columns: Sequence[str],
        strict: bool,
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._limits = limits
        self._columns = columns
        self._strict = strict
        self._next = wanted.start  # everything before it was delivered, or is not stored
        self._head = Head(options, wanted)
        self._end = wanted.end
        self._rows = Deliveries()
        self._reads_all = False  # filters here, not at the server
        # A consumer sends only messages under these subjects, a snapshot sends all.
        filters = wanted.snapshot and wanted.subjects
        self._choice = SubjectChoice(wanted.subjects) if filters else None
        self._last_stored = wanted.end - 1
        self._inactive = INACTIVE_SECONDS
        self._snapshots = _SNAPSHOTS if wanted.snapshot else 0
        self._retry = Retry(limits.timeout, _PAUSES)

    def run(self) -> Generator[pa.RecordBatch, None, None]:
        self._retry.since = time.monotonic()
        complete = len(self._wanted) == 0
        while not complete:
            before = self._next
            try:
                complete = yield from self._read_with_one_link()
            except errors.JetsparkError as error:
                if not self._retry.again(error, first_pause=self._next > before):
                    at = f" at sequence {self._next} of {self._wanted.start} to {self._end - 1}"
                    stop_reading(self._name, self._retry, error, at)
                level = logging.WARNING if self._wanted.snapshot else logging.INFO
                said = "%s: continuing from sequence %d: %s"
                logger.log(level, said, self._name, self._next, error)
        yield from self._flush()  # also rows of a stream that is gone

    @property
    def _name(self) -> str:
        return self._wanted.stream

    # -- one link --------------------------------------------------------------------------

    def _read_with_one_link(self) -> Generator[pa.RecordBatch, None, bool]:
        """Continue over one link; True when the range is complete."""
        with links.pool.link(self._options) as link:
            api = StreamAPI(link)
            if not self._still_there(api):
                return True
            if self._wanted.direct:
                complete = yield from self._read_by_direct_gets(link, api)
            elif self._snapshots and self._end - self._next > len(self._wanted) // 2:
                self._snapshots -= 1
                complete = yield from self._read_with_a_snapshot(link)
            else:
                complete = yield from self._read_with_one_consumer(link, api)
            if complete:
                self._still_there(api, last=True)
        if not complete:
            raise TryAnotherLinkError("the consumer is behind the stream's leader")
        return True

    def _read_with_one_consumer(
        self, link: BlockingLink, api: StreamAPI
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Pull until the end is reached or the consumer has no more messages."""
        consumer, pending = self._new_consumer(api)
        pull = OverlappingPull(link, self._name, consumer, self._limits)
        silent_since = time.monotonic()
        while pending and self._next < self._end:
            pull.top_up(self._end - self._next)
            if self._take(pull):
                pending = pull.decoder.pending
                yield from self._flush_if_full()
                silent_since = time.monotonic()
            elif link.receiving:
                # A part of a large message has arrived: wait for the rest.
                silent_since = self._retry.since = time.monotonic()
            elif time.monotonic() - silent_since > 2 * self._limits.heartbeat:
                # Only heartbeats: the pending messages may have been removed.
                break
        pull.stop()
        api.delete_reader(self._name, consumer)
        return self._next >= self._end or self._nothing_left(api)

    def _read_with_a_snapshot(self, link: BlockingLink) -> Generator[pa.RecordBatch, None, bool]:
        """Continue through a snapshot of the stream; True when it has the rest of the range."""
        wanted = replace(self._wanted, start=self._next, end=self._end)
        rows = self._rows
        had, logged = len(rows), time.monotonic()
        timeout = self._limits.timeout
        with closing(snapshot_steps(link, self._options, wanted, rows, timeout)) as steps:
            for seen in steps:
                self._head.delivered(rows, had, self._next)
                self._next = max(self._next, min(seen + 1, self._end))
                self._retry.since = time.monotonic()
                yield from self._flush_if_full()
                had = len(rows)
                if time.monotonic() > logged + _LOG_EVERY:
                    logged = time.monotonic()
                    logger.info("%s: read up to sequence %d by a snapshot", self._name, seen)
        return self._next >= self._end

    def _new_consumer(self, api: StreamAPI) -> tuple[str, int]:
        """Create it; returns its name, and the number of messages from the position to the end."""
        subjects = () if self._reads_all else self._wanted.subjects
        consumer = f"jetspark_{secrets.token_hex(8)}"
        pending = api.create_reader(
            self._name,
            consumer,
            self._next,
            subjects,
            self._inactive,
            headers_only=not WITH_PAYLOAD & set(self._columns),
        ).pending
        if not reading_all_is_faster(subjects, pending, self._last_stored - self._next + 1):
            return consumer, pending
        api.delete_reader(self._name, consumer)
        self._reads_all, self._choice = True, SubjectChoice(subjects)
        return self._new_consumer(api)

    def _read_by_direct_gets(
        self, link: BlockingLink, api: StreamAPI
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Request batch after batch until the end is reached or an answer is empty."""
        batches = DirectBatches(link, self._wanted, self._limits)
        while self._next < self._end:
            had = len(self._rows)
            try:
                behind = batches.next_batch(self._next, self._rows, self._end)
            except BaseException:
                self._rows.truncate(had)  # they are read again later
                raise
            if behind is None:
                break
            self._head.delivered(self._rows, had, self._next)
            self._next = min(behind, self._end)
            self._retry.since = time.monotonic()
            yield from self._flush_if_full()
        batches.stop()
        return self._next >= self._end or self._nothing_left(api)

    def _take(self, pull: OverlappingPull) -> int:
        """Move the position after the next messages; returns their number."""
        rows, had = self._rows, len(self._rows)
        new = pull.take(rows)
        if new:
            last = rows.last_sequence
            if last >= self._end:
                rows.truncate(had + bisect_left(rows.sequences(had), self._end))
            self._head.delivered(rows, had, self._next)
            self._next = min(last + 1, self._end)
            self._retry.since = time.monotonic()
        pull.check()
        return new

    # -- proofs ----------------------------------------------------------------------------

    def _nothing_left(self, api: StreamAPI) -> bool:
        """Whether the rest of the range has no message."""
        found = self._next_stored(api)
        if found is not None:  # a server with a sequence has all before it
            return found >= self._end
        name = self._name
        found, behind = linearizable_read(
            api, [name], lambda api: (self._next_stored(api), api.stream(name).last_seq + 1)
        )
        return (behind if found is None else found) >= self._end

    def _next_stored(self, api: StreamAPI) -> int | None:
        return api.next_sequence(self._name, self._next, self._wanted.subjects)

    def _still_there(self, api: StreamAPI, *, last: bool = False) -> bool:
        """Whether the stream is the planned one, and still has the unread messages.

        Raises DataLossError, StreamRecreatedError or StreamNotFoundError, unless lost messages may
        be left out; False when nothing of the range is left. `last`: the range has been read.
        """
        try:
            facts = api.stream(self._name)
            # A moved head is certain: an outdated leader would show an earlier one.
            bad = facts.created != self._wanted.created or facts.last_seq < self._end - 1
            if bad or (last and self._may_lack_its_head(facts)):
                facts = confirmed_facts(api, [self._name])[self._name]
        except errors.StreamNotFoundError as error:
            return self._gone(api, error)
        if facts.created != self._wanted.created:
            if self._strict:
                raise facts.another_than(
                    self._wanted.created,
                    "Set failOnDataLoss to false to continue without unread messages of the old "
                    "one.",
                )
            advice = "The unread messages of the old one are left out."
            told = facts.another_than(self._wanted.created, advice)
            self._left_out(str(told), f"made {facts.created}")
            return False
        self._inactive = min(INACTIVE_SECONDS, facts.longest_inactive or INACTIVE_SECONDS)
        self._check_head(api, facts, last=last)
        self._head.seen(facts)
        self._last_stored = facts.last_seq
        if facts.last_seq < self._end - 1:
            self._lost(
                facts.last_seq + 1,
                self._end - 1,
                f"Stream {self._name!r} ends at sequence {facts.last_seq}, but had "
                f"{self._end - 1} before: the server has lost acknowledged messages.",
                "lost by the server, which had acknowledged them",
            )
            self._end = max(facts.last_seq + 1, self._next)
        return True

    def _gone(self, api: StreamAPI, error: errors.StreamNotFoundError) -> bool:
        if self._strict:
            raise errors.StreamNotFoundError(
                error.code,
                error.err_code,
                error.description,
                f"{error} Set failOnDataLoss to false to continue without it.",
            ) from None
        try:
            # Rows are left out for this, so it must not be the answer of an isolated leader.
            api.stream(self._name, not_found_for=CUT_OFF_SECONDS)
        except errors.StreamNotFoundError:
            self._left_out(f"{error} Its messages are left out.", f"gone {self._wanted.created}")
            return False
        raise TryAnotherLinkError(f"the stream was not found for a moment: {error}") from error

    def _may_lack_its_head(self, facts: StreamFacts) -> bool:
        # Newer messages replace older ones, so a former leader's proof stays true.
        if not self._strict or facts.keeps_last_per_subject:
            return False
        return self._head.matters(facts) and self._head.passed < self._end

    def _check_head(self, api: StreamAPI, facts: StreamFacts, *, last: bool) -> None:
        replaced = facts.keeps_last_per_subject
        first = self._next if replaced else self._head.passed
        behind = min(facts.first_seq, self._end)
        if first >= behind or facts.has_a_gap_at(first) or not self._head.matters(facts):
            return
        how = f"removed {facts.removed_by}"
        if replaced:
            if not (why := self._head.not_replaced(api, facts, first, self._end, ended=last)):
                return
            how = f"removed before they were read, not all by newer messages: {why}"
        message = (
            f"Stream {self._name!r} begins at sequence {facts.first_seq} now: sequences {first} to "
            f"{behind - 1} were {how}."
        )
        self._lost(first, behind - 1, message, how)

    def _check_copy(self) -> None:
        """Whether the stream was replaced by a copy without the last message that was planned."""
        rows, planned = self._rows, self._wanted.last
        if planned is None or rows.last_sequence != planned.seq:
            return
        (now,) = rows.times(len(rows) - 1)
        if now != planned.ns:
            message = planned.replaced(self._name, now)
            if self._strict:
                hint = (
                    ", after this read was planned: load the DataFrame again, or set "
                    "failOnDataLoss to false to read what is there."
                )
                raise errors.DataLossError(self._name, planned.seq, planned.seq, message + hint)
            self._left_out(f"{message}; what is there is read.", "")

    def _left_out(self, sentence: str, key: str) -> None:
        left_out(logger, sentence, Loss(self._name, sentence, key))

    def _lost(self, first: int, last: int, message: str, how: str) -> None:
        if self._strict:
            hint = " Set failOnDataLoss to false to continue without them."
            raise errors.DataLossError(self._name, first, last, message + hint)
        loss = Loss(self._name, how, self._wanted.created, first, last)
        left_out(logger, f"{message} They are left out.", loss)

    # -- batches ---------------------------------------------------------------------------

    def _flush_if_full(self) -> Generator[pa.RecordBatch, None, None]:
        self._head.watch(self._next)
        if len(self._rows) >= self._limits.max_rows or self._rows.size >= self._limits.max_bytes:
            yield from self._flush()

    def _flush(self) -> Generator[pa.RecordBatch, None, None]:
        if not len(self._rows):
            return
        self._check_copy()
        yield from batches(self._name, self._rows.take(), self._choice, self._columns, self._limits)
        # The caller's time with these batches is not silence of the link.
        self._retry.since = time.monotonic()


# -- samples: some messages of a range, from places that are spread evenly over it ---------------

_PLACES = 20


def sample(
    connection: ConnectOptions, wanted: SequenceRange, count: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """About `count` messages, what is lost left out. Raises as `read_range`."""
    parts = _PLACES if len(wanted) > count >= _PLACES else 1
    share = -(-count // parts)
    for part in range(parts):
        start, end = (wanted.start + len(wanted) * at // parts for at in (part, part + 1))
        piece = replace(wanted, start=start, end=end, from_earliest=True)
        found = read_range(connection, piece, few(share), columns=columns, fail_on_data_loss=False)
        yield from first_rows(found, share)


def few(count: int) -> ReadLimits:
    """Limits for reading the first `count` messages only."""
    return ReadLimits(max_rows=count, pull_messages=count)


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first `count` rows; then what reads the batches is closed."""
    with closing(cast(Any, batches)):
        for batch in batches:
            yield batch.slice(0, count)
            count -= batch.num_rows
            if count <= 0:
                return
