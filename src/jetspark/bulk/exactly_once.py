"""Batches of rows into a stream, each row exactly once, however often a batch is attempted.

    decide   the first attempt of a batch stores a decision: the rows of the batch, in order
    copy     every attempt copies the rows of the decision, not its own (`batch_copier`)

So an attempt with other partitions, or another order of rows, changes nothing. The writer is
identified by something that survives restarts (a streaming query's id, a transaction's name), and
its batches are numbered without gaps. docs/exactly-once.md has the glossary and the proof.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias
from zlib import crc32

import msgspec

import jetspark.errors as errors
from jetspark.bulk.leaders import Leaders, linearizable_read
from jetspark.bulk.links import BlockingLink, connect
from jetspark.bulk.publish import PACKING_BYTES, EncodedMessage, in_packs, pack, size_of, unpack
from jetspark.bulk.retry import PAUSE_SECONDS, Retry, answer_within, attempt
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.err_codes import BATCH_INCOMPLETE, TOO_MANY_BATCHES, WRONG_LAST_SEQUENCE
from jetspark.retries import is_transient
from jetspark.wire import frames, js_api
from jetspark.wire.documents import convert_document, decode_json, decode_msgpack, encode_document
from jetspark.wire.headers import BATCH_ID, COMMIT, MARKS, STAGED, parse_headers
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import NO_RESPONDERS, status_of

# -- what tasks report, and what is decided ----------------------------------------------------

# Ledgers outlive versions of this package, so the field names of decisions and lanes are part of
# the stored form, as are bytes for an inline pack and an integer for a staged one.

Pack: TypeAlias = bytes | int
"""Packed rows: inline in the task's commit message and the decision; or their sequence in the
ledger's stream.
"""


@dataclass(frozen=True)
class Piece:
    """The rows that one task wrote in one batch, in order."""

    rows: int = 0
    packs: list[Pack] = field(default_factory=list)
    digest: int = 0
    """A digest of the rows in any order (`stage`); 0: not computed."""


class LanePlan(msgspec.Struct, frozen=True):
    """The rows of one lane of a batch, in order."""

    previous: int
    """Sequence of the lane's last marker before this batch; 0 for none."""
    rows: int
    packs: list[Pack] = msgspec.field(name="pieces")


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a batch. Never changes once it is stored (MessagePack)."""

    batch: int
    lanes: list[LanePlan]
    name: str = ""
    """The key of the writer's name (`name_key`) if the ledger has it; empty: it may not."""
    digest: int = 0
    """The sum of the pieces' digests. Older ledgers have neither names nor digests."""

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return sum(lane.rows for lane in self.lanes)


def decode_decision(data: bytes) -> Decision:
    """The decision in a message of the ledger. Raises DocumentError for anything else."""
    return decode_msgpack(data, Decision, "decision")


# -- the ledger ----------------------------------------------------------------------------------

# The stream of a target T is named T_SPARK and holds, for each writer (a streaming query, or the
# transaction of a batch write):
#
#     _spark.T.ledger.<writer>           the last Decision, written by compare-and-set
#     _spark.T.ledger.name.<digest>      which writer has a name; see docs/exactly-once.md
#     _spark.T.stage.<writer>.<piece>    the staged packs of one piece
#
# Everything is read from the stream's leader, and from a proven one before an error. Reading also
# resolves a publish whose ack was lost.

_ROOM_IN_PAYLOAD = 4096
_INLINE_BYTES = 16 * 1024
_STAGED_BYTES = 768 * 1024


def ledger_stream(target: str) -> str:
    """The name of the ledger's stream for a target."""
    return f"{target}_SPARK"


def marker_subjects(target: str) -> str:
    """The subject of markers, which the target needs in addition to its own subjects."""
    return f"_spark.{target}.mark.>"


