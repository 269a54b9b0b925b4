"""The interface of both formats: a table at the version that was read, and commits to it.

A commit adds files and atomically sets numbers: integers under names of our own that the format
stores beside the rows (Delta: application transactions; Iceberg: table properties). The number of a
query's last batch is one of them, so a repeated batch is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import pyarrow as pa

from jetspark.lakehouse.changes import Changes
from jetspark.lakehouse.maintenance import Maintained
from jetspark.lakehouse.new_files import Layout, NewFile, Storage
from jetspark.lakehouse.scans import Piece


@dataclass(frozen=True, kw_only=True)
class TableName:
    """Which table."""

    path: str | None = None
    """Folder or URI; None for a table of a catalog."""
    identifier: str | None = None
    """namespace.table in the catalog."""
    catalog: str | None = None
    """The catalog's name in PyIceberg's configuration."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the library that accesses the storage and the catalog; may hold secrets."""

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{self.catalog}:{self.identifier}"


Numbers = Mapping[str, int | None]
"""Numbers that a commit sets, by their names; None: the version that it makes, or an earlier one
that is younger than what it read."""


class Table(Maintained, Protocol):
    """A table at one version."""

    name: TableName

    @property
    def location(self) -> str:
        """Folder or URI of its files."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def version(self) -> int:
        """Another one after every commit that changes rows."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether it has no files yet."""
        ...

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        ...

    def layout(self, target_bytes: int, compression: str) -> Layout:
        """Layout of new files.

        Raises ConfigError for a table with features that would not be enforced in new files.
        """
        ...

    @property
    def storage(self) -> Storage:
        """Storage for new files."""
        ...

    def at_version(self, version: int) -> Table:
        """The table at a version (Delta) or snapshot id (Iceberg). Raises ConfigError if that does
        not exist."""
        ...

    def pieces(self, columns: Sequence[str], prune: str | None, at_least: int) -> list[Piece]:
        """The pieces that tasks read. `prune`: skips files in which no row can meet this condition;
        it does not filter rows. Raises ConfigError for an invalid condition."""
        ...

    def number(self, name: str) -> int | None:
        """The number that the last commit set under this name; None if no commit has."""
        ...

    def check_numbers_stay(self) -> None:
        """Raises ConfigError for a table that forgets numbers after a time."""
        ...

    def was_set_back(self, version: int, name: str, number: int) -> bool:
        """Whether the table was set back to a version before the commit that set this number, which
        has made `version` or a later one: by a restore (Delta), by a rollback (Iceberg)."""
        ...

    def keep_versions(self, span: timedelta) -> None:
        """Keep older versions for about this time, from the next one on. Raises CommitConflict."""
        ...

    def refresh(self) -> None:
        """Read the newest version."""
        ...

    def append(self, files: Sequence[NewFile], numbers: Numbers) -> None:
        """Add the files. Raises CommitConflict if another commit may have set a number."""
        ...

    def replace(self, files: Sequence[NewFile], numbers: Numbers) -> None:
        """Replace all files of the table. Raises CommitConflict."""
        ...

    def merge(self, changes: Changes, numbers: Numbers) -> None:
        """Replace the rows with the same keys, unless they are newer. Raises CommitConflict."""
        ...

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in existing rows. Raises CommitConflict."""
        ...
