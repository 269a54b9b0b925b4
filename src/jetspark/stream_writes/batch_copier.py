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
from jetspark.err_codes import (
    ATOMIC_PUBLISH_INCOMPLETE_BATCH,
    ATOMIC_PUBLISH_TOO_MANY_INFLIGHT,
    STREAM_WRONG_LAST_SEQUENCE,
)
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
_UNCERTAIN = frozenset(
    {STREAM_WRONG_LAST_SEQUENCE, ATOMIC_PUBLISH_INCOMPLETE_BATCH, ATOMIC_PUBLISH_TOO_MANY_INFLIGHT}
)
"""Refusals, other than transient ones, that leave open whether a chunk is stored."""


class Marker(msgspec.Struct, frozen=True):
    """The payload of a marker (JSON), the first message of a chunk: which rows follow it.

    A chunk: consecutive rows of a lane that are stored as one atomic batch.
    """

    batch: int
    offset: int
    """Rows of the lane before this chunk."""
    rows: int
    """Rows of this chunk."""


class StoredMarker(NamedTuple):
    """A lane's last marker in the target stream, which tells how far the lane was copied."""

    seq: int
    marker: Marker
    batch_id: str
    """The id of the atomic batch that stored it; empty if it has none."""


class ChunkInFlight(NamedTuple):
    """A chunk of rows that was sent as an atomic batch, and is not acknowledged yet."""

    reply_subject: str
    rows: int


