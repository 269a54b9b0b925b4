"""The files that one task writes: rows of its tables, and the records that are quarantined.

Every row of a table passes through `TaskFiles.write`: of messages that the task has decoded, of a
DataFrame, and of records that are retried. It rejects records, chooses the table, and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from jetspark.errors import ConfigError, named
from jetspark.payloads.tolerant import CORRUPT
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.table_sink.rejections import (
    ReasonOf,
    misfits,
    rejected_mask,
    rejection_error,
    rejection_reason,
    unrouted_reason,
)
from jetspark.spark.table_sink.schema_evolution import (
    UNKNOWN_FIELDS_COLUMN,
    SchemaChange,
    SchemaChanges,
    columns_without_fields,
)
from jetspark.spark.table_sink.target import Target
from jetspark.spark.table_sink.task_output import TaskOutput
from jetspark.spark.table_sink.template_tables import TemplateTables
from jetspark.tables import quarantine
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.formats import Format

_ROUTED_BYTES = 32 * 1024 * 1024
"""Arrow memory of rows that are routed together, so that each table gets few slices."""


class TaskFiles:
    """The new files of one task, in the table or in the tables that its rows are routed to."""

    def __init__(
        self,
        target: Target,
        *,
        admit: Callable[[str, pa.RecordBatch], pa.RecordBatch] | None = None,
        leave: Callable[[pa.RecordBatch, ReasonOf], None] | None = None,
    ) -> None:
        """Begin without a file.

        `admit`: returns those of a table's rows that are to be written, by default all of them; it
        gets the name of the table that the rows belong to, which is "" for the only one, and for
        rows without a table. `leave`: takes the rejected records; by default they are quarantined,
        or are an error.
        """
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        self._target = target
        self._files = FileWriter(target.layout, target.storage, f"part-{part:05}")
        for table in target.tables:
            table.add_to(self._files, str(table.options.name))
        self._admit = admit
        self._leave = leave
        self._unrouted: list[pa.RecordBatch] = []
        self._unrouted_bytes = 0
        self._quarantined = 0
        self.schema_changes: SchemaChanges = {}
        """Columns that the tables lack. With the first one the task stops writing, since the batch
        is run again when the tables have them."""

    @cached_property
    def _tables(self) -> TemplateTables:
        return TemplateTables(self._target, self._files)

    def write(self, batch: pa.RecordBatch, table_index: int | None = 0) -> None:
        """Write rows, in a list of tables those of one table; None: rows that no table takes.

        Raises ConfigError for a null in a required column, for rows without a table, and for a
        rejected record, if that is to end the write.
        """
        target, name = self._target, ""
        if target.tables:
            if table_index is None:
                if not self.schema_changes:
                    self._write_without_table(batch, unrouted_reason)
                return
            target = target.tables[table_index]
            name = str(target.options.name)
        rows = self._collect_unknown_fields(name, target, batch)
        if self.schema_changes:
            return
        rows = self._without_rejected(
            target, rows, rejected_mask(target, rows), partial(rejection_reason, target)
        )
        if not rows.num_rows:
            return
        if target.options.route is None:
            self._write_fitting(target, rows, name, name)
            return
        self._unrouted.append(rows)
        self._unrouted_bytes += rows.nbytes
        if self._unrouted_bytes >= _ROUTED_BYTES:
            self._route()

    def close(self) -> TaskOutput:
        """Finish all files. Raises as `write`."""
        if self.schema_changes:
            self.discard()
            return TaskOutput((), self.schema_changes)
        self._route()
        return TaskOutput(tuple(self._files.close()), quarantined=self._quarantined)

    def discard(self) -> None:
        """Remove the written files, as far as possible."""
        self._files.discard()

    # -- unknown fields ----------------------------------------------------------------------

    def _collect_unknown_fields(
        self, name: str, target: Target, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Note the fields that the table lacks, and return the rows without their column."""
        if UNKNOWN_FIELDS_COLUMN not in batch.schema.names:
            return batch
        assert target.layout is not None  # noqa: S101
        change = self.schema_changes.get(name, SchemaChange())
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
        """Write the rows that have waited for their tables."""
        route = self._target.options.route
        if route is None or not self._unrouted:
            return
        batch = pa.concat_batches(self._unrouted)
        self._unrouted, self._unrouted_bytes = [], 0
        for name, rows in route.split_by_table(batch):
            reason_of = route.missing_value if name is None else self._tables.rejection(name)
            if name is None or reason_of is not None:
                self._write_without_table(rows, reason_of or route.missing_value, name or "")
            else:
                self._write_fitting(self._target, rows, self._tables.open(name), name)

    def _write_without_table(
        self, rows: pa.RecordBatch, reason_of: ReasonOf, routed_to: str = ""
    ) -> None:
        """Write rows that no table takes into the default one, or reject them. Raises ConfigError
        if there is neither."""
        options = self._target.options
        if options.default_table is not None:
            self._write_fitting(
                self._target, rows, self._tables.open(options.default_table), routed_to
            )
        elif self._leave is not None:
            self._leave(rows, reason_of)
        elif options.quarantine is not None:
            self._quarantine(rows, reason_of)
        else:
            reason = reason_of(rows.slice(0, 1))[1].removesuffix(".")
            raise ConfigError(
                f"{reason}: name a table for these rows in {named('default_table')}, or, with a "
                "schema of payloads, a quarantine (--quarantine)."
            )

    def _write_fitting(
        self, target: Target, rows: pa.RecordBatch, table: str, routed_to: str
    ) -> None:
        """Write the rows that a table can hold, and reject the others. `routed_to`: the table that
        the values of the rows name, which may be another one than the default table."""
        mask, reason_of = misfits(target, self._files.layout_of(table), rows)
        if mask is not None:
            rows = self._without_rejected(self._target, rows, mask, reason_of)
        if self._admit is not None and rows.num_rows:
            rows = self._admit(routed_to, rows)
        if rows.num_rows:
            self._files.write(target.table_columns(rows), table)

    # -- rejected records --------------------------------------------------------------------

    def _without_rejected(
        self, target: Target, rows: pa.RecordBatch, mask: pa.Array, reason_of: ReasonOf
    ) -> pa.RecordBatch:
        """Reject the records of a mask, and return the others. Raises ConfigError for the first
        rejected record if the target has no quarantine."""
        if not pc.any(mask).as_py():
            return rows
        rejected = rows.filter(mask)
        if self._leave is not None:
            self._leave(rejected, reason_of)
        elif target.options.quarantine is not None:
            self._quarantine(rejected, reason_of)
        else:
            raise rejection_error(target, rejected, reason_of)
        return rows.filter(pc.invert(mask))

    def _quarantine(self, records: pa.RecordBatch, reason_of: ReasonOf) -> None:
        """Write records into the quarantine table, or for the driver to publish."""
        options = self._target.options
        assert options.quarantine is not None  # noqa: S101
        if options.dead_letter_sink is None:
            self._tables.open(options.quarantine, quarantine.SCHEMA)
        else:
            self._tables.add_staging(options.quarantine)
        self._quarantined += records.num_rows
        self._files.write(quarantine.quarantine_rows(records, reason_of), options.quarantine)