def name_key(name: str) -> str:
    """The digest of a name, for its subject: a name may be a long or private path."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class Ledger:
    """The decisions and staged rows of one writer to one target.

    Every method asks the server for up to `timeout` seconds, also over new links, and raises the
    errors of `Leaders.ask`.
    """

    def __init__(
        self, options: ConnectOptions, target: str, writer: str, *, timeout: float = 60.0
    ) -> None:
        self.stream = ledger_stream(target)
        self.leaders = Leaders(options, timeout, timeout=answer_within(timeout))
        self.options, self.timeout = options, timeout
        self.target, self.writer = target, writer
        self._staging = f"_spark.{target}.stage.{writer}"
        self._answer_within = answer_within(timeout)

    def make_stream(self, replicas: int) -> None:
        """Create the ledger's stream if it does not exist. Raises APIError."""
        config = {
            "name": self.stream,
            "description": f"What Spark's exactly-once writers to {self.target} decided",
            "subjects": [f"_spark.{self.target}.{kind}.>" for kind in ("ledger", "stage")],
            "allow_rollup_hdrs": True,
            "num_replicas": replicas,
        }

        def once(api: StreamAPI) -> None:
            if api.config_if_any(self.stream) is None:
                api.create(config)

        self.leaders.ask(once)

    # -- decisions -----------------------------------------------------------------------------

    def last_decision(self, writer: str | None = None) -> tuple[int, Decision] | None:
        """The last decision and its sequence; None if there is none.

        `writer`: of another writer. Raises StreamNotFoundError, LedgerError for an unreadable one.
        """
        subject = self._decisions(writer or self.writer)
        stored = self.leaders.message(self.stream, last_by_subj=subject)
        if stored is None:
            return None
        try:
            return stored.seq, decode_decision(stored.data)
        except errors.DocumentError as error:
            raise errors.LedgerError(
                f'The ledger "{self.stream}" is unreadable: {error.why}.'
            ) from None

    def decide(self, decision: Decision, after: int) -> int:
        """Store a decision after the one at sequence `after`; returns its sequence.

        Raises WrongLastSequenceError if `after` is not the last one.
        """
        subject = self._decisions(self.writer)
        return self._publish(subject, msgspec.msgpack.encode(decision), after, rollup=True)

    def _decisions(self, writer: str) -> str:
        return f"_spark.{self.target}.ledger.{writer}"

    # -- names ---------------------------------------------------------------------------------

    def named(self, name: str) -> tuple[int, str] | None:
        """The sequence of a name's entry, and the writer that has the name; None if there is none.

        Raises StreamNotFoundError.
        """
        stored = self.leaders.message(self.stream, last_by_subj=self._entry(name))
        return None if stored is None else (stored.seq, stored.data.decode("utf-8", "replace"))

    def take_name(self, name: str, after: int) -> None:
        """Give a name to this writer, after the name's entry at sequence `after`.

        Raises WrongLastSequenceError if `after` is not the last one.
        """
        self._publish(self._entry(name), self.writer.encode(), after, rollup=True)

    def _entry(self, name: str) -> str:
        return self._decisions(f"name.{name_key(name)}")

    # -- staging -------------------------------------------------------------------------------

    def stage(self, rows: Iterable[EncodedMessage]) -> Piece:
        """Pack rows and store the packs in order, each exactly once; a few rows stay inline.

        Raises APIError if the stream refuses one.
        """
        left = iter(rows)
        head: list[EncodedMessage] = []
        size = 0
        for row in left:
            head.append(row)
            size += size_of(row) + PACKING_BYTES
            if size > _INLINE_BYTES:
                break
        else:
            return Piece(len(head), [pack(head)]) if head else Piece()
        subject = self._new_subject()
        packs: list[Pack] = []
        count = last = 0
        limit = self.leaders.ask(lambda api: api.link.info.max_payload)
        most = min(_STAGED_BYTES, limit - _ROOM_IN_PAYLOAD)
        for messages in in_packs(chain(head, left), most):
            last = self._publish(subject, pack(messages), last)
            packs.append(last)
            count += len(messages)
        return Piece(count, packs)

    def stage_pack(self, packed: bytes) -> int:
        """Store a pack; returns its sequence. Raises APIError if the stream refuses it."""
        return self._publish(self._new_subject(), packed, 0)

    def rows_of(self, one: Pack) -> list[EncodedMessage]:
        """The rows of a pack. Raises LedgerError for a staged pack that is gone."""
        if isinstance(one, bytes):
            return unpack(one)
        stored = self.leaders.message(self.stream, seq=one)
        if stored is None:
            raise errors.LedgerError(
                f"The staged rows at sequence {one} of stream {self.stream!r} are gone, so the "
                "decided batch cannot be finished."
            )
        return unpack(stored.data)

    def forget_staged(self, before: int) -> None:
        """Remove the writer's packs before a sequence, also those of failed attempts."""
        self.leaders.ask(lambda api: api.purge(self.stream, before, [f"{self._staging}.>"]))

    def _new_subject(self) -> str:
        return f"{self._staging}.{secrets.token_hex(8)}"

    def _publish(self, subject: str, data: bytes, expected: int, *, rollup: bool = False) -> int:
        """Store a message after `expected` on its subject; returns its sequence.

        Raises WrongLastSequenceError if `expected` is not the last one, APIError for other
        refusals.
        """
        block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence:%d\r\n%b\r\n" % (
            expected,
            b"Nats-Rollup:sub\r\n" if rollup else b"",
        )

        def once(api: StreamAPI) -> int:
            try:
                frame = api.link.request(subject, data, self._answer_within, block)
                names = {"stream": self.stream}
                return int(js_api.parse_document("Publishing", frame.payload, names)["seq"])
            except errors.WrongLastSequenceError:
                stored = linearizable_read(
                    api, [self.stream], lambda api: api.message(self.stream, last_by_subj=subject)
                )
                if stored is not None and stored.data == data and stored.seq > expected:
                    return stored.seq  # the ack of an earlier attempt was lost
                raise

        return self.leaders.ask(once)


