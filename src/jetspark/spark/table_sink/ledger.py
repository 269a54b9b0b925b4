"""A file in the checkpoint of a query: its last batch in each table, and how much it has written.

One of many tables does not get every batch, so the checkpoint alone does not tell which batches it
has to have. The file is written when the tables have a batch, and is therefore never ahead of them:
a table that has less has lost it. A batch that comes again is counted once. Only for checkpoints on
this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from jetspark.spark.local_folders import local_path
from jetspark.tables.new_files import NewFile

_NAME = ".jetspark.tables"
NO_BATCH = -1
"""The number before the first batch."""


class Totals(msgspec.Struct):
    """Figures of all batches that a query has committed."""

    batch: int = NO_BATCH
    """The last batch that is counted."""
    rows: int = 0
    quarantined: int = msgspec.field(default=0, name="aside")
    """Records in the quarantine."""
    files: int = 0
    bytes: int = 0
    commits: int = 0
    retries: int = 0
    """Attempts to read that tasks repeated."""

    def add(self, files: Sequence[NewFile], quarantine: str | None, retries: int) -> None:
        """Count the files of a batch."""
        quarantined = sum(file.rows for file in files if file.table and file.table == quarantine)
        self.rows += sum(file.rows for file in files) - quarantined
        self.quarantined += quarantined
        self.files += len(files)
        self.bytes += sum(file.size for file in files)
        self.commits += len({file.table for file in files})
        self.retries += retries


class _Content(msgspec.Struct):
    query: str
    tables: dict[str, int]
    totals: Totals | None = msgspec.field(default=None, name="written")
    """None in a file of a version that did not count."""


class TableLedger:
    """The file of one query."""

    def __init__(self, checkpoint: str | None, query: str) -> None:
        folder = None if checkpoint is None else local_path(checkpoint)
        self._path = None if folder is None else Path(folder, _NAME)
        self._content = _Content(query, {})
        if self._path is not None:
            try:
                content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
            except (OSError, ValueError):  # none yet, or one that was cut off
                return
            if content.query == query:
                self._content = content

    def last(self, table: str) -> int:
        """The query's last batch in a table, as far as is known; or NO_BATCH."""
        return self._content.tables.get(table, NO_BATCH)

    @property
    def totals(self) -> Totals | None:
        """The figures of the query, as far as is known."""
        return self._content.totals

    def record_committed(
        self,
        batch: int,
        tables: Iterable[str],
        files: Sequence[NewFile],
        quarantine: str | None,
        retries: int,
    ) -> None:
        """Record that tables have a batch, whose tasks wrote these files."""
        self._content.tables.update(dict.fromkeys(tables, batch))
        totals = self._content.totals = self._content.totals or Totals()
        if batch > totals.batch:  # else it was counted
            totals.batch = batch
            totals.add(files, quarantine, retries)
        # A path that is not here may be on a file system that only Spark knows.
        if self._path is None or not self._path.parent.is_dir():
            return
        new = self._path.with_name(f"{_NAME}.new")
        new.write_bytes(msgspec.json.encode(self._content))
        os.replace(new, self._path)
