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
from jetspark.tables.batches import fingerprint
from jetspark.tables.formats import Format
from jetspark.tables.new_files import NewFile, Storage, encode_new_file
from jetspark.tables.table import TableName
from jetspark.tables.upserts import RowCondition

_LEDGER_FILE = ".jetspark.tables"
_PENDING_FILE = ".jetspark.batch"
FOLDER_BESIDE_TABLES = "_jetspark"
"""The folder of pending batches that are not in a checkpoint."""
_PARQUET_COLUMN = "batch"
NO_BATCH = -1
"""The number before the first batch."""


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file, so that a kill leaves the old or the new content."""
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
        """Count the files of a batch. `quarantine`: the name of the quarantine table."""
        quarantined = sum(file.rows for file in files if file.table and file.table == quarantine)
        self.rows += sum(file.rows for file in files) - quarantined
        self.quarantined += quarantined
        self.files += len(files)
        self.bytes += sum(file.size for file in files)
        self.commits += len({file.table for file in files})
        self.retries += retries


class _LedgerContent(msgspec.Struct):
    query: str
    tables: dict[str, int]
    """The last batch of each table."""
    totals: Totals | None = None
    """None before the first batch."""


class TableLedger:
    """The table ledger of one query; empty, and not written, if its checkpoint is elsewhere."""

    def __init__(self, checkpoint: str | None, query: str) -> None:
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
        """The query's last batch in a table, as far as is known; or NO_BATCH."""
        return self._content.tables.get(table, NO_BATCH)

    @property
    def totals(self) -> Totals | None:
        """The figures of the query; None if they are not known."""
        return self._content.totals

    def record_committed(
        self,
        batch: int,
        tables: Iterable[str],
        files: Sequence[NewFile],
        quarantine: str | None,
        retries: int,
    ) -> None:
        """Record that tables have a batch, whose tasks wrote these files; counts a batch once."""
        self._content.tables.update(dict.fromkeys(tables, batch))
        totals = self._content.totals = self._content.totals or Totals()
        if batch > totals.batch:
            totals.batch = batch
            totals.add(files, quarantine, retries)
        # A path that is not here may be on a file system that only Spark knows.
        if self._path is not None and self._path.parent.is_dir():
            _replace_file(self._path, msgspec.json.encode(self._content))


# -- the pending batch -----------------------------------------------------------------------------


class Location(msgspec.Struct, frozen=True):
    """A table, or a folder of tables, without the secrets of its storage."""

    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None

    @classmethod
    def of(cls, format_: Format, name: TableName) -> Location:
        """The location of a table, or of a folder."""
        return cls(format_, name.path, name.identifier, name.catalog)

    def table_name(self, properties: Mapping[str, str]) -> TableName:
        """The name with the properties of its storage and catalog."""
        return TableName(
            path=self.path,
            identifier=self.identifier,
            catalog=self.catalog,
            properties=dict(properties),
        )


class PendingTable(msgspec.Struct):
    """The files that one table gets, and how they change it."""

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
        """The pending table of these options."""
        return cls(
            name,
            Location.of(options.format, options.name),
            list(map(encode_new_file, files)),
            replaces,
            **{option: getattr(options, option) for option in MERGE_OPTIONS},
        )

    def options(self, query: LakehouseOptions) -> LakehouseOptions:
        """The options of the table, for a query whose own may have changed: secrets are the
        query's. Keys are too, if both have keys, since an error may have asked for others."""
        current = query.of_table(self.name)
        is_same_table = Location.of(current.format, current.name) == self.location
        properties = (current if is_same_table else query).name.properties
        options = replace(
            current,
            format=self.location.format,
            name=self.location.table_name(properties),
            route=None,
            tables=(),
            partition_by=None,
        )
        if is_same_table and self.keys and current.keys:
            return options
        return replace(options, **{option: getattr(self, option) for option in MERGE_OPTIONS})


class PendingDeadLetters(msgspec.Struct):
    """Files of records that the driver publishes to a stream of dead letters."""

    stream: str
    """The stream, as `quarantine` names it."""
    location: Location
    """The table, or the folder of tables, that has the files."""
    files: list[NewFile]
    """Files, in the form of `encode_new_file`."""
    stored: bool = False
    """Whether the stream has certainly got them: they may have been replayed since."""


