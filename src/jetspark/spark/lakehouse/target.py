"""The table that a DataFrame is written to: created or checked before a row is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeAlias
from uuid import NAMESPACE_OID, uuid4, uuid5

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from jetspark.codecs.framing import framed
from jetspark.codecs.json_decoder import JsonDecoder, is_json_type
from jetspark.codecs.tolerant import CORRUPT
from jetspark.errors import CommitConflict, ConfigError, PipelineError, TableError
from jetspark.lakehouse import formats, quarantine
from jetspark.lakehouse.batches import (
    append,
    belongs_to,
    check_earlier_batches,
    check_name,
    commit_files,
    created_for,
    overwrite,
    table_missing,
    was_created_for,
)
from jetspark.lakehouse.misfits import misfit_mask, misfit_reason
from jetspark.lakehouse.new_files import FileWriter, Layout, NewFile, Storage, files_by_table
from jetspark.lakehouse.optimistic_commits import commit_with_retries
from jetspark.lakehouse.partitions import check_partitions
from jetspark.lakehouse.schemas import WIDENINGS, SchemaDifferences, check_names, compare_schemas
from jetspark.lakehouse.table import Table
from jetspark.lakehouse.upserts import (
    WRITE_DESCRIPTION,
    description_flags,
    read_description,
    remove_staged_files,
    staging_layout,
)
from jetspark.reserved_names import BARE_PAYLOAD
from jetspark.reserved_names import check_names as check_reserved
from jetspark.spark import task_output
from jetspark.spark.checkpoints import CheckpointState, read_checkpoint
from jetspark.spark.json_payloads import KEPT
from jetspark.spark.lakehouse import listed
from jetspark.spark.lakehouse.commits import AT_A_TIME, BatchCommits, read_records
from jetspark.spark.lakehouse.growth import NEW, Growth, Growths, grow, no_fields, united
from jetspark.spark.lakehouse.ledger import NONE, TableLedger
from jetspark.spark.lakehouse.options import STOP, LakehouseOptions
from jetspark.spark.local_folders import local_path
from jetspark.spark.sink_tasks import all_answers, batch_of_query, needed_query_id
from jetspark.spark.task_output import TaskOutput
from jetspark.spark.versions import DataSourceStreamArrowWriter, in_arrow

# -------------------------------------------------------------------------------------------------
# df.write and df.writeStream into a Delta or Iceberg table.
#
# Tasks write Parquet files; the driver commits all files of a batch in one transaction with the
# query's id and the batch's number (`lakehouse.batches`). Spark may attempt a task or a batch
# again, and calls `abort` even after a commit whose outcome is not known: so a writer has no
# state, `abort` removes nothing, and files of other attempts are left to `vacuum`.


_DIVIDED_BYTES = 32 * 1024 * 1024
"""Rows of several tables are divided when they take so much memory: each table gets few slices."""
_STAGING = "_letters/"
"""In the folder of a template's tables."""


@dataclass
class Written(WriterCommitMessage):
    """A task's commit message: the query's id (empty in a batch write) and the files."""

    writer: str
    files: Sequence[NewFile]
    growth: Growths = field(default_factory=dict)
    retries: int = 0


