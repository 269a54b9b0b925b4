"""The table that a DataFrame is written to: created or checked before a row is written."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from uuid import NAMESPACE_OID, uuid4, uuid5

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import types
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from jetspark.codecs.framing import framed
from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.lakehouse import formats, quarantine
from jetspark.lakehouse.batches import (
    ADOPT,
    Change,
    added,
    check_has_batches,
    commit_batch,
    commit_files,
    fingerprint,
    gone,
    last_batch,
    made_for,
    replaced,
    was_made_for,
)
from jetspark.lakehouse.new_files import FileWriter, Layout, NewFile, Storage, by_table
from jetspark.lakehouse.partitions import check_partitions
from jetspark.lakehouse.routes import ValueOf
from jetspark.lakehouse.schemas import FITTING, WIDER, Differences, check_names, differences
from jetspark.lakehouse.small_files import merge_small_files, size_due
from jetspark.lakehouse.table import Table
from jetspark.lakehouse.upserts import remove, staged
from jetspark.spark.checkpoints import local_path, planned_offsets, read_checkpoint
from jetspark.spark.json_payloads import CORRUPT, KEPT
from jetspark.spark.lakehouse import letters, listed
from jetspark.spark.lakehouse.growth import NEW, Growth, Growths, grow, united
from jetspark.spark.lakehouse.ledger import NONE, TableLedger
from jetspark.spark.lakehouse.options import STOP, LakehouseOptions
from jetspark.spark.sink import all_answers, batch_of_query, needed_query_id
from jetspark.spark.versions import DataSourceStreamArrowWriter, in_arrow

# -------------------------------------------------------------------------------------------------
# df.write and df.writeStream into a Delta or Iceberg table.
#
# Tasks write Parquet files; the driver commits all files of a batch in one transaction with the
# query's id and the batch's number (`lakehouse.batches`). Spark may attempt a task or a batch
# again, and calls `abort` even after a commit whose outcome is not known: so a writer has no
# state, `abort` removes nothing, and files of other attempts are left to `vacuum`.


# -------------------------------------------------------------------------------------------------
# Files that a source's task wrote itself (`spark.direct`) arrive as one row that describes them.

HANDED_OVER = types.StructField(
    "_jetspark_files",
    types.StructType(
        [
            types.StructField("rows", types.LongType(), nullable=False),
            types.StructField("aside", types.LongType(), nullable=False),
            types.StructField("files", types.BinaryType(), nullable=False),
        ]
    ),
)
_DIVIDED_BYTES = 32 * 1024 * 1024
"""Rows of several tables are divided when they take so much memory: each table gets few slices."""
_STAGING = "_letters/"
"""In the folder of a template's tables."""
_RECORDS = 10_000
"""Records that are published at a time."""
_COMMITS = 8
"""Most tables that are committed at a time."""
_HANDED_OVER: pa.Schema = in_arrow(types.StructType([HANDED_OVER]))


@dataclass(frozen=True)
class HandedOver:
    """What a source's task has written itself."""

    files: tuple[NewFile, ...]
    growth: Growths
    retries: int
    """Attempts to read that it made again."""


def with_files(
    rows: pa.RecordBatch, done: HandedOver | None = None, aside: int = 0
) -> pa.RecordBatch:
    """Rows that describe no files, or one that describes these; so many rows in them are put
    aside."""
    field = _HANDED_OVER.field(0)
    described = None
    if done is not None:
        count = sum(one.rows for one in done.files) - aside
        described = {"rows": count, "aside": aside, "files": pickle.dumps(done)}
    column = pa.array([described] * rows.num_rows, field.type)
    return pa.RecordBatch.from_arrays(
        [*rows.columns, column], schema=pa.schema([*rows.schema, field])
    )


def without_files(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[HandedOver]]:
    """The real rows, and what the other rows describe."""
    name = HANDED_OVER.name
    if name not in batch.schema.names:
        return batch, []
    column = batch.column(name)
    done = [
        pickle.loads(one["files"])  # noqa: S301  our own task's
        for one in column.drop_null().to_pylist()
    ]
    return batch.filter(pc.is_null(column)).drop_columns([name]), done


@dataclass
class Written(WriterCommitMessage):
    """A task's commit message: the query's id (empty in a batch write) and the files."""

    writer: str
    files: Sequence[NewFile]
    growth: Growths = field(default_factory=dict)
    retries: int = 0


