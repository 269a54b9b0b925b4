"""Reprocesses quarantined records, for example after the schema was fixed.

Records that are rows now are added to their tables, a commit for each; then one commit removes them
from the quarantine, and gives the others their new reasons. A run that was killed in between has
begun (a transaction version of the quarantine) and not ended (another one): then the tables show
which records they have. A table's transaction version proves that nobody has added records since it
was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from jetspark.errors import ConfigError, SchemaEvolved, TableError, named
from jetspark.spark.pipelines.table_rows import RowSpec, build_rows
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import evolve_tables
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.spark.table_sink.target import ReasonOf, Target
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.tables import quarantine
from jetspark.tables.batches import append, commit_files
from jetspark.tables.changes import Changes
from jetspark.tables.formats import find_table, open_table
from jetspark.tables.new_files import NewFile, files_by_table
from jetspark.tables.table import Table, TxnVersions
from jetspark.tables.upserts import description_flags, read_description, remove_staged_files
from jetspark.tails.row_recipe import RowBuilder

_KEY: Final = ("stream", "seq", "timestamp")
"""Identifies a message, even in a stream that was deleted and recreated."""
_RECORDS_PER_BATCH = 10_000
"""Records decoded at a time."""

Key: TypeAlias = tuple[str, int, datetime]


@dataclass(frozen=True)
class ReprocessResult:
    """What became of the records of a quarantine when they were decoded again."""

    added: int
    already_present: int
    """Records whose rows a run had added before it was killed."""
    remaining: int


def check_records(options: LakehouseOptions) -> None:
    """Check that the quarantine is a table that exists, and so does the query's table. A table of a
    list or a template is created by its first row, so it need not exist. Raises ConfigError."""
    assert options.quarantine is not None  # noqa: S101
    if (sink := options.dead_letter_sink) is not None:
        raise ConfigError(
            f"{options.quarantine} is a stream of dead letters: {sink.replay_command} publishes "
            "its messages again, to be read with the fixed schema."
        )
    tables = [options.of_table(options.quarantine)]
    if options.has_one_table:
        tables.append(options)
    for table in tables:
        open_table(table.format, table.name)


def as_written(options: LakehouseOptions) -> LakehouseOptions:
    """Complete the options of a table by how its query writes it (its keys, their order, with or
    without a history), as the table itself describes it: records that become rows are merged in the
    same way as its other rows.

    Raises ConfigError if the options have keys, but not those. Options of several tables stay.
    """
    if not options.has_one_table:
        return options
    table = find_table(options.format, options.name)
    description = None if table is None else read_description(table)
    if description is None:
        return options
    if options.keys is None:
        return replace(options, **description)
    _check_written_as(options, description)
    return options


def _check_written_as(options: LakehouseOptions, description: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the options write a table by the keys, the order and the history
    with which its query does. `description`: these options, as the table has them."""
    if {name: getattr(options, name) for name in description} != description:
        raise ConfigError(
            f"The rows of {options.name} replace others by their keys: give the options of the "
            f"query that writes it ({description_flags(description)}, …), or --pipeline with its "
            "file."
        )


def reprocess(options: LakehouseOptions, source: SourceOptions, spec: RowSpec) -> ReprocessResult:
    """Decode the records of a quarantine again: those that are rows now are added to their tables,
    each once, and leave the quarantine; the others get their new reasons.

    A run that was killed is completed by the next one. `source`, `spec`: how messages become rows.
    Raises as `check_records`; ConfigError for a table whose rows replace others without an order;
    TableError if somebody else reprocesses the same records.
    """
    check_records(options)
    options = as_written(options)
    while True:
        current = spec.for_table(options, source)
        target = prepare(options, current.schemas(source), idempotent=True)
        try:
            return _Attempt(target, current.builders(source)).run()
        except SchemaEvolved:
            pass  # the tables have got columns for new fields


