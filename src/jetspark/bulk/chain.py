"""Copying a decided batch into its target stream, every row exactly once.

The proof stands in docs/exactly-once.md. A lane of a batch is copied in chunks, each of them one
atomic batch: a marker, the rows, an end mark. The marker has to replace exactly the marker before
it (compare-and-set on its subject), so of all writers that ever try, one gets each chunk in. The
marker comes first because a batch may tear when a single server dies while applying it: what was
stored is then a marker and the first of its rows, which can be counted; the rest is written as a
chunk that additionally insists that nothing was stored since the counting.

An answer that did not come (a leader that stops takes it along), and a refusal, are resolved by
reading the marker. A marker that is older than the last one is refused by the compare-and-set; what
else would follow from one is only believed of a leader that is proven to lead (`Leaders.proven`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import msgspec

from jetspark.bulk.atomic import (
    MOST_MESSAGES,
    BatchAck,
    encode_batch,
    new_batch_id,
    parse_batch_ack,
)
from jetspark.bulk.ledger import Decision, LanePlan, Ledger
from jetspark.bulk.link import BlockingLink, connect
from jetspark.bulk.outgoing import Outgoing, size_of, unpack
from jetspark.bulk.retry import PAUSE_SECONDS, Retry, answer_within, attempt
from jetspark.connection.options import ConnectOptions
from jetspark.err_codes import (
    BATCH_INCOMPLETE,
    TOO_MANY_BATCHES,
    WRONG_LAST_SEQUENCE,
)
from jetspark.errors import (
    APIError,
    BadHeaderError,
    ConnectionFailure,
    LedgerError,
    RequestTimeoutError,
)
from jetspark.transient import is_transient
from jetspark.wire.batch_headers import BATCH_ID
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import parse_headers
from jetspark.wire.status import NO_RESPONDERS, status_of

_ROWS = MOST_MESSAGES - 2  # the marker and the end mark
_BYTES = 8 * 1024 * 1024
_OPEN = frozenset({WRONG_LAST_SEQUENCE, BATCH_INCOMPLETE, TOO_MANY_BATCHES})
"""Refusals that leave open whether a chunk is stored, besides the transient ones."""


class Marker(msgspec.Struct, frozen=True):
    """The body of a marker: which rows of the lane follow it."""

    batch: int
    offset: int
    rows: int


class Lane:
    """One lane's place in the copying of one batch."""

    def __init__(self, subject: str, plan: LanePlan) -> None:
        self.subject = subject
        self.plan = plan
        self.offset = 0
        """Rows of the batch that are stored."""
        self.marker = plan.previous
        """Sequence of the last marker."""
        self.fence: int | None = None
        """The stream's last sequence, which the next chunk insists on."""
        self.rows: Iterator[Outgoing] = iter(())
        self.held: Outgoing | None = None
        self.under_way: tuple[str, int] | None = None
        """Reply subject and rows of the chunk that has no answer yet."""

    @property
    def done(self) -> bool:
        return self.offset >= self.plan.rows


