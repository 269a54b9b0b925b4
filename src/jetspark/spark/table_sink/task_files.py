"""The files that one task writes: rows of its tables, and the records that are quarantined.

Every row of a table passes through `TaskFiles.write`: of messages that the task has decoded, of a
DataFrame, and of records that are retried. It rejects records, chooses the table, and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from jetspark.errors import ConfigError, named
from jetspark.payloads.tolerant import CORRUPT
from jetspark.spark.sink_tasks import batch_of_query
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import (
    UNKNOWN_FIELDS_COLUMN,
    SchemaChange,
    SchemaChanges,
    columns_without_fields,
)
from jetspark.spark.table_sink.table_preparation import prepare_table
from jetspark.spark.table_sink.target import ReasonOf, Target
from jetspark.spark.table_sink.task_output import TaskOutput
from jetspark.tables import formats, quarantine
from jetspark.tables.batches import belongs_to, check_name, created_for, was_created_for
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.formats import Format
from jetspark.tables.misfits import misfit_mask, misfit_reason
from jetspark.tables.table import Table

_ROUTED_BYTES = 32 * 1024 * 1024
"""Arrow memory of rows that are routed together, so that each table gets few slices."""


class TaskFiles:
    """Writes the rows of one Spark task into new files of the tables that they belong to.

    A record that does not become a row is rejected: it goes to the quarantine, if there is one, or
    is an error. The driver commits the files later. As a context manager, it removes them if its
    block fails.
    """

    def __init__(
        self,
        target: Target,
        *,
        select_rows: Callable[[str, pa.RecordBatch], pa.RecordBatch] | None = None,
        on_rejected: Callable[[pa.RecordBatch, ReasonOf], None] | None = None,
    ) -> None:
        """Prepare to write rows into the tables of `target`; no file is created yet.

        `select_rows`: is called with the name of a table ("" for a query's only one, and for rows
        that no table takes) and its rows, and returns the rows to write; by default all are
        written. `on_rejected`: is called with rejected records, and a function that says why; by
        default they are quarantined, or are an error.
        """
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        self._target = target
        self._files = FileWriter(target.layout, target.storage, f"part-{partition:05}")
        for table in target.tables:
            _add_table(self._files, str(table.options.name), table)
        self._tables = _OpenedTables(target, self._files)
        self._select_rows = select_rows
        self._on_rejected = on_rejected
        self._unrouted: list[pa.RecordBatch] = []
        self._unrouted_bytes = 0
        self._quarantined = 0
        self.schema_changes: SchemaChanges = {}
        """Columns that the tables lack. With the first one the task stops writing, since the batch
        is run again when the tables have them."""

    def write(self, batch: pa.RecordBatch, table_index: int | None = 0) -> None:
        """Write rows into new files of their tables, and reject records that do not become rows.

        `table_index`: for a list of tables, the index of the table that gets the rows; None: no
        table of the list takes them. Raises ConfigError for a null in a required column, and for
        rows without a table and rejected records, if there is no other place for them.
        """
        target, name = self._target, ""
        if target.tables:
            if table_index is None:
                if not self.schema_changes:  # with one, nothing of the batch is committed
                    self._write_without_table(batch, _unrouted_reason)
                return
            target = target.tables[table_index]
            name = str(target.options.name)
        rows = self._collect_unknown_fields(name, target, batch)
        if self.schema_changes:
            return
        rows = self._without_rejected(
            target, rows, target.rejected_mask(rows), target.rejection_reason
        )
        if not rows.num_rows:
            return
        if target.options.route is None:
            self._write_fitting(target, rows, table=name, routed_to=name)
            return
        self._unrouted.append(rows)
        self._unrouted_bytes += rows.nbytes
        if self._unrouted_bytes >= _ROUTED_BYTES:
            self._route()

    def close(self) -> TaskOutput:
        """Write what is left and finish all files; returns what the driver has to know of them.

        If the tables lack columns, the files are removed, and the result only says which columns.
        Raises as `write`.
        """
        if self.schema_changes:
            self._files.discard()
            return TaskOutput(schema_changes=self.schema_changes)
        self._route()
        return TaskOutput(tuple(self._files.close()), quarantined=self._quarantined)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self._files.discard()

    # -- unknown fields ----------------------------------------------------------------------

    def _collect_unknown_fields(
        self, name: str, target: Target, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Record which fields of the rows their table has no columns for, and return the rows
        without the hidden column that names these fields.

        `name`: the table's name, by which `schema_changes` has what it needs.
        """
        if UNKNOWN_FIELDS_COLUMN not in batch.schema.names:
            return batch
        assert target.layout is not None  # noqa: S101
        change = self.schema_changes.get(name, SchemaChange())
        # Only Iceberg widens a column of integers, in which a larger one is a bad record.
        if CORRUPT in batch.schema.names and target.options.format is Format.ICEBERG:
            payloads = batch.column(CORRUPT).drop_null()
            change.add_larger_integers(payloads.to_pylist(), target.schema)
        fields = batch.column(UNKNOWN_FIELDS_COLUMN).drop_null()
        if len(fields):
            # A column that somebody has added to the table since the query was started is a field
            # of the rows when it is started again.
            reserved = {*target.schema.names, *columns_without_fields(target.layout)}
            reserved |= {*METADATA_COLUMNS, CORRUPT}
            reserved |= {"data"} if target.options.quarantine is not None else set()
            change.add_fields(fields.to_pylist(), reserved)
        if change:
            self.schema_changes[name] = change
        return batch.drop_columns([UNKNOWN_FIELDS_COLUMN])

    # -- the table of each row ---------------------------------------------------------------

    def _route(self) -> None:
        """Divide the rows that were collected so far by the tables that a template, as
        `lake/{region}`, names for them, and write them there."""
        route = self._target.options.route
        if route is None or not self._unrouted:
            return
        batch = pa.concat_batches(self._unrouted)
        self._unrouted, self._unrouted_bytes = [], 0
        for name, rows in route.split_by_table(batch):
            if name is None:  # a value that is to be a part of the name is null or empty
                self._write_without_table(rows, route.missing_value)
            elif (reason_of := self._tables.rejection(name)) is not None:
                self._write_without_table(rows, reason_of, routed_to=name)
            else:
                self._tables.open(name)
                self._write_fitting(self._target, rows, table=name, routed_to=name)

    def _write_without_table(
        self, rows: pa.RecordBatch, reason_of: ReasonOf, routed_to: str = ""
    ) -> None:
        """Write rows that no table takes into the default table, or reject them if there is none.
        Raises ConfigError if there is no quarantine, either.

        `reason_of`: says why no table takes a row; `routed_to`: the table that the rows name but
        may not be written to, "" if they name none.
        """
        default_table = self._target.options.default_table
        if default_table is not None:
            self._tables.open(default_table)
            self._write_fitting(self._target, rows, table=default_table, routed_to=routed_to)
        elif not self._reject(self._target, rows, reason_of):
            reason = reason_of(rows.slice(0, 1))[1].removesuffix(".")
            raise ConfigError(
                f"{reason}: name a table for these rows in {named('default_table')}, or, with a "
                f"schema of payloads, a quarantine ({named('quarantine')})."
            )

    def _write_fitting(
        self, target: Target, rows: pa.RecordBatch, table: str, routed_to: str
    ) -> None:
        """Write the rows that a table can hold, and reject those with a value that it cannot, such
        as a null in a required column.

        `table`: the name of the table that gets the rows; `routed_to`: that of the table that they
        name, which is another one if `table` is the default table.
        """
        layout = self._files.layout_of(table)
        mask = misfit_mask(layout, target.select_columns(rows))
        if mask is not None:
            rows = self._without_rejected(
                self._target,  # the whole query's quarantine: a table of a list need not have one
                rows,
                mask,
                lambda row: misfit_reason(layout, target.select_columns(row)),
            )
        if self._select_rows is not None and rows.num_rows:
            rows = self._select_rows(routed_to, rows)
        if rows.num_rows:
            self._files.write(target.select_columns(rows), table)

    # -- rejected records --------------------------------------------------------------------

    def _without_rejected(
        self, target: Target, rows: pa.RecordBatch, mask: pa.Array, reason_of: ReasonOf
    ) -> pa.RecordBatch:
        """Reject the rows for which `mask` is true, and return the others. Raises ConfigError for
        the first rejected one if there is no place for rejected records.

        `reason_of`: says why a row is rejected.
        """
        if not pc.any(mask).as_py():
            return rows
        rejected = rows.filter(mask)
        if not self._reject(target, rejected, reason_of):
            raise target.rejection_error(rejected, reason_of)
        return rows.filter(pc.invert(mask))

    def _reject(self, target: Target, records: pa.RecordBatch, reason_of: ReasonOf) -> bool:
        """Put rejected records where the write wants them: to the callback `on_rejected`, or into
        the quarantine. Returns False, and does nothing, if there is neither."""
        if self._on_rejected is not None:
            self._on_rejected(records, reason_of)
        elif target.options.quarantine is not None:
            self._quarantine(records, reason_of)
        else:
            return False
        return True

    def _quarantine(self, records: pa.RecordBatch, reason_of: ReasonOf) -> None:
        """Write rejected records into a file of the quarantine table or, if the quarantine is a
        stream of dead letters, into a file from which the driver publishes them."""
        options = self._target.options
        assert options.quarantine is not None  # noqa: S101
        if options.dead_letter_sink is None:
            self._tables.open(options.quarantine, quarantine.SCHEMA)
        else:
            self._tables.open_staging(options.quarantine)
        self._quarantined += records.num_rows
        self._files.write(quarantine.quarantine_rows(records, reason_of), options.quarantine)


