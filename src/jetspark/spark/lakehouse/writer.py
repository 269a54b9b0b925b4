"""df.write and df.writeStream into a Delta or Iceberg table.

Tasks write Parquet files; the driver commits all files of a batch in one transaction with the
query's id and the batch's number (`lakehouse.batches`). Spark may attempt a task or a batch again,
and calls `abort` even after a commit whose outcome is not known: so a writer has no state, `abort`
removes nothing, and files of other attempts are left to `vacuum`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from jetspark.lakehouse.batches import Change, added, commit_batch, commit_files, gone, replaced
from jetspark.lakehouse.formats import find_table, is_gone, not_gone, open_table
from jetspark.lakehouse.new_files import FileWriter, Layout, NewFile, Storage
from jetspark.lakehouse.table import Table
from jetspark.lakehouse.upserts import remove
from jetspark.spark.committing import all_answers, needed_query_id
from jetspark.spark.lakehouse.options import LakehouseOptions


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
        files = FileWriter(self._target.layout, self._target.storage, f"part-{part:05}")
        try:
            for batch in batches:
                files.write(batch)
            return Written(writer, files.close())
        except BaseException:
            files.discard()
            raise

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
