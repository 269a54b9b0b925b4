"""The tables that a task opens while it writes: those of a template, the default table, and the
quarantine. The task that has the first row of a table creates it."""

from __future__ import annotations

import pyarrow as pa

from jetspark.errors import ConfigError, named
from jetspark.spark.sink_tasks import batch_of_query
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.rejections import ReasonOf
from jetspark.spark.table_sink.table_preparation import prepare_table
from jetspark.spark.table_sink.target import Target
from jetspark.tables import formats
from jetspark.tables.batches import belongs_to, check_name, created_for, was_created_for
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.table import Table


class TemplateTables:
    """The tables of one task. It creates at most `maxNewTables` of them."""

    def __init__(self, target: Target, files: FileWriter) -> None:
        self._target = target
        self._files = files
        self._writable: set[str] = set()
        """Tables whose files can be written."""
        self._checked: dict[str, Table] = {}
        """Tables that were checked and will be written."""
        self._rejections: dict[str, str] = {}
        """Why tables do not take the rows that name them."""
        self._created = 0
        self._batch = batch_of_query()
        if (transaction := target.options.transaction_id) is not None:
            self._batch = transaction, 0

    def rejection(self, name: str) -> ReasonOf | None:
        """The reason for which a table that values of rows name does not take them; None if it
        does. Raises TableError if the query has lost its checkpoint."""
        if name in self._writable:
            return None
        if name not in self._rejections:
            options = self._target.options.of_table(name)
            table = formats.find_table(options.format, options.name)
            # This batch makes the table, or has made it in an attempt that failed: each attempt has
            # to take the same rows to the same tables.
            is_new = table is None or (
                self._batch is not None and was_created_for(table, *self._batch)
            )
            reason = self._rejection(name, options, table, is_new=is_new)
            if reason is None:
                self._created += is_new
                if table is not None:
                    self._checked[name] = table
                return None
            self._rejections[name] = reason
        route, reason = self._target.options.route, self._rejections[name]
        column = None if route is None else route.values[0].column
        return lambda _: (column, reason)

    def _rejection(
        self, name: str, options: LakehouseOptions, table: Table | None, *, is_new: bool
    ) -> str | None:
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
        elif not _may_take(table, options):
            return (
                f"{name} has rows that this query did not write, and the values of a row do "
                f"not make it the query's ({named('adopt')}, --adopt)."
            )
        return None

    def open(self, name: str, schema: pa.Schema | None = None) -> str:
        """Create the table if there is none, so that its files can be written; returns its name.

        `schema`: its columns, by default those of the target.
        """
        if name not in self._writable:
            options = self._target.options.of_table(name)
            columns = schema or self._target.schema
            table = self._checked.pop(name, None)
            if table is None:
                writer = self._batch or (options.query_name and (options.query_name, 0))
                txn_versions = created_for(*writer) if writer else {}
                table = formats.open_or_create_table(
                    options.format, options.name, columns, options.partitions, txn_versions
                )
            prepare_table(options, columns, table, idempotent=True).add_to(self._files, name)
            self._writable.add(name)
        return name

    def add_staging(self, name: str) -> None:
        """Open the staging folder of the dead letters."""
        if name not in self._writable:
            self._files.add_table(name, *self._target.dead_letter_staging)
            self._writable.add(name)


def _may_take(table: Table, options: LakehouseOptions) -> bool:
    """Whether a table is the query's, or nobody's: messages choose the values that name it."""
    query, name = batch_of_query(), options.query_name
    if options.adopt or (query is None and name is None):
        return True
    if belongs_to(table, None if query is None else query[0], name):
        return True
    if query is not None and query[1] == 0 and name is not None:
        check_name(table, query[0], name)
    return False
