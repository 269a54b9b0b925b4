"""Writing batches of rows to a stream, each row exactly once, however often a batch is tried.

    decide   the first attempt of a batch that gets here writes down what the batch consists of
    copy     every attempt copies what is written there, not what it was given (`chain`)

So a batch that is tried again with other partitions or another order of rows changes nothing. The
writer is named by something that outlives restarts (a Spark query's id, a transaction's name), and
its batches are numbered without gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jetspark.bulk.chain import Chain
from jetspark.bulk.ledger import Decision, LanePlan, Ledger
from jetspark.bulk.outgoing import Outgoing, in_packs, pack
from jetspark.connection.options import ConnectOptions
from jetspark.errors import LedgerError, StreamNotFoundError, WrongLastSequenceError

logger = logging.getLogger("jetspark.bulk")

_INLINE_BYTES = 16 * 1024
_DECISION_BYTES = 256 * 1024


@dataclass(frozen=True)
class Piece:
    """The rows of one task: packed in `packs`, or staged at sequences."""

    rows: int = 0
    packs: list[bytes | int] = field(default_factory=list)


def stage(ledger: Ledger, rows: Iterable[Outgoing]) -> Piece:
    """Put a task's rows where the decision can name them. A few rows stay in the piece itself."""
    count = 0

    def counted() -> Iterable[Outgoing]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    packs = in_packs(counted(), _INLINE_BYTES)
    first = next(packs, None)
    if first is None:
        return Piece()
    second = next(packs, None)
    if second is None:
        return Piece(count, [pack(first)])
    rest = (row for one in packs for row in one)
    sequences = ledger.stage(row for part in (first, second, rest) for row in part)
    return Piece(count, list(sequences))


class ExactlyOnceWriter:
    """Commits batches of one writer to one stream."""

    def __init__(
        self,
        options: ConnectOptions,
        target: str,
        writer: str,
        *,
        keep_markers: bool = False,
        timeout: float = 60.0,
    ) -> None:
        self.ledger = Ledger(options, target, writer, timeout=timeout)
        self._target = target
        self._chain = Chain(
            options, self.ledger, target, writer, keep_markers=keep_markers, timeout=timeout
        )

    def stored(self, batch: int) -> int | None:
        """Rows of a batch that is stored as a whole; None when it is not, or another was later.

        Raises LedgerError when rows that were stored are lost.
        """
        try:
            last = self.ledger.last_decision()
        except StreamNotFoundError:
            return None
        if last is None or last[1].batch != batch or not self._chain.is_done(last[1]):
            return None
        return sum(lane.rows for lane in last[1].lanes)

    def commit(
        self, batch: int, pieces: Sequence[Piece], *, lanes: int = 1, adopt: bool = False
    ) -> None:
        """Store a batch. Rows of one piece keep their order; `lanes` are copied side by side.

        `adopt`: begin here although earlier batches are not in the ledger. Raises LedgerError.
        """
        try:
            self._commit(batch, pieces, lanes, adopt)
        except (LedgerError, WrongLastSequenceError) as error:
            logger.info("Looking again, by leaders that are proven to lead: %s", error)
            with self.ledger.leaders.proven():
                self._commit(batch, pieces, lanes, adopt)

    def _commit(self, batch: int, pieces: Sequence[Piece], lanes: int, adopt: bool) -> None:
        places: dict[int, int] = {}
        last = self.ledger.last_decision()
        if not adopt and (last is None or last[1].batch < batch):
            try:
                places = self._check_predecessor(batch, last)
            except LedgerError:
                before, last = last, self.ledger.last_decision()
                if last == before:
                    raise  # and it was not another run that has begun meanwhile
        if last is not None and last[1].batch >= batch:
            self._finish(batch, *last)
            return
        decision = self._plan(batch, pieces, lanes, places)
        try:
            seq = self.ledger.decide(decision, 0 if last is None else last[0])
        except WrongLastSequenceError:
            other = self.ledger.last_decision()
            if other is None:
                raise
            self._finish(batch, *other)
            return
        self._chain.copy(decision, begun=False)
        self.ledger.forget_staged(seq)

    def _finish(self, batch: int, seq: int, decision: Decision) -> None:
        """Somebody has decided this batch already: theirs is the one that counts."""
        if decision.batch != batch:
            raise LedgerError(
                f'Batch {decision.batch} of this query was decided for stream "{self._target}" '
                f"already, this run is at batch {batch}: another run goes on elsewhere, or the "
                "checkpoint is an older copy."
            )
        self._chain.copy(decision, begun=True)
        self.ledger.forget_staged(seq)

    def _check_predecessor(self, batch: int, last: tuple[int, Decision] | None) -> dict[int, int]:
        """The markers of the batch before. Raises LedgerError when that is not as it must be."""
        expected = 0 if last is None else last[1].batch + 1
        if batch != expected:
            known = "none" if last is None else str(last[1].batch)
            raise LedgerError(
                f"This run is at batch {batch}, and the last batch in the ledger "
                f'"{self.ledger.stream}" is {known}: what was written in between is not known. '
                "If that is right (another guarantee before, a ledger deleted on purpose), set "
                "the option adoptLedger to true for one run."
            )
        if last is not None:
            return self._chain.check_done(last[1])
        if self._chain.places(1) != [0]:
            raise LedgerError(
                f'Stream "{self._target}" holds rows of this query or transaction already, and the '
                f'ledger "{self.ledger.stream}" knows nothing of it: it was purged or deleted, and '
                "with it the knowledge of what was stored. If they may be stored again, set the "
                "option adoptLedger to true for one run, or name the transaction anew."
            )
        return {}

    def _plan(
        self, batch: int, pieces: Sequence[Piece], lanes: int, places: dict[int, int]
    ) -> Decision:
        pieces = [piece for piece in pieces if piece.rows]
        inline = sum(len(p) for piece in pieces for p in piece.packs if isinstance(p, bytes))
        by_lane = [pieces[number::lanes] for number in range(min(lanes, len(pieces)))]
        plans = []
        markers = self._chain.places(len(by_lane), places)
        for previous, of_lane in zip(markers, by_lane, strict=True):
            packs = [one for piece in of_lane for one in piece.packs]
            if inline > _DECISION_BYTES:
                packs = [self._staged(one) for one in packs]
            plans.append(LanePlan(previous, sum(piece.rows for piece in of_lane), packs))
        return Decision(batch, plans)

    def _staged(self, packed: bytes | int) -> int:
        return packed if isinstance(packed, int) else self.ledger.stage_pack(packed)
