"""Creates or checks the tables of a write, before a row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from jetspark.errors import CommitConflict, ConfigError, TableError, named
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
    """`prepare` for a batch of a streaming query.

    Only the first batch creates the table, since a later one would have lost its rows with it. A
    batch that was committed in part is completed before a row is read (`batch_commits`), if its
    checkpoint is on this machine. `schemas`: the columns of the rows; in a list of tables those of
    messages without a table, and then those of each table.

    Raises TableError for a table, or a checkpoint, that no longer exists, as far as a checkpoint on
    this machine shows it.
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
    # Spark has planned this batch before it asks. A path without a scheme may also be on a file
    # system that only Spark knows, but hardly beside a table on this machine.
    name = options.tables[0].options.name if options.tables else options.name
    if state.planned is None and name.path is not None and local_path(name.path) is not None:
        raise TableError(
            f"{options.checkpoint} no longer exists: it was removed, perhaps with {name}, while "
            "this query used it. Restore both, or remove what is left of both to start over, or "
            "take other folders for them."
        )

    ledger = TableLedger(checkpoint, state.query or "")

    def prepare_one(table_options: LakehouseOptions, schema: pa.Schema) -> Target:
        table = _find_continued(options, table_options, state, ledger)
        with formats.reporting_missing_table(
            table_options.format, table_options.name, state.planned or 0
        ):
            return prepare(table_options, [schema], table, idempotent=True)

    if not options.tables:
        return prepare_one(options, schemas[0])
    return _prepare_list(options, schemas, prepare_one)


def _find_continued(
    query: LakehouseOptions, options: LakehouseOptions, state: CheckpointState, ledger: TableLedger
) -> Table | None:
    """Find the table of a query that has written batches, and check that it has them; None if it is
    to be created. `query`: the options of all of its tables. Raises TableError."""
    if not state.planned or options.adopt:
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
    """Prepare the tables of a list, several at a time."""
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
    """Create the table for these rows, or extend it by new columns if that is allowed.

    `schemas`: as for `prepare_for_query`; `table`: if it was opened before; `idempotent`: the table
    has to remember the batches of the write. Raises ConfigError for rows that do not fit, and
    TableError for a table that cannot be written.
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
    """Create a single table with these columns, or check it, and extend it if that is allowed."""
    if table is None:
        table = formats.open_or_create_table(
            options.format, options.name, schema, options.partitions
        )
    if idempotent or options.transaction_id is not None:
        table.check_txn_versions_retained()
    _check_table(options, table)
    if options.keep_versions is not None:
        with suppress(CommitConflict):  # the next batch creates it
            table.keep_versions(options.keep_versions)
    commit_with_retries(table.name, lambda: _evolve(options, table, schema), table.refresh)
    layout = table.layout(options.target_file_size, options.file_compression)
    if options.partition_columns:
        layout = replace(layout, derived={**layout.derived, **options.partition_columns})
    layout = layout if options.upsert is None else staging_layout(layout)
    return Target(options, schema, layout, table.storage)


def _evolve(options: LakehouseOptions, table: Table, schema: pa.Schema) -> None:
    """Add columns to the table, and widen others, until rows with this schema fit. Raises
    CommitConflict."""
    while (changes := _check_schema(options, table, schema)).added or changes.changed:
        if changes.added:
            table.add_columns(changes.added)
        else:
            table.widen([schema.field(name) for name, _, _ in changes.changed])
        table.refresh()


# -- before a query starts ---------------------------------------------------------------------


def check_fit(options: LakehouseOptions, schemas: Sequence[pa.Schema]) -> None:
    """Check that the rows of a query fit, without a change; `schemas`: as for `prepare_for_query`.
    Raises ConfigError."""
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
    """Check that rows with columns of these names fit the table, as `check_fit` does with their
    types. Raises ConfigError."""
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
    """Raise ConfigError for a template of tables that needs other columns than these, and for a
    catalog out of reach."""
    assert options.route is not None  # noqa: S101
    options.route.check(str(options.name), names)
    if options.name.catalog is not None:
        any_table = "x".join(options.route.texts)  # with the value x in each place
        formats.find_table(options.format, options.of_table(any_table).name)


def _check_names_match(options: LakehouseOptions, table: Table, names: Sequence[str]) -> None:
    """Raise ConfigError for columns that either the table or the rows lack, unless `mergeSchema`
    allows it."""
    _check_may_add(options, [name for name in names if name not in table.schema.names])
    provided = {*names, *table.generated_columns}
    if options.quarantine is not None or options.on_bad_record == STOP:
        provided.add(CORRUPT)  # from a time when bad records were kept in the table
    missing = [name for name in table.schema.names if name not in provided]
    if missing and not options.merge_schema:
        raise ConfigError(
            f"The rows have no column {', '.join(missing)}, as {options.name} has: add it "
            "to them (--json, --column, or --evolve as before), or set the option "
            f"{named('merge_schema')} to true to leave it null in them."
        )


# -- the columns of the table ------------------------------------------------------------------


def _table_schema(options: LakehouseOptions, schema: pa.Schema) -> pa.Schema:
    """The columns of the table for rows with these columns, some of which are only for tasks.
    Raises ConfigError."""
    left_out = {UNKNOWN_FIELDS_COLUMN, UNFRAMED_PAYLOAD, quarantine.REASON}
    if options.quarantine is not None:
        for name in (*quarantine.MESSAGE, CORRUPT):
            if name not in schema.names:
                raise ConfigError(
                    f"needs rows with the column {name}: those of format "
                    "jetstream with the options decode and keepPayload.",
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
    """Add the columns that tasks derive for the partitions of a Delta table."""
    for partition in options.partition_by or ():
        partition.check(schema)
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    derived = [
        pa.field(name, value.of(empty).type) for name, value in options.partition_columns.items()
    ]
    return pa.schema([*schema, *(column for column in derived if column.name not in schema.names)])


def _check_table(options: LakehouseOptions, table: Table) -> None:
    """Raise ConfigError for a table that is not what the options say."""
    if options.upsert is not None and table.generated_columns:
        raise ConfigError(
            f"{options.name} has generated columns ({', '.join(table.generated_columns)}), which "
            "deltalake does not merge: leave 'keys' out, or write to another table."
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
            f"{_join(partition_by)}: leave partitionBy (--partition-by) out, or write to another "
            "table."
        )


def _check_may_add(options: LakehouseOptions, names: Sequence[str]) -> None:
    """Raise ConfigError if rows have columns that the table lacks, and may not get."""
    if names and not options.merge_schema:
        raise ConfigError(
            f"{options.name} has no column {', '.join(names)}: set {named('merge_schema')} to "
            "true to add it (it is null in existing rows), or leave it out of the rows."
        )


def _check_schema(options: LakehouseOptions, table: Table, schema: pa.Schema) -> SchemaDifferences:
    """The columns that the table has to get, or to widen, for rows with this schema. Raises
    ConfigError for differences that no change of the table mends, or that may not be made."""
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
    """The names as part of a sentence."""
    return ", ".join(names) or "nothing"