# -- atomic batches (ADR-50): stored as a whole and without a gap, or not at all -----------------

_MOST_MESSAGES = 1000
"""The server's default limit for one batch."""
_EMPTY = b"NATS/1.0\r\n\r\n"


class BatchAck(msgspec.Struct, frozen=True):
    """Where a batch was stored: `seq` is the sequence of its last message."""

    stream: str
    seq: int
    count: int = 0

    @property
    def first_seq(self) -> int:
        """The sequence of its first message."""
        return self.seq - self.count + 1


def encode_batch(batch_id: str, messages: Sequence[EncodedMessage], reply: str) -> bytes:
    """The frames of a batch, to be sent at once. `reply` gets the ack."""
    encoded, last = batch_id.encode(), len(messages)
    encoded_frames: list[bytes] = []
    for number, (subject, block, payload) in enumerate(messages, 1):
        commit, target = STAGED, subject
        if number == last:
            commit, target = COMMIT, b"%b %b" % (subject, reply.encode())
        full = (_EMPTY if block is None else block)[:-2] + MARKS % (encoded, number, commit)
        encoded_frames.append(frames.message(target, full, payload))
    return b"".join(encoded_frames)


def parse_batch_ack(payload: bytes, stream: str) -> BatchAck:
    """The ack of a batch. Raises the stream's typed error; JetStreamError if it is not an ack."""
    answer = js_api.parse_document("A batch", payload, {"stream": stream})
    return convert_document(answer, BatchAck, "ack of a batch")


# -- copying a decided batch into its target, every row exactly once -----------------------------

# The rows of a lane are copied in chunks, each of them one atomic batch: a marker, the rows, an end
# mark. The marker must replace exactly the previous marker (compare-and-set on its subject), so
# only one of all writers that ever try stores a chunk. The marker comes first because a single
# server that dies while it applies an atomic batch leaves the beginning of it: a marker and some of
# its rows, which can be counted. The rest follows in a chunk that also expects nothing stored since
# the count.
#
# After a refusal, or without an answer because a leader stopped, the marker is read. If it is
# outdated, the compare-and-set refuses the next write; any other conclusion from it needs a proven
# leader (`Leaders.linearizable_reads`).