def _add_table(files: FileWriter, name: str, target: Target) -> None:
    """Make a table known to a writer of files, by the name under which it gets rows."""
    assert target.layout is not None  # noqa: S101
    assert target.storage is not None  # noqa: S101
    files.add_table(name, target.layout, target.storage)


def _unrouted_reason(record: pa.RecordBatch) -> quarantine.Reason:
    """Why a message has no table in a list of tables: the column `subject`, and a sentence.
    `record`: a batch of this one message."""
    subject = record.column("subject")[0].as_py()
    return "subject", f"No table of the list takes the subject {subject}."


# -- tables that are opened when a row needs them --------------------------------------------------


class _OpenedTables:
    """Opens the tables that a task only learns of when a row needs them: those of a template, the
    default table, and the quarantine. The task with the first row for a table creates it."""

    def __init__(self, target: Target, files: FileWriter) -> None:
        """`files`: the task's writer of files, which gets to know each table that is opened."""
        self._target = target
        self._files = files
        self._open: set[str] = set()
        """Tables that `files` can write."""
        self._accepted: dict[str, Table] = {}
        """Existing tables that take rows, and are not open yet."""
        self._rejections: dict[str, str] = {}
        """Why tables do not take the rows that name them."""
        self._created = 0
        """Tables that did not exist before this batch."""
        self._batch = batch_of_query()
        """The id of the query, or of the batch write's transaction, and the batch."""
        if (transaction := target.options.transaction_id) is not None:
            self._batch = transaction, 0

    def rejection(self, name: str) -> ReasonOf | None:
        """Decide whether a table that the values of rows name may get these rows: None if it may,
        or else a function that says for a row why not.

        A table is checked once, and the answer stays. Raises TableError if the query has lost its
        checkpoint.
        """
        if name in self._open or name in self._accepted:
            return None
        if name not in self._rejections:
            reason = self._check_table(name)
            if reason is None:
                return None
            self._rejections[name] = reason
        route, reason = self._target.options.route, self._rejections[name]
        column = None if route is None else route.values[0].column  # the one to blame
        return lambda _: (column, reason)

    def _check_table(self, name: str) -> str | None:
        """Check whether a table that the values of rows name may get these rows: None if it may, or
        else a sentence that says why not.

        It may not if it has rows of others, or if the batch would create more new tables than the
        option `maxNewTables` allows.
        """
        options = self._target.options.of_table(name)
        table = formats.find_table(options.format, options.name)
        # A table counts as new if this batch creates it, or has created it in an attempt that
        # failed, since each attempt has to take the same rows to the same tables.
        is_new = table is None or (self._batch is not None and was_created_for(table, *self._batch))
        if is_new and self._created >= options.max_new_tables:
            return (
                f"{self._target.options.name} would make more than {options.max_new_tables} "
                f"new tables ({named('max_new_tables')})."
            )
        if table is None:
            try:
                formats.check_empty(options.format, options.name)
            except ConfigError as error:
                return str(error)
        elif not _may_take_rows(table, options):
            return (
                f"{name} has rows that this query did not write, and the values of a row do "
                f"not make it the query's ({named('adopt')})."
            )
        self._created += is_new
        if table is not None:
            self._accepted[name] = table
        return None

    def open(self, name: str, schema: pa.Schema | None = None) -> None:
        """Open the table of this name, and create it if it does not exist, so that rows can be
        written into its files. `schema`: its columns, by default those of the target."""
        if name in self._open:
            return
        options = self._target.options.of_table(name)
        columns = schema or self._target.schema
        table = self._accepted.pop(name, None)
        if table is None:
            # The table remembers for which batch it was created, so that another attempt knows it.
            creator = self._batch or (options.query_name and (options.query_name, 0))
            txn_versions = created_for(*creator) if creator else {}
            table = formats.open_or_create_table(
                options.format, options.name, columns, options.partitions, txn_versions
            )
        _add_table(self._files, name, prepare_table(options, columns, table, idempotent=True))
        self._open.add(name)

    def open_staging(self, name: str) -> None:
        """Make the staging folder, from which the driver publishes dead letters, known to the
        writer of files under this name."""
        if name not in self._open:
            self._files.add_table(name, *self._target.dead_letter_staging)
            self._open.add(name)


def _may_take_rows(table: Table, options: LakehouseOptions) -> bool:
    """Whether this query may add rows to a table that only the values of messages name: not to one
    that others have written, unless the query adopts it (`adopt`). Raises TableError if a query of
    the same name, but with another checkpoint, has written it."""
    query, name = batch_of_query(), options.query_name
    if options.adopt or (query is None and name is None):  # a batch write may add to any table
        return True
    if belongs_to(table, None if query is None else query[0], name):
        return True
    # In the first batch, the other rows may be of this query before it lost its checkpoint.
    if query is not None and query[1] == 0 and name is not None:
        check_name(table, query[0], name)
    return False