class _Attempt:
    """Reprocesses all records of a quarantine once, as one numbered run. If tables get new columns
    for them, it ends with SchemaEvolved, and another attempt follows.

    Transaction versions show how far a run has got: in the quarantine the number of the last run
    that has begun, and of the last that has ended; in each table the last run that has added rows.
    """

    def __init__(self, target: Target, builders: Sequence[RowBuilder]) -> None:
        """`target`: the tables that get rows; `builders`: for each table, decodes messages. Raises
        ConfigError if the quarantine is no table of records, or its rows could not be ordered."""
        options = target.options
        assert options.quarantine is not None  # noqa: S101
        records = options.of_table(options.quarantine)
        self._target = target
        self._builders = builders
        self._records = open_table(records.format, records.name)
        if set(self._records.schema.names) != set(quarantine.SCHEMA.names):
            raise ConfigError(
                f"{records.name} has the columns {', '.join(self._records.schema.names)}: it is "
                f"no table of records that {named('quarantine')} has written."
            )
        if options.keys and options.sequence_by is None:
            raise ConfigError(
                f"needs {named('sequence_by')} here: without an order a record from before "
                "would replace a row of now.",
                option="keys",
            )
        self._records.check_txn_versions_retained()
        # The ids of the transaction versions. All tables of a list have one, since its tables may
        # be others when a run that was killed is repeated.
        destination = "a list" if options.tables else options.name
        self._begun_id = f"jetspark.retry.begun.{destination}"
        self._ended_id = f"jetspark.retry.ended.{destination}"
        self._table_id = f"jetspark.retry.{records.name}"
        """The transaction id in the tables that get the rows."""
        begun = self._records.txn_version(self._begun_id) or 0
        # The last run has begun, but not ended: it may have added rows whose records are still in
        # the quarantine.
        self._was_killed = begun > (self._records.txn_version(self._ended_id) or 0)
        self._run_number = begun + 1
        self._seen_versions: dict[str, int | None] = {}
        """Transaction versions of the tables that get rows, from before the rows were read."""
        self._keys_in_tables: dict[str, frozenset[Key]] = {}
        """Keys of the records in each table, as `_keys_in` has found them."""
        self._settled: set[Key] = set()
        """Records whose rows the tables have, or get."""
        self._already_present = 0
        self._reasons: dict[Key, quarantine.Reason] = {}
        """Reasons in the quarantine, of the records that were read."""
        self._remaining: set[Key] = set()
        """Records that are rejected again."""
        self._with_new_reason: list[pa.RecordBatch] = []
        """Remaining records that have another reason now."""

    def run(self) -> ReprocessResult:
        """Decode the records, add those that are rows now to their tables, and then remove them
        from the quarantine. Raises SchemaEvolved if tables have got new columns for the rows; then
        no row was added."""
        self._commit(self._records, self._begun_id, seen=self._run_number - 1, files=())
        # Records are read only now: if another run begins from here on, this one stops.
        self._records.refresh()
        with TaskFiles(
            self._target, select_rows=self._select_new_rows, on_rejected=self._keep_rejected
        ) as files:
            for batch in self._read_records():
                self._write(batch, files)
            output = files.close()
        if output.schema_changes:
            # No row was added, so this run has ended, and the next attempt need not search the
            # tables for its rows; but for those of a run that was killed before it has to.
            if not self._was_killed:
                self._commit(self._records, self._ended_id, seen=self._run_number - 1, files=())
            tables = {name: target.options for name, target in self._target.by_name.items()}
            evolve_tables(tables, output.schema_changes)
        self._add(output.files)
        self._clean_up()
        return ReprocessResult(
            len(self._settled) - self._already_present, self._already_present, len(self._remaining)
        )

    def _read_records(self) -> Iterator[pa.RecordBatch]:
        """Read all records of the quarantine, in batches that are small enough to decode."""
        scan_tasks = self._records.scan_tasks(quarantine.SCHEMA.names, prune=None, at_least=1)
        for scan_task in scan_tasks:
            for batch in scan_task.batches():
                for start in range(0, batch.num_rows, _RECORDS_PER_BATCH):
                    yield batch.slice(start, _RECORDS_PER_BATCH)

    def _write(self, batch: pa.RecordBatch, files: TaskFiles) -> None:
        """Decode a batch of records again, and write those that are rows now into new files;
        rejected ones come to `_keep_rejected`."""
        self._reasons.update(zip(_keys(batch), _reasons(batch), strict=True))
        if self._target.options.has_one_table:
            # If a run that was killed has added the record's row, the record leaves the quarantine,
            # even if it would be rejected now.
            batch = self._drop_added("", batch)
        messages = batch.select(quarantine.MESSAGE)
        for table_index, rows in build_rows(self._builders, self._target.options.tables, messages):
            files.write(rows, table_index)

    def _select_new_rows(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Select the rows that a table does not have yet, to be written; their records will leave
        the quarantine. `table`: the name of the table that the rows name, although they may go to
        the default table in its place."""
        rows = self._drop_added(table, rows)
        self._settled.update(_keys(rows))
        return rows

    def _keep_rejected(self, rejected: pa.RecordBatch, reason_of: ReasonOf) -> None:
        """Keep records that are rejected again in the quarantine, and remember those that have
        another reason than before. `reason_of`: says why a record is rejected."""
        records = quarantine.quarantine_rows(rejected, reason_of)
        has_new_reason = []
        for key, reason in zip(_keys(records), _reasons(records), strict=True):
            has_new_reason.append(key not in self._remaining and self._reasons[key] != reason)
            self._remaining.add(key)
        self._with_new_reason.append(records.filter(pa.array(has_new_reason, pa.bool_())))

    # -- what the tables have ----------------------------------------------------------------

    def _drop_added(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop rows that need not be added to a table: those that a run which was killed has added,
        and further rows of one message. The records of the former count as settled.

        `table`: its name, "" for a query's only table.
        """
        in_table = self._keys_in(table)
        known_keys = set(self._settled)
        is_new = []
        for key in _keys(rows):
            is_new.append(key not in in_table and key not in known_keys)
            known_keys.add(key)
            if key in in_table and key not in self._settled:
                self._already_present += 1
                self._settled.add(key)
        return rows.filter(pa.array(is_new, pa.bool_()))

    def _keys_in(self, table: str) -> frozenset[Key]:
        """The keys (stream, sequence, time) of quarantined records whose rows a table has already,
        from a run that was killed.

        `table`: the table that the records name; "" for a query's only table. Their rows may also
        be in the default table. In a list of tables they may be in any of them, since the list may
        have been changed after that run, so the answer is the same for all.
        """
        options = self._target.options
        if options.tables:
            table = ""  # one answer for all
        if table not in self._keys_in_tables:
            names = [str(routed.options.name) for routed in options.tables]
            names += [name for name in (table, options.default_table) if name]
            # Without a name it is the query's only table, which `of_table` knows as "".
            keys = [self._find_keys(options.of_table(name)) for name in names or [""]]
            self._keys_in_tables[table] = frozenset().union(*keys)
        return self._keys_in_tables[table]

    def _find_keys(self, options: LakehouseOptions) -> frozenset[Key]:
        """Search one table for the rows of quarantined records; returns the records' keys.

        Only a run that was killed leaves such rows, so otherwise there are none and the table is
        not read. Also remembers the number of the last run that has added rows to the table, so
        that `_commit` notices another run that does so meanwhile.
        """
        table = find_table(options.format, options.name)
        version = None if table is None else table.txn_version(self._table_id)
        self._seen_versions[str(options.name)] = version
        if table is None or not self._was_killed or not self._all_keys:
            return frozenset()
        seqs = [key[1] for key in self._all_keys]
        in_range = _read_keys(table, f"seq >= {min(seqs)} AND seq <= {max(seqs)}")
        return self._all_keys.intersection(in_range)

    @cached_property
    def _all_keys(self) -> frozenset[Key]:
        """The keys (stream, sequence, time) of all records in the quarantine."""
        return frozenset(_read_keys(self._records))

    # -- commits ----------------------------------------------------------------------------

    def _add(self, files: Sequence[NewFile]) -> None:
        """Commit the files with new rows to their tables, one commit for each. Raises ConfigError,
        before the first one, for a table that its query writes in another way; and TableError if
        another run has begun."""
        of_table = self._target.options.of_table
        groups = [(of_table(name), group) for name, group in files_by_table(files).items()]
        for options, _ in groups:
            description = read_description(open_table(options.format, options.name))
            if description is not None:
                _check_written_as(options, description)
        for options, group in groups:
            table = open_table(options.format, options.name)
            self._records.refresh()
            if self._records.txn_version(self._begun_id) != self._run_number:
                raise self._concurrent_run()
            seen = self._seen_versions.get(str(options.name))
            change = options.upsert or append
            self._commit(table, self._table_id, seen=seen, files=group, change=change)
            if options.upsert is not None:
                remove_staged_files(table.storage, group)

    def _commit(
        self,
        table: Table,
        txn_id: str,
        seen: int | None,
        files: Sequence[NewFile],
        change: Callable[[Table, Sequence[NewFile], TxnVersions], None] = append,
    ) -> None:
        """Commit files to a table together with the number of this run, as a transaction version.

        `txn_id`: the name of that version; `seen`: its value when this run read it, None or 0 if it
        had none. Raises TableError if another run has set it since. `change`: adds the files.
        """

        def change_if_unchanged(
            table: Table, files: Sequence[NewFile], txn_versions: TxnVersions
        ) -> None:
            """Add the files, unless another run has set the transaction version meanwhile."""
            if (table.txn_version(txn_id) or 0) != (seen or 0):
                raise self._concurrent_run()
            change(table, files, {**txn_versions, txn_id: self._run_number})

        commit_files(table, files, change_if_unchanged)

    def _clean_up(self) -> None:
        """Change the quarantine in one commit: remove records whose rows are in tables, give others
        their new reasons, and mark this run as ended. Raises TableError if another has begun."""
        # A run that was killed may have added a record to another table than the record names now,
        # where it was not searched for. While such records may remain, the run is not marked as
        # ended, so that the next one searches again.
        has_ended = (
            not self._was_killed or self._target.options.has_one_table or not self._remaining
        )
        txn_versions = {self._ended_id: self._run_number} if has_ended else {}

        def change(table: Table, files: Sequence[NewFile], _: TxnVersions) -> None:
            """Merge the changes into the quarantine, unless another run has begun meanwhile."""
            if table.txn_version(self._begun_id) != self._run_number:
                raise self._concurrent_run()
            table.merge(self._changes(frozenset(_read_keys(table))), txn_versions)

        commit_files(self._records, (), change)

    def _changes(self, existing: frozenset[Key]) -> Changes:
        """The changes to merge into the quarantine: records to remove, and records with another
        reason.

        `existing`: the keys of the records that it has now. Others are left out, since the merge
        would add records that somebody has removed meanwhile.
        """
        schema = quarantine.SCHEMA
        deleted = [dict(zip(_KEY, key, strict=True)) for key in self._settled & existing]
        tables = [pa.Table.from_pylist(deleted, schema)]
        for batch in self._with_new_reason:
            mask = pa.array([key in existing for key in _keys(batch)], pa.bool_())
            tables.append(pa.Table.from_batches([batch.filter(mask)]))
        rows = pa.concat_tables(tables)
        is_deleted = pa.array([row < len(deleted) for row in range(rows.num_rows)], pa.bool_())
        return Changes(rows, pa.chunked_array([is_deleted]), keys=_KEY, sequence_by=None)

    def _concurrent_run(self) -> TableError:
        """The error for a run that finds that another run has begun, or has changed a table, since
        it began itself."""
        return TableError(
            f"Another run reprocesses the records of {self._records.name} at the same time: let it "
            "end, and run this again."
        )


def _read_keys(table: Table, prune: str | None = None) -> Iterator[Key]:
    """Read the keys (stream, sequence, time of the message) of a table's rows. `prune`: a condition
    in SQL by which files are skipped, but not single rows."""
    for scan_task in table.scan_tasks(_KEY, prune=prune, at_least=1):
        for batch in scan_task.batches():
            yield from _keys(batch)


def _keys(rows: pa.RecordBatch) -> Iterator[Key]:
    """The key of each row, which identifies its message: stream, sequence and time."""
    columns = (rows.column(name).cast(quarantine.SCHEMA.field(name).type) for name in _KEY)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _reasons(rows: pa.RecordBatch) -> Iterator[quarantine.Reason]:
    """Why each record of a quarantine was rejected: the column that it is about, and a sentence."""
    return zip(*(rows.column(name).to_pylist() for name in ("column", "reason")), strict=True)