_CHUNK_ROWS = _MOST_MESSAGES - 2  # rows, without the marker and the end mark
_CHUNK_BYTES = 8 * 1024 * 1024
_OPEN = frozenset({WRONG_LAST_SEQUENCE, BATCH_INCOMPLETE, TOO_MANY_BATCHES})
"""Refusals, other than transient ones, that leave open whether a chunk is stored."""


class Marker(msgspec.Struct, frozen=True):
    """The payload of a marker, as stored (JSON): which rows of the lane follow it."""

    batch: int
    offset: int
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
        self.held: EncodedMessage | None = None
        """A row that did not fit into the last chunk."""
        self.under_way: tuple[str, int] | None = None
        """Reply subject and number of rows of the chunk in flight."""

    @property
    def done(self) -> bool:
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
        self._chunks = 0
        self._retry = Retry(ledger.timeout)
        self._refusal: errors.APIError | None = None
        self._answers: dict[str, MessageFrame] = {}
        self._head = b"NATS/1.0\r\n" + (b"Nats-TTL:never\r\n" if keep_markers else b"")

    def last_markers(self, lanes: int, known: Mapping[int, int] | None = None) -> list[int]:
        """The lanes' last markers, 0 for none; `known` ones are not asked for.

        Raises LedgerError for an unreadable marker, and the errors of `Leaders.message`.
        """
        markers = dict(known or {})
        with self._leaders.linearizable_reads():  # recorded in a decision, which never changes
            for lane in range(lanes):
                if lane not in markers:
                    found = self._marker(self._marker_subject(lane))
                    markers[lane] = 0 if found is None else found[0]
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
            found = self._marker(self._marker_subject(number))
            if (
                found is None
                or found[1].batch != decision.batch
                or found[1].offset + found[1].rows != plan.rows
            ):
                raise errors.LedgerError(
                    f'Stream "{self._target}" no longer has the last marker of batch '
                    f"{decision.batch}, lane {number}, so it is not known which rows are stored: "
                    "the stream was purged or restored, a limit removed the marker, a consumer of "
                    "a work queue acknowledged it, or the server lost it. To go on all the same, "
                    "set the option adoptLedger to true for one run."
                )
            markers[number] = found[0]
        return markers

    def is_stored(self, decision: Decision) -> bool:
        """Whether a decided batch is stored completely.

        Raises LedgerError for stored rows that were lost, and the errors of `Leaders.message`.
        """
        lanes = self._lanes(decision)
        for lane in lanes:
            self._locate(lane, decision)
        return all(lane.done for lane in lanes)

    def copy(self, decision: Decision, *, begun: bool) -> None:
        """Store the missing rows of a decided batch. `begun`: an earlier attempt may have begun.

        Raises LedgerError when the target lacks rows or markers that it must have, or another run
        of the query has continued; APIError for a permanent refusal, RequestTimeoutError without
        progress, ConnectionFailure and ProtocolError, and the errors of `Leaders.message`.
        """
        self._retry.since = time.monotonic()
        lanes = self._lanes(decision)
        try:
            for lane in lanes:
                if begun:
                    self._locate(lane, decision)
                self._rewind(lane)
            while left := [lane for lane in lanes if not lane.done]:
                self._round(left, decision)
        finally:
            self._drop_link()

    def _lanes(self, decision: Decision) -> list[Lane]:
        return [
            Lane(self._marker_subject(number), plan) for number, plan in enumerate(decision.lanes)
        ]

    def _marker_subject(self, lane: int) -> str:
        return f"_spark.{self._target}.mark.{self._ledger.writer}.{lane}"

    # -- rows ----------------------------------------------------------------------------------

    def _rewind(self, lane: Lane) -> None:
        """Continue with the first row that is not stored."""
        lane.rows = self._rows_from(lane.plan, lane.offset)
        lane.held = None

    def _rows_from(self, plan: LanePlan, offset: int) -> Iterator[EncodedMessage]:
        for one in plan.packs:
            rows = self._ledger.rows_of(one)
            yield from rows[offset:]
            offset = max(0, offset - len(rows))

    def _take(self, lane: Lane) -> list[EncodedMessage]:
        """The rows of the next chunk; empty when none are left."""
        rows: list[EncodedMessage] = []
        size = 0
        while len(rows) < _CHUNK_ROWS:
            row = lane.held or next(lane.rows, None)
            lane.held = None
            if row is None:
                break
            size += size_of(row)
            if rows and size > _CHUNK_BYTES:
                lane.held = row
                break
            rows.append(row)
        return rows

    # -- chunks --------------------------------------------------------------------------------

    def _round(self, lanes: list[Lane], decision: Decision) -> None:
        """Send the next chunk of each lane that has none in flight, and wait for an answer."""
        if time.monotonic() > self._retry.deadline:
            said = f"; its answer: {self._refusal}." if self._refusal else "."
            raise errors.RequestTimeoutError(
                f'Stream "{self._target}" accepted no rows for {self._ledger.timeout:g} s{said}'
            )
        try:
            for lane in lanes:
                if lane.under_way is None:
                    self._send(lane, decision)
            in_doubt = self._wait(lanes)
        except (errors.ConnectionFailure, errors.RequestTimeoutError) as error:
            if not is_transient(error):
                raise
            self._drop_link()
            in_doubt = [lane for lane in lanes if lane.under_way is not None]
            for lane in lanes:
                self._rewind(lane)  # rows may have been taken but not sent
        for lane in in_doubt:
            lane.under_way = None
            before = lane.offset
            self._locate(lane, decision)
            self._rewind(lane)
            if lane.offset > before:
                self._retry.since = time.monotonic()

    def _send(self, lane: Lane, decision: Decision) -> None:
        rows = self._take(lane)
        if not rows:
            raise errors.LedgerError(
                f"Only {lane.offset} of {lane.plan.rows} rows of {lane.subject!r} are in batch "
                f"{decision.batch}: the staged rows are not those of the decision."
            )
        batch_id = secrets.token_urlsafe(12)
        self._chunks += 1
        link = self._connected()
        reply = f"{self._inbox}{self._chunks}"
        lane.under_way = (reply, len(rows))
        marker, expected = Marker(decision.batch, lane.offset, len(rows)), lane.expected_last
        block = b"%bNats-Expected-Last-Subject-Sequence:%d\r\n%bNats-Rollup:sub\r\n\r\n" % (
            self._head,
            lane.marker,
            b"" if expected is None else b"Nats-Expected-Last-Sequence:%d\r\n" % expected,
        )
        subject = lane.subject.encode()
        messages: list[EncodedMessage] = [
            (subject, block, encode_document(marker)),
            *rows,
            (subject + b".end", b"%bNats-Rollup:sub\r\n\r\n" % self._head, batch_id.encode()),
        ]
        link.send(encode_batch(batch_id, messages, reply), self._ledger.timeout)

    def _wait(self, lanes: list[Lane]) -> list[Lane]:
        """Process one answer or more; returns the lanes whose chunk may be stored, or not."""
        in_doubt: list[Lane] = []
        answers = self._answers
        deadline = time.monotonic() + answer_within(self._ledger.timeout)
        while not answers:
            for one in self._connected().messages(deadline):
                answers[one.subject.decode()] = one
        for lane in lanes:
            assert lane.under_way is not None  # noqa: S101
            reply, rows = lane.under_way
            if (frame := answers.pop(reply, None)) is None:
                continue
            if (ack := self._ack(frame)) is None:
                in_doubt.append(lane)
                continue
            lane.under_way = None
            lane.marker = ack.first_seq
            lane.offset += rows
            lane.expected_last = None
            self._refusal = None
            self._retry.since = time.monotonic()
        answers.clear()  # of abandoned chunks
        return in_doubt

    def _ack(self, frame: MessageFrame) -> BatchAck | None:
        """The ack; None if the answer leaves open whether the chunk is stored."""
        status = status_of(frame.headers)
        if status is not None and status.code == NO_RESPONDERS:
            return None
        try:
            return parse_batch_ack(frame.payload, self._target)
        except errors.APIError as error:
            if not is_transient(error) and error.err_code not in _OPEN:
                raise
            self._refusal = error
            time.sleep(PAUSE_SECONDS)
            return None

    def _connected(self) -> BlockingLink:
        if self._link is None:
            self._link = attempt(lambda: connect(self._ledger.options), self._retry)
            self._inbox = f"{self._link.new_inbox()}."
            self._link.subscribe(f"{self._inbox}*")
            self._answers.clear()
        return self._link

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # -- recovery ------------------------------------------------------------------------------

    def _marker(self, subject: str) -> tuple[int, Marker, str] | None:
        """A lane's last marker: its sequence, its content, the id of its atomic batch."""
        stored = self._leaders.message(self._target, last_by_subj=subject)
        if stored is None:
            return None
        try:
            body = decode_json(stored.data, Marker, "marker")
        except errors.DocumentError as error:
            raise errors.LedgerError(
                f"The marker {subject!r} is unreadable: {error.why}."
            ) from None
        return stored.seq, body, _batch_id(stored.headers)

    def _locate(self, lane: Lane, decision: Decision) -> None:
        """Find from a lane's last marker how many rows are stored."""
        found = self._marker(lane.subject)
        lane.expected_last = None
        if (0 if found is None else found[0]) == lane.plan.previous:
            lane.offset, lane.marker = 0, lane.plan.previous
            return
        if found is None:
            raise errors.LedgerError(
                f'The marker {lane.subject!r} is gone from stream "{self._target}": it was purged '
                "or has expired, so it is not known which rows are stored."
            )
        seq, marker, batch_id = found
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
                self._locate(lane, decision)
            return
        # Before counting, so that the condition also covers rows stored in the meantime.
        lane.expected_last = self._leaders.last_sequence(self._target)
        lane.offset = marker.offset + self._stored_rows(
            seq, marker.rows, batch_id, lane.expected_last
        )

    def _stored_rows(self, marker: int, rows: int, batch_id: str, last: int) -> int:
        """Stored rows of a torn chunk: up to the last one that still exists."""
        for seq in range(min(marker + rows, last), marker, -1):
            stored = self._leaders.message(self._target, seq=seq)
            if stored is not None and _batch_id(stored.headers) == batch_id:
                return seq - marker
        return 0


