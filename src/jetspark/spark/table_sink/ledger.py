"""What the driver records of a query's batches, so that each of its tables gets every batch once.

- The *pending batch* is recorded before its first commit: which files go to which table. Another
  attempt commits what is left of these files, whatever it would have written itself.
- The *table ledger* is written after the last commit: the last batch of each table, and totals. One
  of many tables does not get every batch, so Spark's checkpoint does not tell which ones it has to
  have. The ledger is never ahead of the tables: a table that has less has lost it.

Both are files in the query's checkpoint if that is on this machine. Otherwise there is no table
ledger, and the pending batch is beside the tables, where every driver of the query finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import TableError
from jetspark.spark.local_folders import local_path
from jetspark.spark.table_sink.options import MERGE_OPTIONS, LakehouseOptions
from jetspark.tables import formats
from jetspark.tables.fingerprints import fingerprint
from jetspark.tables.formats import Format
from jetspark.tables.new_files import NewFile, Storage, encode_new_file
from jetspark.tables.stream_positions import Progress
from jetspark.tables.table import TableName
from jetspark.tables.upserts import RowCondition

_LEDGER_FILE = ".jetspark.tables"
_PENDING_FILE = ".jetspark.batch"
FOLDER_BESIDE_TABLES = "_jetspark"
"""The folder of pending batches that are not in a checkpoint."""
_PARQUET_COLUMN = "batch"
_RECENT_BATCHES = 20
NO_BATCH = -1
"""The number before the first batch."""


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content atomically: after a kill it has the old or the new content."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)


# -- the table ledger ------------------------------------------------------------------------------


class Totals(msgspec.Struct):
    """Figures of all batches that a query has committed."""

    batch: int = NO_BATCH
    """The last batch that is counted."""
    rows: int = 0
    """Rows in tables, without quarantine records."""
    quarantined: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    retries: int = 0
    """Attempts to read that tasks repeated."""

    def add(self, files: Sequence[NewFile], quarantine: str | None, retries: int) -> None:
        """Add one batch to the totals: `files` are those of all its tables.

        `quarantine`: the name of the quarantine table, whose rows are counted apart; `retries`:
        failed reads that tasks repeated.
        """
        # `file.table` is "" for a query's only table, which is no quarantine.
        quarantined = sum(file.rows for file in files if file.table and file.table == quarantine)
        self.rows += sum(file.rows for file in files) - quarantined
        self.quarantined += quarantined
        self.files += len(files)
        self.bytes += sum(file.size for file in files)
        self.commits += len({file.table for file in files})
        self.retries += retries


class CommittedBatch(msgspec.Struct, frozen=True):
    """Figures of one batch that a query has committed."""

    batch: int
    rows: int
    quarantined: int
    files: int
    bytes: int


class _LedgerContent(msgspec.Struct):
    """What the file of a table ledger has, as JSON."""

    query: str
    """The id of the query that wrote it."""
    tables: dict[str, int]
    """The last batch of each table."""
    totals: Totals | None = None
    """None before the first batch."""
    recent: list[CommittedBatch] = []
    """The last batches that are counted, oldest first."""


class TableLedger:
    """The last batch of a query in each of its tables, and the query's totals: a file in the
    query's checkpoint. Without a file, and only in memory, if the checkpoint is not on this
    machine."""

    def __init__(self, checkpoint: str | None, query: str) -> None:
        """Read the file, if there is one. `query`: the id; what another query wrote is ignored."""
        folder = local_path(checkpoint)
        self._path = None if folder is None else Path(folder, _LEDGER_FILE)
        self._content = _LedgerContent(query, {})
        if self._path is not None:
            try:
                content = msgspec.json.decode(self._path.read_bytes(), type=_LedgerContent)
            except (OSError, ValueError):  # none yet, or one that was cut off
                return
            if content.query == query:
                self._content = content

    def last(self, table: str) -> int:
        """The number of the query's last batch in a table; NO_BATCH if the ledger knows none."""
        return self._content.tables.get(table, NO_BATCH)

    @property
    def totals(self) -> Totals | None:
        """Rows, files and other figures of all batches so far; None if they are not known."""
        return self._content.totals

    @property
    def recent(self) -> list[CommittedBatch]:
        """Figures of the last batches, oldest first."""
        return self._content.recent

    @property
    def tables(self) -> dict[str, int]:
        """The number of the query's last batch in each table that has got one."""
        return self._content.tables

    def record_committed(
        self,
        batch: int,
        tables: Iterable[str],
        files: Sequence[NewFile],
        quarantine: str | None,
        retries: int,
    ) -> None:
        """Record that each of these tables has got a batch, and add its files to the totals.

        `tables`: their names; `files`: the batch's files in all tables; `quarantine`, `retries`: as
        for `Totals.add`.
        """
        self._content.tables.update(dict.fromkeys(tables, batch))
        totals = self._content.totals = self._content.totals or Totals()
        if batch > totals.batch:  # another attempt may have recorded it already
            before = copy(totals)
            totals.batch = batch
            totals.add(files, quarantine, retries)
            self._content.recent.append(_difference(before, totals))
            del self._content.recent[:-_RECENT_BATCHES]
        # A folder that does not exist here may be on a file system that only Spark knows.
        if self._path is not None and self._path.parent.is_dir():
            _replace_file(self._path, msgspec.json.encode(self._content))


