"""Which tables a query has written, and its last batch in each: a file in its checkpoint.

One of many tables does not get every batch, so the checkpoint alone does not tell which batches it
has to have. The file is written when the tables have a batch, and is therefore never ahead of them:
a table that has less has lost it. Only for checkpoints on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from jetspark.spark.checkpoints import local_path

_NAME = ".jetspark.tables"
NONE = -1
"""In place of a batch."""


class _Content(msgspec.Struct):
    query: str
    tables: dict[str, int]


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

    def note(self, batch: int, tables: Iterable[str]) -> None:
        """These tables have this batch."""
        before = dict(self._found.tables)
        self._found.tables.update(dict.fromkeys(tables, batch))
        # A path that is not here may be on a file system that only Spark knows.
        if self._path is None or self._found.tables == before or not self._path.parent.is_dir():
            return
        new = self._path.with_name(f"{_NAME}.new")
        new.write_bytes(msgspec.json.encode(self._found))
        os.replace(new, self._path)
