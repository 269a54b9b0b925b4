"""The table that a DataFrame is written to: created or checked before a row is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
)

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.lakehouse.batches import (
    Change,
    added,
    check_has_batches,
    commit_batch,
    commit_files,
    gone,
    replaced,
)
from jetspark.lakehouse.formats import find_table, is_gone, make_table, not_gone, open_table
from jetspark.lakehouse.new_files import Layout, NewFile, Storage, write_files
from jetspark.lakehouse.schemas import Differences, check_names, check_partitions, differences
from jetspark.lakehouse.table import Table
from jetspark.lakehouse.upserts import remove, staged
from jetspark.spark.checkpoints import local_path, read_checkpoint
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.sink import all_answers, needed_query_id

# -------------------------------------------------------------------------------------------------
# df.write and df.writeStream into a Delta or Iceberg table.
#
# Tasks write Parquet files; the driver commits all files of a batch in one transaction with the
# query's id and the batch's number (`lakehouse.batches`). Spark may attempt a task or a batch
# again, and calls `abort` even after a commit whose outcome is not known: so a writer has no
# state, `abort` removes nothing, and files of other attempts are left to `vacuum`.


@dataclass
class Written(WriterCommitMessage):
    """A task's commit message: the query's id (empty in a batch write) and the files."""

    writer: str
    files: Sequence[NewFile]


@dataclass(frozen=True)
class Target:
    """What tasks need to know about the table."""

    layout: Layout
    storage: Storage


class _Sink:
    """The common part of the batch and the streaming writer."""

    def __init__(self, options: LakehouseOptions, target: Target, *, replace: bool) -> None:
        self._options = options
        self._target = target
        self._replace = replace

    def _write(self, writer: str, batches: Iterator[pa.RecordBatch]) -> Written:
        if is_gone(self._options.format, self._options.name):
            raise gone(self._options.name, 0)
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        layout, storage = self._target.layout, self._target.storage
        return Written(writer, write_files(layout, storage, f"part-{part:05}", batches))

    @contextmanager
    def _changing(self, table: Table, files: Sequence[NewFile]) -> Iterator[Change]:
        """What the rows of these files do to the table."""
        upsert = self._options.upsert
        if upsert is None:
            yield replaced if self._replace else added
            return
        try:
            yield upsert
        finally:
            remove(table.storage, files)

    def _written(self, messages: list[WriterCommitMessage | None]) -> tuple[str, list[NewFile]]:
        """(writer, files of all tasks). Raises PipelineError."""
        written = all_answers(messages, Written)
        return written[0].writer, [file for one in written for file in one.files]


class LakehouseBatchWriter(_Sink, DataSourceArrowWriter):
    """df.write; with a transaction id the rows are added once, however often it is attempted."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor. Raises ConfigError for a null in a required column."""
        return self._write("", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when all tasks are done.

        Raises PipelineError without all tasks' answers, and as `commit_batch`.
        """
        _, files = self._written(messages)
        table = open_table(self._options.format, self._options.name)
        with self._changing(table, files) as change:
            if self._options.transaction_id is None:
                commit_files(table, files, change)
            else:
                commit_batch(table, self._options.transaction_id, 0, files, change=change)

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

        Raises PipelineError without all tasks' answers, and as `commit_batch`.
        """
        writer, files = self._written(messages)
        options = self._options
        table = find_table(options.format, options.name)
        if table is None:
            raise gone(options.name, batchId)
        with (
            not_gone(options.format, options.name, batchId),
            self._changing(table, files) as change,
        ):
            commit_batch(
                table,
                writer,
                batchId,
                files,
                name=options.query_name,
                adopt=options.adopt,
                change=change,
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: readers ignore files without a commit."""


_UNWRITTEN = ("time(", "geometry", "geography")
"""Beginnings of the names of types that older versions of Spark lack."""


def prepare_for_query(options: LakehouseOptions, schema: StructType) -> Target:
    """As `prepare`, for a batch of a streaming query, of which only the first creates the table:
    a later one has lost its rows with it.

    Raises TableError for a table, or a checkpoint, that is gone, as far as a checkpoint on this
    machine shows it.
    """
    table = None
    checkpoint = None if options.checkpoint is None else local_path(options.checkpoint)
    if checkpoint is None:
        return prepare(options, schema, numbered=True)
    state = read_checkpoint(checkpoint)
    # Spark has planned this batch before it asks. A path without a scheme may also be on a file
    # system that only Spark knows, but hardly beside a table on this machine.
    folder = options.name.path
    if state.planned is None and folder is not None and local_path(folder) is not None:
        raise TableError(
            f"{options.checkpoint} has gone: it was removed, perhaps with {options.name}, while "
            "this query used it. To begin anew, remove what is left of both, or take other folders "
            "for them."
        )
    if state.planned and not options.adopt:
        table = find_table(options.format, options.name)
        if table is None:
            raise gone(options.name, state.planned)
        if state.query is not None:
            check_has_batches(table, state.query, state.planned)
    with not_gone(options.format, options.name, state.planned or 0):
        return prepare(options, schema, table, numbered=True)


def prepare(
    options: LakehouseOptions,
    schema: StructType,
    table: Table | None = None,
    *,
    numbered: bool = False,
) -> Target:
    """The table for rows of this schema; created, or extended by new columns if that is allowed.

    `table`: if it was opened before; `numbered`: the rows are a batch with a number. Raises
    ConfigError for rows that do not fit, and TableError for a table that cannot be written.
    """
    rows = _rows(options, schema)
    if table is None:
        table = make_table(options.format, options.name, rows, options.partition_by or ())
    if numbered or options.transaction_id is not None:
        table.check_numbers_stay()
    _check_partitions(options, table)
    if options.keep_versions is not None:
        with suppress(CommitConflict):  # the next batch does it
            table.keep_versions(options.keep_versions)
    while (found := _check_rows(options, table, rows)).added:
        try:
            table.add_columns(found.added)
        except CommitConflict:
            pass
        table.refresh()
    layout = table.layout(options.target_bytes, options.compression)
    return Target(layout if options.upsert is None else staged(layout), table.storage)


def check_fit(options: LakehouseOptions, schema: StructType) -> None:
    """Check that the rows of a query fit, without a change. Raises ConfigError."""
    rows = _rows(options, schema)
    table = find_table(options.format, options.name)
    if table is None:
        check_names(rows)
        check_partitions(rows, options.partition_by or ())
        return
    table.check_numbers_stay()
    _check_partitions(options, table)
    _check_rows(options, table, rows)


def check_columns(options: LakehouseOptions, names: Iterable[str]) -> None:
    """The same, by the names of the columns only. Raises ConfigError."""
    names = list(names)
    if options.upsert is not None:
        options.upsert.check_names(names)
    table = find_table(options.format, options.name)
    if table is not None:
        table.check_numbers_stay()
        _check_partitions(options, table)
        _check_added(options, [name for name in names if name not in table.schema.names])
        lacking = [name for name in table.schema.names if name not in names]
        if lacking and not options.merge_schema:
            raise ConfigError(
                f"{options.name} has the column {', '.join(lacking)}, which these rows lack: add "
                "it to them, or set the option 'mergeSchema' to true to leave it null in them."
            )


def _rows(options: LakehouseOptions, schema: StructType) -> pa.Schema:
    rows = arrow_schema(schema)
    if options.upsert is not None:
        options.upsert.check(rows)
    return rows


def _check_partitions(options: LakehouseOptions, table: Table) -> None:
    if options.partition_by is not None and table.partition_by != options.partition_by:
        raise ConfigError(
            f"{options.name} is partitioned by {_listed(table.partition_by)}, not by "
            f"{_listed(options.partition_by)}: leave partitionBy out, or write to another table."
        )


def _check_added(options: LakehouseOptions, names: Sequence[str]) -> None:
    if names and not options.merge_schema:
        raise ConfigError(
            f"{options.name} has no column {', '.join(names)}: set the option 'mergeSchema' to "
            "true to add it (it is null in existing rows), or leave it out of the rows."
        )


def _check_rows(options: LakehouseOptions, table: Table, rows: pa.Schema) -> Differences:
    """Columns of the rows that the table lacks. Raises ConfigError for other differences."""
    found = differences(table.schema, rows)
    check_names(pa.schema([*table.schema, *found.added]))
    changed = [
        f"{name} is {there} in the table and {here} in the rows"
        for name, there, here in found.changed
        if here not in ("int8", "int16") or there != "int32"
    ]
    if changed:
        raise ConfigError(
            f"{options.name} has other types: {'; '.join(changed)}. Cast these columns, or write "
            "to another table."
        )
    if found.required:
        raise ConfigError(
            f"{options.name} requires {', '.join(found.required)}, which the rows do not have: add "
            "the missing columns."
        )
    _check_added(options, [one.name for one in found.added])
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow types. Raises ConfigError for types that no table can have."""
    if not schema.fields:
        raise ConfigError("The rows have no columns.")
    for one in schema:
        if kind := _without_format(one.dataType):
            raise ConfigError(
                f"A table cannot have the column {one.name!r} of type {kind}: cast it, or leave it "
                "out."
            )
    return to_arrow_schema(schema, timezone="UTC")


def _without_format(kind: DataType) -> str | None:
    """A type, at any depth, that Delta and Iceberg lack or that their libraries do not write."""
    parts: list[DataType] = []
    match kind:
        case StructType() if not kind.fields:
            return kind.simpleString()
        case StructType():
            parts = [one.dataType for one in kind]
        case ArrayType():
            parts = [kind.elementType]
        case MapType():
            parts = [kind.keyType, kind.valueType]
        case NullType() | VariantType() | AnsiIntervalType() | CalendarIntervalType():
            return kind.simpleString()
        case _ if kind.simpleString().startswith(_UNWRITTEN):
            return kind.simpleString()
    return next(filter(None, map(_without_format, parts)), None)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