def _difference(before: Totals, after: Totals) -> CommittedBatch:
    """The figures of the batch between two totals."""
    return CommittedBatch(
        after.batch,
        after.rows - before.rows,
        after.quarantined - before.quarantined,
        after.files - before.files,
        after.bytes - before.bytes,
    )


# -- the pending batch -----------------------------------------------------------------------------


class Location(msgspec.Struct, frozen=True):
    """Where a table, or a folder of tables, is: its name without the properties of the storage,
    which may have secrets, so that it can be stored in a file."""

    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None

    @classmethod
    def of(cls, format_: Format, name: TableName) -> Location:
        """The location of the table, or of the folder of tables, that has this name."""
        return cls(format_, name.path, name.identifier, name.catalog)

    def table_name(self, properties: Mapping[str, str]) -> TableName:
        """The name of what is at this location, with the properties (credentials, region, …) of its
        storage and catalog."""
        return TableName(
            path=self.path,
            identifier=self.identifier,
            catalog=self.catalog,
            properties=dict(properties),
        )


class PendingTable(msgspec.Struct):
    """The part of a pending batch for one table: the files that it gets, and how these change it
    (appended, in place of all others, or merged by keys)."""

    name: str
    """The folder or identifier to which rows are routed; empty for a query's only table."""
    location: Location
    files: list[NewFile]
    """Files, in the form of `encode_new_file`."""
    replaces: bool = False
    """Whether its rows replace all others (a batch write)."""
    keys: tuple[str, ...] | None = None
    sequence_by: str | None = None
    apply_as_deletes: RowCondition | None = None
    apply_as_truncates: RowCondition | None = None
    history_by: str | None = None

    @classmethod
    def of(
        cls, name: str, options: LakehouseOptions, files: Sequence[NewFile], *, replaces: bool
    ) -> PendingTable:
        """A table's part of a batch, to be recorded before the batch's first commit.

        `name`: the folder or identifier to which rows are routed; "" for a query's only table.
        `replaces`: the rows replace all others of the table.
        """
        return cls(
            name=name,
            location=Location.of(options.format, options.name),
            files=list(map(encode_new_file, files)),
            replaces=replaces,
            **{option: getattr(options, option) for option in MERGE_OPTIONS},
        )

    def options(self, query: LakehouseOptions) -> LakehouseOptions:
        """The options with which this table gets its recorded files, although the options of its
        query may have changed since.

        Its location, and the keys by which its rows replace others, are as recorded; credentials
        are those of `query`, the query's present options. If these have keys for the table, they
        are taken in place of recorded keys, since an error may have asked the user for others.
        """
        current = query.of_table(self.name)
        is_same_table = Location.of(current.format, current.name) == self.location
        properties = (current if is_same_table else query).name.properties
        options = replace(
            current,
            format=self.location.format,
            name=self.location.table_name(properties),
            route=None,
            tables=(),
            partition_by=None,  # the files have their partitions already
        )
        if is_same_table and self.keys and current.keys:
            return options
        return replace(options, **{option: getattr(self, option) for option in MERGE_OPTIONS})


class PendingDeadLetters(msgspec.Struct):
    """The part of a pending batch for a stream of dead letters: files of rejected records, which
    the driver publishes to it."""

    stream: str
    """The stream, as `quarantine` names it."""
    location: Location
    """The table, or the folder of tables, that has the files."""
    files: list[NewFile]
    """Files, in the form of `encode_new_file`."""
    stored: bool = False
    """Whether the stream has certainly got them: they may have been replayed since."""


class PendingBatch(msgspec.Struct):
    """The record of a batch that may not be committed to all of its tables yet: which files each of
    them gets. Another attempt of the batch commits what is left of these files."""

    query: str
    batch: int
    offsets: int | None
    """The fingerprint of what it reads; None: unknown."""
    tables: list[PendingTable]
    dead_letters: PendingDeadLetters | None = None
    quarantine: str | None = None
    retries: int = 0
    """Attempts to read that tasks repeated."""
    progress: Progress | None = None


