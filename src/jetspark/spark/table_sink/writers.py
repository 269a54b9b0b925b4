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
    """The base of the batch and the streaming writer: what tasks do."""

    def __init__(self, options: LakehouseOptions, target: Target, *, replace: bool) -> None:
        self._options = options
        self._target = target
        self._replace = replace

    def _write(self, writer_id: str, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task, or pass on the reports of tasks that have written theirs.

        Raises TableError for a table that no longer exists.
        """
        for target in self._target.by_name.values():
            options = target.options
            if options.has_one_table and formats.is_missing(options.format, options.name):
                raise table_missing(options.name, 0)
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
    """df.write; with a transaction id the rows are added once, however often it is attempted."""

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task; runs on an executor. Raises ConfigError for a null in a
        required column."""
        return self._write("", iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks; runs on the driver.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        files, transaction = _unite_answers(messages)[1].files, self._options.transaction_id
        if transaction is None:
            self._commit_to_each_table(files)
            return
        token = str(uuid5(NAMESPACE_OID, transaction))
        commits = BatchCommits(self._options, transaction, 0, dead_letter_token=token)
        if not commits.complete():
            commits.commit(files, replaces=self._replace)

    def _commit_to_each_table(self, files: Sequence[NewFile]) -> None:
        """Publish dead letters, and commit the files of each table; the only table is the last
        one. A second attempt would add the rows again."""
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
        if options.route is None:
            self._commit(options, files_of_only_table)

    def _commit(self, options: LakehouseOptions, files: list[NewFile]) -> None:
        """Commit files to one table, which remembers no batch."""
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
    """df.writeStream; the writer's id is the query's, which the checkpoint keeps."""

    @names_of_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task; runs on an executor.

        Raises ConfigError for a null in a required column, TableError for a table that no longer
        exists.
        """
        return self._write(require_query_id(), iterator)

    @names_of_spark()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks; runs on the driver, and again after a failure.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        query_id, output = _unite_answers(messages)
        commits = BatchCommits(self._options, query_id, batchId)
        if not commits.complete():
            if self._target.completed_batch is not None:
                raise table_missing(self._options.name, batchId)
            self._evolve(output)
            commits.commit(output.files, output.retries)

    def _evolve(self, output: TaskOutput) -> None:
        """Give the tables the columns that rows need, and remove the batch's files. Raises
        SchemaEvolved, unless the rows need none."""
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


def _unite_answers(messages: list[WriterCommitMessage | None]) -> tuple[str, TaskOutput]:
    """The writer's id and the united output of all tasks. Raises PipelineError if an answer is
    missing."""
    commits = collect_task_messages(messages, TaskCommit)
    return commits[0].writer_id, combine(commit.output for commit in commits)
