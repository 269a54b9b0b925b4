"""Copies a decided batch into its target, each row exactly once.

The rows of a lane are copied in chunks, each of them one atomic batch: a marker, the rows, an end
mark. The marker must replace exactly the previous marker (compare-and-set on its subject), so
only one of all writers that ever try stores a chunk. The marker comes first because a single
server that dies while it applies an atomic batch leaves the beginning of it: a marker and some of
its rows, which can be counted. The rest follows in a chunk that also expects nothing stored since
the count.

After a refusal, or without an answer because a leader stopped, the marker is read. If it is
outdated, the compare-and-set refuses the next write; any other conclusion from it needs a proven
leader (`Leaders.linearizable_reads`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

import jetspark.errors as errors
from jetspark.err_codes import BATCH_INCOMPLETE, TOO_MANY_BATCHES, WRONG_LAST_SEQUENCE
from jetspark.links.link import BlockingLink, connect, has_no_responders
from jetspark.links.retry import PAUSE_SECONDS, Retry, answer_timeout, attempt
from jetspark.retries import is_transient
from jetspark.stream_writes._atomic_batch import (
    MAX_MESSAGES,
    BatchAck,
    encode_batch,
    parse_batch_ack,
)
from jetspark.stream_writes.encoded_messages import EncodedMessage, size_of
from jetspark.stream_writes.ledger import Decision, LanePlan, Ledger
from jetspark.wire.documents import decode_json, encode_document
from jetspark.wire.headers import BATCH_ID, parse_headers
from jetspark.wire.kernel import MessageFrame

_CHUNK_ROWS = MAX_MESSAGES - 2  # rows, without the marker and the end mark
_CHUNK_BYTES = 8 * 1024 * 1024
_ROLLUP = b"Nats-Rollup:sub\r\n\r\n"
"""The last header of a marker and of an end mark: it replaces the one before."""
_UNCERTAIN = frozenset({WRONG_LAST_SEQUENCE, BATCH_INCOMPLETE, TOO_MANY_BATCHES})
"""Refusals, other than transient ones, that leave open whether a chunk is stored."""


class Marker(msgspec.Struct, frozen=True):
    """The payload of a marker, as stored (JSON): which rows of the lane follow it."""

    batch: int
    offset: int
    rows: int


class StoredMarker(NamedTuple):
    """The last marker of a lane in the target."""

    seq: int
    marker: Marker
    batch_id: str
    """The id of the atomic batch that stored it; empty if it has none."""


class ChunkInFlight(NamedTuple):
    """A chunk that was sent and not acknowledged."""

    reply_subject: str
    rows: int


class Lane:
    """The progress of one lane of a batch."""

    def __init__(self, subject: str, plan: LanePlan) -> None:
        self.subject = subject
        self.plan = plan
        self.offset = 0
        """Rows of the batch that are stored."""
        self.marker = plan.previous
        """Sequence of the last marker."""
        self.expected_last: int | None = None
        """After a torn chunk: the stream's last sequence, which the next chunk expects."""
        self.rows: Iterator[EncodedMessage] = iter(())
        """The rows after those of the chunk in flight."""
        self.left_over: EncodedMessage | None = None
        """A row that did not fit into the last chunk."""
        self.in_flight: ChunkInFlight | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the lane are stored."""
        return self.offset >= self.plan.rows


class BatchCopier:
    """Copies batches of the ledger's writer. `keep_markers`: see `ExactlyOnceWriter`."""

    def __init__(self, ledger: Ledger, *, keep_markers: bool = False) -> None:
        self._ledger = ledger
        self._leaders = ledger.leaders
        self._target = ledger.target
        self._link: BlockingLink | None = None
        self._inbox = ""
        self._chunks_sent = 0
        self._retry = Retry(ledger.timeout)
        self._refusal: errors.APIError | None = None
        self._answers: dict[str, MessageFrame] = {}
        self._head = b"NATS/1.0\r\n" + (b"Nats-TTL:never\r\n" if keep_markers else b"")

    def last_markers(self, lanes: int, known_markers: Mapping[int, int] | None = None) -> list[int]:
        """Sequences of the last markers of so many lanes; 0 for a lane without one.

        `known_markers`: sequences by lane, which are not read again. Raises LedgerError for an
        unreadable marker, and the errors of `Leaders.message`.
        """
        markers = dict(known_markers or {})
        with self._leaders.linearizable_reads():  # recorded in a decision, which never changes
            for lane in range(lanes):
                if lane not in markers:
                    stored = self._read_marker(self._marker_subject(lane))
                    markers[lane] = 0 if stored is None else stored.seq
        return [markers[lane] for lane in range(lanes)]

    def check_stored(self, decision: Decision) -> dict[int, int]:
        """Sequences of the batch's last markers, by lane.

        Raises LedgerError unless they show that the whole batch is stored, and the errors of
        `Leaders.message`.
        """
        markers: dict[int, int] = {}
        for number, plan in enumerate(decision.lanes):
            if not plan.rows:
                continue
            stored = self._read_marker(self._marker_subject(number))
            if (
                stored is None
                or stored.marker.batch != decision.batch
                or stored.marker.offset + stored.marker.rows != plan.rows
            ):
                raise errors.LedgerError(
                    f'Stream "{self._target}" no longer has the last marker of batch '
                    f"{decision.batch}, lane {number}, so it is not known which rows are stored: "
                    "the stream was purged or restored, a limit removed the marker, a consumer of "
                    "a work queue acknowledged it, or the server lost it. To go on all the same, "
                    "set the option adoptLedger to true for one run."
                )
            markers[number] = stored.seq
        return markers

    def is_stored(self, decision: Decision) -> bool:
        """Whether a decided batch is stored completely.

        Raises LedgerError for stored rows that were lost, and the errors of `Leaders.message`.
        """
        lanes = self._lanes(decision)
        for lane in lanes:
            self._locate_progress(lane, decision)
        return all(lane.is_complete for lane in lanes)

    def copy(self, decision: Decision, *, resume: bool) -> None:
        """Store the missing rows of a decided batch. `resume`: an earlier attempt may have begun.

        Raises LedgerError when the target lacks rows or markers that it must have, or another run
        of the query has continued; APIError for a permanent refusal, RequestTimeoutError without
        progress, ConnectionFailure and ProtocolError, and the errors of `Leaders.message`.
        """
        self._retry.since = time.monotonic()
        lanes = self._lanes(decision)
        try:
            for lane in lanes:
                if resume:
                    self._locate_progress(lane, decision)
                self._rewind(lane)
            while incomplete := [lane for lane in lanes if not lane.is_complete]:
                self._exchange_chunks(incomplete, decision)
        finally:
            self._drop_link()

    def _lanes(self, decision: Decision) -> list[Lane]:
        """A new progress of each lane of a decided batch."""
        return [
            Lane(self._marker_subject(number), plan) for number, plan in enumerate(decision.lanes)
        ]

    def _marker_subject(self, lane: int) -> str:
        return f"_spark.{self._target}.mark.{self._ledger.writer}.{lane}"

    # -- rows ----------------------------------------------------------------------------------

    def _rewind(self, lane: Lane) -> None:
        """Continue the lane with the first row that is not stored."""
        lane.rows = self._unpack_from(lane.plan, lane.offset)
        lane.left_over = None

    def _unpack_from(self, plan: LanePlan, offset: int) -> Iterator[EncodedMessage]:
        """The rows of a lane's packs without the first `offset` ones."""
        for pack in plan.packs:
            rows = self._ledger.unpack_rows(pack)
            yield from rows[offset:]
            offset = max(0, offset - len(rows))

    def _take_chunk(self, lane: Lane) -> list[EncodedMessage]:
        """The rows of the next chunk; empty when none are left."""
        rows: list[EncodedMessage] = []
        size = 0
        while len(rows) < _CHUNK_ROWS:
            row = lane.left_over or next(lane.rows, None)
            lane.left_over = None
            if row is None:
                break
            size += size_of(row)
            if rows and size > _CHUNK_BYTES:
                lane.left_over = row
                break
            rows.append(row)
        return rows

    # -- chunks --------------------------------------------------------------------------------

    def _exchange_chunks(self, lanes: list[Lane], decision: Decision) -> None:
        """Send the next chunk of each lane that has none in flight, and wait for an answer.

        A lane whose chunk may be stored, or not, continues after its last marker. Raises the errors
        of `copy`.
        """
        if time.monotonic() > self._retry.deadline:
            reason = f"; its answer: {self._refusal}." if self._refusal else "."
            raise errors.RequestTimeoutError(
                f'Stream "{self._target}" accepted no rows for {self._ledger.timeout:g} s{reason}'
            )
        try:
            for lane in lanes:
                if lane.in_flight is None:
                    self._send(lane, decision)
            in_doubt = self._receive_acks(lanes)
        except (errors.ConnectionFailure, errors.RequestTimeoutError) as error:
            if not is_transient(error):
                raise
            self._drop_link()
            in_doubt = [lane for lane in lanes if lane.in_flight is not None]
            for lane in lanes:
                self._rewind(lane)  # rows may have been taken but not sent
        for lane in in_doubt:
            lane.in_flight = None
            offset_before = lane.offset
            self._locate_progress(lane, decision)
            self._rewind(lane)
            if lane.offset > offset_before:
                self._retry.since = time.monotonic()

    def _send(self, lane: Lane, decision: Decision) -> None:
        """Send the lane's next chunk as an atomic batch: a marker, the rows, an end mark.

        Raises LedgerError if the decision has more rows than its packs, and the link's errors.
        """
        rows = self._take_chunk(lane)
        if not rows:
            raise errors.LedgerError(
                f"Only {lane.offset} of {lane.plan.rows} rows of {lane.subject!r} are in batch "
                f"{decision.batch}: the staged rows are not those of the decision."
            )
        batch_id = secrets.token_urlsafe(12)
        self._chunks_sent += 1
        link = self._connect_once()
        lane.in_flight = ChunkInFlight(f"{self._inbox}{self._chunks_sent}", len(rows))
        expected = b"Nats-Expected-Last-Subject-Sequence:%d\r\n" % lane.marker
        if lane.expected_last is not None:
            expected += b"Nats-Expected-Last-Sequence:%d\r\n" % lane.expected_last
        subject = lane.subject.encode()
        marker = encode_document(Marker(decision.batch, lane.offset, len(rows)))
        messages: list[EncodedMessage] = [
            (subject, self._head + expected + _ROLLUP, marker),
            *rows,
            (subject + b".end", self._head + _ROLLUP, batch_id.encode()),
        ]
        frames = encode_batch(batch_id, messages, lane.in_flight.reply_subject)
        link.send(frames, self._ledger.timeout)

    def _receive_acks(self, lanes: list[Lane]) -> list[Lane]:
        """Process one answer or more; returns the lanes whose chunk may be stored, or not."""
        in_doubt: list[Lane] = []
        answers = self._answers
        deadline = time.monotonic() + answer_timeout(self._ledger.timeout)
        while not answers:
            for message in self._connect_once().messages(deadline):
                answers[message.subject.decode()] = message
        for lane in lanes:
            assert lane.in_flight is not None  # noqa: S101
            answer = answers.pop(lane.in_flight.reply_subject, None)
            if answer is None:
                continue
            ack = self._parse_ack(answer)
            if ack is None:
                in_doubt.append(lane)
                continue
            lane.marker = ack.first_seq
            lane.offset += lane.in_flight.rows
            lane.expected_last = None
            lane.in_flight = None
            self._refusal = None
            self._retry.since = time.monotonic()
        answers.clear()  # of abandoned chunks
        return in_doubt

    def _parse_ack(self, frame: MessageFrame) -> BatchAck | None:
        """The ack; None if the answer leaves open whether the chunk is stored.

        Raises the APIError of a permanent refusal.
        """
        if has_no_responders(frame):
            return None
        try:
            return parse_batch_ack(frame.payload, self._target)
        except errors.APIError as error:
            if not is_transient(error) and error.err_code not in _UNCERTAIN:
                raise
            self._refusal = error
            time.sleep(PAUSE_SECONDS)
            return None

    def _connect_once(self) -> BlockingLink:
        """The copier's link; a new one unless there is one."""
        if self._link is None:
            self._link = attempt(lambda: connect(self._ledger.options), self._retry)
            self._inbox = f"{self._link.new_inbox()}."
            self._link.subscribe(f"{self._inbox}*")
            self._answers.clear()
        return self._link

    def _drop_link(self) -> None:
        """Close the copier's link, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    # -- recovery ------------------------------------------------------------------------------

    def _read_marker(self, subject: str) -> StoredMarker | None:
        """A lane's last marker; None if there is none. Raises LedgerError for an unreadable one."""
        stored = self._leaders.message(self._target, last_by_subj=subject)
        if stored is None:
            return None
        try:
            marker = decode_json(stored.data, Marker, "marker")
        except errors.DocumentError as error:
            raise errors.LedgerError(
                f"The marker {subject!r} is unreadable: {error.reason}."
            ) from None
        return StoredMarker(stored.seq, marker, _batch_id(stored.headers))

    def _locate_progress(self, lane: Lane, decision: Decision) -> None:
        """Find from a lane's last marker how many rows are stored, and set the lane's progress.

        Raises LedgerError if that cannot be known, or another run of the query has continued.
        """
        stored = self._read_marker(lane.subject)
        lane.expected_last = None
        last_marker = 0 if stored is None else stored.seq
        if last_marker == lane.plan.previous:
            lane.offset, lane.marker = 0, lane.plan.previous
            return
        if stored is None:
            raise errors.LedgerError(
                f'The marker {lane.subject!r} is gone from stream "{self._target}": it was purged '
                "or has expired, so it is not known which rows are stored."
            )
        seq, marker, batch_id = stored
        if marker.batch > decision.batch:
            raise errors.LedgerError(
                f"Batch {marker.batch} has already begun: another run of this query writes to "
                f'stream "{self._target}". This one, at batch {decision.batch}, stops.'
            )
        if marker.batch < decision.batch or seq < lane.plan.previous:
            raise errors.LedgerError(
                f'Stream "{self._target}" has lost acknowledged messages: the last marker of '
                f"{lane.subject!r} is of batch {marker.batch}, but a newer one existed when batch "
                f"{decision.batch} was decided. Was the stream restored from a backup?"
            )
        lane.marker = seq
        end = self._leaders.message(self._target, last_by_subj=f"{lane.subject}.end")
        if end is not None and end.data == batch_id.encode():
            lane.offset = marker.offset + marker.rows
            return
        if not self._leaders.reads_are_linearizable:
            # Rows missing in an outdated answer would be written again.
            with self._leaders.linearizable_reads():
                self._locate_progress(lane, decision)
            return
        # Before counting, so that the condition also covers rows stored in the meantime.
        lane.expected_last = self._leaders.last_sequence(self._target)
        lane.offset = marker.offset + self._count_stored_rows(stored, lane.expected_last)

    def _count_stored_rows(self, stored: StoredMarker, last_sequence: int) -> int:
        """Stored rows of a torn chunk: up to the last one that still exists.

        `last_sequence`: the target's.
        """
        end_of_chunk = min(stored.seq + stored.marker.rows, last_sequence)
        for seq in range(end_of_chunk, stored.seq, -1):
            row = self._leaders.message(self._target, seq=seq)
            if row is not None and _batch_id(row.headers) == stored.batch_id:
                return seq - stored.seq
        return 0


def _batch_id(block: bytes) -> str:
    """The id of the atomic batch in a header block; empty if there is none."""
    try:
        return parse_headers(block)[0].last(BATCH_ID) or ""
    except errors.BadHeaderError:
        return ""