class Chain:
    """Copies batches. `timeout`: seconds without progress after which it fails.

    `keep_markers`: markers do not expire with the stream's other messages (the stream has
    allow_msg_ttl).
    """

    def __init__(
        self,
        options: ConnectOptions,
        ledger: Ledger,
        target: str,
        writer: str,
        *,
        keep_markers: bool = False,
        timeout: float = 60.0,
    ) -> None:
        self._options = options
        self._ledger = ledger
        self._leaders = ledger.leaders
        self._target = target
        self._writer = writer
        self._timeout = timeout
        self._link: BlockingLink | None = None
        self._inbox = ""
        self._chunks = 0
        self._retry = Retry(timeout)
        self._refusal: APIError | None = None
        self._answers: dict[str, MessageFrame] = {}
        self._head = b"NATS/1.0\r\n" + (b"Nats-TTL:never\r\n" if keep_markers else b"")

    def marker_subject(self, lane: int) -> str:
        """Where a lane's markers are."""
        return f"_spark.{self._target}.mark.{self._writer}.{lane}"

    def places(self, lanes: int, known: Mapping[int, int] | None = None) -> list[int]:
        """Sequences of the lanes' last markers, 0 for none; those `known` are not asked for."""
        known = known or {}
        with self._leaders.proven():  # written down in a decision, which never changes
            return [
                known[lane]
                if lane in known
                else 0
                if (found := self._marker(self.marker_subject(lane))) is None
                else found[0]
                for lane in range(lanes)
            ]

    def check_done(self, decision: Decision) -> dict[int, int]:
        """The markers of the batch's lanes, which say that all of it is stored.

        Raises LedgerError when they do not.
        """
        places: dict[int, int] = {}
        for number, plan in enumerate(decision.lanes):
            if not plan.rows:
                continue
            found = self._marker(self.marker_subject(number))
            if (
                found is None
                or found[1].batch != decision.batch
                or found[1].offset + found[1].rows != plan.rows
            ):
                raise LedgerError(
                    f'Stream "{self._target}" lost what it had acknowledged: lane {number} of '
                    f"batch {decision.batch} is not there as a whole. Was the stream purged or "
                    "restored, or has its marker expired?"
                )
            places[number] = found[0]
        return places

    def is_done(self, decision: Decision) -> bool:
        """All of a decided batch is stored. Raises LedgerError for what was stored and is lost."""
        lanes = [
            Lane(self.marker_subject(number), plan) for number, plan in enumerate(decision.lanes)
        ]
        for lane in lanes:
            self._find_place(lane, decision)
        return all(lane.done for lane in lanes)

    def copy(self, decision: Decision, *, begun: bool) -> None:
        """Store what is missing of a decided batch. `begun`: somebody may have begun before.

        Raises LedgerError when the target does not hold what it must hold.
        """
        self._retry.since = time.monotonic()
        lanes = [
            Lane(self.marker_subject(number), plan) for number, plan in enumerate(decision.lanes)
        ]
        try:
            for lane in lanes:
                if begun:
                    self._find_place(lane, decision)
                self._rewind(lane)
            while open_lanes := [lane for lane in lanes if not lane.done]:
                self._round(open_lanes, decision)
        finally:
            self._drop_link()

    # -- rows ----------------------------------------------------------------------------------

    def _rewind(self, lane: Lane) -> None:
        lane.rows = self._rows_from(lane.plan, lane.offset)
        lane.held = None

    def _rows_from(self, plan: LanePlan, offset: int) -> Iterator[Outgoing]:
        for piece in plan.pieces:
            rows = unpack(self._ledger.staged(piece) if isinstance(piece, int) else piece)
            yield from rows[offset:]
            offset = max(0, offset - len(rows))

    def _take(self, lane: Lane) -> list[Outgoing]:
        rows: list[Outgoing] = []
        size = 0
        while len(rows) < _ROWS:
            row = lane.held or next(lane.rows, None)
            lane.held = None
            if row is None:
                break
            size += size_of(row)
            if rows and size > _BYTES:
                lane.held = row
                break
            rows.append(row)
        return rows

    # -- chunks --------------------------------------------------------------------------------

    def _round(self, lanes: list[Lane], decision: Decision) -> None:
        """One chunk of each lane, all under way at once."""
        if time.monotonic() > self._retry.deadline:
            said = f"; it said: {self._refusal}." if self._refusal else "."
            raise RequestTimeoutError(
                f'Stream "{self._target}" took no rows for {self._timeout:g} s{said}'
            )
        try:
            for lane in lanes:
                self._send(lane, decision)
            for lane in lanes:
                self._wait(lane)
        except (ConnectionFailure, RequestTimeoutError) as error:
            if not is_transient(error):
                raise
            self._drop_link()
            for lane in lanes:
                self._rewind(lane)  # rows may have been taken and not sent
        for lane in lanes:
            if lane.under_way is not None:  # no answer, or one that leaves it open
                lane.under_way = None
                before = lane.offset
                self._find_place(lane, decision)
                self._rewind(lane)
                if lane.offset > before:
                    self._retry.since = time.monotonic()

    def _send(self, lane: Lane, decision: Decision) -> None:
        rows = self._take(lane)
        if not rows:
            raise LedgerError(
                f"Only {lane.offset} of {lane.plan.rows} rows of {lane.subject!r} are in batch "
                f"{decision.batch}: what was staged is not what was decided."
            )
        batch_id = new_batch_id()
        self._chunks += 1
        link = self._connected()
        reply = f"{self._inbox}{self._chunks}"
        lane.under_way = (reply, len(rows))
        marker = Marker(decision.batch, lane.offset, len(rows))
        block = b"%bNats-Expected-Last-Subject-Sequence:%d\r\n%bNats-Rollup:sub\r\n\r\n" % (
            self._head,
            lane.marker,
            b"" if lane.fence is None else b"Nats-Expected-Last-Sequence:%d\r\n" % lane.fence,
        )
        subject = lane.subject.encode()
        messages: list[Outgoing] = [
            (subject, block, msgspec.json.encode(marker)),
            *rows,
            (subject + b".end", b"%bNats-Rollup:sub\r\n\r\n" % self._head, batch_id.encode()),
        ]
        link.send(encode_batch(batch_id, messages, reply), self._timeout)

    def _wait(self, lane: Lane) -> None:
        """Take the answers until this lane's has come."""
        answers = self._answers
        assert lane.under_way is not None  # noqa: S101
        reply, rows = lane.under_way
        deadline = time.monotonic() + answer_within(self._timeout)
        while (frame := answers.pop(reply, None)) is None:
            for one in self._connected().messages(deadline):
                answers[one[1].decode()] = one
        ack = self._ack(frame)
        if ack is None:
            return
        lane.under_way = None
        lane.marker = ack.first_seq
        lane.offset += rows
        lane.fence = None
        self._refusal = None
        self._retry.since = time.monotonic()

    def _ack(self, frame: MessageFrame) -> BatchAck | None:
        """None for a refusal that another writer, or a leader's change, may explain."""
        status = status_of(frame[3])
        if status is not None and status.code == NO_RESPONDERS:
            return None
        try:
            return parse_batch_ack(frame[4], self._target)
        except APIError as error:
            if not is_transient(error) and error.err_code not in _OPEN:
                raise
            self._refusal = error
            time.sleep(PAUSE_SECONDS)
            return None

    def _connected(self) -> BlockingLink:
        if self._link is None:
            self._link = attempt(lambda: connect(self._options), self._retry)
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
        stored = self._leaders.message(self._target, last_by_subj=subject)
        if stored is None:
            return None
        try:
            body = msgspec.json.decode(stored.data, type=Marker)
        except msgspec.MsgspecError as error:
            raise LedgerError(f"The marker {subject!r} is unreadable: {error}.") from None
        return stored.seq, body, _batch_id(stored.headers)

    def _find_place(self, lane: Lane, decision: Decision) -> None:
        """How much of the lane's rows the target holds, by its last marker."""
        found = self._marker(lane.subject)
        lane.fence = None
        if (0 if found is None else found[0]) == lane.plan.previous:
            lane.offset, lane.marker = 0, lane.plan.previous
            return
        if found is None:
            raise LedgerError(
                f'The marker {lane.subject!r} is gone from stream "{self._target}": it was purged '
                "or has expired, and with it the knowledge of what was stored."
            )
        seq, marker, batch_id = found
        if marker.batch > decision.batch:
            raise LedgerError(
                f"Batch {marker.batch} has begun meanwhile: another run of this query writes to "
                f'stream "{self._target}". This one, at batch {decision.batch}, stops.'
            )
        if marker.batch < decision.batch or seq < lane.plan.previous:
            raise LedgerError(
                f'Stream "{self._target}" lost what it had acknowledged: the last marker of '
                f"{lane.subject!r} is of batch {marker.batch}, before batch {decision.batch} was "
                "decided there was a newer one. Was the stream restored from a backup?"
            )
        lane.marker = seq
        end = self._leaders.message(self._target, last_by_subj=f"{lane.subject}.end")
        if end is not None and end.data.decode() == batch_id:
            lane.offset = marker.offset + marker.rows
            return
        if not self._leaders.only_proven:
            # Rows that are not found would be written again.
            with self._leaders.proven():
                self._find_place(lane, decision)
            return
        # Before counting, so that whatever is stored meanwhile is noticed.
        lane.fence = self._leaders.last_sequence(self._target)
        lane.offset = marker.offset + self._stored_rows(seq, marker.rows, batch_id, lane.fence)

    def _stored_rows(self, marker: int, rows: int, batch_id: str, last: int) -> int:
        """Rows of a torn chunk that are stored: up to the last one that still is there."""
        for seq in range(min(marker + rows, last), marker, -1):
            stored = self._leaders.message(self._target, seq=seq)
            if stored is not None and _batch_id(stored.headers) == batch_id:
                return seq - marker
        return 0


def _batch_id(block: bytes) -> str:
    try:
        return parse_headers(block)[0].last(BATCH_ID) or ""
    except BadHeaderError:
        return ""
