"""The commits of a batch: dead letters first, then one commit for each of its tables.

A kill, or an error, may come between two of them. Another attempt of the batch need not route its
rows in the same way: the template of the tables, the schema, the keys, a registry, the SQL of a
view or the code may have changed, and then a row would be in two tables, or in none. So the driver
decides a batch once. Before the first commit it records which files go to which table: the *pending
batch* (`ledger`). An attempt that finds a part of its batch committed adds nothing of its own, and
commits the rest of these files. While none is committed, each attempt decides anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import TableError
from jetspark.spark.checkpoints import planned_offsets
from jetspark.spark.local_folders import local_path
from jetspark.spark.table_sink.ledger import (
    FOLDER_BESIDE_TABLES,
    Location,
    PendingBatch,
    PendingDeadLetters,
    PendingTable,
    TableLedger,
    find_storage,
    pending_store,
    read_pending,
    staging_name,
)
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables import formats
from jetspark.tables.batches import (
    ADOPT_HINT,
    append,
    commit_batch,
    has_batch,
    last_batch,
    overwrite,
    table_missing,
    was_created_for,
)
from jetspark.tables.fingerprints import fingerprint
from jetspark.tables.maintenance import due_file_size, merge_small_files
from jetspark.tables.new_files import (
    NewFile,
    Storage,
    decode_new_file,
    encode_new_file,
    files_by_table,
)
from jetspark.tables.stream_positions import Progress, StreamPosition
from jetspark.tables.table import Table
from jetspark.tables.upserts import remove_staged_files

logger = logging.getLogger("jetspark.tables")

MAX_CONCURRENT_COMMITS = 8
"""Most tables that are committed at a time."""
_RECORDS_PER_BATCH = 10_000
"""Records that are published at a time."""


class BatchCommits:
    """Commits the files of one batch to each of a query's tables, exactly once.

    The batch is one of a streaming query; or it is the rows of a batch write with a transaction id,
    which is then the id of the query. Another attempt of the batch is another object: call
    `complete`, and `commit` if that returns False.
    """

    def __init__(
        self,
        options: LakehouseOptions,
        query: str,
        batch: int,
        *,
        dead_letter_token: str | None = None,
    ) -> None:
        """`query`: its id; `batch`: its number. `dead_letter_token`: a part of the subjects of this
        query's dead letters, which tells them from those of other queries; by default its id."""
        self._options = options
        self._query = query
        self._dead_letter_token = dead_letter_token or query
        self._batch = batch
        self._ledger = TableLedger(options.checkpoint, query)
        self._offsets = _offsets_fingerprint(options.checkpoint, batch)
        self._store = pending_store(options, query)

    def complete(self) -> bool:
        """Commit what is left of the batch, if an earlier attempt has committed a part of it.

        Returns True if the tables have the whole batch now. Returns False if no attempt has
        committed a part, so that this attempt decides which files the batch has (`commit`). Raises
        the errors of `commit`, and TableError if the batch cannot be completed.
        """
        pending = read_pending(self._store, self._query, self._options)
        if pending is None or not self._is_this_batch(pending):
            self._check_record_not_lost(pending)
            return False
        # A batch with dead letters stays as it was decided: some of them may be published already.
        if pending.dead_letters is None and not self._is_committed_in_part(pending):
            return False
        try:
            tables = self._tables_without_batch(pending)
            self._check_dead_letters(pending)
            self._check_files(pending, tables)
        except TableError as error:
            if not self._options.adopt:  # `adopt`: go on although rows may be lost or repeated
                raise
            logger.warning("Batch %d is not completed as it was begun: %s", self._batch, error)
            return False
        if tables:
            logger.warning(
                "Batch %d was begun before, and is completed as it was begun: settings that have "
                "changed since then apply to the batches after it.",
                self._batch,
            )
            self._commit_all(pending, tables)
        return True

    def commit(
        self,
        files: Sequence[NewFile],
        retries: int = 0,
        *,
        positions: Sequence[StreamPosition] = (),
        replaces: bool = False,
    ) -> None:
        """Decide that the batch has these files, and commit them to their tables.

        `retries`: failed reads that tasks repeated, for the totals; `positions`: how far the batch
        has read its streams; `replaces`: the rows replace all others of their tables, as
        mode("overwrite") does. Raises TableError, before the first
        commit, for a table that has other rows under the number of this batch or lacks earlier
        batches; and the errors of `commit_batch`.
        """
        options, groups = self._options, files_by_table(files)
        records = groups.pop(options.quarantine or "", []) if options.dead_letter_sink else []
        if options.has_one_table:  # its name is ""; it gets each batch, also one without rows
            groups.setdefault("", [])
        pending = PendingBatch(
            query=self._query,
            batch=self._batch,
            offsets=self._offsets,
            tables=[self._decide_table(name, group, replaces) for name, group in groups.items()],
            dead_letters=self._decide_dead_letters(records),
            quarantine=options.quarantine,
            retries=retries,
            progress=Progress(options.row_recipe, tuple(positions))
            if positions and options.has_one_table
            else None,
        )
        tables = self._tables_without_batch(pending)
        if options.has_one_table and "" not in tables:
            return  # it gets a batch after the quarantine, so the whole batch was committed before
        # One commit needs no record, since its table shows whether it has the batch. In a
        # checkpoint it is recorded all the same: the next attempt may name another table.
        is_one_commit = options.has_one_table and len(groups) == 1 and not records
        if not is_one_commit or (self._store is not None and not self._store.beside_tables):
            self._record_pending(pending)
        self._commit_all(pending, tables)

    # -- the decision ------------------------------------------------------------------------

    def _decide_table(self, name: str, files: Sequence[NewFile], replaces: bool) -> PendingTable:
        """The decision that one table gets these files; `name`: that of a `PendingTable`.

        `replaces`: whether the batch replaces all rows of its tables. Those of the quarantine stay
        even then.
        """
        options = self._options.of_table(name)
        replaces = replaces and not self._options.is_quarantine(options)
        return PendingTable.of(name, options, files, replaces=replaces)

    def _decide_dead_letters(self, records: Sequence[NewFile]) -> PendingDeadLetters | None:
        """The decision that the stream of dead letters gets the rejected records in these files;
        None if there are none."""
        if not records:
            return None
        location = Location.of(self._options.format, staging_name(self._options))
        files = list(map(encode_new_file, records))
        stream = self._options.quarantine or ""
        return PendingDeadLetters(stream=stream, location=location, files=files)

    def _record_pending(self, pending: PendingBatch) -> None:
        """Store the decision where later attempts of the batch find it, if there is such a place
        (`pending_store`)."""
        if self._store is not None:
            self._store.write(msgspec.msgpack.encode(pending))

    def _is_this_batch(self, pending: PendingBatch) -> bool:
        """Whether a recorded decision is about this batch: it has its number and its offsets.

        A checkpoint that was set back may give the number to other messages. Offsets are unknown
        with a checkpoint on another machine, and then count as equal.
        """
        is_same_range = pending.offsets == self._offsets or not (pending.offsets and self._offsets)
        return is_same_range and pending.batch == self._batch

    def _check_record_not_lost(self, last: PendingBatch | None) -> None:
        """Raise TableError if the record of the batch before this one is no longer beside the
        tables.

        It is kept there for each batch of several tables, so the tables may have been moved; and
        then those of the old place may have a part of this batch. `last`: the record that is there.
        """
        options, store = self._options, self._store
        if store is None or not store.beside_tables or options.has_one_table:
            return
        is_recent = last is not None and last.batch >= self._batch - 1
        if self._batch and not is_recent and not options.adopt:
            raise TableError(
                f"{staging_name(options)} does not have the record of this query's "
                f"batch {self._batch - 1} ({FOLDER_BESIDE_TABLES}): the tables were in another "
                "place, or were removed. Name the tables of before, or restore them; or, to go on "
                f"although rows of this batch may be lost or repeated, {ADOPT_HINT}."
            )

    # -- tables ----------------------------------------------------------------------------

    def _is_committed_in_part(self, batch: PendingBatch) -> bool:
        """Whether at least one of a batch's tables has it already, or a later one."""

        def has_batch_or_later(pending: PendingTable) -> bool:
            """Whether one table of the batch has it, or a later batch of the query."""
            options = pending.options(self._options)
            table = formats.find_table(options.format, options.name)
            last = None if table is None else last_batch(table, self._query)
            return last is not None and last >= self._batch

        with ThreadPoolExecutor(MAX_CONCURRENT_COMMITS) as pool:
            return any(pool.map(has_batch_or_later, batch.tables))

    def _tables_without_batch(self, batch: PendingBatch) -> dict[str, Table]:
        """Open the tables that have not got the batch yet, by the names of their `PendingTable`.

        Raises the errors of `commit`, before any table is changed.
        """

        def open_if_without_batch(pending: PendingTable) -> tuple[str, Table] | None:
            """The name and the table, if that has not got the batch yet; else None."""
            options = pending.options(self._options)
            table = formats.find_table(options.format, options.name)
            if table is None:
                raise table_missing(options.name, self._batch)
            return None if self._has_batch(pending, table) else (pending.name, table)

        with ThreadPoolExecutor(MAX_CONCURRENT_COMMITS) as pool:
            return dict(filter(None, pool.map(open_if_without_batch, batch.tables)))

    def _has_batch(self, pending: PendingTable, table: Table) -> bool:
        """Whether a table has the batch already, so that it is not committed again.

        Raises TableError if it has a later one of the query, unless the query adopts the table as
        it is (`adopt`); and the errors of `commit_batch`.
        """
        options = pending.options(self._options)
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
            after=self._previous_batch(pending, options),
            offsets=self._offsets,
        )

    def _previous_batch(self, pending: PendingTable, options: LakehouseOptions) -> int | None:
        """The number of the last batch that a table must have before it gets this one.

        One of several tables gets only batches with rows for it, so the query's ledger tells. None
        for a query's only table, which has the name "": it must have the batch just before.
        """
        return self._ledger.last(str(options.name)) if pending.name else None

    def _check_files(self, batch: PendingBatch, tables: dict[str, Table]) -> None:
        """Check that the files of a recorded batch still exist, and that the query owns its tables.

        Raises TableError for a file that was removed before its commit, by a vacuum for example;
        and for a table that is not the query's, since whoever may write beside the tables could
        have forged the record. `tables`: those that have not got the batch yet.
        """
        options = self._options
        named = {"", options.quarantine, options.default_table}  # "": the query's only table
        named |= {str(routed.options.name) for routed in options.tables}
        for pending in batch.tables:
            if (table := tables.get(pending.name)) is None:
                continue
            is_of_query = (
                pending.name in named
                or table.is_new
                or last_batch(table, self._query) is not None
                or was_created_for(table, self._query, self._batch)
            )
            if not is_of_query:
                raise TableError(
                    f"{table.name} is not a table of this query, but is to get rows of batch "
                    f"{batch.batch} by the record beside its tables, in {FOLDER_BESIDE_TABLES}: "
                    "remove that folder."
                )
            for file in map(decode_new_file, pending.files):
                self._check_file_exists(table, file)

    def _check_file_exists(self, table: Table, file: NewFile) -> None:
        """Raise TableError if a file that is to be committed no longer exists in the table."""
        with formats.reporting_library_errors(table.name):
            try:
                table.storage.open(file.path).close()
            except FileNotFoundError:
                raise TableError(
                    f"{table.name} lacks rows of batch {self._batch}, of which a part was "
                    f"committed, and their file {file.path} was removed. Restore it; or, to go on "
                    f"although rows of this batch may be lost or repeated, {ADOPT_HINT}."
                ) from None

    # -- commits -----------------------------------------------------------------------------

    def _commit_all(self, batch: PendingBatch, tables: dict[str, Table]) -> None:
        """Publish the dead letters of a batch, commit its files to each table that has not got them
        yet, and record it in the query's ledger.

        `tables`: those tables, opened, by the names of their `PendingTable`. A query with one table
        and a quarantine commits to the quarantine first: once the table itself has the batch, all
        of it is committed.
        """
        is_committed_in_part = len(tables) < len(batch.tables)  # the others have it already
        records = self._publish(batch, is_committed_in_part=is_committed_in_part)
        files = {table.name: list(map(decode_new_file, table.files)) for table in batch.tables}

        def commit(pending: PendingTable) -> bool:
            """Commit the batch's files to one table; False if that had them already."""
            progress = None if pending.name else batch.progress  # of the only table
            return self._commit_table(pending, tables[pending.name], files[pending.name], progress)

        uncommitted = [pending for pending in batch.tables if pending.name in tables]
        main_table = [pending for pending in uncommitted if pending.name == ""]
        other_tables = [pending for pending in uncommitted if pending.name != ""]
        with ThreadPoolExecutor(MAX_CONCURRENT_COMMITS) as pool:
            commits = {pending.name: pool.submit(commit, pending) for pending in other_tables}
        added = {name for name, future in commits.items() if future.result()}
        added |= {pending.name for pending in main_table if commit(pending)}
        written = [file for group in files.values() for file in group] + records
        # The ledger is for one of several tables; the main one gets each batch.
        names = {str(table.options(self._options).name) for table in batch.tables if table.name}
        self._ledger.record_committed(self._batch, names, written, batch.quarantine, batch.retries)
        self._remove_staged_files(batch, tables, files, records)
        self._compact(batch, {name: tables[name] for name in added})

    def _commit_table(
        self,
        pending: PendingTable,
        table: Table,
        files: Sequence[NewFile],
        progress: Progress | None,
    ) -> bool:
        """Commit the batch's files to one table, with how far its streams were read; returns
        False if the table had the batch, so that nothing was added."""
        options = pending.options(self._options)
        with formats.reporting_missing_table(options.format, options.name, self._batch):
            return commit_batch(
                table,
                self._query,
                self._batch,
                files,
                name=options.query_name,
                adopt=options.adopt,
                after=self._previous_batch(pending, options),
                offsets=self._offsets,
                progress=progress,
                change=options.upsert or (overwrite if pending.replaces else append),
            )

    def _remove_staged_files(
        self,
        batch: PendingBatch,
        tables: dict[str, Table],
        files: dict[str, list[NewFile]],
        records: Sequence[NewFile],
    ) -> None:
        """Remove files of a committed batch that are part of no table: files whose rows an upsert
        has merged into others, and files with records that were published as dead letters.

        `tables`: those that have got the batch in this attempt; `files`: by the tables' names;
        `records`: the files of dead letters.
        """
        for pending in batch.tables:
            is_merged = pending.options(self._options).upsert is not None
            if pending.name in tables and is_merged:
                remove_staged_files(tables[pending.name].storage, files[pending.name])
        if batch.dead_letters is not None:
            remove_staged_files(self._staging(batch.dead_letters), records)

    def _compact(self, batch: PendingBatch, tables: dict[str, Table]) -> None:
        """Merge small files of the tables that have got the batch, in each of them after as many
        commits as the option `compactEvery` says."""
        due: list[tuple[Table, int]] = []
        for pending in batch.tables:
            options, table = pending.options(self._options), tables.get(pending.name)
            if table is None or not options.compact_every:
                continue
            if size := due_file_size(table, options.compact_every, options.target_file_size):
                due.append((table, size))
        merge_small_files(due)

    # -- dead letters ------------------------------------------------------------------------

    def _publish(self, batch: PendingBatch, *, is_committed_in_part: bool) -> list[NewFile]:
        """Publish the batch's rejected records to the stream of dead letters; returns the files
        that have them, also if they were published before.

        They are published before the first commit to a table, so a batch of which a part is
        committed has published them. They are not published twice, since somebody may have replayed
        and removed them in the meantime.
        """
        if (dead_letters := batch.dead_letters) is None:
            return []
        records = list(map(decode_new_file, dead_letters.files))
        if not dead_letters.stored and not is_committed_in_part:
            self._check_dead_letters(batch)
            assert self._options.dead_letter_sink is not None  # noqa: S101
            self._options.dead_letter_sink.store(
                self._dead_letter_token, read_records(self._staging(dead_letters), records)
            )
            dead_letters.stored = True
            self._record_pending(batch)
        return records

    def _staging(self, dead_letters: PendingDeadLetters) -> Storage:
        """The storage of the files with a batch's dead letters: that of a table, or of a folder of
        tables. Raises TableError if it no longer exists."""
        location = dead_letters.location
        name = location.table_name(staging_name(self._options).properties)
        storage = find_storage(location.format, name)
        if storage is None:
            raise table_missing(name, self._batch)
        return storage

    def _check_dead_letters(self, batch: PendingBatch) -> None:
        """Raise TableError if a batch has dead letters to publish, but the options no longer name
        the stream for which the batch was begun."""
        dead_letters, options = batch.dead_letters, self._options
        if dead_letters is None or dead_letters.stored or options.quarantine == dead_letters.stream:
            return
        raise TableError(
            f"Batch {batch.batch} was begun with the quarantine {dead_letters.stream}, which may "
            "have some of its records: run the query once with this quarantine, which completes "
            f"the batch; or, to go on although they may be lost, {ADOPT_HINT}."
        )


def read_records(storage: Storage, files: Sequence[NewFile]) -> Iterator[pa.RecordBatch]:
    """Read the rejected records that tasks have written into these files, for the driver to publish
    to a stream of dead letters."""
    for file in files:
        with storage.open(file.path) as stream:
            yield from pq.ParquetFile(stream).iter_batches(_RECORDS_PER_BATCH)


def _offsets_fingerprint(checkpoint: str | None, batch: int) -> int | None:
    """A fingerprint of the offsets that Spark has planned for a batch, by which two batches with
    one number are told apart; None if the checkpoint is not on this machine."""
    folder = local_path(checkpoint)
    offsets = None if folder is None else planned_offsets(folder, batch)
    return None if offsets is None else fingerprint("\n".join(offsets))