@dataclass(frozen=True)
class Target:
    """What tasks need to know about the table."""

    options: LakehouseOptions
    rows: pa.Schema
    """The columns that the table will have."""
    layout: Layout | None = None
    """None, like `storage`, when tasks divide the rows into several tables."""
    storage: Storage | None = None
    listed: tuple[Target, ...] = ()
    """The tables of a list, into which rows are divided."""
    completed: int | None = None
    """The batch for which this was prepared, if the tables have it, so that nothing is written."""

    def check_completed(self, batch: tuple[str, int] | None) -> None:
        """Raise PipelineError if this was prepared for another batch than that of the query."""
        if batch is not None and batch[1] != self.completed:
            raise PipelineError(
                f"Spark writes batch {batch[1]}, but has prepared batch {self.completed}, which is "
                "in the tables: start the query again."
            )

    @property
    def each(self) -> dict[str, Target]:
        """The tables of a list by their names, or the only table."""
        return {str(one.options.name): one for one in self.listed} or {"": self}

    @property
    def staging(self) -> tuple[Layout, Storage]:
        """Where tasks write records that the driver publishes: like files of rows, so that `vacuum`
        removes what is left by a task that failed."""
        if self.listed:
            return self.listed[0].staging
        options = self.options
        folder, storage = _STAGING, self.storage
        if self.layout is not None:
            folder = self.layout.folder
        if storage is None:
            assert options.route is not None  # noqa: S101
            root = replace(options.name, path=options.route.root)
            storage = formats.folder_storage(options.format, root)
        return Layout(quarantine.SCHEMA, folder=folder), storage

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns that come from payloads, and what is made of others."""
        return {one.name: one.type for one in self.rows if one.name not in KEPT}

    def refused(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether each record is no row of the table."""
        options = self.options
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        keeps = options.quarantine is None and options.on_bad_record != STOP
        if CORRUPT in rows.schema.names and not keeps:
            found = pc.is_valid(rows.column(CORRUPT))
        if options.upsert is not None:
            found = pc.or_(found, pc.is_valid(options.upsert.lacking(rows)))
        return found

    def why_not(self, row: pa.RecordBatch) -> quarantine.Reason:
        """Why one refused record is no row."""
        upsert = self.options.upsert
        if upsert is not None and not (
            CORRUPT in row.schema.names and row.column(CORRUPT)[0].is_valid
        ):
            name = upsert.lacking(row)[0].as_py()
            what = "key" if name in upsert.keys else "order"
            return name, f"There is no value in {name}, which is the table's {what}."
        if quarantine.REASON in row.schema.names:
            reason = row.column(quarantine.REASON)[0].as_py()
            return quarantine.column_of_reason(reason, self.fields), reason
        # Of a user's own DataFrame, whose payloads Spark has decoded.
        payload = row.column("data" if "data" in row.schema.names else CORRUPT).cast(pa.binary())
        _, reasons = _json_decoder(pa.schema(self.fields)).decode(payload)
        reason = reasons[0].as_py() or "The payload does not fit the schema."
        column = quarantine.column_of_reason(reason, self.fields)
        return column, reason + framed(payload[0].as_py() or b"")


@lru_cache(maxsize=20)
def _json_decoder(fields: pa.Schema) -> JsonDecoder:
    """What says why a payload does not have these fields, of which JSON may lack some types."""
    return JsonDecoder(pa.schema([one for one in fields if is_json_type(one.type)]))


Why: TypeAlias = Callable[[pa.RecordBatch], quarantine.Reason]
"""Why one row goes to no table."""