class Lane:
    """How far one lane of a batch was copied; lanes are the parts that are copied concurrently."""

    def __init__(self, subject: str, plan: LanePlan) -> None:
        """`subject`: of the lane's markers; `plan`: its rows, as decided."""
        self.subject = subject
        self.plan = plan
        self.offset = 0
        """How many rows of the lane are stored."""
        self.marker = plan.previous
        """Sequence of the lane's last marker, the message before each chunk of its rows."""
        self.expected_last: int | None = None
        """The stream's last sequence that the next chunk expects, after a chunk was stored in part.
        """
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
    """Copies the rows of decided batches into the target stream, each row exactly once."""

    def __init__(self, ledger: Ledger, *, keep_markers: bool = False) -> None:
        """`ledger`: of the writer whose batches are copied.

        `keep_markers`: let markers not expire with the stream's other messages, since they show
        which rows are stored.
        """
        self._ledger = ledger
        self._leaders = ledger.leaders
        self._target = ledger.target
        self._link: BlockingLink | None = None
        self._inbox = ""
        self._chunks_sent = 0
        self._retry = Retry(ledger.timeout)
        self._refusal: errors.APIError | None = None
        """The last refusal of a chunk that left open whether it is stored."""
        self._answers: dict[str, MessageFrame] = {}
        """Answers received but not processed yet, by the reply subject of the chunk."""
        self._head = b"NATS/1.0\r\n" + (b"Nats-TTL:never\r\n" if keep_markers else b"")

    def last_markers(self, lanes: int, known_markers: Mapping[int, int] | None = None) -> list[int]:
        """Read from the target the sequence of each lane's last marker; 0 for a lane without one.

        `lanes`: how many there are; `known_markers`: sequences by lane, which are not read again. A
        marker is the message before a chunk of a lane's rows, and tells which rows are stored.
        Raises LedgerError for an unreadable marker, and the errors of `Leaders.message`.
        """
        markers = dict(known_markers or {})
        # A proven leader, since the answers are recorded in a decision, which never changes.
        with self._leaders.linearizable_reads():
            for lane in range(lanes):
                if lane not in markers:
                    stored = self._read_marker(self._marker_subject(lane))
                    markers[lane] = 0 if stored is None else stored.seq
        return [markers[lane] for lane in range(lanes)]

    def check_stored(self, decision: Decision) -> dict[int, int]:
        """Check by the last marker of each lane that all rows of a batch are stored.

        `decision`: the batch's content, as the ledger has it. A marker is the message before a
        chunk of a lane's rows. Returns the sequences of these markers, by lane. Raises LedgerError
        unless the whole batch is stored, and the errors of `Leaders.message`.
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
                    f"{errors.switching('adopt_ledger', True)} for one run."
                )
            markers[number] = stored.seq
        return markers

    def is_stored(self, decision: Decision) -> bool:
        """Read from the target stream whether all rows of a batch are stored.

        `decision`: the batch's content, as the ledger has it. Raises LedgerError for stored rows
        that were lost, and the errors of `Leaders.message`.
        """
        lanes = self._lanes(decision)
        for lane in lanes:
            self._locate_progress(lane, decision)
        return all(lane.is_complete for lane in lanes)

    def copy(self, decision: Decision, *, resume: bool) -> None:
        """Store the rows of a batch in the target stream, each exactly once.

        `decision`: the batch's content, as the ledger has it; `resume`: an earlier attempt may have
        stored some of them, so only store the missing ones. Raises LedgerError when the target
        lacks rows or markers that it must have, or another run of the query has continued; APIError
        for a permanent refusal, RequestTimeoutError without progress, ConnectionFailure and
        ProtocolError, and the errors of `Leaders.message`.
        """
        self._retry.since = time.monotonic()
        lanes = self._lanes(decision)
        try:
            for lane in lanes:
                if resume:  # otherwise nothing of the batch is stored
                    self._locate_progress(lane, decision)
                self._rewind(lane)
            while incomplete := [lane for lane in lanes if not lane.is_complete]:
                self._exchange_chunks(incomplete, decision)
        finally:
            self._drop_link()

    def _lanes(self, decision: Decision) -> list[Lane]:
        """The lanes (parts) of a batch, as if none of their rows had been copied yet."""
        return [
            Lane(self._marker_subject(number), plan) for number, plan in enumerate(decision.lanes)
        ]

    def _marker_subject(self, lane: int) -> str:
        return f"_spark.{self._target}.mark.{self._ledger.writer}.{lane}"

    # -- rows ----------------------------------------------------------------------------------

    def _rewind(self, lane: Lane) -> None:
        """Set the rows that the lane copies next to those after the rows that are stored."""
        lane.rows = self._unpack_from(lane.plan, lane.offset)
        lane.left_over = None

    def _unpack_from(self, plan: LanePlan, offset: int) -> Iterator[EncodedMessage]:
        """Yield the rows of a lane, without the first `offset` ones.

        They are in packs: payloads with many rows each.
        """
        for pack in plan.packs:
            rows = self._ledger.unpack_rows(pack)
            yield from rows[offset:]
            offset = max(0, offset - len(rows))

    def _take_chunk(self, lane: Lane) -> list[EncodedMessage]:
        """Take the lane's next rows, as many as one chunk (an atomic batch) may have.

        Empty when none are left. A row that does not fit is kept for the next chunk.
        """
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
        """Send the next rows of each lane that waits for no ack, and then wait for acks once.

        A lane is one of the parts of a batch that are copied concurrently, a chunk of its rows at a
        time. If it is not known whether a lane's chunk was stored, this is read from the target,
        and the lane continues there. Raises the errors of `copy`.
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
        """Send the lane's next rows as an atomic batch: a marker, the rows, and an end mark.

        The marker expects the marker of the lane's chunk before, so that only one writer can store
        this chunk. Raises LedgerError if the decision has more rows than its packs, and the link's
        errors.
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
        if lane.expected_last is not None:  # nothing was stored since the lane's rows were counted
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
        """Wait until at least one lane has an answer to its chunk of rows, and process answers.

        An ack moves the lane forward. Returns the lanes where it is unknown whether the chunk was
        stored.
        """
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
        answers.clear()  # what remains answers chunks that were given up
        return in_doubt

    def _parse_ack(self, frame: MessageFrame) -> BatchAck | None:
        """Decode the answer to a chunk; None if it leaves open whether the chunk was stored.

        Raises the APIError of a permanent refusal.
        """
        if has_no_responders(frame):  # the stream has no leader now
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
        """Return the copier's own link; open it, and subscribe to acks, unless it is open."""
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
        """Read a lane's last marker from the target stream; None if the lane has none.

        A marker is the message before a chunk of a lane's rows, and tells which rows follow it;
        `subject`: of the lane's markers. Raises LedgerError for an unreadable one.
        """
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
        """Read from the target how many rows of a lane are stored, and set the lane's progress.

        The lane's last marker tells which chunk of rows was stored last, and the end mark whether
        all of it was. Raises LedgerError if that cannot be known, or another run of the query has
        continued.
        """
        stored = self._read_marker(lane.subject)
        lane.expected_last = None
        last_marker = 0 if stored is None else stored.seq
        if last_marker == lane.plan.previous:  # nothing of this batch is stored
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
        if end is not None and end.data == batch_id.encode():  # the whole chunk is stored
            lane.offset = marker.offset + marker.rows
            return
        if not self._leaders.reads_are_linearizable:
            # Rows missing in an outdated answer would be written again.
            with self._leaders.linearizable_reads():
                self._locate_progress(lane, decision)
            return
        # A torn chunk: a server died while it stored it. The next chunk also expects that nothing
        # was stored since here; this is read before the rows are counted, so that rows stored in
        # the meantime are noticed.
        lane.expected_last = self._leaders.last_sequence(self._target)
        lane.offset = marker.offset + self._count_stored_rows(stored, lane.expected_last)

    def _count_stored_rows(self, stored: StoredMarker, last_sequence: int) -> int:
        """Count the stored rows of a torn chunk: only its beginning was stored.

        Its rows followed the marker without a gap. Some may have been removed since, so the last
        one that still exists tells the number. `last_sequence`: the last one of the target stream.
        """
        end_of_chunk = min(stored.seq + stored.marker.rows, last_sequence)
        for seq in range(end_of_chunk, stored.seq, -1):
            row = self._leaders.message(self._target, seq=seq)
            if row is not None and _batch_id(row.headers) == stored.batch_id:
                return seq - stored.seq
        return 0


def _batch_id(block: bytes) -> str:
    """The id of the atomic batch that stored a message, from its headers; empty if none did."""
    try:
        return parse_headers(block)[0].last(BATCH_ID) or ""
    except errors.BadHeaderError:
        return ""
