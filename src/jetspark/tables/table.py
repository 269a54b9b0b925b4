"""Protocol of both table formats: a table at the version that was read, and commits to it.

A commit adds files and atomically sets transaction versions: integers under names of our own that
the format stores beside the rows (Delta: application transactions; Iceberg: table properties). The
number of a query's last batch is one of them, so a repeated batch is recognised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import msgspec
import pyarrow as pa

from jetspark.tables.changes import Changes
from jetspark.tables.file_layout import DerivedColumn, Layout
from jetspark.tables.new_files import NewFile, Storage
from jetspark.tables.schemas import normalized_type


@dataclass(frozen=True, kw_only=True)
class TableName:
    """Where a table is: in a folder or object store, or in a catalog."""

    path: str | None = None
    """Folder or URI; None for a table of a catalog."""
    identifier: str | None = None
    """namespace.table in the catalog."""
    catalog: str | None = None
    """The catalog's name in PyIceberg's configuration."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options for the library that accesses the storage and the catalog; may hold secrets."""

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{self.catalog}:{self.identifier}"


TxnVersions = Mapping[str, int | None]
"""Transaction versions to set in a commit, by name. None: the table version that the commit
creates, or an earlier one that is younger than the version it was prepared on."""


class TableFacts(msgspec.Struct, frozen=True):
    """What a command shows about a table at its newest version."""

    format: str
    location: str
    version: int
    """Delta: its version; Iceberg: how many snapshots are kept."""
    committed: datetime | None
    """When the newest version was committed; None if the table does not tell."""
    rows: int | None
    """None if only reading the table would show it."""
    files: int
    bytes: int
    columns: list[tuple[str, str]]
    """(name, type) of each column."""
    partition_by: list[str]
    properties: dict[str, str]


@dataclass(frozen=True)
class Compaction:
    """Result of a compaction, which merges small files: numbers of files."""

    removed: int
    """Small files that were replaced; older versions refer to them until a vacuum."""
    added: int


@dataclass(frozen=True)
class Expiry:
    """Result of removing rows that are too old."""

    rows: int | None
    """Rows that were removed; None if they left the table with their files, uncounted."""
    removed: int
    """Files that left the table; older versions refer to them until a vacuum."""
    rewritten: int
    """Files that were written, with the other rows of these."""


@dataclass(frozen=True)
class Vacuum:
    """Result of a vacuum: paths, below the table's location, of files that no version needs."""

    removed: Sequence[str]
    """Files that were removed, or that would be without a dry run."""
    unproven: Sequence[str]
    """Files that may not be this table's; a folder with another table ends with a slash."""


class ScanTask(Protocol):
    """Unit of a scan: some files of one version of a table. Sent to executors, so it must be
    picklable."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of these files."""


