"""A table that is ready for its rows: what the driver sends to the tasks that write into it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from jetspark.errors import PipelineError
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables import formats, quarantine
from jetspark.tables.file_layout import Layout
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.new_files import Storage

_DEAD_LETTER_FOLDER = "_letters/"
"""Staging folder for dead letters, in the folder of a template's tables."""


@dataclass(frozen=True)
class Target:
    """A table, a list of tables, or a template of tables, that was created or checked."""

    options: LakehouseOptions
    schema: pa.Schema
    """The columns that the table will have."""
    layout: Layout | None = None
    """None, like `storage`, where tasks route rows into several tables."""
    storage: Storage | None = None
    tables: tuple[Target, ...] = ()
    """The tables of a list."""
    completed_batch: int | None = None
    """The batch for which this was prepared, if the tables have it, so that nothing is written."""

    def check_completed(self, batch: tuple[str, int] | None) -> None:
        """Raise PipelineError if this was prepared for another batch than that of the query."""
        if batch is not None and batch[1] != self.completed_batch:
            raise PipelineError(
                f"Spark writes batch {batch[1]}, but has prepared batch {self.completed_batch}, "
                "which is in the tables: start the query again."
            )

    @property
    def by_name(self) -> dict[str, Target]:
        """The tables of a list by their names; a single table has the name ""."""
        return {str(table.options.name): table for table in self.tables} or {"": self}

    @property
    def dead_letter_staging(self) -> tuple[Layout, Storage]:
        """The place where tasks write dead letters for the driver to publish.

        They are named like data files, so that `vacuum` removes what a failed task leaves behind.
        """
        if self.tables:
            return self.tables[0].dead_letter_staging
        options = self.options
        folder, storage = _DEAD_LETTER_FOLDER, self.storage
        if self.layout is not None:
            folder = self.layout.folder
        if storage is None:
            assert options.route is not None  # noqa: S101
            root = replace(options.name, path=options.route.root)
            storage = formats.folder_storage(options.format, root)
        return Layout(quarantine.SCHEMA, folder=folder), storage

    def add_to(self, files: FileWriter, name: str) -> None:
        """Let a task write files of this table, under a name."""
        assert self.layout is not None  # noqa: S101
        assert self.storage is not None  # noqa: S101
        files.add_table(name, self.layout, self.storage)

    @property
    def payload_columns(self) -> dict[str, pa.DataType]:
        """Types of the columns that are not metadata of the message: decoded or derived ones."""
        return {
            column.name: column.type
            for column in self.schema
            if column.name not in METADATA_COLUMNS
        }

    def table_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Select the columns of the table from rows that may have further ones."""
        return rows.select([name for name in rows.schema.names if name in self.schema.names])
