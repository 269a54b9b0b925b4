"""Batches of rows into a stream, each row exactly once, however often a batch is attempted.

    decide   the first attempt of a batch stores a decision: the rows of the batch, in order
    copy     every attempt copies the rows of the decision, not its own (`batch_copier`)

So an attempt with other partitions, or another order of rows, changes nothing. The writer is
identified by something that survives restarts (a streaming query's id, a transaction's name), and
its batches are numbered without gaps. docs/exactly-once.md has the glossary and the proof.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.stream_writes.batch_copier import BatchCopier
from jetspark.stream_writes.ledger import (
    Decision,
    LanePlan,
    Ledger,
    StoredDecision,
    TaskRows,
    name_key,
)

logger = logging.getLogger("jetspark.stream_writes")

_MAX_DECISION_INLINE_BYTES = 256 * 1024
"""Bytes of inline packs in a decision; with more, all of them are staged first."""


class ExactlyOnceWriter:
    """Commits batches of rows to one stream, each row exactly once, for one writer.

    `writer`: the id of a streaming query or transaction, whose batches these are; `target`: the
    stream; `timeout`: seconds without progress. `keep_markers`: markers do not expire with the
    stream's other messages (the stream has allow_msg_ttl). `name`: stays the same when the
    checkpoint is lost and the writer gets a new id.
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
        """Nothing connects yet; the class explains the arguments."""
        self.ledger = Ledger(options, target, writer, timeout=timeout)
        self._target = target
        self._writer = writer
        self._name = name
        self._copier = BatchCopier(self.ledger, keep_markers=keep_markers)

    def stored(self, batch: int) -> int | None:
        """The number of rows of `batch` if the ledger has it last, and it is stored; else None.

        Raises LedgerError when stored rows were lost, and the errors of `Leaders.call`.
        """
        try:
            last = self.ledger.last_decision()
        except errors.StreamNotFoundError:
            return None
        if last is None or last.decision.batch != batch:
            return None
        return last.decision.rows if self._copier.is_stored(last.decision) else None

    def check_name(self) -> None:
        """Raise LedgerError when this writer is new, and another one has written under its name.

        So a query whose checkpoint was lost does not write all rows again. An early check that
        changes nothing; `commit` decides. Raises the errors of `Leaders.call`.
        """
        if self._name is None:
            return
        with suppress(errors.StreamNotFoundError):
            entry = self.ledger.find_name(self._name)
            if entry is None or entry.writer == self._writer:
                return
            with self.ledger.leaders.linearizable_reads():
                if self.ledger.last_decision() is None:
                    self._check_wrote_nothing(entry.writer)

    def register_name(self) -> None:
        """Record in the ledger that this writer has its name, if it has written before.

        The name outlives the writer's checkpoint, and so tells a new writer that this one has
        written. Does nothing if the ledger has the name. The next batch would do so too, but the
        checkpoint may be lost first. Raises the errors of `Leaders.call`.
        """
        if self._name is None:
            return
        # WrongLastSequenceError: another writer took it in the meantime.
        with suppress(errors.StreamNotFoundError, errors.WrongLastSequenceError):
            if (
                self.ledger.find_name(self._name) is None
                and self.ledger.last_decision() is not None
            ):
                self.ledger.take_name(self._name, 0)

    def commit(
        self, batch: int, outputs: Sequence[TaskRows], *, lanes: int = 1, adopt: bool = False
    ) -> None:
        """Store a batch in the target stream: the outputs of tasks, with the rows of each in order.

        `lanes`: into how many parts the batch is divided, which are copied concurrently.

        `adopt`: begin here although the ledger lacks earlier batches, or another writer of this
        name has written. Raises LedgerError when rows could be lost or repeated, or an earlier
        attempt decided other rows (`Ledger.stage`); APIError for a permanent refusal by the target,
        RequestTimeoutError without progress, and the errors of `Leaders.call`.
        """
        try:
            self._commit(batch, outputs, lanes, adopt)
        except (errors.LedgerError, errors.WrongLastSequenceError) as error:
            logger.info("Trying again, with leaders that are proven to lead: %s", error)
            with self.ledger.leaders.linearizable_reads():
                self._commit(batch, outputs, lanes, adopt)

    def _commit(self, batch: int, outputs: Sequence[TaskRows], lanes: int, adopt: bool) -> None:
        """Record the content of a batch as a decision, and copy it to the target; see `commit`.

        If another attempt has decided the batch, finish that instead. Raises the errors of
        `commit`, where a LedgerError may be due to the outdated answer of a replaced leader.
        """
        known_markers: dict[int, int] = {}
        last = self.ledger.last_decision()
        if not adopt and (last is None or last.decision.batch < batch):
            try:
                known_markers = self._check_predecessor(
                    batch, last, is_transaction=any(output.digest for output in outputs)
                )
            except errors.LedgerError:
                # Another run of the query may have decided this batch in the meantime.
                before, last = last, self.ledger.last_decision()
                if last == before:
                    raise
        if last is not None and last.decision.batch >= batch:
            self._finish_decided(batch, outputs, last)
            return
        if self._name is not None and (last is None or last.decision.name != name_key(self._name)):
            self._take_name(self._name, is_new_writer=last is None, adopt=adopt)
        decision = self._plan_decision(batch, outputs, lanes, known_markers)
        try:
            seq = self.ledger.decide(decision, 0 if last is None else last.seq)
        except errors.WrongLastSequenceError:  # another attempt has decided at the same time
            concurrent = self.ledger.last_decision()
            if concurrent is None:
                raise
            self._finish_decided(batch, outputs, concurrent)
            return
        self._copier.copy(decision, resume=False)
        self.ledger.purge_staged(seq)

    def _take_name(self, name: str, *, is_new_writer: bool, adopt: bool) -> None:
        """Record in the ledger that this writer has the name, which outlives its checkpoint.

        Only a writer that has not written yet may take a name over from another. Raises LedgerError
        if another writer of this name has written, unless `adopt`.
        """
        entry = self.ledger.find_name(name)
        if entry is None:
            self.ledger.take_name(name, 0)
        elif is_new_writer and entry.writer != self._writer:
            if not adopt:
                self._check_wrote_nothing(entry.writer)
            self.ledger.take_name(name, entry.seq)

    def _check_wrote_nothing(self, writer: str) -> None:
        """Raise LedgerError if another `writer` of this name has written rows to the target.

        It has not if it decided nothing, or only an empty first batch.
        """
        with self.ledger.leaders.linearizable_reads():
            last = self.ledger.last_decision(writer)
        if last is None or (last.decision.batch == 0 and last.decision.rows == 0):
            return
        raise errors.LedgerError(
            f'Stream "{self._target}" holds the rows that {self._name} wrote with another '
            f"checkpoint, up to its batch {last.decision.batch}; this run would write them again. "
            "Restore that checkpoint, or write to another stream; if the rows may be stored twice, "
            f"or are different ones, {errors.switching('adopt_ledger', True)} for one run."
        )

    def _finish_decided(
        self, batch: int, outputs: Sequence[TaskRows], stored: StoredDecision
    ) -> None:
        """Copy a batch to the target as another attempt decided it, and not as the `outputs` are.

        `stored`: the ledger's last decision. Raises LedgerError if it is of another batch, and, for
        a transaction, if the outputs have other rows than it has.
        """
        decision = stored.decision
        if decision.batch != batch:
            raise errors.LedgerError(
                f'Batch {decision.batch} of this query was decided for stream "{self._target}" '
                f"already, this run is at batch {batch}: another run has continued elsewhere, or "
                "the checkpoint is an older copy."
            )
        self._copier.copy(decision, resume=True)
        self.ledger.purge_staged(stored.seq)
        rows = sum(output.rows for output in outputs)
        digest = sum(output.digest for output in outputs)
        # Only the rows of a transaction have a digest; the decision of an older ledger has 0.
        if digest and (rows != decision.rows or decision.digest not in (0, digest)):
            raise errors.LedgerError(
                f'Stream "{self._target}" has the {decision.rows:,} rows of an earlier write with '
                f"{errors.named('transaction_id')} {self._writer!r}; this write has other rows "
                f"({rows:,}), and none of them was stored. Give it a "
                f"{errors.named('transaction_id')} of its own."
            )

    def _check_predecessor(
        self, batch: int, last: StoredDecision | None, *, is_transaction: bool
    ) -> dict[int, int]:
        """Check that the batch before this one is completely stored, so that this one may begin.

        `last`: the ledger's last decision; `is_transaction`: whether this is a batch write. Returns
        the sequences of that batch's last markers in the target, by lane. Raises LedgerError if
        `last` is another batch or lacks rows; for the first batch, if the target has markers.
        """
        expected = 0 if last is None else last.decision.batch + 1
        if batch != expected:
            last_batch = "none" if last is None else str(last.decision.batch)
            raise errors.LedgerError(
                f"This run is at batch {batch}, and the last batch in the ledger "
                f'"{self.ledger.stream}" is {last_batch}: it has no record of the batches in '
                "between. If that is expected (another guarantee before, a ledger deleted on "
                f"purpose), {errors.switching('adopt_ledger', True)} for one run."
            )
        if last is not None:
            return self._copier.check_stored(last.decision)
        if self._copier.last_markers(1) != [0]:  # every batch with rows has a marker of lane 0
            advice = f"{errors.switching('adopt_ledger', True)} for one run"
            if is_transaction:  # each of which has a ledger of its own, so none can be adopted
                advice = f"use another {errors.named('transaction_id')}"
            raise errors.LedgerError(
                f'Stream "{self._target}" holds rows of this query or transaction already, and the '
                f'ledger "{self.ledger.stream}" has no record of them: it was purged or '
                "deleted, so it is not known which rows are stored. If they may be stored again, "
                f"{advice}."
            )
        return {}

    def _plan_decision(
        self, batch: int, outputs: Sequence[TaskRows], lanes: int, known_markers: dict[int, int]
    ) -> Decision:
        """Make the decision on a batch, which gives the tasks' outputs to the lanes in turn.

        Lanes are the parts that are copied concurrently. `known_markers`: sequences of their last
        markers in the target, by lane, as far as known. Raises the errors of `stage_pack`.
        """
        outputs = [output for output in outputs if output.rows]
        all_packs = [pack for output in outputs for pack in output.packs]
        inline_bytes = sum(len(pack) for pack in all_packs if isinstance(pack, bytes))
        by_lane = [outputs[number::lanes] for number in range(min(lanes, len(outputs)))]
        plans = []
        previous = self._copier.last_markers(len(by_lane), known_markers)
        for marker, lane_outputs in zip(previous, by_lane, strict=True):
            packs = [pack for output in lane_outputs for pack in output.packs]
            # Too many inline rows would make the decision too large for one message.
            if inline_bytes > _MAX_DECISION_INLINE_BYTES:
                packs = [
                    self.ledger.stage_pack(pack) if isinstance(pack, bytes) else pack
                    for pack in packs
                ]
            plans.append(LanePlan(marker, sum(output.rows for output in lane_outputs), packs))
        name = "" if self._name is None else name_key(self._name)
        return Decision(batch, plans, name, sum(output.digest for output in outputs))