class Table(Protocol):
    """A table at one version; the class of a format documents its differences.

    Calls that change the table raise CommitConflict if another commit came first, and TableError
    for a table that cannot be written.
    """

    name: TableName

    @property
    def location(self) -> str:
        """Folder or URI of its files."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def version(self) -> int:
        """Version of the rows, another one after every commit that changes them: the log's
        (Delta), or the id of the newest snapshot (Iceberg)."""

    @property
    def commits(self) -> int:
        """The number of its commits, for work that is due after every so many."""

    @property
    def is_new(self) -> bool:
        """Whether the table has no files yet."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Columns and transforms by which the table is partitioned, as `PartitionBy` writes
        them."""

    @property
    def generated_columns(self) -> Mapping[str, DerivedColumn]:
        """Columns that the table computes from others (Delta's generated columns), by name. Raises
        ConfigError for an expression that is not supported here."""

    @property
    def storage(self) -> Storage:
        """The storage for new files."""

    def layout(self, target_bytes: int, compression: str) -> Layout:
        """How new data files are divided, sorted and written.

        `target_bytes`: the size of a file; `compression`: Parquet's. Raises ConfigError for a table
        with features that would not be enforced in new files.
        """

    def refresh(self) -> None:
        """Read the newest version."""

    # -- reading ---------------------------------------------------------------------------

    def at_version(self, version: int) -> Table:
        """The table at a version (Delta) or snapshot id (Iceberg). Raises ConfigError if that does
        not exist."""

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> Sequence[ScanTask]:
        """Divide the table's files into tasks. `prune`: a condition; files in which no row can meet
        it are skipped, but rows are not filtered. `at_least`: the number of tasks, if there are as
        many files. Raises ConfigError for an invalid condition."""

    def facts(self) -> TableFacts:
        """Facts of the newest version."""

    # -- transaction versions ----------------------------------------------------------------

    def txn_version(self, name: str) -> int | None:
        """The transaction version that was last set under this name; None if there is none."""

    def check_txn_versions_retained(self) -> None:
        """Raise ConfigError for a table that removes transaction versions after a time."""

    def was_set_back(self, version: int, name: str, txn_version: int) -> bool:
        """Whether a restore (Delta) or a rollback (Iceberg) has taken the table back to before the
        commit that set the transaction version `name` to `txn_version`. `version`: the table
        version that this commit made, or an earlier one."""

    def repair_version_hint(self) -> None:
        """Name the newest version where readers look for it, if a writer was killed between its
        commit and that: an Iceberg table in a folder has a file for it."""

    # -- properties ------------------------------------------------------------------------

    def property(self, name: str) -> str | None:
        """A property of the table; None if it does not have it."""

    def set_property(self, name: str, value: str) -> None:
        """Set a property, in a commit of its own, and read the newest version; does nothing if the
        property has this value."""

    # -- changes ---------------------------------------------------------------------------

    def append(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Add the files. Raises CommitConflict also if another commit may have set one of the
        transaction versions."""

    def replace(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Replace all files of the table. Raises ConfigError for an append-only table."""

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        """Merge a batch of upserts: insert its rows, replace or remove the table's rows with the
        same keys, unless they are newer, and remove those that a truncate covers. Raises as
        `replace`."""

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in existing rows."""

    def widen(self, columns: Sequence[pa.Field]) -> None:
        """Give columns wider types (`schemas.WIDENINGS`). Raises ConfigError where that is not
        possible."""

    def keep_versions(self, span: timedelta) -> None:
        """Keep older versions for about this time, from the next version on."""

    def bytes_to_merge(self, target_bytes: int) -> int:
        """Bytes of the small files that `compact` would rewrite; 0 for a table that another program
        compacts, since the two could compact the same files."""

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files into files of about this size."""

    def delete_before(self, column: str, limit: pa.Scalar) -> Expiry:
        """Remove the rows with a value below the limit in a column, in one commit; makes none if
        there are no such rows. Raises CommitConflict if a file with such rows was changed
        meanwhile, and ConfigError for a table with features that would not be kept."""

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Vacuum:
        """Remove the files that no version younger than the retention refers to, and expire older
        versions. `dry_run`: only returns the paths. Raises ConfigError for a retention that is too
        short, and for a table with features that make it unknown which files it needs."""


def commit_time(milliseconds: object) -> datetime | None:
    """The time of a commit from a table's metadata; None if that has none, or an impossible one."""
    if not isinstance(milliseconds, int):
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def describe_columns(schema: pa.Schema) -> list[tuple[str, str]]:
    """(name, type as text) of each column, for people."""
    return [(column.name, str(normalized_type(column.type))) for column in schema]


SCAN_TASK_BYTES = 128 * 1024 * 1024
"""Size of the files in one task, in bytes; a larger file is a task of its own."""
FILE_OPEN_COST_BYTES = 4 * 1024 * 1024
"""Added to the size of each file, in bytes, for the time to open it."""
_T = TypeVar("_T")


def group_into_tasks(
    files: Iterable[_T], size: Callable[[_T], int], at_least: int = 1
) -> list[list[_T]]:
    """Divide the files of a scan into groups of about the same size, each of which one task reads;
    at least `at_least` groups if there are as many files. `size`: the bytes of a file."""
    # The largest files first, each into the group that is the smallest so far.
    ordered = sorted(files, key=size, reverse=True)
    total = sum(size(file) + FILE_OPEN_COST_BYTES for file in ordered)
    count = min(len(ordered), max(at_least, math.ceil(total / SCAN_TASK_BYTES)))
    groups: list[list[_T]] = [[] for _ in range(count)]
    weights = [0] * count
    for file in ordered:
        lightest = weights.index(min(weights))
        groups[lightest].append(file)
        weights[lightest] += size(file) + FILE_OPEN_COST_BYTES
    return groups
