"""Creates or checks the tables of a write, before a row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from jetspark.errors import CommitConflict, ConfigError, TableError, named, switching
from jetspark.payloads.tolerant import CORRUPT
from jetspark.reserved_names import UNFRAMED_PAYLOAD
from jetspark.spark.checkpoints import CheckpointState, read_checkpoint
from jetspark.spark.local_folders import local_path
from jetspark.spark.table_sink.batch_commits import MAX_CONCURRENT_COMMITS, BatchCommits
from jetspark.spark.table_sink.ledger import NO_BATCH, TableLedger
from jetspark.spark.table_sink.options import STOP, LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import UNKNOWN_FIELDS_COLUMN
from jetspark.spark.table_sink.target import Target
from jetspark.tables import formats, quarantine
from jetspark.tables.batches import check_earlier_batches, commit_with_retries, table_missing
from jetspark.tables.partitions import check_partitions
from jetspark.tables.schemas import WIDENINGS, SchemaDifferences, check_names, compare_schemas
from jetspark.tables.table import Table
from jetspark.tables.upserts import (
    WRITE_DESCRIPTION,
    description_flags,
    read_description,
    staging_layout,
)

# -- for a write -----------------------------------------------------------------------------------


def prepare_for_query(options: LakehouseOptions, schemas: Sequence[pa.Schema]) -> Target:
    """Create or check the tables of a streaming query for its next batch, before a row is read.

    Only the first batch creates a table: if it does not exist at a later one, it was lost with its
    rows. If an earlier attempt has committed a part of the batch, the rest is committed here, and
    the result's `completed_batch` says so. `schemas`: the columns of the rows; for a list of tables
    first those of messages that no table takes, and then those of each table.

    Raises TableError for a table or a checkpoint that no longer exists, as far as a checkpoint on
    this machine shows it; and the errors of `prepare`.
    """
    checkpoint = local_path(options.checkpoint)
    state = read_checkpoint(checkpoint)
    if (
        state.query is not None
        and state.planned is not None
        and state.planned != state.committed
        and BatchCommits(options, state.query, state.planned).complete()
    ):
        return Target(options, schemas[0], completed_batch=state.planned)
    if options.route is not None:
        return prepare(options, schemas)
    if checkpoint is None:
        return prepare(options, schemas, idempotent=True)
    # Spark writes its plan of a batch into the checkpoint before it asks for the writer, so without
    # a plan the checkpoint was removed. Its path might also be on a file system that only Spark
    # knows, but hardly if the table is on this machine.
    name = options.tables[0].options.name if options.tables else options.name
    if state.planned is None and name.path is not None and local_path(name.path) is not None:
        raise TableError(
            f"{options.checkpoint} no longer exists: it was removed, perhaps with {name}, while "
            "this query used it. Restore both, or remove what is left of both to start over, or "
            "take other folders for them."
        )

    ledger = TableLedger(checkpoint, state.query or "")

    def prepare_one(table_options: LakehouseOptions, schema: pa.Schema) -> Target:
        """Check one table that has earlier batches, or create it, for rows of this schema."""
        table = _find_written_table(options, table_options, state, ledger)
        with formats.reporting_missing_table(
            table_options.format, table_options.name, state.planned or 0
        ):
            return prepare(table_options, [schema], table, idempotent=True)

    if not options.tables:
        return prepare_one(options, schemas[0])
    return _prepare_list(options, schemas, prepare_one)


def _find_written_table(
    query: LakehouseOptions, options: LakehouseOptions, state: CheckpointState, ledger: TableLedger
) -> Table | None:
    """Open a table to which earlier batches of the query were written, and check that it has them.

    None if the query need not have written to it yet, so that it may be created. `options`: those
    of the table; `query`: those of the whole query; `state`: of its checkpoint; `ledger`: the last
    batch of each table. Raises TableError for a table that was lost or has lost batches.
    """
    if not state.planned or options.adopt:  # None or 0: this is the first batch
        return None
    table = formats.find_table(options.format, options.name)
    gets_each_batch = not query.tables
    if table is None and (gets_each_batch or ledger.last(str(options.name)) != NO_BATCH):
        raise table_missing(options.name, state.planned)
    if table is not None and state.query is not None and gets_each_batch:
        check_earlier_batches(table, state.query, state.planned)
    return table


def _prepare_list(
    options: LakehouseOptions,
    schemas: Sequence[pa.Schema],
    prepare_one: Callable[[LakehouseOptions, pa.Schema], Target],
) -> Target:
    """Prepare each table of a list by `prepare_one`, several at a time; returns a target that has
    them as its `tables`. `schemas`: the columns of messages that no table takes, and then those of
    each table's rows."""
    with ThreadPoolExecutor(MAX_CONCURRENT_COMMITS) as pool:
        targets = pool.map(prepare_one, [table.options for table in options.tables], schemas[1:])
    return Target(options, schemas[0], tables=tuple(targets))