class PendingBatch(msgspec.Struct):
    """A batch that was decided: its tables, and the files that each of them gets."""

    query: str
    batch: int
    offsets: int | None
    """The fingerprint of what it reads; None: unknown."""
    tables: list[PendingTable]
    dead_letters: PendingDeadLetters | None = None
    quarantine: str | None = None
    retries: int = 0
    """Attempts to read that tasks repeated."""


class _StoreInCheckpoint:
    """The file of a pending batch in the query's checkpoint."""

    beside_tables = False

    def __init__(self, folder: str) -> None:
        self._path = Path(folder, _PENDING_FILE)

    def read(self) -> bytes | None:
        """The content; None without a record."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the content."""
        _replace_file(self._path, content)


class _StoreBesideTables:
    """The file of a pending batch beside the tables: Parquet with one value, since each storage
    writes that."""

    beside_tables = True

    def __init__(self, storage: Storage, query: str) -> None:
        self._storage = storage
        self._path = f"{FOLDER_BESIDE_TABLES}/{fingerprint(query):014x}.batch"

    def read(self) -> bytes | None:
        """The content; None without a record."""
        try:
            with self._storage.open(self._path) as stream:
                return bytes(pq.read_table(stream, partitioning=None)[_PARQUET_COLUMN][0].as_py())
        except (FileNotFoundError, pa.ArrowInvalid):  # none yet, or one that was cut off
            return None

    def write(self, content: bytes) -> None:
        """Replace the content."""
        # Nothing of the new batch is committed yet, so a kill in between loses nothing.
        with suppress(FileNotFoundError):
            self._storage.remove(self._path)
        with self._storage.create(self._path) as stream:
            pq.write_table(pa.table({_PARQUET_COLUMN: [content]}), stream)


PendingStore: TypeAlias = _StoreInCheckpoint | _StoreBesideTables


def pending_store(options: LakehouseOptions, query: str) -> PendingStore | None:
    """The store of a query's pending batch. None for a template of tables in a catalog, with a
    checkpoint that is not on this machine: there is no folder for it."""
    folder = local_path(options.checkpoint)
    # A path that is not here may be on a file system that only Spark knows.
    if folder is not None and os.path.isdir(folder):
        return _StoreInCheckpoint(folder)
    name = staging_name(options)
    storage = find_storage(Location.of(options.format, name), name.properties)
    return None if storage is None else _StoreBesideTables(storage, query)


def staging_name(options: LakehouseOptions) -> TableName:
    """The query's first table, or the folder of a template's tables: there tasks write the records
    that the driver publishes."""
    first = options.tables[0].options if options.tables else options
    if first.route is None or first.route.in_catalog:
        return first.name
    return replace(first.name, path=first.route.root)


def find_storage(location: Location, properties: Mapping[str, str]) -> Storage | None:
    """The storage of a folder or a table; None for a table that does not exist."""
    name = location.table_name(properties)
    if name.path is not None:
        return formats.folder_storage(location.format, name)
    table = formats.find_table(location.format, name)
    return None if table is None else table.storage


def read_pending(
    store: PendingStore | None, query: str, options: LakehouseOptions
) -> PendingBatch | None:
    """The batch that the query has decided last; None without a record, and for one that was cut
    off before the first commit. Raises TableError for a forged one."""
    if store is None or (content := store.read()) is None:
        return None
    try:
        pending = msgspec.msgpack.decode(content, type=PendingBatch)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    if pending.query != query:
        return None
    if store.beside_tables:
        _check_not_forged(pending, options)
    return pending


def _check_not_forged(pending: PendingBatch, options: LakehouseOptions) -> None:
    """Raise TableError for a record beside tables that decides more than a query of these options
    can have decided: whoever may write there may not touch other locations through it."""
    dead_letters, name = pending.dead_letters, staging_name(options)
    is_elsewhere = dead_letters is not None and (
        dead_letters.location != Location.of(options.format, name)
    )
    replaces = any(table.replaces for table in pending.tables)
    if is_elsewhere or (replaces and options.transaction_id is None):
        raise TableError(
            f"The record of batch {pending.batch} beside {name}, in {FOLDER_BESIDE_TABLES}, is "
            "not one that this query has written: remove that folder."
        )
