"""The commits of a batch: one for each of its tables, and letters before them.

A kill, or an error, may come between two of them. Another attempt of the batch need not divide its
rows in the same way: the template of the tables, the schema, the keys, a registry, the SQL of a
view or the code may have changed, and then a row would be in two tables, or in none. So the driver
decides a batch once. Before the first commit it notes which files go to which table: the *pending
batch*. An attempt that finds a part of its batch committed adds nothing of its own, and commits the
rest of these files. While none is committed, each attempt decides anew.

The note is in the query's checkpoint if that is on this machine; otherwise beside the tables, where
every driver of the query finds it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import TableError
from jetspark.lakehouse import formats
from jetspark.lakehouse.batches import (
    ADOPT_HINT,
    append,
    commit_batch,
    fingerprint,
    has_batch,
    last_batch,
    overwrite,
    table_missing,
    was_created_for,
)
from jetspark.lakehouse.formats import Format
from jetspark.lakehouse.new_files import (
    NewFile,
    Storage,
    decode_new_file,
    encode_new_file,
    files_by_table,
)
from jetspark.lakehouse.small_files import due_file_size, merge_small_files
from jetspark.lakehouse.table import Table, TableName
from jetspark.lakehouse.upserts import Deletes, remove_staged_files
from jetspark.spark.checkpoints import planned_offsets
from jetspark.spark.lakehouse.ledger import TableLedger
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.local_folders import local_path

logger = logging.getLogger("jetspark.lakehouse")

AT_A_TIME = 8
"""Most tables that are committed at a time."""
_IN_CHECKPOINT = ".jetspark.batch"
_BESIDE_TABLES = "_jetspark"
"""The folder of notes that are not in a checkpoint."""
_CONTENT = "batch"
_RECORDS = 10_000
"""Records that are published at a time."""

# -- what is noted -----------------------------------------------------------------------------


class PendingTable(msgspec.Struct):
    """What one table gets, and how."""

    name: str
    """As rows are divided: its folder or identifier; empty for a query's only table."""
    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None
    files: list[NewFile]
    """`portable`."""
    replaces: bool = False
    """Whether its rows replace all others (a batch write)."""
    keys: tuple[str, ...] | None = None
    sequence_by: str | None = None
    deletes: Deletes | None = None
    truncates: Deletes | None = None
    history_by: str | None = None

    @classmethod
    def of(
        cls, name: str, options: LakehouseOptions, files: Sequence[NewFile], *, replaces: bool
    ) -> PendingTable:
        """The note of a table with these options."""
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
            options.deletes,
            options.truncates,
            options.history_by,
        )

    def options(self, query: LakehouseOptions) -> LakehouseOptions:
        """The options of the table, for a query whose own may have changed: secrets are the
        query's. Keys are too, if both have keys, since an error may have asked for others."""
        now = query.of_table(self.name) if self.name else query
        name = TableName(path=self.path, identifier=self.identifier, catalog=self.catalog)
        same = now.format == self.format and replace(now.name, properties={}) == name
        name = replace(name, properties=(now if same else query).name.properties)
        one = replace(now, format=self.format, name=name, route=None, tables=(), partition_by=None)
        if same and self.keys and now.keys:
            return one
        return replace(
            one,
            keys=self.keys,
            sequence_by=self.sequence_by,
            deletes=self.deletes,
            truncates=self.truncates,
            history_by=self.history_by,
        )


class PendingLetters(msgspec.Struct):
    """Records for a stream of dead letters."""

    stream: str
    format: Format
    path: str | None
    identifier: str | None
    catalog: str | None
    """Of the table, or the folder, that has their files."""
    files: list[NewFile]
    stored: bool = False
    """Whether the stream has certainly got them: they may have been replayed since."""


class PendingBatch(msgspec.Struct):
    """A batch that has been decided."""

    query: str
    batch: int
    offsets: int | None
    """The fingerprint of what it reads; None: unknown."""
    tables: list[PendingTable]
    letters: PendingLetters | None = None
    quarantine: str | None = None
    retries: int = 0


class _Place(Protocol):
    """Where a query's pending batch is noted."""

    def read(self) -> bytes | None: ...

    def write(self, content: bytes) -> None: ...


class _InCheckpoint:
    def __init__(self, folder: str) -> None:
        self._path = Path(folder, _IN_CHECKPOINT)

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        new = self._path.with_name(f"{_IN_CHECKPOINT}.new")
        new.write_bytes(content)
        os.replace(new, self._path)


