"""A batch that has been decided, and where that is recorded until all of its tables have it.

The record is in the query's checkpoint if that is on this machine; otherwise beside the tables,
where every driver of the query finds it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import TableError
from jetspark.spark.local_folders import local_path
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables import formats
from jetspark.tables.batches import fingerprint
from jetspark.tables.formats import Format
from jetspark.tables.new_files import NewFile, Storage, encode_new_file
from jetspark.tables.table import TableName
from jetspark.tables.upserts import RowCondition

_FILE_IN_CHECKPOINT = ".jetspark.batch"
FOLDER_BESIDE_TABLES = "_jetspark"
"""The folder of records that are not in a checkpoint."""
_PARQUET_COLUMN = "batch"


class PendingTable(msgspec.Struct):
    """The files that one table gets, and how they change it."""

    name: str
    """The folder or identifier to which rows are routed; empty for a query's only table."""
    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None
    files: list[NewFile]
    """Files, in the form of `encode_new_file`."""
    replaces: bool = False
    """Whether its rows replace all others (a batch write)."""
    keys: tuple[str, ...] | None = None
    sequence_by: str | None = None
    deletes: RowCondition | None = None
    truncates: RowCondition | None = None
    history_by: str | None = None

    @classmethod
    def of(
        cls, name: str, options: LakehouseOptions, files: Sequence[NewFile], *, replaces: bool
    ) -> PendingTable:
        """The files of a table with these options."""
        return cls(
            name,
            options.format,
            options.name.path,
            options.name.identifier,
            options.name.catalog,
            list(map(encode_new_file, files)),
            replaces,
            options.keys,
            options.sequence_by,
            options.apply_as_deletes,
            options.apply_as_truncates,
            options.history_by,
        )

    def options(self, query: LakehouseOptions) -> LakehouseOptions:
        """The options of the table, for a query whose own may have changed: secrets are the
        query's. Keys are too, if both have keys, since an error may have asked for others."""
        current = query.of_table(self.name) if self.name else query
        name = TableName(path=self.path, identifier=self.identifier, catalog=self.catalog)
        is_unchanged = (
            current.format == self.format and replace(current.name, properties={}) == name
        )
        name = replace(name, properties=(current if is_unchanged else query).name.properties)
        options = replace(
            current, format=self.format, name=name, route=None, tables=(), partition_by=None
        )
        if is_unchanged and self.keys and current.keys:
            return options
        return replace(
            options,
            keys=self.keys,
            sequence_by=self.sequence_by,
            apply_as_deletes=self.deletes,
            apply_as_truncates=self.truncates,
            history_by=self.history_by,
        )


class PendingDeadLetters(msgspec.Struct):
    """Files of records for a stream of dead letters."""

    stream: str
    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None
    """Like `path` and `identifier`, of the table, or the folder, that has the files."""
    files: list[NewFile]
    stored: bool = False
    """Whether the stream has certainly got them: they may have been replayed since."""


class PendingBatch(msgspec.Struct):
    """The tables of a batch, and the files that each of them gets."""

    query: str
    batch: int
    offsets: int | None
    """The fingerprint of what it reads; None: unknown."""
    tables: list[PendingTable]
    dead_letters: PendingDeadLetters | None = msgspec.field(default=None, name="letters")
    quarantine: str | None = None
    retries: int = 0


# -- where it is recorded --------------------------------------------------------------------------


class PendingStore(Protocol):
    """The place of a query's last decided batch."""

    beside_tables: bool

    def read(self) -> bytes | None:
        """The content; None without a record."""

    def write(self, content: bytes) -> None:
        """Replace the content."""


class _Checkpoint:
    beside_tables = False

    def __init__(self, folder: str) -> None:
        self._path = Path(folder, _FILE_IN_CHECKPOINT)

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        new = self._path.with_name(f"{_FILE_IN_CHECKPOINT}.new")
        new.write_bytes(content)
        os.replace(new, self._path)


class _BesideTables:
    """A Parquet file with one value, since that is what each storage writes."""

    beside_tables = True

    def __init__(self, storage: Storage, query: str) -> None:
        self._storage = storage
        self._path = f"{FOLDER_BESIDE_TABLES}/{fingerprint(query):014x}.batch"

    def read(self) -> bytes | None:
        try:
            with self._storage.open(self._path) as stream:
                return bytes(pq.read_table(stream, partitioning=None)[_PARQUET_COLUMN][0].as_py())
        except (FileNotFoundError, pa.ArrowInvalid):  # or it was cut off
            return None

    def write(self, content: bytes) -> None:
        # Nothing of the new batch is committed yet, so a kill in between loses nothing.
        with suppress(FileNotFoundError):
            self._storage.remove(self._path)
        with self._storage.create(self._path) as stream:
            pq.write_table(pa.table({_PARQUET_COLUMN: [content]}), stream)


def pending_store(options: LakehouseOptions, query: str) -> PendingStore | None:
    """The store of a query. None for a template of tables in a catalog, with a checkpoint that is
    not on this machine, which has no place for one."""
    folder = None if options.checkpoint is None else local_path(options.checkpoint)
    # A path that is not here may be on a file system that only Spark knows.
    if folder is not None and os.path.isdir(folder):
        return _Checkpoint(folder)
    storage = storage_at(*first_location(options))
    return None if storage is None else _BesideTables(storage, query)


def first_location(options: LakehouseOptions) -> tuple[Format, TableName]:
    """The query's first table, or the folder of a template's tables: there tasks write records that
    the driver publishes."""
    first = options.tables[0].options if options.tables else options
    if first.route is None or first.route.in_catalog:
        return first.format, first.name
    return first.format, replace(first.name, path=first.route.root)


def storage_at(format_: Format, name: TableName) -> Storage | None:
    """The storage of a folder or a table; None for a table that does not exist."""
    if name.path is not None:
        return formats.folder_storage(format_, name)
    table = formats.find_table(format_, name)
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
    dead_letters, (format_, first) = pending.dead_letters, first_location(options)
    location = format_, first.path, first.identifier, first.catalog
    is_elsewhere = dead_letters is not None and location != (
        dead_letters.format, dead_letters.path, dead_letters.identifier, dead_letters.catalog,
    )  # fmt: skip
    replaces = any(table.replaces for table in pending.tables)
    if is_elsewhere or (replaces and options.transaction_id is None):
        raise TableError(
            f"The record of batch {pending.batch} beside {first}, in {FOLDER_BESIDE_TABLES}, is "
            "not one that this query has written: remove that folder."
        )
