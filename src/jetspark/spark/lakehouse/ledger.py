"""Which tables a query has written, its last batch in each, and how much: a file in its checkpoint.

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

from jetspark.lakehouse.new_files import NewFile
from jetspark.spark.local_folders import local_path

_NAME = ".jetspark.tables"
NONE = -1
"""In place of a batch."""


class Written(msgspec.Struct):
    """What a query has written since its first batch."""

    batch: int = NONE
    """The last one that is counted."""
    rows: int = 0
    aside: int = 0
    """Records put aside."""
    files: int = 0
    bytes: int = 0
    commits: int = 0
    retries: int = 0
    """Attempts that tasks made again."""

    def count(self, files: Sequence[NewFile], quarantine: str | None, retries: int) -> None:
        """Add the files of a batch."""
        aside = sum(one.rows for one in files if one.table and one.table == quarantine)
        self.rows += sum(one.rows for one in files) - aside
        self.aside += aside
        self.files += len(files)
        self.bytes += sum(one.size for one in files)
        self.commits += len({one.table for one in files})
        self.retries += retries


class _Content(msgspec.Struct):
    query: str
    tables: dict[str, int]
    written: Written | None = None
    """None in a file of before."""


class TableLedger:
    """The file of one query."""

    def __init__(self, checkpoint: str | None, query: str) -> None:
        folder = None if checkpoint is None else local_path(checkpoint)
        self._path = None if folder is None else Path(folder, _NAME)
        self._found = _Content(query, {})
        if self._path is not None:
            try:
                found = msgspec.json.decode(self._path.read_bytes(), type=_Content)
            except (OSError, ValueError):  # none yet, or one that was cut off
                return
            if found.query == query:
                self._found = found

    def last(self, table: str) -> int:
        """The query's last batch in a table, as far as is known; or NONE."""
        return self._found.tables.get(table, NONE)

    @property
    def written(self) -> Written | None:
        """What the query has written, as far as is known."""
        return self._found.written

    def note(
        self,
        batch: int,
        tables: Iterable[str],
        files: Sequence[NewFile],
        quarantine: str | None,
        retries: int,
    ) -> None:
        """These tables have this batch, whose tasks wrote these files."""
        self._found.tables.update(dict.fromkeys(tables, batch))
        found = self._found.written = self._found.written or Written()
        if batch > found.batch:  # else it was counted
            found.batch = batch
            found.count(files, quarantine, retries)
        # A path that is not here may be on a file system that only Spark knows.
        if self._path is None or not self._path.parent.is_dir():
            return
        new = self._path.with_name(f"{_NAME}.new")
        new.write_bytes(msgspec.json.encode(self._found))
        os.replace(new, self._path)
