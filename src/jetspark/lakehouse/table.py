"""What both formats do: a table at the version that was read, and commits on top of it.

A commit adds files and, in the same step, sets numbers: whole numbers under names of our own that
the format keeps beside the rows (Delta: application transactions; Iceberg: table properties). The
number of a query's last batch is one of them, so a batch that comes again is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from jetspark.lakehouse.maintenance import Maintained
from jetspark.lakehouse.new_files import Layout, NewFile, Storage
from jetspark.lakehouse.scans import Piece


@dataclass(frozen=True, kw_only=True)
class TableName:
    """Which table."""

    path: str | None = None
    """Folder or URI; None for a table of a catalog."""
    identifier: str | None = None
    """namespace.table in a catalog."""
    catalog: str | None = None
    """The catalog's name in PyIceberg's configuration."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the library that reaches the storage and the catalog; may hold secrets."""

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{self.catalog}:{self.identifier}"


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
    def partition_by(self) -> tuple[str, ...]:
        """The columns that it is partitioned by."""
        ...

    def layout(self, target_bytes: int, compression: str) -> Layout:
        """How new files have to look.

        Raises ConfigError for a table with features that new files would have to obey and cannot.
        """
        ...

    @property
    def storage(self) -> Storage:
        """Where new files go."""
        ...

    def at_version(self, version: int) -> Table:
        """The table as it was: a version of Delta, a snapshot's id of Iceberg. Raises ConfigError
        when it is not there any more."""
        ...

    def pieces(self, columns: Sequence[str], prune: str | None, at_least: int) -> list[Piece]:
        """What tasks read. `prune`: files without a row for this condition are left out; it does
        not filter rows. Raises ConfigError for a condition that is none."""
        ...

    def number(self, name: str) -> int | None:
        """What a commit has set under this name last; None when none has."""
        ...

    def refresh(self) -> None:
        """Read the newest version."""
        ...

    def append(self, files: Sequence[NewFile], numbers: Mapping[str, int]) -> None:
        """Add the files. Raises CommitConflict when one of the numbers may have been set since."""
        ...

    def replace(self, files: Sequence[NewFile], numbers: Mapping[str, int]) -> None:
        """Let these files be all of the table. Raises CommitConflict."""
        ...

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in the rows that are there. Raises CommitConflict."""
        ...
