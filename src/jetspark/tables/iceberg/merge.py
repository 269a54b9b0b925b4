"""The merge of a batch of upserts into an Iceberg table: files with replaced rows are rewritten.

Rows are found by their keys as Arrow: an expression with every key would take minutes, and the
stack of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ex
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, FileScanTask, Table

from jetspark.tables.changes import Changes
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.iceberg.scan import plan_files, read_table


def write_merged_rows(table: Table, changes: Changes, files: FileWriter) -> list[DataFile]:
    """Write the new files of a merge, and return the table's files that they replace; nothing is
    committed. `changes`: a batch of upserts; `files`: the writer of new files.

    New files have the changed rows, except those for whose key the table has a newer row, and the
    other rows of the replaced files.
    """
    affected = [] if changes.is_empty else list(_find_affected_files(table, changes))
    if affected:
        matching_rows = pa.concat_tables([file.matching_rows for file in affected])
        changes = changes.without_outdated(matching_rows)
    replaced = []
    # A file whose rows are all newer than the changes of their keys need not be replaced.
    for file in affected:
        if file.is_truncated or pc.any(changes.matching_mask(file.matching_rows)).as_py():
            for batch in _remaining_rows(table, changes, file.task).to_batches():
                files.write(batch)
            replaced.append(file.task.file)
    if changes.rows.num_rows:
        for batch in changes.rows.filter(pc.invert(changes.deleted)).to_batches():
            files.write(batch)
    return replaced


@dataclass(frozen=True)
class _AffectedFile:
    """A data file of the table with rows that a merge may replace or remove."""

    task: FileScanTask
    matching_rows: pa.Table
    """Rows that have one of the changed keys: their keys and order."""
    is_truncated: bool
    """Whether a truncate removes rows of it."""


def _find_affected_files(table: Table, changes: Changes) -> Iterator[_AffectedFile]:
    """Find the table's files with rows that the changes may replace or remove; reads only their
    columns of keys and order."""
    scan = table.scan(selected_fields=tuple(changes.columns))
    for task in plan_files(scan, _range_of_keys(changes)):
        rows = _read_rows(table, scan, task)
        matching_rows = rows.filter(changes.matching_mask(rows))
        is_truncated = bool(pc.any(changes.truncated_mask(rows), min_count=0).as_py())
        if matching_rows.num_rows or is_truncated:
            yield _AffectedFile(task, matching_rows, is_truncated=is_truncated)


def _remaining_rows(table: Table, changes: Changes, task: FileScanTask) -> pa.Table:
    """The rows of a data file, with all columns, that these changes neither replace nor remove, so
    that they have to be written again."""
    rows = _read_rows(table, table.scan(), task)
    is_changed = pc.or_(changes.matching_mask(rows), changes.truncated_mask(rows))
    return rows.filter(pc.invert(is_changed))


def _read_rows(table: Table, scan: DataScan, task: FileScanTask) -> pa.Table:
    """The rows of a file, with the columns of the scan."""
    return read_table(table.metadata, table.io, scan.projection(), task)


def _range_of_keys(changes: Changes) -> ex.BooleanExpression:
    """A condition by which files are skipped: it is true for every row that the changes may replace
    or remove, since the row's keys lie between the least and the greatest changed ones."""
    condition: ex.BooleanExpression = ex.AlwaysTrue()
    if changes.truncated_before is not None:  # a truncate removes rows with any key
        return condition
    for key in changes.keys:
        bounds = pc.min_max(changes.rows[key]).as_py()
        if bounds["min"] is not None:  # else: truncates of a history, which replace nothing
            term = ex.Reference(key)
            condition = ex.And(condition, ex.GreaterThanOrEqual(term=term, value=bounds["min"]))
            condition = ex.And(condition, ex.LessThanOrEqual(term=term, value=bounds["max"]))
    return condition
