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
from jetspark.stream_writes.ledger import Decision, LanePlan, Ledger, TaskRows, name_key

logger = logging.getLogger("jetspark.stream_writes")

_DECISION_BYTES = 256 * 1024


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
        if last is None or last[1].batch != batch or not self._copier.is_stored(last[1]):
            return None
        return last[1].rows

    def check_name(self) -> None:
        """Raise LedgerError when this writer is new and another one of its name has written.

        An early check that changes nothing; `commit` decides. Raises the errors of `Leaders.call`.
        """
        with suppress(errors.StreamNotFoundError):
            entry = None if self._name is None else self.ledger.find_name(self._name)
            if entry is None or entry[1] == self._writer:
                return
            with self.ledger.leaders.linearizable_reads():
                if self.ledger.last_decision() is None:
                    self._check_wrote_nothing(entry[1])

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
        """Store a batch. Rows of one piece keep their order; `lanes` are copied concurrently.

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
        markers: dict[int, int] = {}
        last = self.ledger.last_decision()
        if not adopt and (last is None or last[1].batch < batch):
            try:
                markers = self._check_predecessor(batch, last)
            except errors.LedgerError:
                seen, last = last, self.ledger.last_decision()
                if last == seen:
                    raise  # not explained by another run that has begun
        if last is not None and last[1].batch >= batch:
            self._finish_decided(batch, outputs, *last)
            return
        if self._name is not None and (last is None or last[1].name != name_key(self._name)):
            self._take_name(self._name, new=last is None, adopt=adopt)
        decision = self._plan(batch, outputs, lanes, markers)
        try:
            seq = self.ledger.decide(decision, 0 if last is None else last[0])
        except errors.WrongLastSequenceError:
            concurrent = self.ledger.last_decision()
            if concurrent is None:
                raise
            self._finish_decided(batch, outputs, *concurrent)
            return
        self._copier.copy(decision, resume=False)
        self.ledger.purge_staged(seq)

    def _take_name(self, name: str, *, new: bool, adopt: bool) -> None:
        """Record the name, before a decision; only a `new` writer may change it.

        Raises LedgerError if another writer of this name has written, unless `adopt`.
        """
        entry = self.ledger.find_name(name)
        if entry is None:
            self.ledger.take_name(name, 0)
        elif new and entry[1] != self._writer:
            if not adopt:
                self._check_wrote_nothing(entry[1])
            self.ledger.take_name(name, entry[0])

    def _check_wrote_nothing(self, writer: str) -> None:
        """Raise LedgerError when another writer decided a batch with rows, or a later one."""
        with self.ledger.leaders.linearizable_reads():
            last = self.ledger.last_decision(writer)
        if last is None or (last[1].batch == 0 and last[1].rows == 0):
            return
        raise errors.LedgerError(
            f'Stream "{self._target}" holds the rows that {self._name} wrote with another '
            f"checkpoint, up to its batch {last[1].batch}; this run would write them again. "
            "Restore that checkpoint, or write to another stream; if the rows may be stored twice, "
            "or are different ones, set the option adoptLedger to true for one run."
        )

    def _finish_decided(
        self, batch: int, outputs: Sequence[TaskRows], seq: int, decision: Decision
    ) -> None:
        """Copy the batch that another attempt decided.

        Raises LedgerError for another batch, and for pieces with other rows.
        """
        if decision.batch != batch:
            raise errors.LedgerError(
                f'Batch {decision.batch} of this query was decided for stream "{self._target}" '
                f"already, this run is at batch {batch}: another run has continued elsewhere, or "
                "the checkpoint is an older copy."
            )
        self._copier.copy(decision, resume=True)
        self.ledger.purge_staged(seq)
        rows, digest = (
            sum(output.rows for output in outputs),
            sum(output.digest for output in outputs),
        )
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
            last_batch = "none" if last is None else str(last[1].batch)
            raise errors.LedgerError(
                f"This run is at batch {batch}, and the last batch in the ledger "
                f'"{self.ledger.stream}" is {last_batch}: it has no record of the batches in '
                "between. If that is expected (another guarantee before, a ledger deleted on "
                "purpose), set the option adoptLedger to true for one run."
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
        self, batch: int, outputs: Sequence[TaskRows], lanes: int, markers: dict[int, int]
    ) -> Decision:
        """A decision: whole pieces are assigned to the lanes in turn.

        `markers`: known last markers, by lane.
        """
        outputs = [output for output in outputs if output.rows]
        packs_of_all = [pack for output in outputs for pack in output.packs]
        inline = sum(len(pack) for pack in packs_of_all if isinstance(pack, bytes))
        by_lane = [outputs[number::lanes] for number in range(min(lanes, len(outputs)))]
        plans = []
        previous = self._copier.last_markers(len(by_lane), markers)
        for marker, of_lane in zip(previous, by_lane, strict=True):
            packs = [pack for output in of_lane for pack in output.packs]
            if inline > _DECISION_BYTES:
                packs = [
                    self.ledger.stage_pack(pack) if isinstance(pack, bytes) else pack
                    for pack in packs
                ]
            plans.append(LanePlan(marker, sum(output.rows for output in of_lane), packs))
        name = "" if self._name is None else name_key(self._name)
        return Decision(batch, plans, name, sum(output.digest for output in outputs))