def _batch_id(block: bytes) -> str:
    try:
        return parse_headers(block)[0].last(BATCH_ID) or ""
    except errors.BadHeaderError:
        return ""


# -- the calls of Spark's tasks and driver -----------------------------------------------------

logger = logging.getLogger("jetspark.bulk")

_DECISION_BYTES = 256 * 1024


def stage(ledger: Ledger, rows: Iterable[EncodedMessage], *, digest: bool = False) -> Piece:
    """Stage a task's rows.

    `digest`: lets `commit` refuse rows other than those that an earlier attempt decided. Raises the
    errors of `Ledger.stage`.
    """
    found = 0

    def seen() -> Iterator[EncodedMessage]:
        nonlocal found
        for subject, block, payload in rows:
            # A sum, since another attempt may have other partitions and another order.
            found += crc32(payload, crc32(block or b"", crc32(subject)))
            yield subject, block, payload

    piece = ledger.stage(seen() if digest else rows)
    return replace(piece, digest=found)


class ExactlyOnceWriter:
    """Commits batches of one writer to one stream. `timeout`: seconds without progress.

    `keep_markers`: markers do not expire with the stream's other messages (the stream has
    allow_msg_ttl). `name`: stays the same when the checkpoint is lost and the writer gets a new id.
    """

    def __init__(
        self,
        options: ConnectOptions,
        target: str,
        writer: str,
        *,
        name: str | None = None,
        keep_markers: bool = False,
        timeout: float = 60.0,
    ) -> None:
        self.ledger = Ledger(options, target, writer, timeout=timeout)
        self._target = target
        self._writer = writer
        self._name = name
        self._copier = BatchCopier(self.ledger, keep_markers=keep_markers)

    def stored(self, batch: int) -> int | None:
        """Number of rows of the last batch if it is `batch` and completely stored, else None.

        Raises LedgerError when stored rows were lost, and the errors of `Leaders.ask`.
        """
        try:
            last = self.ledger.last_decision()
        except errors.StreamNotFoundError:
            return None
        if last is None or last[1].batch != batch or not self._copier.is_stored(last[1]):
            return None
        return last[1].rows

    def check_name(self) -> None:
        """Raise LedgerError when this writer is new and another one of its name has written.

        An early check that changes nothing; `commit` decides. Raises the errors of `Leaders.ask`.
        """
        with suppress(errors.StreamNotFoundError):
            found = None if self._name is None else self.ledger.named(self._name)
            if found is None or found[1] == self._writer:
                return
            with self.ledger.leaders.linearizable_reads():
                if self.ledger.last_decision() is None:
                    self._check_wrote_nothing(found[1])

    def register_name(self) -> None:
        """Record the name of a writer that continues, unless the ledger has it.

        The next batch would do so too, but the checkpoint may be lost first. Raises the errors of
        `Leaders.ask`.
        """
        if self._name is None:
            return
        # WrongLastSequenceError: another writer took it in the meantime.
        with suppress(errors.StreamNotFoundError, errors.WrongLastSequenceError):
            if self.ledger.named(self._name) is None and self.ledger.last_decision() is not None:
                self.ledger.take_name(self._name, 0)

    def commit(
        self, batch: int, pieces: Sequence[Piece], *, lanes: int = 1, adopt: bool = False
    ) -> None:
        """Store a batch. Rows of one piece keep their order; `lanes` are copied concurrently.

        `adopt`: begin here although the ledger lacks earlier batches, or another writer of this
        name has written. Raises LedgerError when rows could be lost or repeated, or an earlier
        attempt decided other rows (`stage`); APIError for a permanent refusal by the target,
        RequestTimeoutError without progress, and the errors of `Leaders.ask`.
        """
        try:
            self._commit(batch, pieces, lanes, adopt)
        except (errors.LedgerError, errors.WrongLastSequenceError) as error:
            logger.info("Trying again, with leaders that are proven to lead: %s", error)
            with self.ledger.leaders.linearizable_reads():
                self._commit(batch, pieces, lanes, adopt)

    def _commit(self, batch: int, pieces: Sequence[Piece], lanes: int, adopt: bool) -> None:
        markers: dict[int, int] = {}
        last = self.ledger.last_decision()
        if not adopt and (last is None or last[1].batch < batch):
            try:
                markers = self._check_predecessor(batch, last)
            except errors.LedgerError:
                before, last = last, self.ledger.last_decision()
                if last == before:
                    raise  # not explained by another run that has begun
        if last is not None and last[1].batch >= batch:
            self._finish(batch, pieces, *last)
            return
        if self._name is not None and (last is None or last[1].name != name_key(self._name)):
            self._take_name(self._name, new=last is None, adopt=adopt)
        decision = self._plan(batch, pieces, lanes, markers)
        try:
            seq = self.ledger.decide(decision, 0 if last is None else last[0])
        except errors.WrongLastSequenceError:
            other = self.ledger.last_decision()
            if other is None:
                raise
            self._finish(batch, pieces, *other)
            return
        self._copier.copy(decision, begun=False)
        self.ledger.forget_staged(seq)

    def _take_name(self, name: str, *, new: bool, adopt: bool) -> None:
        """Record the name, before a decision; only a `new` writer may change it.

        Raises LedgerError if another writer of this name has written, unless `adopt`.
        """
        found = self.ledger.named(name)
        if found is None:
            self.ledger.take_name(name, 0)
        elif new and found[1] != self._writer:
            if not adopt:
                self._check_wrote_nothing(found[1])
            self.ledger.take_name(name, found[0])

    def _check_wrote_nothing(self, other: str) -> None:
        """Raise LedgerError when another writer decided a batch with rows, or a later one."""
        with self.ledger.leaders.linearizable_reads():
            last = self.ledger.last_decision(other)
        if last is None or (last[1].batch == 0 and last[1].rows == 0):
            return
        raise errors.LedgerError(
            f'Stream "{self._target}" holds the rows that {self._name} wrote with another '
            f"checkpoint, up to its batch {last[1].batch}; this run would write them again. "
            "Restore that checkpoint, or write to another stream; if the rows may be stored twice, "
            "or are different ones, set the option adoptLedger to true for one run."
        )

    def _finish(self, batch: int, pieces: Sequence[Piece], seq: int, decision: Decision) -> None:
        """Copy the batch that another attempt decided.

        Raises LedgerError for another batch, and for pieces with other rows.
        """
        if decision.batch != batch:
            raise errors.LedgerError(
                f'Batch {decision.batch} of this query was decided for stream "{self._target}" '
                f"already, this run is at batch {batch}: another run has continued elsewhere, or "
                "the checkpoint is an older copy."
            )
        self._copier.copy(decision, begun=True)
        self.ledger.forget_staged(seq)
        rows, digest = sum(one.rows for one in pieces), sum(one.digest for one in pieces)
        if digest and (rows != decision.rows or decision.digest not in (0, digest)):
            raise errors.LedgerError(
                f'Stream "{self._target}" has the {decision.rows:,} rows of an earlier write with '
                f"transactionId {self._writer!r}; this write has other rows ({rows:,}), and none "
                "of them was stored. Give it a transactionId of its own."
            )

    def _check_predecessor(self, batch: int, last: tuple[int, Decision] | None) -> dict[int, int]:
        """The last markers of the previous batch, by lane. Raises LedgerError for others.

        Without a previous batch there must be no markers.
        """
        expected = 0 if last is None else last[1].batch + 1
        if batch != expected:
            known = "none" if last is None else str(last[1].batch)
            raise errors.LedgerError(
                f"This run is at batch {batch}, and the last batch in the ledger "
                f'"{self.ledger.stream}" is {known}: it has no record of the batches in between. '
                "If that is expected (another guarantee before, a ledger deleted on purpose), set "
                "the option adoptLedger to true for one run."
            )
        if last is not None:
            return self._copier.check_stored(last[1])
        if self._copier.last_markers(1) != [0]:
            raise errors.LedgerError(
                f'Stream "{self._target}" holds rows of this query or transaction already, and the '
                f'ledger "{self.ledger.stream}" has no record of them: it was purged or '
                "deleted, so it is not known which rows are stored. If they may be stored again, "
                "set the option adoptLedger to true for one run, or use another transactionId."
            )
        return {}

    def _plan(
        self, batch: int, pieces: Sequence[Piece], lanes: int, markers: dict[int, int]
    ) -> Decision:
        """A decision: whole pieces are assigned to the lanes in turn.

        `markers`: known last markers, by lane.
        """
        pieces = [piece for piece in pieces if piece.rows]
        every = [one for piece in pieces for one in piece.packs]
        inline = sum(len(one) for one in every if isinstance(one, bytes))
        by_lane = [pieces[number::lanes] for number in range(min(lanes, len(pieces)))]
        plans = []
        previous = self._copier.last_markers(len(by_lane), markers)
        for marker, of_lane in zip(previous, by_lane, strict=True):
            packs = [one for piece in of_lane for one in piece.packs]
            if inline > _DECISION_BYTES:
                packs = [
                    self.ledger.stage_pack(one) if isinstance(one, bytes) else one for one in packs
                ]
            plans.append(LanePlan(marker, sum(piece.rows for piece in of_lane), packs))
        name = "" if self._name is None else name_key(self._name)
        return Decision(batch, plans, name, sum(piece.digest for piece in pieces))