class _BesideTables:
    """A Parquet file with one value, since that is what each storage writes."""

    def __init__(self, storage: Storage, query: str) -> None:
        self._storage = storage
        self._path = f"{_BESIDE_TABLES}/{fingerprint(query):014x}.batch"

    def read(self) -> bytes | None:
        try:
            with self._storage.open(self._path) as stream:
                return bytes(pq.read_table(stream, partitioning=None)[_CONTENT][0].as_py())
        except (FileNotFoundError, pa.ArrowInvalid):  # or it was cut off
            return None

    def write(self, content: bytes) -> None:
        # Nothing of the new batch is committed yet, so a kill in between loses nothing.
        with suppress(FileNotFoundError):
            self._storage.remove(self._path)
        with self._storage.create(self._path) as stream:
            pq.write_table(pa.table({_CONTENT: [content]}), stream)


def _place(options: LakehouseOptions, query: str) -> _Place | None:
    """None if the query has no place for a note: a template of tables in a catalog, with a
    checkpoint that is not on this machine."""
    folder = None if options.checkpoint is None else local_path(options.checkpoint)
    # A path that is not here may be on a file system that only Spark knows.
    if folder is not None and os.path.isdir(folder):
        return _InCheckpoint(folder)
    storage = _storage_at(*_first_place(options))
    return None if storage is None else _BesideTables(storage, query)


def _first_place(options: LakehouseOptions) -> tuple[Format, TableName]:
    """The query's first table, or the folder of a template's tables: there tasks write records that
    the driver publishes."""
    one = options.tables[0].options if options.tables else options
    if one.route is None or one.route.in_catalog:
        return one.format, one.name
    return one.format, replace(one.name, path=one.route.root)


def _storage_at(format_: Format, name: TableName) -> Storage | None:
    if name.path is not None:
        return formats.folder_storage(format_, name)
    table = formats.find_table(format_, name)
    return None if table is None else table.storage


# -- the commits -------------------------------------------------------------------------------


