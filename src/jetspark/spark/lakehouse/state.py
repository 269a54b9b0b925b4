"""The state of a Delta or Iceberg table and its note: which query writes it, and how far it is."""

from __future__ import annotations

from jetspark.lakehouse.batches import last_batch
from jetspark.lakehouse.formats import check_empty, find_table
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.table_files import Files
from jetspark.spark.table_note import Notes
from jetspark.spark.table_state import TableState, held_in


def read_lakehouse_table(
    files: Files, folder: str, options: LakehouseOptions, query: str | None
) -> TableState:
    """The state of a table. `query`: the query of the checkpoint, for a table without a note.

    Raises ConfigError without the format's library, and for a new table in a folder of other files.
    """
    if files.is_file(folder):
        return TableState(is_file=True)
    note = Notes(files, folder).newest()
    table = find_table(options.format, options.name)
    if table is None:
        within = held_in(files, folder)
        if within is None and (note is None or note.progress is None):
            check_empty(options.format, options.name)
        return TableState(note=note, within=within)
    writer = query if note is None else note.query
    batch = None if writer is None else last_batch(table, writer)
    # A table whose first batch was not committed has no rows, and belongs to no query yet; where
    # it was removed meanwhile, it may have no note either.
    whose = note is not None or batch is not None or table.is_new
    others = () if whose else (options.name.path or "",)
    return TableState(batch=batch, note=note, others=others, found=True)