@dataclass(frozen=True)
class Target:
    """What tasks need to know about the table."""

    options: LakehouseOptions
    rows: pa.Schema
    """The columns that the table will have."""
    layout: Layout | None = None
    """None, like `storage`, when tasks divide the rows into several tables."""
    storage: Storage | None = None
    listed: tuple[Target, ...] = ()
    """The tables of a list, into which rows are divided."""
    made: Mapping[str, ValueOf] = field(default_factory=dict)
    """Of one of a list: the columns that its rows get where they are divided."""

    @property
    def each(self) -> dict[str, Target]:
        """The tables of a list by their names, or the only table."""
        return {str(one.options.name): one for one in self.listed} or {"": self}

    @property
    def staging(self) -> tuple[Layout, Storage]:
        """Where tasks write records that the driver publishes: like files of rows, so that `vacuum`
        removes what is left by a task that failed."""
        if self.listed:
            return self.listed[0].staging
        options = self.options
        folder, storage = _STAGING, self.storage
        if self.layout is not None:
            folder = self.layout.folder
        if storage is None:
            assert options.route is not None  # noqa: S101
            root = replace(options.name, path=options.route.root)
            storage = formats.storage_of_folder(options.format, root)
        return Layout(quarantine.SCHEMA, folder=folder), storage

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns that come from payloads, and what is made of others."""
        return {one.name: one.type for one in self.rows if one.name not in KEPT}

    def refused(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether each record is no row of the table."""
        options = self.options
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        keeps = options.quarantine is None and options.on_bad_record != STOP
        if CORRUPT in rows.schema.names and not keeps:
            found = pc.is_valid(rows.column(CORRUPT))
        if options.upsert is not None:
            found = pc.or_(found, pc.is_valid(options.upsert.lacking(rows)))
        return found

    def why_not(self, row: pa.RecordBatch) -> quarantine.Reason:
        """Why one refused record is no row."""
        upsert = self.options.upsert
        if upsert is not None and not (
            CORRUPT in row.schema.names and row.column(CORRUPT)[0].is_valid
        ):
            name = upsert.lacking(row)[0].as_py()
            what = "key" if name in upsert.keys else "order"
            return name, f"There is no value in {name}, which is the table's {what}."
        if quarantine.REASON in row.schema.names:
            return None, row.column(quarantine.REASON)[0].as_py()
        payload = row.column("data" if "data" in row.schema.names else CORRUPT)
        found = payload.cast(pa.binary())[0].as_py()
        name, why = quarantine.why_not(found, self.fields)
        return name, why + framed(found or b"")


