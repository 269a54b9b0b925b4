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
from jetspark.spark.pipelines.table_rows import RowBuilder, RowSpec, build_rows
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

_KEY: Final = ("stream", "seq", "timestamp")
"""Identifies a message, even in a stream that was deleted and recreated."""
_RECORDS_PER_BATCH = 10_000
"""Records decoded at a time."""

Key: TypeAlias = tuple[str, int, datetime]


@dataclass(frozen=True)
class ReprocessResult:
    """Counts of the records of a quarantine."""

    added: int
    already_present: int
    """Records whose rows a run had added before it was killed."""
    remaining: int


def check_records(options: LakehouseOptions) -> None:
    """Check that the quarantine exists, and the table if it is not created by its first row. Raises
    ConfigError."""
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
    """The options with the keys, the order and the history by which the table's query writes it,
    since records that become rows are rows like the others. Raises ConfigError for a table that is
    written in another way than the options say."""
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
    """Raise ConfigError unless the options write a table as its description says."""
    if {name: getattr(options, name) for name in description} != description:
        raise ConfigError(
            f"The rows of {options.name} replace others by their keys: give the options of the "
            f"query that writes it ({description_flags(description)}, …), or --pipeline with its "
            "file."
        )


def reprocess(options: LakehouseOptions, source: SourceOptions, spec: RowSpec) -> ReprocessResult:
    """Add the records that are rows now to their tables; again after a kill.

    `source`, `spec`: how messages become rows. Raises as `check_records`; ConfigError for a table
    whose rows replace others without an order; TableError if somebody else does the same.
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
    """One pass over the records; another one follows if the tables get columns."""

    def __init__(self, target: Target, builders: Sequence[RowBuilder]) -> None:
        options = target.options
        assert options.quarantine is not None  # noqa: S101
        records = options.of_table(options.quarantine)
        self._target = target
        self._builders = builders
        self._records = open_table(records.format, records.name)
        if set(self._records.schema.names) != set(quarantine.SCHEMA.names):
            raise ConfigError(
                f"{records.name} has the columns {', '.join(self._records.schema.names)}: it is "
                "no table of records that --quarantine has written."
            )
        if options.keys and options.sequence_by is None:
            raise ConfigError(
                f"needs {named('sequence_by')} here: without an order a record from before "
                "would replace a row of now.",
                option="keys",
            )
        self._records.check_txn_versions_retained()
        # A list may be changed, too, before a run that was killed is repeated.
        destination = "a list" if options.tables else options.name
        self._begun_id = f"jetspark.retry.begun.{destination}"
        self._ended_id = f"jetspark.retry.ended.{destination}"
        self._table_id = f"jetspark.retry.{records.name}"
        """The transaction id in the tables that get the rows."""
        begun = self._records.txn_version(self._begun_id) or 0
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
        """Add the rows to the tables, and remove their records from the quarantine. Raises
        SchemaEvolved if the tables have got columns, so that nothing was added."""
        self._commit(self._records, self._begun_id, self._run_number - 1, ())
        self._records.refresh()  # what is read now is what others saw when this run began
        with TaskFiles(self._target, select_rows=self._admit, on_rejected=self._leave) as files:
            for batch in self._read_records():
                self._write(batch, files)
            output = files.close()
        if output.schema_changes:
            if not self._was_killed:  # nothing was added, which the next attempt need not prove
                self._commit(self._records, self._ended_id, self._run_number - 1, ())
            tables = {name: target.options for name, target in self._target.by_name.items()}
            evolve_tables(tables, output.schema_changes)
        self._add(output.files)
        self._clean_up()
        return ReprocessResult(
            len(self._settled) - self._already_present, self._already_present, len(self._remaining)
        )

    def _read_records(self) -> Iterator[pa.RecordBatch]:
        """Read the quarantine in batches that are small enough to decode."""
        for scan_task in self._records.scan_tasks(quarantine.SCHEMA.names, None, 1):
            for batch in scan_task.batches():
                for start in range(0, batch.num_rows, _RECORDS_PER_BATCH):
                    yield batch.slice(start, _RECORDS_PER_BATCH)

    def _write(self, batch: pa.RecordBatch, files: TaskFiles) -> None:
        """Decode records anew, and write those that are rows now."""
        self._reasons.update(zip(_keys(batch), _reasons(batch), strict=True))
        if self._target.options.has_one_table:
            # A row in the table is there, whatever becomes of the record now.
            batch = self._drop_added("", batch)
        messages = batch.select(quarantine.MESSAGE)
        for table_index, rows in build_rows(self._builders, self._target.options.tables, messages):
            files.write(rows, table_index)

    def _admit(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Select the rows that are to be added to a table, or to the default one in its place."""
        rows = self._drop_added(table, rows)
        self._settled.update(_keys(rows))
        return rows

    def _leave(self, rejected: pa.RecordBatch, reason_of: ReasonOf) -> None:
        """Leave rejected records in the quarantine, with the reasons that they have now."""
        records = quarantine.quarantine_rows(rejected, reason_of)
        has_new_reason = []
        for key, reason in zip(_keys(records), _reasons(records), strict=True):
            has_new_reason.append(key not in self._remaining and self._reasons[key] != reason)
            self._remaining.add(key)
        self._with_new_reason.append(records.filter(pa.array(has_new_reason, pa.bool_())))

    # -- what the tables have ----------------------------------------------------------------

    def _drop_added(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out rows that a run which was killed has added to the table, and those that come
        twice."""
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
        """Keys of the records that a table has, or the default one in its place; in a list that any
        of its tables has, since a list that was changed may give them to another one."""
        options = self._target.options
        if options.tables:
            table = ""
        if table not in self._keys_in_tables:
            names = [str(routed.options.name) for routed in options.tables]
            names += [name for name in (table, options.default_table) if name]
            keys = [self._find_keys(options.of_table(name)) for name in names or [""]]
            self._keys_in_tables[table] = frozenset().union(*keys)
        return self._keys_in_tables[table]

    def _find_keys(self, options: LakehouseOptions) -> frozenset[Key]:
        """Keys of the records that a table has, if a run was killed; notes the table's transaction
        version."""
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
        """Keys of all records in the quarantine."""
        return frozenset(_read_keys(self._records))

    # -- commits ----------------------------------------------------------------------------

    def _add(self, files: Sequence[NewFile]) -> None:
        """Commit the files with new rows to their tables."""
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
            self._commit(table, self._table_id, seen, group, options.upsert or append)
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
        """Commit a change, and the number of this run as a transaction version. `seen`: the version
        that this run has found; raises TableError if somebody else has set it since."""

        def change_if_unchanged(
            table: Table, files: Sequence[NewFile], txn_versions: TxnVersions
        ) -> None:
            if (table.txn_version(txn_id) or 0) != (seen or 0):
                raise self._concurrent_run()
            change(table, files, {**txn_versions, txn_id: self._run_number})

        commit_files(table, files, change_if_unchanged)

    def _clean_up(self) -> None:
        """Remove the records that have become rows, and note that this run has ended."""
        # Which table another record went to, in the run that was killed, is not known.
        has_ended = (
            not self._was_killed or self._target.options.has_one_table or not self._remaining
        )
        txn_versions = {self._ended_id: self._run_number} if has_ended else {}

        def change(table: Table, files: Sequence[NewFile], _: TxnVersions) -> None:
            if table.txn_version(self._begun_id) != self._run_number:
                raise self._concurrent_run()
            table.merge(self._changes(frozenset(_read_keys(table))), txn_versions)

        commit_files(self._records, (), change)

    def _changes(self, existing: frozenset[Key]) -> Changes:
        """Changes of the quarantine: records to remove, and new reasons. `existing`: keys of its
        records; a merge would add others."""
        schema = quarantine.SCHEMA
        deleted = [dict(zip(_KEY, key, strict=True)) for key in self._settled & existing]
        tables = [pa.Table.from_pylist(deleted, schema)]
        for batch in self._with_new_reason:
            mask = pa.array([key in existing for key in _keys(batch)], pa.bool_())
            tables.append(pa.Table.from_batches([batch.filter(mask)]))
        rows = pa.concat_tables(tables)
        is_deleted = pa.array([row < len(deleted) for row in range(rows.num_rows)], pa.bool_())
        return Changes(rows, pa.chunked_array([is_deleted]), _KEY, None)

    def _concurrent_run(self) -> TableError:
        """The error where another run has changed the tables since this one began."""
        return TableError(
            f"Another run reprocesses the records of {self._records.name} at the same time: let it "
            "end, and run this again."
        )


def _read_keys(table: Table, prune: str | None = None) -> Iterator[Key]:
    """Read the keys of a table's rows; `prune`: leaves out files by this condition."""
    for scan_task in table.scan_tasks(_KEY, prune, 1):
        for batch in scan_task.batches():
            yield from _keys(batch)


def _keys(rows: pa.RecordBatch) -> Iterator[Key]:
    """The key of each row."""
    columns = (rows.column(name).cast(quarantine.SCHEMA.field(name).type) for name in _KEY)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _reasons(rows: pa.RecordBatch) -> Iterator[quarantine.Reason]:
    """The reason of each record: the column that it is about, and the sentence."""
    return zip(*(rows.column(name).to_pylist() for name in ("column", "reason")), strict=True)