def prepare(
    options: LakehouseOptions,
    schemas: Sequence[pa.Schema],
    table: Table | None = None,
    *,
    idempotent: bool = False,
) -> Target:
    """Create the tables of a write, or check them and add columns for its rows if the options allow
    it, before a row is written.

    `schemas`: the columns of the rows, a single schema; for a list of tables first those of
    messages that no table takes, and then those of each table. `table`: the table, if it is open
    already; `idempotent`: the table has to remember which batches it has. Raises ConfigError for
    rows that do not fit, and TableError for a table that cannot be written.
    """
    if options.tables:
        return _prepare_list(
            options, schemas, lambda table, schema: prepare(table, [schema], idempotent=idempotent)
        )
    schema = _table_schema(options, schemas[0])
    if options.route is not None:
        return Target(options, schema)
    return prepare_table(options, schema, table, idempotent=idempotent)


def prepare_table(
    options: LakehouseOptions, schema: pa.Schema, table: Table | None, *, idempotent: bool
) -> Target:
    """Create a table with these columns, or check an existing one, and add or widen columns if the
    options allow it; returns what tasks need to write its files.

    `table`: None if it is not open yet; `idempotent`: it has to remember which batches it has.
    """
    if table is None:
        table = formats.open_or_create_table(
            options.format, options.name, schema, options.partitions
        )
    if idempotent or options.transaction_id is not None:
        table.check_txn_versions_retained()  # by these it remembers batches
    _check_table(options, table)
    if options.keep_versions is not None:
        with suppress(CommitConflict):  # then the next batch sets the property
            table.keep_versions(options.keep_versions)
    commit_with_retries(table.name, lambda: _evolve(options, table, schema), table.refresh)
    layout = table.layout(options.target_file_size, options.file_compression)
    if options.partition_columns:
        layout = replace(layout, derived={**layout.derived, **options.partition_columns})
    # Files of an upsert are not committed: the driver merges their rows into the table.
    layout = layout if options.upsert is None else staging_layout(layout)
    return Target(options, schema, layout, table.storage)


def _evolve(options: LakehouseOptions, table: Table, schema: pa.Schema) -> None:
    """Add columns to a table, and widen others, until rows with this schema fit into it. Raises
    CommitConflict if somebody else changes it at the same time."""
    while (changes := _check_schema(options, table, schema)).added or changes.changed:
        if changes.added:
            table.add_columns(changes.added)
        else:
            table.widen([schema.field(name) for name, _, _ in changes.changed])
        table.refresh()


# -- before a query starts ---------------------------------------------------------------------


def check_fit(options: LakehouseOptions, schemas: Sequence[pa.Schema]) -> None:
    """Check before a query starts that its rows fit into its tables; changes nothing.

    `schemas`: the columns of the rows, a single schema; for a list of tables first those of
    messages that no table takes, and then those of each table. Raises ConfigError for columns or
    types that do not fit.
    """
    for table, schema in zip(options.tables, schemas[1:], strict=True):
        check_fit(table.options, [schema])
    if options.tables:
        return
    schema = _table_schema(options, schemas[0])
    existing = None
    if options.route is None:
        existing = formats.find_table(options.format, options.name)
    if existing is None:
        check_names(schema)
        check_partitions(schema, options.partitions)
        return
    existing.check_txn_versions_retained()
    _check_table(options, existing)
    _check_schema(options, existing, schema)


def check_columns(options: LakehouseOptions, names: Iterable[str]) -> None:
    """Check that rows with columns of these names fit into the table, before their types are known
    (`check_fit` checks those). Raises ConfigError."""
    names = list(names)
    names += [name for name in options.partition_columns if name not in names]
    if options.upsert is not None:
        options.upsert.check_names(names)
        names += options.upsert.added_columns
    if options.route is not None:
        _check_template(options, names)
    elif (table := formats.find_table(options.format, options.name)) is not None:
        table.check_txn_versions_retained()
        _check_table(options, table)
        _check_names_match(options, table, names)


def _check_template(options: LakehouseOptions, names: Sequence[str]) -> None:
    """Check that rows with columns of these names can fill a template of tables, as
    `lake/{region}`, and that its catalog can be reached. Raises ConfigError."""
    assert options.route is not None  # noqa: S101
    options.route.check(str(options.name), names)
    if options.name.catalog is not None:
        # Asks the catalog for one of the tables, which need not exist: each value is "x".
        any_table = "x".join(options.route.texts)
        formats.find_table(options.format, options.of_table(any_table).name)


def _check_names_match(options: LakehouseOptions, table: Table, names: Sequence[str]) -> None:
    """Check that the table and rows with columns of these names have the same columns. Raises
    ConfigError for one that either lacks, unless the option `mergeSchema` allows it."""
    _check_may_add(options, [name for name in names if name not in table.schema.names])
    provided = {*names, *table.generated_columns}
    if options.quarantine is not None or options.on_bad_record == STOP:
        provided.add(CORRUPT)  # an older table may have it from when it kept bad records
    missing = [name for name in table.schema.names if name not in provided]
    if missing and not options.merge_schema:
        raise ConfigError(
            f"The rows have no column {', '.join(missing)}, as {options.name} has: add it "
            f"to them, {switching('evolve', True)} as before, or "
            f"{switching('merge_schema', True)} to leave it null in them."
        )