class TaskFiles:
    """The new files of one task, in the table or in those that its rows are divided into."""

    def __init__(self, target: Target) -> None:
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        self._target = target
        self._files = FileWriter(target.layout, target.storage, f"part-{part:05}")
        self._known: dict[str, str] = {}
        """The table that a name leads to: its own, or the one for the rest."""
        self._new = 0
        self._batch = batch_of_query()
        if (transaction := target.options.transaction_id) is not None:
            self._batch = transaction, 0
        self._undivided: list[pa.RecordBatch] = []
        self._undivided_bytes = 0
        self.aside = 0
        """Records that are put aside."""
        self.growth: Growths = {}
        """Once there is one, the batch is run again, and nothing is written any more."""
        for one in target.listed:
            self._add(str(one.options.name), one)

    def write(self, batch: pa.RecordBatch) -> None:
        """Raises ConfigError for a null in a required column, for rows without a table, and for a
        record that does not become a row, where that is to end the write."""
        target, options = self._target, self._target.options
        if target.listed:
            for number, rows in listed.divided(batch, batch.column(listed.NUMBER)):
                self.write_listed(number, rows)
            return
        batch = self._noted("", target, batch)
        if self.growth:
            return
        batch = self._good(target, batch)
        if not batch.num_rows:
            return
        if options.route is None:
            self._files.write(_of_table(target, batch))
            return
        self._undivided.append(batch)
        self._undivided_bytes += batch.nbytes
        if self._undivided_bytes >= _DIVIDED_BYTES:
            self._divide()

    def _noted(self, name: str, target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, when their new fields are noted. `name`: the table's, in a list."""
        if NEW not in batch.schema.names:
            return batch
        assert target.layout is not None  # noqa: S101
        growth = self.growth.get(name, Growth())
        if CORRUPT in batch.schema.names and target.options.format is formats.Format.ICEBERG:
            refused = batch.column(CORRUPT).drop_null()
            growth.note_refused(refused.to_pylist(), target.rows)
        texts = batch.column(NEW).drop_null()
        if len(texts):
            taken = {*target.rows.names, *target.layout.schema.names, *KEPT, CORRUPT}
            taken |= {"data"} if target.options.quarantine is not None else set()
            growth.note(texts.to_pylist(), taken)
        if growth:
            self.growth[name] = growth
        return batch.drop_columns([NEW])

    def _divide(self) -> None:
        """Write the rows of several tables."""
        options = self._target.options
        if options.route is None or not self._undivided:
            return
        batch = pa.concat_batches(self._undivided)
        self._undivided, self._undivided_bytes = [], 0
        for name, rows in options.route.divide(batch):
            if name is None and options.rest is None and options.quarantine is not None:
                self._put_aside(rows, options.route.lacking)
            else:
                self._files.write(rows, self._found(name, rows))

    def write_listed(self, number: int | None, batch: pa.RecordBatch) -> None:
        """Rows of one table of the list, or of none. Raises ConfigError as `write`."""
        options = self._target.options
        if number is not None:
            one = self._target.listed[number]
            name = str(one.options.name)
            rows = self._noted(name, one, listed.rows_of(batch, number, one.made))
            if not self.growth:
                self._files.write(_of_table(one, self._good(one, rows)), name)
        elif self.growth:
            return
        elif options.rest is None and options.quarantine is not None:
            self._put_aside(batch, listed.no_table)
        else:
            self._files.write(_of_table(self._target, batch), self._found(None, batch))

    def _good(self, target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the records that are put aside, or an error for the first of them."""
        refused = target.refused(batch)
        if not pc.any(refused).as_py():
            return batch
        if target.options.quarantine is None:
            raise self._refusal(target, batch.filter(refused))
        self._put_aside(batch.filter(refused), target.why_not)
        return batch.filter(pc.invert(refused))

    def _put_aside(
        self, rows: pa.RecordBatch, why: Callable[[pa.RecordBatch], quarantine.Reason]
    ) -> None:
        """Write records into the quarantine table, or for the driver to publish."""
        name = self._target.options.quarantine
        assert name is not None  # noqa: S101
        if self._target.options.letters is None:
            self._found(name, rows, quarantine.SCHEMA)
        elif name not in self._known:
            self._files.add_table(name, *self._target.staging)
            self._known[name] = name
        self.aside += rows.num_rows
        self._files.write(quarantine.records(rows, why), name)

    def _refusal(self, target: Target, rows: pa.RecordBatch) -> ConfigError:
        """The error for the first of records that do not become rows."""
        first = rows.slice(0, 1)
        known = [name for name in quarantine.MESSAGE if name in rows.schema.names]
        said = quarantine.refusal(first.select(known).to_pylist()[0], target.why_not(first))
        ways = "Leave such rows out"
        if known == list(quarantine.MESSAGE) or CORRUPT in rows.schema.names:
            ways = (
                "Mend the schema and run again, which goes on here; or give the option "
                "'quarantineTable', to put such records aside"
            )
        if target.options.upsert is None:
            ways += (
                f"; or leave the option 'onBadRecord' out, to keep them in {CORRUPT}, a column "
                "which the option 'mergeSchema' adds"
            )
        return ConfigError(f"{said} Nothing of its batch was written. {ways}.")

    def close(self) -> list[NewFile]:
        """Finish all files and return them. Raises as `write`."""
        if self.growth:
            self.discard()
            return []
        self._divide()
        return self._files.close()

    def discard(self) -> None:
        """Remove the written files, as far as possible."""
        self._files.discard()

    def _found(
        self, name: str | None, rows: pa.RecordBatch, schema: pa.Schema | None = None
    ) -> str:
        """The table's name if it exists or was created, else the rest table's."""
        options = self._target.options
        if name is None:
            why = f"{rows.num_rows} rows lack a value of {options.name}"
            if options.tables:
                why = listed.no_table(rows.slice(0, 1))[1].removesuffix(".")
            name = self._rest(why)
        if name in self._known:
            return self._known[name]
        one = options.of_table(name)
        table = formats.find_table(one.format, one.name)
        # This batch makes the table, or has made it in an attempt that failed: each attempt has to
        # take the same rows to the same tables.
        batch = self._batch
        is_new = table is None or (batch is not None and was_made_for(table, *batch))
        if is_new and name not in (options.rest, options.quarantine):
            if self._new >= options.max_new_tables:
                most = f"more than {options.max_new_tables} new tables (option 'maxNewTables')"
                rest = self._rest(f"{options.name} would make {most}")
                self._known[name] = self._found(rest, rows)
                return self._known[name]
            self._new += 1
        columns = schema or self._target.rows
        if table is None:
            numbers = {} if self._batch is None else made_for(*self._batch)
            table = formats.make_table(one.format, one.name, columns, one.partitions, numbers)
        self._add(name, _prepared(one, columns, table, numbered=True))
        self._known[name] = name
        return name

    def _add(self, name: str, target: Target) -> None:
        assert target.layout is not None  # noqa: S101
        assert target.storage is not None  # noqa: S101
        self._files.add_table(name, target.layout, target.storage)

    def _rest(self, why: str) -> str:
        if (rest := self._target.options.rest) is None:
            raise ConfigError(
                f"{why}: name a table for these rows in the option 'restTable', or, with a schema "
                "of payloads, a quarantine (--quarantine)."
            )
        return rest


def _of_table(target: Target, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without columns that these rows have for other purposes: the table may have them, too."""
    return rows.select([name for name in rows.schema.names if name in target.rows.names])


class _Sink:
    """The base of the batch and the streaming writer."""

    def __init__(self, options: LakehouseOptions, target: Target, *, replace: bool) -> None:
        self._options = options
        self._target = target
        self._replace = replace

    def _write(self, writer: str, batches: Iterator[pa.RecordBatch]) -> Written:
        for one in self._target.listed or (self._target,):
            options = one.options
            if options.route is None and formats.is_gone(options.format, options.name):
                raise gone(options.name, 0)
        files = TaskFiles(self._target)
        handed_over: list[HandedOver] = []
        try:
            for batch in batches:
                rows, found = without_files(batch)
                handed_over += found
                files.write(rows)
            written = [file for one in handed_over for file in one.files] + files.close()
            growth = united([files.growth, *(one.growth for one in handed_over)])
            return Written(writer, written, growth, sum(one.retries for one in handed_over))
        except BaseException:
            files.discard()
            raise

    @contextmanager
    def _changing(
        self, options: LakehouseOptions, table: Table, files: Sequence[NewFile]
    ) -> Iterator[Change]:
        """What the rows of these files do to the table; quarantined records are added."""
        upsert = options.upsert
        if upsert is None:
            yield replaced if self._replace and not self._options.is_quarantine(options) else added
            return
        try:
            yield upsert
        finally:
            remove(table.storage, files)

    def _each(
        self, files: Sequence[NewFile], commit: Callable[[LakehouseOptions, list[NewFile]], None]
    ) -> None:
        """Commit the files of each table, several tables at a time."""
        groups = by_table(files)
        own = groups.pop("", [])
        with ThreadPoolExecutor(_COMMITS) as pool:
            made = [
                pool.submit(commit, self._options.of_table(name), group)
                for name, group in groups.items()
            ]
        for one in made:
            one.result()
        if self._options.route is None and not self._options.tables:
            commit(self._options, own)

    def _published(
        self, files: list[NewFile], query: str, batch: tuple[str, int] | None
    ) -> list[NewFile]:
        """The files of rows; the records in the others are published, unless a table has the batch.

        `query`: of letters, a token; `batch`: the writer and the number. So records are published
        before any row is in a table, and not again when a batch comes again after that: somebody
        may have replayed them meanwhile.
        """
        options = self._options
        if options.letters is None:
            return files
        rows = [one for one in files if one.table != options.quarantine]
        records = [one for one in files if one.table == options.quarantine]
        if records:
            _, storage = self._target.staging
            if batch is None or not self._has_batch(rows, *batch):
                options.letters.store(query, _records(storage, records))
            remove(storage, records)
        return rows

    def _grow(self, messages: list[WriterCommitMessage | None], writer: str, batch: int) -> None:
        """Give the tables the columns that rows need. Raises SchemaGrown, unless they need none, or
        a single table has the batch.

        None of the batch's files is committed, also when a table of a list has the batch already:
        once all columns are there, the batch finds no new field.
        """
        growth = united(one.growth for one in all_answers(messages, Written))
        if not growth or self._has_batch((), writer, batch):
            return
        files, tables = by_table(self._written(messages)[1]), self._target.each
        for name, one in tables.items():
            assert one.storage is not None  # noqa: S101
            remove(one.storage, files.get(name, ()))
        if self._options.letters is not None:
            remove(self._target.staging[1], files.get(self._options.quarantine or "", ()))
        grow({name: one.options for name, one in tables.items()}, growth)

    def _has_batch(self, rows: Sequence[NewFile], writer: str, batch: int) -> bool:
        """Whether one of the tables of these rows has the batch; a single table gets each one."""
        options = self._options
        names = {one.table for one in rows if one.table}
        tables = [options.of_table(name) for name in names]
        if options.route is None and not options.tables:
            tables = [options]
        for one in tables:
            table = formats.find_table(one.format, one.name)
            if table is None and one is options:
                raise gone(one.name, batch)
            last = None if table is None else last_batch(table, writer)
            if last is not None and last >= batch:
                return True
        return False

    def _written(self, messages: list[WriterCommitMessage | None]) -> tuple[str, list[NewFile]]:
        """The writer, and the files of all tasks. Raises PipelineError."""
        written = all_answers(messages, Written)
        return written[0].writer, [file for one in written for file in one.files]


def _records(storage: Storage, files: Sequence[NewFile]) -> Iterator[pa.RecordBatch]:
    for one in files:
        with storage.open(one.path) as stream:
            yield from pq.ParquetFile(stream).iter_batches(_RECORDS)


class LakehouseBatchWriter(_Sink, DataSourceArrowWriter):
    """df.write; with a transaction id the rows are added once, however often it is attempted."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor. Raises ConfigError for a null in a required column."""
        return self._write("", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when all tasks are done.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        files = self._written(messages)[1]
        if (transaction := self._options.transaction_id) is None:
            rows = self._published(files, str(uuid4()), None)
        else:
            query = str(uuid5(NAMESPACE_OID, transaction))
            rows = self._published(files, query, (transaction, 0))
        self._each(rows, self._commit)

    def _commit(self, options: LakehouseOptions, files: list[NewFile]) -> None:
        table = formats.open_table(options.format, options.name)
        with self._changing(options, table, files) as change:
            if options.transaction_id is None:
                commit_files(table, files, change)
            else:
                commit_batch(table, options.transaction_id, 0, files, change=change)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: readers ignore files without a commit."""


class LakehouseStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """df.writeStream; the writer's id is the query's, which the checkpoint keeps."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor.

        Raises ConfigError for a null in a required column, TableError for a table that is gone.
        """
        return self._write(needed_query_id(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver when all tasks are done, and again after a failure.

        Raises PipelineError without all tasks' answers, and the errors of `commit_batch`.
        """
        writer, files = self._written(messages)
        self._grow(messages, writer, batchId)
        ledger = TableLedger(self._options.checkpoint, writer)
        self._begin(ledger, writer, batchId, files)
        made, files = files, self._published(files, writer, (writer, batchId))
        offsets = _fingerprint_of_offsets(self._options.checkpoint, batchId)
        due: list[tuple[Table, int]] = []

        def commit(options: LakehouseOptions, files: list[NewFile]) -> None:
            table = formats.find_table(options.format, options.name)
            if table is None:
                raise gone(options.name, batchId)
            with (
                formats.not_gone(options.format, options.name, batchId),
                self._changing(options, table, files) as change,
            ):
                is_added = commit_batch(
                    table,
                    writer,
                    batchId,
                    files,
                    name=options.query_name,
                    adopt=options.adopt,
                    after=None if options is self._options else ledger.last(str(options.name)),
                    offsets=offsets,
                    change=change,
                )
            every, full = options.compact_every, options.target_bytes
            if is_added and every and (size := size_due(table, every, full)):
                due.append((table, size))

        self._each(files, commit)
        tables = {str(self._options.of_table(one.table).name) for one in files if one.table}
        retries = sum(one.retries for one in all_answers(messages, Written))
        ledger.note(batchId, tables, made, self._options.quarantine, retries)
        merge_small_files(due)

    def _begin(
        self, ledger: TableLedger, writer: str, batch: int, files: Sequence[NewFile]
    ) -> None:
        """Raises TableError if a part of the batch was committed as other settings divide it: rows
        that go to another table now would be there twice, or nowhere."""
        options, names = self._options, {one.table for one in files}
        settings = self._settings()
        for name in () if options.adopt else ledger.begun(batch, settings):
            if not name.startswith(letters.PREFIX):  # there nobody knows what was published
                one = options.of_table(name) if name else options
                table = formats.find_table(one.format, one.name)
                if table is None or last_batch(table, writer) != batch:
                    continue
            raise TableError(
                f"{name or options.name} has rows of batch {batch}, which was begun with other "
                "tables, another schema or another quarantine, and is not complete. Run the query "
                "once as it was, then change it; or, to go on although rows of this batch may be "
                f"lost or repeated, {ADOPT}."
            )
        if any(names):
            ledger.begin(batch, settings, names)

    def _settings(self) -> int:
        """A fingerprint of what decides which rows go to which table, and in which form."""
        options = self._options
        said = [f"{options.quarantine} {options.rest} {options.max_new_tables}"]
        if options.route is not None:
            said += options.route.texts
        said += [f"{one.options.name}: {' '.join(one.subjects)}" for one in options.tables]
        for name, one in self._target.each.items():
            said += sorted(f"{name}: {field.name} {field.type}" for field in one.rows)
        return fingerprint("\n".join(said))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: readers ignore files without a commit."""


def _fingerprint_of_offsets(checkpoint: str | None, batch: int) -> int | None:
    """Of what the batch reads, if its checkpoint is on this machine."""
    here = None if checkpoint is None else local_path(checkpoint)
    planned = None if here is None else planned_offsets(here, batch)
    return None if planned is None else fingerprint("\n".join(planned))


_UNWRITTEN = ("time(", "geometry", "geography")
"""Beginnings of the names of types that older versions of Spark lack."""


def prepare_for_query(options: LakehouseOptions, schema: types.StructType) -> Target:
    """`prepare` for a batch of a streaming query: only the first batch creates the table, since a
    later one would have lost its rows with it.

    Raises TableError for a table, or a checkpoint, that is gone, as far as a checkpoint on this
    machine shows it.
    """
    if options.route is not None:
        return prepare(options, schema)
    checkpoint = None if options.checkpoint is None else local_path(options.checkpoint)
    if checkpoint is None:
        return prepare(options, schema, numbered=True)
    state = read_checkpoint(checkpoint)
    # Spark has planned this batch before it asks. A path without a scheme may also be on a file
    # system that only Spark knows, but hardly beside a table on this machine.
    name = options.tables[0].options.name if options.tables else options.name
    if state.planned is None and name.path is not None and local_path(name.path) is not None:
        raise TableError(
            f"{options.checkpoint} has gone: it was removed, perhaps with {name}, while "
            "this query used it. To begin anew, remove what is left of both, or take other folders "
            "for them."
        )

    ledger = TableLedger(checkpoint, state.query or "")

    def prepare_one(one: LakehouseOptions, rows: types.StructType) -> Target:
        table = None
        if state.planned and not one.adopt:
            table = formats.find_table(one.format, one.name)
            if table is None and (one is options or ledger.last(str(one.name)) != NONE):
                raise gone(one.name, state.planned)
            if table is not None and state.query is not None and one is options:
                check_has_batches(table, state.query, state.planned)
        with formats.not_gone(one.format, one.name, state.planned or 0):
            return prepare(one, rows, table, numbered=True)

    if not options.tables:
        return prepare_one(options, schema)
    return _prepared_list(options, schema, prepare_one)


def _prepared_list(
    options: LakehouseOptions,
    schema: types.StructType,
    prepare_one: Callable[[LakehouseOptions, types.StructType], Target],
) -> Target:
    """The tables of a list, several at a time."""
    with ThreadPoolExecutor(_COMMITS) as pool:
        made = pool.map(
            lambda at, one: replace(
                prepare_one(one.options, listed.schema_of(schema, at, one)),
                made=listed.made_columns(schema, at, one),
            ),
            range(len(options.tables)),
            options.tables,
        )
    columns = [one for one in schema if one.name in (*KEPT, "data")]
    return Target(options, arrow_schema(types.StructType(columns)), listed=tuple(made))


def prepare(
    options: LakehouseOptions,
    schema: types.StructType,
    table: Table | None = None,
    *,
    numbered: bool = False,
) -> Target:
    """The table for rows of this schema, created, or extended by new columns if allowed.

    `table`: if it was opened before; `numbered`: the rows are a batch with a number. Raises
    ConfigError for rows that do not fit, and TableError for a table that cannot be written.
    """
    if options.tables:
        return _prepared_list(
            options, schema, lambda one, rows: prepare(one, rows, numbered=numbered)
        )
    rows = _rows(options, schema)
    if options.route is not None:
        return Target(options, rows)
    return _prepared(options, rows, table, numbered=numbered)


def _prepared(
    options: LakehouseOptions, rows: pa.Schema, table: Table | None, *, numbered: bool
) -> Target:
    if table is None:
        table = formats.make_table(options.format, options.name, rows, options.partitions)
    if numbered or options.transaction_id is not None:
        table.check_numbers_stay()
    _check_table(options, table)
    if options.keep_versions is not None:
        with suppress(CommitConflict):  # the next batch creates it
            table.keep_versions(options.keep_versions)
    while (found := _check_rows(options, table, rows)).added or found.changed:
        with suppress(CommitConflict):
            if found.added:
                table.add_columns(found.added)
            else:
                table.widen([rows.field(name) for name, _, _ in found.changed])
        table.refresh()
    layout = table.layout(options.target_bytes, options.compression)
    if options.made:
        layout = replace(layout, made={**layout.made, **options.made})
    layout = layout if options.upsert is None else staged(layout)
    return Target(options, rows, layout, table.storage)


def check_fit(options: LakehouseOptions, schema: types.StructType) -> None:
    """Check that the rows of a query fit, without a change. Raises ConfigError."""
    for at, one in enumerate(options.tables):
        check_fit(one.options, listed.schema_of(schema, at, one))
    if options.tables:
        return
    rows = _rows(options, schema)
    table = None if options.route is not None else formats.find_table(options.format, options.name)
    if table is None:
        check_names(rows)
        check_partitions(rows, options.partitions)
        return
    table.check_numbers_stay()
    _check_table(options, table)
    _check_rows(options, table, rows)


def check_columns(options: LakehouseOptions, names: Iterable[str]) -> None:
    """`check_fit` by the names of the columns only. Raises ConfigError."""
    names = list(names)
    names += [name for name in options.made if name not in names]
    if options.upsert is not None:
        options.upsert.check_names(names)
        names += options.upsert.added
    if options.route is not None:
        options.route.check(str(options.name), names)
        if options.name.catalog is not None:  # raises before Spark starts if out of reach
            formats.find_table(options.format, options.of_table("x".join(options.route.texts)).name)
        return
    table = formats.find_table(options.format, options.name)
    if table is not None:
        table.check_numbers_stay()
        _check_table(options, table)
        _check_added(options, [name for name in names if name not in table.schema.names])
        there = {*names, *table.made}
        if options.quarantine is not None or options.on_bad_record == STOP:
            there.add(CORRUPT)  # of a time when bad records were kept in it
        lacking = [name for name in table.schema.names if name not in there]
        if lacking and not options.merge_schema:
            raise ConfigError(
                f"{options.name} has the column {', '.join(lacking)}, which these rows lack: add "
                "it to them (--json, --column, or --evolve as before), or set the option "
                "'mergeSchema' to true to leave it null in them."
            )


def _rows(options: LakehouseOptions, schema: types.StructType) -> pa.Schema:
    left_out = {HANDED_OVER.name, NEW, quarantine.REASON}
    if options.quarantine is not None:
        for name in (*quarantine.MESSAGE, CORRUPT):
            if name not in schema.names:
                raise ConfigError(
                    f"Option 'quarantineTable' needs rows with the column {name}: those of format "
                    f"jetstream, with {CORRUPT}, which is null in good ones."
                )
        left_out |= {CORRUPT, "data"}
    if options.on_bad_record == STOP:
        if CORRUPT not in schema.names:
            raise ConfigError(
                f"Option 'onBadRecord' needs rows with the column {CORRUPT}, which is null in good "
                "ones: those of payloads with a schema."
            )
        left_out.add(CORRUPT)
    rows = arrow_schema(types.StructType([one for one in schema if one.name not in left_out]))
    if options.made:
        rows = _with_made(options, rows)
    if options.upsert is not None:
        options.upsert.check(rows)
        rows = options.upsert.with_added(rows)
    if options.route is not None:
        options.route.check(str(options.name), rows.names)
        options.route.check_types(str(options.name), rows)
    return rows


def _with_made(options: LakehouseOptions, rows: pa.Schema) -> pa.Schema:
    """With the columns that tasks add."""
    for one in options.partition_by or ():
        one.check(rows)
    none = pa.RecordBatch.from_pylist([], schema=rows)
    made = {name: value.of(none).type for name, value in options.made.items()}
    return pa.schema([*rows, *(pa.field(*one) for one in made.items() if one[0] not in rows.names)])


def _check_table(options: LakehouseOptions, table: Table) -> None:
    """Raises ConfigError for a table that is not what the options say."""
    if options.upsert is not None and table.made:
        raise ConfigError(
            f"{options.name} has generated columns ({', '.join(table.made)}), which deltalake does "
            "not merge: leave 'keys' out, or write to another table."
        )
    wanted = tuple(map(str, options.partitions))
    if options.partition_by is not None and table.partition_by != wanted:
        raise ConfigError(
            f"{options.name} is partitioned by {_listed(table.partition_by)}, not by "
            f"{_listed(wanted)}: leave partitionBy (--partition-by) out, or write to another table."
        )


def _check_added(options: LakehouseOptions, names: Sequence[str]) -> None:
    if names and not options.merge_schema:
        raise ConfigError(
            f"{options.name} has no column {', '.join(names)}: set the option 'mergeSchema' to "
            "true to add it (it is null in existing rows), or leave it out of the rows."
        )


def _check_rows(options: LakehouseOptions, table: Table, rows: pa.Schema) -> Differences:
    """Columns of the rows that the table lacks, or that are wider there, if it may be changed.
    Raises ConfigError for other differences."""
    found = differences(table.schema, rows)
    check_names(pa.schema([*table.schema, *found.added]))
    changed = [one for one in found.changed if one[1:] not in FITTING]
    if others := [one for one in changed if not (options.evolve and one[1:] in WIDER)]:
        said = [
            f"{name} is {there} in the table and {here} in the rows" for name, there, here in others
        ]
        raise ConfigError(
            f"{options.name} has other types: {'; '.join(said)}. Cast these columns, or write "
            "to another table."
        )
    if required := [name for name in found.required if name not in table.made]:
        raise ConfigError(
            f"{options.name} requires {', '.join(required)}, which the rows do not have: add "
            "the missing columns."
        )
    _check_added(options, [one.name for one in found.added])
    return replace(found, changed=changed)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """The columns as Arrow types. Raises ConfigError for types that no table can have."""
    if not schema.fields:
        raise ConfigError("The rows have no columns.")
    for one in schema:
        if kind := _without_format(one.dataType):
            raise ConfigError(
                f"A table cannot have the column {one.name!r} of type {kind}: cast it, or leave it "
                "out."
            )
    return in_arrow(schema)


def _without_format(kind: types.DataType) -> str | None:
    """A type, at any depth, that Delta and Iceberg lack or that their libraries do not write."""
    parts: list[types.DataType] = []
    match kind:
        case types.StructType() if not kind.fields:
            return kind.simpleString()
        case types.StructType():
            parts = [one.dataType for one in kind]
        case types.ArrayType():
            parts = [kind.elementType]
        case types.MapType():
            parts = [kind.keyType, kind.valueType]
        case (
            types.NullType()
            | types.VariantType()
            | types.AnsiIntervalType()
            | types.CalendarIntervalType()
        ):
            return kind.simpleString()
        case _ if kind.simpleString().startswith(_UNWRITTEN):
            return kind.simpleString()
    return next(filter(None, map(_without_format, parts)), None)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