class BatchCommits:
    """Commits one batch of a query, or the rows of a batch write with a transaction id."""

    def __init__(
        self, options: LakehouseOptions, query: str, batch: int, *, letters: str | None = None
    ) -> None:
        """`letters`: the token of the query's dead letters, if it is another one."""
        self._options = options
        self._query = query
        self._letters = letters or query
        self._batch = batch
        self._ledger = TableLedger(options.checkpoint, query)
        self._offsets = _fingerprint_of_offsets(options.checkpoint, batch)
        self._place = _place(options, query)

    @property
    def _has_one_table(self) -> bool:
        """Whether there is a table that gets each batch, after all others."""
        return self._options.route is None and not self._options.tables

    def complete(self) -> bool:
        """Commit what is left of the batch, if an earlier attempt has committed a part of it.

        Returns False if none has, so that this attempt decides. Raises the errors of `commit`, and
        TableError if the batch cannot be completed.
        """
        options, noted = self._options, self._noted()
        batch = None if noted is None else self._of_this_attempt(noted)
        if batch is None:
            self._check_same_place(noted)
            return False
        if batch.letters is None and not self._is_begun(batch):
            return False
        try:
            lacking = self._lacking(batch)
            self._check_letters(batch)
            self._check_files(batch, lacking)
        except TableError as error:
            if not options.adopt:
                raise
            logger.warning("Batch %d is not completed as it was begun: %s", self._batch, error)
            return False
        if lacking:
            logger.warning(
                "Batch %d was begun before, and is completed as it was begun: settings that have "
                "changed since then apply to the batches after it.",
                self._batch,
            )
            self._carry_out(batch, lacking)
        return True

    def commit(self, files: Sequence[NewFile], retries: int = 0, *, replaces: bool = False) -> None:
        """Decide that the batch has these files, and commit them.

        `retries`: attempts that tasks made again; `replaces`: rows replace all others. Raises
        TableError, before the first commit, for a table that has other rows as this batch or lacks
        earlier ones; and the errors of `commit_batch`.
        """
        options, groups = self._options, files_by_table(files)
        records = [] if options.letters is None else groups.pop(options.quarantine or "", [])
        if self._has_one_table:
            groups.setdefault("", [])
        batch = PendingBatch(
            self._query,
            self._batch,
            self._offsets,
            [
                PendingTable.of(
                    name,
                    one := options.of_table(name) if name else options,
                    group,
                    replaces=replaces and not options.is_quarantine(one),
                )
                for name, group in groups.items()
            ],
            self._letters_of(records),
            options.quarantine,
            retries,
        )
        lacking = self._lacking(batch)
        if self._has_one_table and "" not in lacking:  # it was the last one to get the batch
            return
        # A single table shows by itself whether it has the batch, unless it is no longer named.
        is_one_commit = self._has_one_table and len(groups) == 1 and not records
        if isinstance(self._place, _InCheckpoint) or not is_one_commit:
            self._note(batch)
        self._carry_out(batch, lacking)

    # -- the note --------------------------------------------------------------------------

    def _noted(self) -> PendingBatch | None:
        """What the query has noted last."""
        if self._place is None or (content := self._place.read()) is None:
            return None
        try:
            found = msgspec.msgpack.decode(content, type=PendingBatch)
        except (
            ValueError,
            RecursionError,
            msgspec.MsgspecError,
        ):  # it was cut off, before the first commit
            return None
        if found.query != self._query:
            return None
        if isinstance(self._place, _BesideTables):
            self._check_says_nothing_else(found)
        return found

    def _check_says_nothing_else(self, noted: PendingBatch) -> None:
        """Raise TableError for a note beside tables that decides more than a query of these options
        can have decided: whoever may write there may not touch other places through it."""
        letters, (format_, first) = noted.letters, _first_place(self._options)
        here = format_, first.path, first.identifier, first.catalog
        is_elsewhere = letters is not None and here != (
            letters.format, letters.path, letters.identifier, letters.catalog,
        )  # fmt: skip
        replaces = any(one.replaces for one in noted.tables)
        if is_elsewhere or (replaces and self._options.transaction_id is None):
            raise TableError(
                f"The note of batch {noted.batch} beside {first}, in {_BESIDE_TABLES}, is not one "
                "that this query has written: remove that folder."
            )

    def _of_this_attempt(self, noted: PendingBatch) -> PendingBatch | None:
        """The note, if it is of this batch: an earlier attempt has decided it."""
        same = noted.offsets == self._offsets or not (noted.offsets and self._offsets)
        return noted if same and noted.batch == self._batch else None

    def _check_same_place(self, noted: PendingBatch | None) -> None:
        """Raise TableError where the note should be beside the tables, and is not: elsewhere a part
        of this batch may have been committed."""
        is_there = noted is not None and noted.batch >= self._batch - 1
        beside = isinstance(self._place, _BesideTables) and not self._has_one_table
        if beside and self._batch and not is_there and not self._options.adopt:
            raise TableError(
                f"{_first_place(self._options)[1]} does not have the note of this query's batch "
                f"{self._batch - 1} ({_BESIDE_TABLES}): the tables were in another place, or were "
                "removed. Name the tables of before, or bring them back; or, to go on although "
                f"rows of this batch may be lost or repeated, {ADOPT_HINT}."
            )

    def _note(self, batch: PendingBatch) -> None:
        if self._place is not None:
            self._place.write(msgspec.msgpack.encode(batch))

    # -- tables ----------------------------------------------------------------------------

    def _is_begun(self, batch: PendingBatch) -> bool:
        """Whether one of the tables has the batch."""

        def has(one: PendingTable) -> bool:
            options = one.options(self._options)
            table = formats.find_table(options.format, options.name)
            last = None if table is None else last_batch(table, self._query)
            return last is not None and last >= self._batch

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return any(pool.map(has, batch.tables))

    def _lacking(self, batch: PendingBatch) -> dict[str, Table]:
        """The tables that lack the batch, by name. Raises as `commit`, before any is changed."""

        def find(one: PendingTable) -> tuple[str, Table] | None:
            options = one.options(self._options)
            table = formats.find_table(options.format, options.name)
            if table is None:
                raise table_missing(options.name, self._batch)
            after = None if not one.name else self._ledger.last(str(options.name))
            return None if self._has(options, table, after) else (one.name, table)

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return dict(filter(None, pool.map(find, batch.tables)))

    def _has(self, options: LakehouseOptions, table: Table, after: int | None = None) -> bool:
        """Whether a table has the batch. `after`: as in `has_batch`. Raises as `commit`."""
        last = last_batch(table, self._query)
        if last is not None and last > self._batch and not options.adopt:
            raise TableError(
                f"{table.name} has batch {last} of this query, which is at batch {self._batch}: "
                "another run of it, with a copy of its checkpoint, has gone further. Nothing of "
                "this batch was written. Go on with the checkpoint of that run, and remove this "
                f"one; or, to leave out the messages of this batch, {ADOPT_HINT}."
            )
        return has_batch(
            table,
            self._query,
            self._batch,
            name=options.query_name,
            adopt=options.adopt,
            after=after,
            offsets=self._offsets,
        )

    def _check_files(self, batch: PendingBatch, lacking: dict[str, Table]) -> None:
        """Raise TableError if a file is gone that a table lacks, after a vacuum for example, and
        for a table that the query has nothing to do with: others may write beside its tables."""
        options = self._options
        named = {
            "",
            options.quarantine,
            options.rest,
            *(str(t.options.name) for t in options.tables),
        }
        for one in batch.tables:
            table = lacking.get(one.name)
            if table is None:
                continue
            is_ours = (
                one.name in named
                or table.is_new
                or last_batch(table, self._query) is not None
                or was_created_for(table, self._query, self._batch)
            )
            if not is_ours:
                raise TableError(
                    f"{table.name} is not a table of this query, but is to get rows of batch "
                    f"{batch.batch} by what is noted beside its tables, in {_BESIDE_TABLES}: "
                    "remove that folder."
                )
            for file in map(decode_new_file, one.files):
                with formats.reporting_library_errors(table.name):
                    try:
                        table.storage.open(file.path).close()
                    except FileNotFoundError:
                        raise TableError(
                            f"{table.name} lacks rows of batch {batch.batch}, of which "
                            f"a part was committed, and their file {file.path} was removed. Bring "
                            "it back; or, to go on although rows of this batch may be lost or "
                            f"repeated, {ADOPT_HINT}."
                        ) from None

    # -- changes ---------------------------------------------------------------------------

    def _carry_out(self, batch: PendingBatch, lacking: dict[str, Table]) -> None:
        """Commit the batch to the tables that lack it; the query's only table is the last one."""
        records = self._publish(batch, is_begun=len(lacking) < len(batch.tables))
        files = {one.name: list(map(decode_new_file, one.files)) for one in batch.tables}
        due: list[tuple[Table, int]] = []

        def commit(one: PendingTable) -> None:
            options, table = one.options(self._options), lacking[one.name]
            with formats.reporting_missing_table(options.format, options.name, self._batch):
                is_added = commit_batch(
                    table,
                    self._query,
                    self._batch,
                    files[one.name],
                    name=options.query_name,
                    adopt=options.adopt,
                    after=None if not one.name else self._ledger.last(str(options.name)),
                    offsets=self._offsets,
                    change=options.upsert or (overwrite if one.replaces else append),
                )
            every, full = options.compact_every, options.target_bytes
            if is_added and every and (size := due_file_size(table, every, full)):
                due.append((table, size))

        left = [one for one in batch.tables if one.name in lacking]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            commits = [pool.submit(commit, one) for one in left if one.name]
        for done in commits:
            done.result()
        for one in left:
            if not one.name:
                commit(one)
        written = [file for group in files.values() for file in group] + records
        names = {str(one.options(self._options).name) for one in batch.tables if one.name}
        self._ledger.note(self._batch, names, written, batch.quarantine, batch.retries)
        for one in left:  # the rows of these files were merged
            if one.options(self._options).upsert is not None:
                remove_staged_files(lacking[one.name].storage, files[one.name])
        if batch.letters is not None:
            remove_staged_files(self._staging(batch.letters), records)
        merge_small_files(due)

    def _publish(self, batch: PendingBatch, *, is_begun: bool) -> list[NewFile]:
        """Publish the records for a stream of dead letters, unless it certainly has them; returns
        their files.

        So records are published before any row is in a table, and not again when a batch comes
        again after that: somebody may have replayed them meanwhile.
        """
        if (letters := batch.letters) is None:
            return []
        records = list(map(decode_new_file, letters.files))
        if not letters.stored and not is_begun:
            self._check_letters(batch)
            assert self._options.letters is not None  # noqa: S101
            self._options.letters.store(
                self._letters, read_records(self._staging(letters), records)
            )
            letters.stored = True
            self._note(batch)
        return records

    def _letters_of(self, records: Sequence[NewFile]) -> PendingLetters | None:
        if not records:
            return None
        format_, name = _first_place(self._options)
        stream = self._options.quarantine or ""
        where = format_, name.path, name.identifier, name.catalog
        return PendingLetters(stream, *where, list(map(encode_new_file, records)))

    def _staging(self, letters: PendingLetters) -> Storage:
        name = TableName(
            path=letters.path,
            identifier=letters.identifier,
            catalog=letters.catalog,
            properties=_first_place(self._options)[1].properties,
        )
        storage = _storage_at(letters.format, name)
        if storage is None:
            raise table_missing(name, self._batch)
        return storage

    def _check_letters(self, batch: PendingBatch) -> None:
        """Raise TableError if records have to be published whose stream is no longer named."""
        letters, options = batch.letters, self._options
        if letters is None or letters.stored or options.quarantine == letters.stream:
            return
        raise TableError(
            f"Batch {batch.batch} was begun with the quarantine {letters.stream}, which may have "
            "some of its records: run the query once with this quarantine, which completes the "
            f"batch; or, to go on although they may be lost, {ADOPT_HINT}."
        )


def read_records(storage: Storage, files: Sequence[NewFile]) -> Iterator[pa.RecordBatch]:
    """The records of the files that tasks have written for a stream of dead letters."""
    for one in files:
        with storage.open(one.path) as stream:
            yield from pq.ParquetFile(stream).iter_batches(_RECORDS)


def _fingerprint_of_offsets(checkpoint: str | None, batch: int) -> int | None:
    """Of what the batch reads, if its checkpoint is on this machine."""
    here = None if checkpoint is None else local_path(checkpoint)
    planned = None if here is None else planned_offsets(here, batch)
    return None if planned is None else fingerprint("\n".join(planned))