class TaskFiles:
    """The new files of one task, in the table or in those that its rows are divided into."""

    def __init__(self, target: Target) -> None:
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        self._target = target
        self._files = FileWriter(target.layout, target.storage, f"part-{part:05}")
        self._known: set[str] = set()
        """Tables whose files can be written."""
        self._tables: dict[str, Table] = {}
        """Those that are opened, and will be written."""
        self._refused: dict[str, str] = {}
        """Tables that do not take the rows that name them, and why."""
        self._new = 0
        self._batch = batch_of_query()
        if (transaction := target.options.transaction_id) is not None:
            self._batch = transaction, 0
        self._undivided: list[pa.RecordBatch] = []
        self._undivided_bytes = 0
        self.aside = 0
        """Records that are put aside."""
        self.left_out = 0
        """Messages that are no rows by their format."""
        self.growth: Growths = {}
        """Once there is one, the batch is run again, and nothing is written any more."""
        for one in target.listed:
            self._add(str(one.options.name), one)

    def write(self, batch: pa.RecordBatch, number: int | None = 0) -> None:
        """Write rows; of a list those of the table with this number, or of none.

        Raises ConfigError for a null in a required column, for rows without a table, and for a
        record that does not become a row, where that is to end the write.
        """
        target, options = self._target, self._target.options
        if target.listed:
            self._write_listed(number, batch)
            return
        batch = self._noted("", target, batch)
        if self.growth:
            return
        batch = self._good(target, batch)
        if not batch.num_rows:
            return
        if options.route is None:
            self._write_fitting(target, batch, "")
            return
        self._undivided.append(batch)
        self._undivided_bytes += batch.nbytes
        if self._undivided_bytes >= _DIVIDED_BYTES:
            self._divide()

    def _noted(self, name: str, target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, when their new fields are noted. `name`: the table's, in a list."""
        if NEW not in batch.schema.names:
            return batch
        assert target.layout is not None  # noqa: S101
        growth = self.growth.get(name, Growth())
        if CORRUPT in batch.schema.names and target.options.format is formats.Format.ICEBERG:
            refused = batch.column(CORRUPT).drop_null()
            growth.note_refused(refused.to_pylist(), target.rows)
        texts = batch.column(NEW).drop_null()
        if len(texts):
            # A column that somebody has added to the table since the query was started is a field
            # of the rows when it is started again.
            taken = {*target.rows.names, *no_fields(target.layout), *KEPT, CORRUPT}
            taken |= {"data"} if target.options.quarantine is not None else set()
            growth.note(texts.to_pylist(), taken)
        if growth:
            self.growth[name] = growth
        return batch.drop_columns([NEW])

    def _divide(self) -> None:
        """Write the rows of several tables."""
        options = self._target.options
        if options.route is None or not self._undivided:
            return
        batch = pa.concat_batches(self._undivided)
        self._undivided, self._undivided_bytes = [], 0
        for name, rows in options.route.divide(batch):
            why = options.route.lacking if name is None else self.why_not_into(name)
            if name is None or why is not None:
                self._write_elsewhere(rows, why or options.route.lacking)
            else:
                self._write_fitting(self._target, rows, self._opened(name))

    def _write_fitting(self, target: Target, batch: pa.RecordBatch, name: str) -> None:
        """Write the rows that the table can hold; the other records are put aside, or the first of
        them is an error."""
        layout = self._files.layout_of(name)
        refused = misfit_mask(layout, _of_table(target, batch))
        if refused is not None:
            why = partial(_misfit_reason, target, layout)
            if self._target.options.quarantine is None:
                raise self._refusal(target, batch.filter(refused), why)
            self._put_aside(batch.filter(refused), why)
            batch = batch.filter(pc.invert(refused))
        if batch.num_rows:
            self._files.write(_of_table(target, batch), name)

    def misfits(self, target: Target, name: str, batch: pa.RecordBatch) -> tuple[pa.Array, Why]:
        """Boolean mask of the rows that a table cannot hold, and why one of them is so."""
        if target.options.route is not None:
            name = self._opened(name or str(target.options.rest))
        layout = self._files.layout_of(name)
        mask = misfit_mask(layout, _of_table(target, batch))
        none = pa.repeat(pa.scalar(False), batch.num_rows)
        return none if mask is None else mask, partial(_misfit_reason, target, layout)

    def _write_listed(self, number: int | None, batch: pa.RecordBatch) -> None:
        if number is not None:
            one = self._target.listed[number]
            name = str(one.options.name)
            rows = self._noted(name, one, batch)
            if not self.growth:
                self._write_fitting(one, self._good(one, rows), name)
        elif self.growth:
            return
        else:
            self._write_elsewhere(batch, listed.no_table)

    def _good(self, target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the records that are put aside, or an error for the first of them."""
        refused = target.refused(batch)
        if not pc.any(refused).as_py():
            return batch
        if target.options.quarantine is None:
            raise self._refusal(target, batch.filter(refused), target.why_not)
        self._put_aside(batch.filter(refused), target.why_not)
        return batch.filter(pc.invert(refused))

    def _put_aside(self, rows: pa.RecordBatch, why: Why) -> None:
        """Write records into the quarantine table, or for the driver to publish."""
        name = self._target.options.quarantine
        assert name is not None  # noqa: S101
        if self._target.options.letters is None:
            self._opened(name, quarantine.SCHEMA)
        elif name not in self._known:
            self._files.add_table(name, *self._target.staging)
            self._known.add(name)
        self.aside += rows.num_rows
        self._files.write(quarantine.quarantine_rows(rows, why), name)

    def _refusal(
        self,
        target: Target,
        rows: pa.RecordBatch,
        why: Why,
    ) -> ConfigError:
        """The error for the first of records that do not become rows."""
        first = rows.slice(0, 1)
        known = [name for name in quarantine.MESSAGE if name in rows.schema.names]
        said = quarantine.rejection_message(first.select(known).to_pylist()[0], why(first))
        ways = "Leave such rows out"
        if known == list(quarantine.MESSAGE) or CORRUPT in rows.schema.names:
            ways = (
                "Mend the schema and run again, which goes on here; or give the option "
                "'quarantineTable', to put such records aside"
            )
        if target.options.upsert is None:
            ways += (
                f"; or leave the option 'onBadRecord' out, to keep them in {CORRUPT}, a column "
                "which the option 'mergeSchema' adds"
            )
        return ConfigError(f"{said} Nothing of its batch was written. {ways}.")

    def close(self) -> list[NewFile]:
        """Finish all files and return them. Raises as `write`."""
        if self.growth:
            self.discard()
            return []
        self._divide()
        return self._files.close()

    def discard(self) -> None:
        """Remove the written files, as far as possible."""
        self._files.discard()

    def _write_elsewhere(self, rows: pa.RecordBatch, why: Why) -> None:
        """Write rows that no table takes into the one for the rest, or put them aside. Raises
        ConfigError if there is neither."""
        options = self._target.options
        if options.rest is not None:
            self._write_fitting(self._target, rows, self._opened(options.rest))
        elif options.quarantine is not None:
            self._put_aside(rows, why)
        else:
            reason = why(rows.slice(0, 1))[1].removesuffix(".")
            raise ConfigError(
                f"{reason}: name a table for these rows in the option 'restTable', or, with a "
                "schema of payloads, a quarantine (--quarantine)."
            )

    def why_not_into(self, name: str) -> Why | None:
        """Why the table that values of rows name does not take them; None if it does. Raises
        TableError if the query has lost its checkpoint."""
        if name in self._known:
            return None
        if name not in self._refused:
            options = self._target.options.of_table(name)
            table = formats.find_table(options.format, options.name)
            # This batch makes the table, or has made it in an attempt that failed: each attempt has
            # to take the same rows to the same tables.
            is_new = table is None or (
                self._batch is not None and was_created_for(table, *self._batch)
            )
            reason = None
            if is_new and self._new >= options.max_new_tables:
                reason = (
                    f"{self._target.options.name} would make more than {options.max_new_tables} "
                    "new tables (option 'maxNewTables')."
                )
            elif table is None:
                try:
                    formats.check_empty(options.format, options.name)
                except ConfigError as error:
                    reason = str(error)
            elif not self._may_take(table, options):
                reason = (
                    f"{name} has rows that this query did not write, and the values of a row do "
                    "not make it the query's (option 'adoptTable', --adopt)."
                )
            if reason is None:
                self._new += is_new
                if table is not None:
                    self._tables[name] = table
                return None
            self._refused[name] = reason
        column, reason = _naming_column(self._target.options), self._refused[name]
        return lambda _: (column, reason)

    def _may_take(self, table: Table, options: LakehouseOptions) -> bool:
        """Whether a table is the query's, or nobody's: others choose the values that name it."""
        query, name = batch_of_query(), options.query_name
        if options.adopt or (query is None and name is None):
            return True
        if belongs_to(table, None if query is None else query[0], name):
            return True
        if query is not None and query[1] == 0 and name is not None:
            check_name(table, query[0], name)
        return False

    def _opened(self, name: str, schema: pa.Schema | None = None) -> str:
        """The table's name, once it exists and its files can be written."""
        if name not in self._known:
            one = self._target.options.of_table(name)
            columns = schema or self._target.rows
            table = self._tables.pop(name, None)
            if table is None:
                writer = self._batch or (one.query_name and (one.query_name, 0))
                txn_versions = created_for(*writer) if writer else {}
                table = formats.open_or_create_table(
                    one.format, one.name, columns, one.partitions, txn_versions
                )
            self._add(name, _prepared(one, columns, table, numbered=True))
            self._known.add(name)
        return name

    def _add(self, name: str, target: Target) -> None:
        assert target.layout is not None  # noqa: S101
        assert target.storage is not None  # noqa: S101
        self._files.add_table(name, target.layout, target.storage)


def _naming_column(options: LakehouseOptions) -> str | None:
    """The column whose values name tables."""
    return None if options.route is None else options.route.values[0].column


def _misfit_reason(target: Target, layout: Layout, row: pa.RecordBatch) -> quarantine.Reason:
    return misfit_reason(layout, _of_table(target, row))


def _of_table(target: Target, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without columns that these rows have for other purposes: the table may have them, too."""
    return rows.select([name for name in rows.schema.names if name in target.rows.names])


class _Sink:
    """The base of the batch and the streaming writer."""

    def __init__(self, options: LakehouseOptions, target: Target, *, replace: bool) -> None:
        self._options = options
        self._target = target
        self._replace = replace

    def _write(self, writer: str, batches: Iterator[pa.RecordBatch]) -> Written:
        for one in self._target.listed or (self._target,):
            options = one.options
            named = options.route is None and not options.tables
            if named and formats.is_missing(options.format, options.name):
                raise table_missing(options.name, 0)
        if self._target.completed is not None:
            self._target.check_completed(batch_of_query())
            deque(batches, maxlen=0)
            return Written(writer, ())
        files = TaskFiles(self._target)
        outputs: list[TaskOutput] = []
        try:
            for batch in batches:
                if self._options.task_rows:
                    outputs += task_output.outputs_in(batch, self._options.task_secret)
                else:
                    files.write(batch)
            written = [file for one in outputs for file in one.files] + files.close()
            growth = united([files.growth, *(one.growth for one in outputs)])
            return Written(writer, written, growth, sum(one.retries for one in outputs))
        except BaseException:
            files.discard()
            raise

    def _written(self, messages: list[WriterCommitMessage | None]) -> tuple[str, list[NewFile]]:
        """The writer, and the files of all tasks. Raises PipelineError."""
        written = all_answers(messages, Written)
        return written[0].writer, [file for one in written for file in one.files]


class LakehouseBatchWriter(_Sink, DataSourceArrowWriter):
    """df.write; with a transaction id the rows are added once, however often it is attempted."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor. Raises ConfigError for a null in a required column."""
        return self._write("", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when all tasks are done.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        files, options = self._written(messages)[1], self._options
        if (transaction := options.transaction_id) is not None:
            token = str(uuid5(NAMESPACE_OID, transaction))
            commits = BatchCommits(options, transaction, 0, letters=token)
            if not commits.complete():
                commits.commit(files, replaces=self._replace)
            return
        groups = files_by_table(files)
        if options.letters is not None:
            storage = self._target.staging[1]
            records = groups.pop(options.quarantine or "", [])
            options.letters.store(str(uuid4()), read_records(storage, records))
            remove_staged_files(storage, records)
        own = groups.pop("", [])
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            commits_ = [
                pool.submit(self._commit, options.of_table(name), group)
                for name, group in groups.items()
            ]
        for one in commits_:
            one.result()
        if options.route is None:
            self._commit(options, own)

    def _commit(self, options: LakehouseOptions, files: list[NewFile]) -> None:
        table = formats.open_table(options.format, options.name)
        if (upsert := options.upsert) is None:
            replaces = self._replace and not self._options.is_quarantine(options)
            commit_files(table, files, overwrite if replaces else append)
            return
        try:
            commit_files(table, files, upsert)
        finally:
            remove_staged_files(table.storage, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: readers ignore files without a commit."""


class LakehouseStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """df.writeStream; the writer's id is the query's, which the checkpoint keeps."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor.

        Raises ConfigError for a null in a required column, TableError for a table that is gone.
        """
        return self._write(needed_query_id(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver when all tasks are done, and again after a failure.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        writer, files = self._written(messages)
        commits = BatchCommits(self._options, writer, batchId)
        if not commits.complete():
            if self._target.completed is not None:
                raise table_missing(self._options.name, batchId)
            self._grow(messages)
            retries = sum(one.retries for one in all_answers(messages, Written))
            commits.commit(files, retries)

    def _grow(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the tables the columns that rows need. Raises SchemaGrown, unless they need none:
        then nothing of the batch is committed, and once all columns are there it finds no new
        field."""
        growth = united(one.growth for one in all_answers(messages, Written))
        if not growth:
            return
        files, tables = files_by_table(self._written(messages)[1]), self._target.each
        for name, one in tables.items():
            assert one.storage is not None  # noqa: S101
            remove_staged_files(one.storage, files.get(name, ()))
        if self._options.letters is not None:
            remove_staged_files(
                self._target.staging[1], files.get(self._options.quarantine or "", ())
            )
        grow({name: one.options for name, one in tables.items()}, growth)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: readers ignore files without a commit."""


_UNWRITTEN = ("time(", "geometry", "geography")
"""Beginnings of the names of types that older versions of Spark lack."""


def prepare_for_query(options: LakehouseOptions, rows: Sequence[pa.Schema]) -> Target:
    """`prepare` for a batch of a streaming query: only the first batch creates the table, since a
    later one would have lost its rows with it. A batch of which a part is committed is completed
    (`commits`), if its checkpoint is on this machine, before a row is read. `rows`: their columns;
    of a list those of messages without a table, and those of the rows of each table.

    Raises TableError for a table, or a checkpoint, that is gone, as far as a checkpoint on this
    machine shows it.
    """
    checkpoint = None if options.checkpoint is None else local_path(options.checkpoint)
    state = CheckpointState() if checkpoint is None else read_checkpoint(checkpoint)
    if (
        state.query is not None
        and state.planned is not None
        and state.planned != state.committed
        and BatchCommits(options, state.query, state.planned).complete()
    ):
        return Target(options, rows[0], completed=state.planned)
    if options.route is not None:
        return prepare(options, rows)
    if checkpoint is None:
        return prepare(options, rows, numbered=True)
    # Spark has planned this batch before it asks. A path without a scheme may also be on a file
    # system that only Spark knows, but hardly beside a table on this machine.
    name = options.tables[0].options.name if options.tables else options.name
    if state.planned is None and name.path is not None and local_path(name.path) is not None:
        raise TableError(
            f"{options.checkpoint} has gone: it was removed, perhaps with {name}, while "
            "this query used it. To begin anew, remove what is left of both, or take other folders "
            "for them."
        )

    ledger = TableLedger(checkpoint, state.query or "")

    def prepare_one(one: LakehouseOptions, columns: pa.Schema) -> Target:
        table = None
        if state.planned and not one.adopt:
            table = formats.find_table(one.format, one.name)
            if table is None and (one is options or ledger.last(str(one.name)) != NONE):
                raise table_missing(one.name, state.planned)
            if table is not None and state.query is not None and one is options:
                check_earlier_batches(table, state.query, state.planned)
        with formats.reporting_missing_table(one.format, one.name, state.planned or 0):
            return prepare(one, [columns], table, numbered=True)

    if not options.tables:
        return prepare_one(options, rows[0])
    return _prepared_list(options, rows, prepare_one)


def _prepared_list(
    options: LakehouseOptions,
    rows: Sequence[pa.Schema],
    prepare_one: Callable[[LakehouseOptions, pa.Schema], Target],
) -> Target:
    """The tables of a list, several at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        made = pool.map(prepare_one, [one.options for one in options.tables], rows[1:])
    return Target(options, rows[0], listed=tuple(made))


def prepare(
    options: LakehouseOptions,
    rows: Sequence[pa.Schema],
    table: Table | None = None,
    *,
    numbered: bool = False,
) -> Target:
    """The table for these rows, created, or extended by new columns if allowed.

    `rows`: as `prepare_for_query`; `table`: if it was opened before; `numbered`: the rows are a
    batch with a number. Raises ConfigError for rows that do not fit, and TableError for a table
    that cannot be written.
    """
    if options.tables:
        return _prepared_list(
            options, rows, lambda one, columns: prepare(one, [columns], numbered=numbered)
        )
    columns = _rows(options, rows[0])
    if options.route is not None:
        return Target(options, columns)
    return _prepared(options, columns, table, numbered=numbered)


def _prepared(
    options: LakehouseOptions, rows: pa.Schema, table: Table | None, *, numbered: bool
) -> Target:
    if table is None:
        table = formats.open_or_create_table(options.format, options.name, rows, options.partitions)
    if numbered or options.transaction_id is not None:
        table.check_txn_versions_retained()
    _check_table(options, table)
    if options.keep_versions is not None:
        with suppress(CommitConflict):  # the next batch creates it
            table.keep_versions(options.keep_versions)
    commit_with_retries(table.name, lambda: _evolve(options, table, rows), table.refresh)
    layout = table.layout(options.target_bytes, options.compression)
    if options.made:
        layout = replace(layout, derived={**layout.derived, **options.made})
    layout = layout if options.upsert is None else staging_layout(layout)
    return Target(options, rows, layout, table.storage)


def _evolve(options: LakehouseOptions, table: Table, rows: pa.Schema) -> None:
    """Give the table the columns, and the wider types, that rows need. Raises CommitConflict."""
    while (differences := _check_rows(options, table, rows)).added or differences.changed:
        if differences.added:
            table.add_columns(differences.added)
        else:
            table.widen([rows.field(name) for name, _, _ in differences.changed])
        table.refresh()


def rows_given(options: LakehouseOptions, schema: types.StructType) -> list[pa.Schema]:
    """The columns of the rows that are written, for `prepare_for_query`: those of a user's
    DataFrame, unless it has the reports of tasks that write rows themselves. Raises ConfigError for
    a column that no table can have, or that has a name of jetspark's own."""
    if options.task_rows:
        return list(options.task_rows)
    allowed = (CORRUPT, quarantine.REASON)  # these come with the rows of format jetstream
    check_reserved(f"The rows for {options.name}", schema.names, allowed=allowed)
    return [arrow_schema(schema)]


def check_fit(options: LakehouseOptions, rows: Sequence[pa.Schema]) -> None:
    """Check that the rows of a query fit, without a change; `rows`: as `prepare_for_query`. Raises
    ConfigError."""
    for one, columns in zip(options.tables, rows[1:], strict=True):
        check_fit(one.options, [columns])
    if options.tables:
        return
    rows = _rows(options, rows[0])
    table = None if options.route is not None else formats.find_table(options.format, options.name)
    if table is None:
        check_names(rows)
        check_partitions(rows, options.partitions)
        return
    table.check_txn_versions_retained()
    _check_table(options, table)
    _check_rows(options, table, rows)


def check_columns(options: LakehouseOptions, names: Iterable[str]) -> None:
    """`check_fit` by the names of the columns only. Raises ConfigError."""
    names = list(names)
    names += [name for name in options.made if name not in names]
    if options.upsert is not None:
        options.upsert.check_names(names)
        names += options.upsert.added
    if options.route is not None:
        options.route.check(str(options.name), names)
        if options.name.catalog is not None:  # raises before Spark starts if out of reach
            formats.find_table(options.format, options.of_table("x".join(options.route.texts)).name)
        return
    table = formats.find_table(options.format, options.name)
    if table is not None:
        table.check_txn_versions_retained()
        _check_table(options, table)
        _check_added(options, [name for name in names if name not in table.schema.names])
        there = {*names, *table.generated_columns}
        if options.quarantine is not None or options.on_bad_record == STOP:
            there.add(CORRUPT)  # of a time when bad records were kept in it
        lacking = [name for name in table.schema.names if name not in there]
        if lacking and not options.merge_schema:
            raise ConfigError(
                f"{options.name} has the column {', '.join(lacking)}, which these rows lack: add "
                "it to them (--json, --column, or --evolve as before), or set the option "
                "'mergeSchema' to true to leave it null in them."
            )


def _rows(options: LakehouseOptions, schema: pa.Schema) -> pa.Schema:
    left_out = {NEW, BARE_PAYLOAD, quarantine.REASON}
    if options.quarantine is not None:
        for name in (*quarantine.MESSAGE, CORRUPT):
            if name not in schema.names:
                raise ConfigError(
                    f"Option 'quarantineTable' needs rows with the column {name}: those of format "
                    "jetstream with the options decode and keepPayload."
                )
        left_out |= {CORRUPT, "data"}
    if options.on_bad_record == STOP:
        if CORRUPT not in schema.names:
            raise ConfigError(
                f"Option 'onBadRecord' needs rows with the column {CORRUPT}, which is null in good "
                "ones: those of format jetstream with the option decode."
            )
        left_out.add(CORRUPT)
    rows = pa.schema([one for one in schema if one.name not in left_out])
    if options.made:
        rows = _with_made(options, rows)
    if options.upsert is not None:
        options.upsert.check(rows)
        rows = options.upsert.table_schema(rows)
    if options.route is not None:
        options.route.check(str(options.name), rows.names)
        options.route.check_types(str(options.name), rows)
    return rows


def _with_made(options: LakehouseOptions, rows: pa.Schema) -> pa.Schema:
    """With the columns that tasks add."""
    for one in options.partition_by or ():
        one.check(rows)
    none = pa.RecordBatch.from_pylist([], schema=rows)
    made = {name: value.of(none).type for name, value in options.made.items()}
    return pa.schema([*rows, *(pa.field(*one) for one in made.items() if one[0] not in rows.names)])


def _check_table(options: LakehouseOptions, table: Table) -> None:
    """Raises ConfigError for a table that is not what the options say."""
    if options.upsert is not None and table.generated_columns:
        raise ConfigError(
            f"{options.name} has generated columns ({', '.join(table.generated_columns)}), which "
            "deltalake does not merge: leave 'keys' out, or write to another table."
        )
    described = read_description(table)
    if described is not None and (options.keys, options.history_by) != (
        described["keys"],
        described["history_by"],
    ):
        kind = "are a history of" if described["history_by"] else "replace others with the same"
        raise ConfigError(
            f"The rows of {options.name} {kind} {_listed(described['keys'])}, and these would not: "
            f"give the options of the query that writes it ({description_flags(described)}, …), "
            f"write to another table, or remove the table's property {WRITE_DESCRIPTION}."
        )
    wanted = tuple(map(str, options.partitions))
    if options.partition_by is not None and table.partition_by != wanted:
        raise ConfigError(
            f"{options.name} is partitioned by {_listed(table.partition_by)}, not by "
            f"{_listed(wanted)}: leave partitionBy (--partition-by) out, or write to another table."
        )


def _check_added(options: LakehouseOptions, names: Sequence[str]) -> None:
    if names and not options.merge_schema:
        raise ConfigError(
            f"{options.name} has no column {', '.join(names)}: set the option 'mergeSchema' to "
            "true to add it (it is null in existing rows), or leave it out of the rows."
        )


def _check_rows(options: LakehouseOptions, table: Table, rows: pa.Schema) -> SchemaDifferences:
    """Columns of the rows that the table lacks, or that are wider there, if it may be changed.
    Raises ConfigError for other differences."""
    found = compare_schemas(table.schema, rows)
    check_names(pa.schema([*table.schema, *found.added]))
    if others := [one for one in found.changed if not (options.evolve and one[1:] in WIDENINGS)]:
        said = [
            f"{name} is {there} in the table and {here} in the rows" for name, there, here in others
        ]
        raise ConfigError(
            f"{options.name} has other types: {'; '.join(said)}. Cast these columns, or write "
            "to another table."
        )
    if required := [name for name in found.required if name not in table.generated_columns]:
        raise ConfigError(
            f"{options.name} requires {', '.join(required)}, which the rows do not have: add "
            "the missing columns."
        )
    _check_added(options, [one.name for one in found.added])
    return found


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """The columns as Arrow types. Raises ConfigError for types that no table can have."""
    if not schema.fields:
        raise ConfigError("The rows have no columns.")
    for one in schema:
        if kind := _without_format(one.dataType):
            raise ConfigError(
                f"A table cannot have the column {one.name!r} of type {kind}: cast it, or leave it "
                "out."
            )
    return in_arrow(schema)


def _without_format(kind: types.DataType) -> str | None:
    """A type, at any depth, that Delta and Iceberg lack or that their libraries do not write."""
    parts: list[types.DataType] = []
    match kind:
        case types.StructType() if not kind.fields:
            return kind.simpleString()
        case types.StructType():
            parts = [one.dataType for one in kind]
        case types.ArrayType():
            parts = [kind.elementType]
        case types.MapType():
            parts = [kind.keyType, kind.valueType]
        case (
            types.NullType()
            | types.VariantType()
            | types.AnsiIntervalType()
            | types.CalendarIntervalType()
        ):
            return kind.simpleString()
        case _ if kind.simpleString().startswith(_UNWRITTEN):
            return kind.simpleString()
    return next(filter(None, map(_without_format, parts)), None)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
