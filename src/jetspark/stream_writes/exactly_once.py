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

_MAX_INLINE_BYTES = 256 * 1024
"""Bytes of inline packs in a decision; with more, all of them are staged first."""


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
        """Raise LedgerError when this writer is new and another one of its name has written.

        An early check that changes nothing; `commit` decides. Raises the errors of `Leaders.call`.
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
        """Record the name of a writer that continues, unless the ledger has it.

        The next batch would do so too, but the checkpoint may be lost first. Raises the errors of
        `Leaders.call`.
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
        """Store a batch: the outputs of tasks, whose rows keep their order within a task.

        `lanes`: the number of parts that are copied concurrently.

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
        """Decide and copy a batch, or finish what another attempt decided. Raises as `commit`.

        A LedgerError may be due to the outdated answer of a replaced leader.
        """
        known_markers: dict[int, int] = {}
        last = self.ledger.last_decision()
        if not adopt and (last is None or last.decision.batch < batch):
            try:
                known_markers = self._check_predecessor(batch, last)
            except errors.LedgerError:
                before, last = last, self.ledger.last_decision()
                if last == before:
                    raise  # not explained by another run that has begun
        if last is not None and last.decision.batch >= batch:
            self._finish_decided(batch, outputs, last)
            return
        if self._name is not None and (last is None or last.decision.name != name_key(self._name)):
            self._take_name(self._name, is_new_writer=last is None, adopt=adopt)
        decision = self._plan_decision(batch, outputs, lanes, known_markers)
        try:
            seq = self.ledger.decide(decision, 0 if last is None else last.seq)
        except errors.WrongLastSequenceError:
            concurrent = self.ledger.last_decision()
            if concurrent is None:
                raise
            self._finish_decided(batch, outputs, concurrent)
            return
        self._copier.copy(decision, resume=False)
        self.ledger.purge_staged(seq)

    def _take_name(self, name: str, *, is_new_writer: bool, adopt: bool) -> None:
        """Record the name, before a decision; only a new writer may take it from another.

        Raises LedgerError if another writer of this name has written, unless `adopt`.
        """
        entry = self.ledger.find_name(name)
        if entry is None:
            self.ledger.take_name(name, 0)
        elif is_new_writer and entry.writer != self._writer:
            if not adopt:
                self._check_wrote_nothing(entry.writer)
            self.ledger.take_name(name, entry.seq)

    def _check_wrote_nothing(self, writer: str) -> None:
        """Raise LedgerError when another writer decided a batch with rows, or a later one."""
        with self.ledger.leaders.linearizable_reads():
            last = self.ledger.last_decision(writer)
        if last is None or (last.decision.batch == 0 and last.decision.rows == 0):
            return
        raise errors.LedgerError(
            f'Stream "{self._target}" holds the rows that {self._name} wrote with another '
            f"checkpoint, up to its batch {last.decision.batch}; this run would write them again. "
            "Restore that checkpoint, or write to another stream; if the rows may be stored twice, "
            "or are different ones, set the option adoptLedger to true for one run."
        )

    def _finish_decided(
        self, batch: int, outputs: Sequence[TaskRows], stored: StoredDecision
    ) -> None:
        """Copy the batch that another attempt decided.

        Raises LedgerError if that was another batch, and if the outputs have other rows.
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
        if digest and (rows != decision.rows or decision.digest not in (0, digest)):
            raise errors.LedgerError(
                f'Stream "{self._target}" has the {decision.rows:,} rows of an earlier write with '
                f"transactionId {self._writer!r}; this write has other rows ({rows:,}), and none "
                "of them was stored. Give it a transactionId of its own."
            )

    def _check_predecessor(self, batch: int, last: StoredDecision | None) -> dict[int, int]:
        """Sequences of the previous batch's last markers, by lane.

        Raises LedgerError unless `last` is the previous batch and completely stored; for the first
        batch, unless there are no markers.
        """
        expected = 0 if last is None else last.decision.batch + 1
        if batch != expected:
            last_batch = "none" if last is None else str(last.decision.batch)
            raise errors.LedgerError(
                f"This run is at batch {batch}, and the last batch in the ledger "
                f'"{self.ledger.stream}" is {last_batch}: it has no record of the batches in '
                "between. If that is expected (another guarantee before, a ledger deleted on "
                "purpose), set the option adoptLedger to true for one run."
            )
        if last is not None:
            return self._copier.check_stored(last.decision)
        if self._copier.last_markers(1) != [0]:  # every batch with rows has a marker of lane 0
            raise errors.LedgerError(
                f'Stream "{self._target}" holds rows of this query or transaction already, and the '
                f'ledger "{self.ledger.stream}" has no record of them: it was purged or '
                "deleted, so it is not known which rows are stored. If they may be stored again, "
                "set the option adoptLedger to true for one run, or use another transactionId."
            )
        return {}

    def _plan_decision(
        self, batch: int, outputs: Sequence[TaskRows], lanes: int, known_markers: dict[int, int]
    ) -> Decision:
        """A decision that gives the tasks' outputs to the lanes in turn. Raises as `stage_pack`.

        `known_markers`: sequences of last markers, by lane.
        """
        outputs = [output for output in outputs if output.rows]
        all_packs = [pack for output in outputs for pack in output.packs]
        inline_bytes = sum(len(pack) for pack in all_packs if isinstance(pack, bytes))
        by_lane = [outputs[number::lanes] for number in range(min(lanes, len(outputs)))]
        plans = []
        previous = self._copier.last_markers(len(by_lane), known_markers)
        for marker, lane_outputs in zip(previous, by_lane, strict=True):
            packs = [pack for output in lane_outputs for pack in output.packs]
            if inline_bytes > _MAX_INLINE_BYTES:
                packs = [
                    self.ledger.stage_pack(pack) if isinstance(pack, bytes) else pack
                    for pack in packs
                ]
            plans.append(LanePlan(marker, sum(output.rows for output in lane_outputs), packs))
        name = "" if self._name is None else name_key(self._name)
        return Decision(batch, plans, name, sum(output.digest for output in outputs))