class _StoreInCheckpoint:
    """A file in the query's checkpoint with its pending batch: the record of which files go to
    which table."""

    beside_tables = False

    def __init__(self, folder: str) -> None:
        self._path = Path(folder, _PENDING_FILE)

    def read(self) -> bytes | None:
        """Read the encoded record of the pending batch; None if there is none."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the record by this encoded one."""
        _replace_file(self._path, content)


class _StoreBesideTables:
    """A file in the storage of the tables with a query's pending batch: the record of which files
    go to which table. It is Parquet with one value, since each storage can write that."""

    beside_tables = True

    def __init__(self, storage: Storage, query: str) -> None:
        """`storage`: of the tables; `query`: its id, from which the file's name is made."""
        self._storage = storage
        self._path = f"{FOLDER_BESIDE_TABLES}/{fingerprint(query):014x}.batch"

    def read(self) -> bytes | None:
        """Read the encoded record of the pending batch; None if there is none."""
        try:
            with self._storage.open(self._path) as stream:
                return bytes(pq.read_table(stream, partitioning=None)[_PARQUET_COLUMN][0].as_py())
        except (FileNotFoundError, pa.ArrowInvalid):  # none yet, or one that was cut off
            return None

    def write(self, content: bytes) -> None:
        """Replace the record by this encoded one."""
        # Nothing of the new batch is committed yet, so a kill in between loses nothing.
        with suppress(FileNotFoundError):
            self._storage.remove(self._path)
        with self._storage.create(self._path) as stream:
            pq.write_table(pa.table({_PARQUET_COLUMN: [content]}), stream)


PendingStore: TypeAlias = _StoreInCheckpoint | _StoreBesideTables


def pending_store(options: LakehouseOptions, query: str) -> PendingStore | None:
    """Choose where the record of a query's pending batch is kept: in its checkpoint, if that is on
    this machine, or else beside its tables.

    None for a template of tables in a catalog whose checkpoint is not on this machine: these tables
    have no common folder, so nothing is recorded.
    """
    folder = local_path(options.checkpoint)
    # A folder that does not exist here may be on a file system that only Spark knows.
    if folder is not None and os.path.isdir(folder):
        return _StoreInCheckpoint(folder)
    storage = find_storage(options.format, staging_name(options))
    return None if storage is None else _StoreBesideTables(storage, query)


def staging_name(options: LakehouseOptions) -> TableName:
    """The name of the table or folder into which tasks write rejected records for the driver to
    publish: the query's first table or, for a template of folders, the folder above its tables."""
    first = options.tables[0].options if options.tables else options
    if first.route is None or first.route.in_catalog:
        return first.name
    return replace(first.name, path=first.route.root)


def find_storage(format_: Format, name: TableName) -> Storage | None:
    """The storage of a table or a folder of tables; None for a table of a catalog that does not
    exist."""
    if name.path is not None:
        return formats.folder_storage(format_, name)
    table = formats.find_table(format_, name)
    return None if table is None else table.storage


def read_pending(
    store: PendingStore | None, query: str, options: LakehouseOptions
) -> PendingBatch | None:
    """Read the record of the batch that a query has decided last; None if there is none.

    `query`: its id; the record of another query is none. Raises TableError for a record that this
    query cannot have written.
    """
    if store is None or (content := store.read()) is None:
        return None
    try:
        pending = msgspec.msgpack.decode(content, type=PendingBatch)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None  # cut off by a kill, and so before the batch's first commit
    if pending.query != query:
        return None
    if store.beside_tables:
        _check_not_forged(pending, options)
    return pending


def _check_not_forged(pending: PendingBatch, options: LakehouseOptions) -> None:
    """Raise TableError for a record beside the tables that no query with these options writes.

    Whoever may write into that storage could put a record there that makes the driver read dead
    letters from another location, or replace the rows of a table.
    """
    dead_letters, name = pending.dead_letters, staging_name(options)
    is_elsewhere = dead_letters is not None and (
        dead_letters.location != Location.of(options.format, name)
    )
    replaces = any(table.replaces for table in pending.tables)
    # Only a batch write replaces rows, and only one with a transaction id has a record.
    if is_elsewhere or (replaces and options.transaction_id is None):
        raise TableError(
            f"The record of batch {pending.batch} beside {name}, in {FOLDER_BESIDE_TABLES}, is "
            "not one that this query has written: remove that folder."
        )