# -- the columns of the table ------------------------------------------------------------------


def _table_schema(options: LakehouseOptions, schema: pa.Schema) -> pa.Schema:
    """The columns of the table into which rows with these columns are written.

    Columns that only tell tasks what to do with a row are left out; those of partitions and of a
    history are added. Raises ConfigError for rows that lack what the options need.
    """
    left_out = {UNKNOWN_FIELDS_COLUMN, UNFRAMED_PAYLOAD, quarantine.REASON}
    if options.quarantine is not None:
        for name in (*quarantine.MESSAGE, CORRUPT):
            if name not in schema.names:
                raise ConfigError(
                    f"needs rows with the column {name}: those of format "
                    f"jetstream with {named('decode')} and {named('keep_payload')}.",
                    option="quarantine",
                )
        left_out |= {CORRUPT, "data"}
    if options.on_bad_record == STOP:
        if CORRUPT not in schema.names:
            raise ConfigError(
                f"needs rows with the column {CORRUPT}, which is null in good "
                "ones: those of format jetstream with the option decode.",
                option="on_bad_record",
            )
        left_out.add(CORRUPT)
    columns = pa.schema([column for column in schema if column.name not in left_out])
    if options.partition_columns:
        columns = _with_partition_columns(options, columns)
    if options.upsert is not None:
        options.upsert.check(columns)
        columns = options.upsert.table_schema(columns)
    if options.route is not None:
        options.route.check(str(options.name), columns.names)
        options.route.check_types(str(options.name), columns)
    return columns


def _with_partition_columns(options: LakehouseOptions, schema: pa.Schema) -> pa.Schema:
    """Add to the columns of rows those that tasks compute for the partitions of a Delta table, as
    `time_day` for `day(time)`."""
    for partition in options.partition_by or ():
        partition.check(schema)
    empty = pa.RecordBatch.from_pylist([], schema=schema)  # for the types of the expressions
    derived = [
        pa.field(name, value.of(empty).type) for name, value in options.partition_columns.items()
    ]
    return pa.schema([*schema, *(column for column in derived if column.name not in schema.names)])


def _check_table(options: LakehouseOptions, table: Table) -> None:
    """Raise ConfigError if an existing table is written or partitioned in another way than the
    options say: by other keys, with or without a history, or with other partitions."""
    if options.upsert is not None and table.generated_columns:
        raise ConfigError(
            f"{options.name} has generated columns ({', '.join(table.generated_columns)}), which "
            f"deltalake does not merge: leave {named('keys')} out, or write to another table."
        )
    description = read_description(table)
    if description is not None and (options.keys, options.history_by) != (
        description["keys"],
        description["history_by"],
    ):
        kind = "are a history of" if description["history_by"] else "replace others with the same"
        raise ConfigError(
            f"The rows of {options.name} {kind} {_join(description['keys'])}, and these would not: "
            f"give the options of the query that writes it ({description_flags(description)}, …), "
            f"write to another table, or remove the table's property {WRITE_DESCRIPTION}."
        )
    partition_by = tuple(map(str, options.partitions))
    if options.partition_by is not None and table.partition_by != partition_by:
        raise ConfigError(
            f"{options.name} is partitioned by {_join(table.partition_by)}, not by "
            f"{_join(partition_by)}: leave {named('partition_by')} out, or write to another "
            "table."
        )


def _check_may_add(options: LakehouseOptions, names: Sequence[str]) -> None:
    """Raise ConfigError if rows have columns that the table lacks, unless the option `mergeSchema`
    allows to add them. `names`: these columns."""
    if names and not options.merge_schema:
        raise ConfigError(
            f"{options.name} has no column {', '.join(names)}: {switching('merge_schema', True)} "
            "to add it (it is null in existing rows), or leave it out of the rows."
        )


def _check_schema(options: LakehouseOptions, table: Table, schema: pa.Schema) -> SchemaDifferences:
    """Compare a table with rows of this schema: returns the columns that have to be added to it, or
    widened, before it can hold them.

    Raises ConfigError for a difference that no change of the table removes, and for a change that
    the options do not allow.
    """
    changes = compare_schemas(table.schema, schema)
    check_names(pa.schema([*table.schema, *changes.added]))
    conflicts = [
        f"{name} is {in_table} in the table and {in_rows} in the rows"
        for name, in_table, in_rows in changes.changed
        if not (options.evolve and (in_table, in_rows) in WIDENINGS)
    ]
    if conflicts:
        raise ConfigError(
            f"{options.name} has other types: {'; '.join(conflicts)}. Cast these columns, or write "
            "to another table."
        )
    if required := [name for name in changes.required if name not in table.generated_columns]:
        raise ConfigError(
            f"{options.name} requires {', '.join(required)}, which the rows do not have: add "
            "the missing columns."
        )
    _check_may_add(options, [column.name for column in changes.added])
    return changes


def _join(names: tuple[str, ...]) -> str:
    """The names with commas between them, or the word "nothing", as part of a sentence."""
    return ", ".join(names) or "nothing"
