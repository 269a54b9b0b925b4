"""df.write and df.writeStream into a Delta or Iceberg table.

Tasks write Parquet files; the driver commits all files of a batch in one transaction with the
query's id and the batch's number (`tables.batches`). Spark may attempt a task or a batch again,
and calls `abort` even after a commit whose outcome is not known. So a writer has no state, `abort`
removes nothing, and files of other attempts are left to `vacuum`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import NAMESPACE_OID, uuid4, uuid5

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jetspark.spark.failures import names_of_spark
from jetspark.spark.sink_tasks import batch_of_query, collect_task_messages, require_query_id
from jetspark.spark.table_sink.batch_commits import (
    MAX_CONCURRENT_COMMITS,
    BatchCommits,
    read_records,
)
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import evolve_tables
from jetspark.spark.table_sink.target import Target
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.task_output import TaskCommit, TaskOutput, combine, outputs_in
from jetspark.spark.versions import DataSourceStreamArrowWriter
from jetspark.tables import formats
from jetspark.tables.batches import append, commit_files, overwrite, table_missing
from jetspark.tables.new_files import NewFile, files_by_table
from jetspark.tables.upserts import remove_staged_files


class _Writer:
    """What the batch writer and the streaming writer have in common: how a task writes its rows."""

    def __init__(self, options: LakehouseOptions, target: Target, *, replace: bool) -> None:
        """`target`: the tables, ready for rows; `replace`: the rows replace all others, as with
        mode("overwrite")."""
        self._options = options
        self._target = target
        self._replace = replace

    def _write(self, writer_id: str, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one Spark task into new files; returns its message to the driver.

        If the query's source tasks have written the rows themselves, `batches` are their reports,
        which are passed on. If the tables have the batch already, nothing is written. `writer_id`:
        the query's id, "" in a batch write. Raises TableError for a table that no longer exists.
        """
        for target in self._target.by_name.values():
            options = target.options
            if options.has_one_table and formats.is_missing(options.format, options.name):
                raise table_missing(options.name, batch=0)  # which batches it had is not known here
        if self._target.completed_batch is not None:
            self._target.check_completed(batch_of_query())
            deque(batches, maxlen=0)  # Spark's rows have to be read
            return TaskCommit(writer_id)
        if self._options.task_rows:
            secret = self._options.task_secret
            outputs = [output for batch in batches for output in outputs_in(batch, secret)]
            return TaskCommit(writer_id, combine(outputs))
        with TaskFiles(self._target) as files:
            for batch in batches:
                files.write(batch)
            return TaskCommit(writer_id, files.close())


class LakehouseBatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a df.write into a table. With the option `transactionId` the rows are added
    once, however often the write is attempted; without it each attempt adds them."""

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one Spark task into new files; runs on an executor. Raises ConfigError
        for a null in a required column."""
        return self._write("", iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks to their tables; runs on the driver.

        Raises PipelineError if a task's message is missing, and the errors of `commit_batch`.
        """
        _, output = _combine_messages(messages)
        files, transaction = output.files, self._options.transaction_id
        if transaction is None:
            self._commit_to_each_table(files)
            return
        # Like batch 0 of a query, whose id is the transaction's. This may have characters that no
        # subject has, so dead letters get a UUID made of it.
        token = str(uuid5(NAMESPACE_OID, transaction))
        commits = BatchCommits(self._options, transaction, batch=0, dead_letter_token=token)
        if not commits.complete():
            commits.commit(files, replaces=self._replace)

    def _commit_to_each_table(self, files: Sequence[NewFile]) -> None:
        """Publish dead letters, and commit the files of a write without a transaction id to their
        tables. Nothing remembers that, so a second attempt would add the rows again.

        The quarantine and other tables come first; a write's only table, whose name is "", last.
        """
        options = self._options
        groups = files_by_table(files)
        if options.dead_letter_sink is not None:
            storage = self._target.dead_letter_staging[1]
            records = groups.pop(options.quarantine or "", [])
            options.dead_letter_sink.store(str(uuid4()), read_records(storage, records))
            remove_staged_files(storage, records)
        files_of_only_table = groups.pop("", [])
        with ThreadPoolExecutor(MAX_CONCURRENT_COMMITS) as pool:
            pending = [
                pool.submit(self._commit, options.of_table(name), group)
                for name, group in groups.items()
            ]
        for commit in pending:
            commit.result()
        if options.route is None:  # also without files: an overwrite then empties the table
            self._commit(options, files_of_only_table)

    def _commit(self, options: LakehouseOptions, files: list[NewFile]) -> None:
        """Commit files to one table, by appending, replacing or merging its rows as the write says;
        the table does not remember it, so a repeated call adds the rows again. Files that are only
        merged are removed afterwards, even if that fails, since they are part of no table."""
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


class LakehouseStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of a df.writeStream into tables: each of them gets each batch once. It knows the
    query by its id, which Spark keeps in the checkpoint."""

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one Spark task into new files; runs on an executor.

        Raises ConfigError for a null in a required column, and TableError for a table that no
        longer exists.
        """
        return self._write(require_query_id(), iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files that all tasks have written for a batch, each table once; runs on the
        driver, and again after a failure.

        Raises PipelineError if a task's message is missing, SchemaEvolved if the tables have got
        new columns instead, and the errors of `commit_batch`.
        """
        query_id, output = _combine_messages(messages)
        commits = BatchCommits(self._options, query_id, batchId)
        if not commits.complete():
            # The batch was complete before the tasks ran, so they have written nothing; but now a
            # table does not have it any more.
            if self._target.completed_batch is not None:
                raise table_missing(self._options.name, batchId)
            self._evolve_if_needed(output)
            commits.commit(output.files, output.retries, positions=output.positions)

    def _evolve_if_needed(self, output: TaskOutput) -> None:
        """If rows of the batch have fields for which tables lack columns, add these columns, remove
        the batch's files and raise SchemaEvolved, which ends the query so that it is started again
        with the new columns. Otherwise do nothing."""
        if not output.schema_changes:
            return
        files, tables = files_by_table(output.files), self._target.by_name
        for name, target in tables.items():
            assert target.storage is not None  # noqa: S101
            remove_staged_files(target.storage, files.get(name, ()))
        if self._options.dead_letter_sink is not None:
            storage = self._target.dead_letter_staging[1]
            remove_staged_files(storage, files.get(self._options.quarantine or "", ()))
        options = {name: target.options for name, target in tables.items()}
        evolve_tables(options, output.schema_changes)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: readers ignore files without a commit."""


def _combine_messages(messages: list[WriterCommitMessage | None]) -> tuple[str, TaskOutput]:
    """Combine the commit messages of all Spark tasks: returns the id of their query ("" in a batch
    write) and what they have written. Raises PipelineError if a message is missing."""
    commits = collect_task_messages(messages, TaskCommit)
    return commits[0].writer_id, combine(commit.output for commit in commits)
