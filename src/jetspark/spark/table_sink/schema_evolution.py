"""New fields of payloads become columns: behind `--evolve`, and `evolve` in a pipeline's sink.

Rows have the fields that their schema lacks in `UNKNOWN_FIELDS_COLUMN`, which no table gets. Tasks
collect the names and types of these fields; the driver adds the columns to the table, and fails the
batch before its commit, with SchemaEvolved. Its query is started again with the columns that the
table has now, and Spark gives it the same batch. So a row is written when there is a column for
each field. Each table of a list evolves on its own; one that does fails the batch of all.

A field becomes a column with its first value that is not null, whose types are those of
`payloads.unknown_fields`; several of them together are a STRING. A text that looks like a time is a
STRING, since the next one may not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NoReturn, TypeAlias

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError, SchemaEvolved, named
from jetspark.payloads.ddl import check_fields, type_in_ddl, with_types
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.tolerant import CORRUPT
from jetspark.payloads.unknown_fields import (
    LONG,
    MAX_BIGINT,
    MIN_BIGINT,
    can_be_column,
    common_type,
)
from jetspark.reserved_names import PREFIX
from jetspark.spark.failures import is_of
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.batches import commit_with_retries
from jetspark.tables.file_layout import Layout
from jetspark.tables.formats import find_table, open_table
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.schemas import normalized_type
from jetspark.tables.table import Table

UNKNOWN_FIELDS_COLUMN: Final = f"{PREFIX}_unknown_fields"
"""The column with the types of each row's unknown fields, as JSON, or null."""
MAX_COLUMNS: Final = 1000
"""Most columns of a table; with more of them their names are data."""
_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    LONG: pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
}
_WIDER = frozenset(
    [*combinations(("tinyint", "smallint", "int", "bigint"), 2), ("float", "double")]
)


@dataclass
class SchemaChange:
    """What has to change in one table so that it can hold fields that payloads have and it lacks:
    new columns, and wider ones. False if nothing has to."""

    added: dict[str, str] = field(default_factory=dict)
    """Types of new columns, as in `_ARROW_TYPES`."""
    widened: set[str] = field(default_factory=set)
    """Columns of small integers that have to become 64-bit ones."""

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)

    def merge(self, change: SchemaChange) -> None:
        """Add the new and the wider columns that the rows of another task need."""
        for name, type_ in change.added.items():
            self._add(name, type_)
        self.widened |= change.widened

    def add_fields(self, texts: Iterable[str | None], reserved: Iterable[str]) -> None:
        """Add a column for each field that payloads have and the table lacks.

        `texts`: for each row its unknown fields and their types as JSON, or None
        (`UNKNOWN_FIELDS_COLUMN`); `reserved`: names that no new column may have, among them those
        of the table. With `MAX_COLUMNS` columns no more are added.
        """
        taken_names = {name.casefold() for name in reserved}
        for text in texts:
            for name, type_ in json.loads(text or "{}").items():
                if name.casefold() in taken_names or not can_be_column(name):
                    continue
                if name in self.added or len(taken_names) + len(self.added) < MAX_COLUMNS:
                    self._add(name, type_)

    def add_larger_integers(self, payloads: Iterable[str | None], columns: pa.Schema) -> None:
        """Widen the columns of small integers for which rejected payloads have larger values.

        `payloads`: JSON texts, of which others than objects are skipped; `columns`: those of the
        table. A number that 64 bits cannot hold widens nothing.
        """
        limits = {
            column.name: 1 << (column.type.bit_width - 1)
            for column in columns
            if pa.types.is_signed_integer(column.type) and column.type.bit_width < 64
        }
        for payload in payloads if limits else ():
            try:
                fields = json.loads(payload or "")
            except (ValueError, RecursionError):
                continue
            for name in limits.keys() & fields.keys() if isinstance(fields, dict) else ():
                value = fields[name]
                # `type`, since True is an int in Python, too.
                is_bigint = type(value) is int and MIN_BIGINT <= value <= MAX_BIGINT
                if is_bigint and not -limits[name] <= value < limits[name]:
                    self.widened.add(name)

    def _add(self, name: str, type_: str) -> None:
        """Add a new column; if it is added already, give it a type that holds this one, too. A name
        that differs from an added one only in case is left out, since Spark ignores case."""
        spelled = next((added for added in self.added if added.casefold() == name.casefold()), name)
        if spelled == name:
            self.added[name] = common_type(self.added.get(name, type_), type_)

    def apply(self, table: Table) -> str:
        """Commit these changes to the table's schema; returns a clause that says what changed, for
        the error that ends the batch.

        What another writer has changed meanwhile, and columns beyond `MAX_COLUMNS`, are left out.
        Raises CommitConflict.
        """
        existing = {name.casefold() for name in table.schema.names}
        room = max(0, MAX_COLUMNS - len(existing))
        added = [
            (name, kind) for name, kind in self.added.items() if name.casefold() not in existing
        ]
        if fields := [pa.field(name, _ARROW_TYPES[kind]) for name, kind in added[:room]]:
            table.add_columns(fields)
            table.refresh()
        schema = table.schema
        small = [name for name in self.widened if schema.field(name).type != pa.int64()]
        if small:
            table.widen([pa.field(name, pa.int64()) for name in small])
        names = ", ".join(column.name for column in fields)
        parts = [f"the columns {names} were added to it"] if fields else []
        parts += [f"its columns {', '.join(small)} have 64 bits now"] if small else []
        return f"{table.name}: {' and '.join(parts) or 'its columns are those of another writer'}"


SchemaChanges: TypeAlias = dict[str, SchemaChange]
"""Changes by the names of the tables of a list; a single table has the name ""."""


def combine_changes(changes: Iterable[SchemaChanges]) -> SchemaChanges:
    """Combine the schema changes that the rows of each task need, by the names of the tables."""
    combined: SchemaChanges = {}
    for of_task in changes:
        for name, change in of_task.items():
            combined.setdefault(name, SchemaChange()).merge(change)
    return combined


def evolve_tables(tables: Mapping[str, LakehouseOptions], changes: SchemaChanges) -> NoReturn:
    """Change the schemas of tables so that they can hold all fields of a batch's rows, and end the
    batch before its commit: always raises SchemaEvolved, after which the query is started again.

    `tables`: options of the tables, by the names by which `changes` has them.
    """

    def evolve(options: LakehouseOptions, change: SchemaChange) -> str:
        """Change one table; returns a clause that says what changed."""
        return commit_with_retries(
            options.name, lambda: change.apply(open_table(options.format, options.name))
        )

    clauses = "; ".join(evolve(tables[name], change) for name, change in changes.items())
    raise SchemaEvolved(f"{clauses}. The batch was not written: start the query again.")


def has_evolved(query: StreamingQuery) -> bool:
    """Whether a query has ended only to be started again with a new schema: its tables have got
    columns for new fields, or its payloads' schema has a new version in the registry.

    If so, also forgets the cached newest versions of schemas, so that the next start asks for them.
    """
    if (error := query.exception()) is None or not is_of(error, SchemaEvolved):
        return False
    from jetspark.registry.lookup import forget_latest  # its imports are not for every worker

    forget_latest()
    return True


# -- checks of options -----------------------------------------------------------------------------


def check_one_schema(options: LakehouseOptions) -> None:
    """Raise ConfigError if a template of tables is to evolve: all of its tables have one schema."""
    if options.route is not None:
        raise ConfigError(
            f": the tables of {options.name} have one schema, which new fields of one of "
            "them would change in all: name one table, or leave it out.",
            option="evolve",
        )


def check_versions(source: SourceOptions) -> None:
    """Raise ConfigError for the option `evolve` if payloads cannot get new fields, since their
    schema is fixed: given as a text, or by one version in a registry. JSON payloads can get new
    fields without a new schema."""
    if source.decoding is None or source.decoding.is_json:
        return
    if not source.decoding.schema.version or "schema_version" in source.option_names:
        raise ConfigError(
            "follows the versions that a schema has in a registry: name the schema "
            f"({named('schema_name')}), and no version. Columns of a schema that you give are "
            f"added with {named('merge_schema')}.",
            option="evolve",
        )


# -- the schema of payloads ------------------------------------------------------------------------


def evolve_rows(
    options: LakehouseOptions,
    ddl: str,
    option: str,
    derived: Mapping[str, RowExpression],
    names: FieldNames,
) -> tuple[str, dict[str, RowExpression]]:
    """The schema by which payloads are decoded, and the derived columns, when a query starts.

    Without `evolve` they are as configured. With it the schema also has the fields that have become
    columns of the table since, and a derived column `UNKNOWN_FIELDS_COLUMN` has the types of
    fields that are still unknown. `ddl`, `derived`: as the query was configured; `option`: the name
    of the schema's option, for messages; `names`: the columns of renamed fields. Raises
    ConfigError.
    """
    evolves = options.evolve and options.route is None
    table = find_table(options.format, options.name) if evolves else None
    if table is not None:
        history = () if options.upsert is None else options.upsert.added_columns
        not_from_payloads = (
            *names.taken,
            CORRUPT,
            *derived,
            *options.partition_columns,
            *table.generated_columns,
            *history,
        )
        ddl = extend_ddl(ddl, option, table.schema, not_from_payloads, names)
    # A rescued data column (the only one with a schema) has the fields that the new schema lacks.
    rescued = RowExpression.rest(ddl)
    columns = {name: value if value.schema is None else rescued for name, value in derived.items()}
    if evolves:
        columns[UNKNOWN_FIELDS_COLUMN] = RowExpression.new_columns(ddl, names)
    return ddl, columns


def extend_ddl(
    ddl: str, option: str, table: pa.Schema, no_fields: Iterable[str], names: FieldNames
) -> str:
    """Extend the schema of payloads by the columns that a table has and the schema lacks, and by
    the wider types of columns that it has; returns the new schema as DDL.

    `option`: the name of the schema's option, for messages; `no_fields`: columns of the table that
    do not come from payloads; `names`: the columns of renamed fields. Raises ConfigError.
    """
    fields = check_fields(ddl, option)
    reserved = {name.casefold() for name in (*no_fields, *map(names.column, fields))}
    types = {}
    for column in table:
        type_, name = type_in_ddl(normalized_type(column.type)), names.field(column.name)
        if name in fields:
            if (fields[name], type_) in _WIDER:
                types[name] = str(type_)
        elif type_ is not None and column.name.casefold() not in reserved:
            types[name] = type_
    return with_types(ddl, types)


def columns_without_fields(layout: Layout) -> set[str]:
    """The columns of a table that no field of a payload fills: those that are computed from others,
    and those with a type that a schema of payloads cannot have. A new field of such a name becomes
    no column."""
    typeless = (
        column.name for column in layout.schema if type_in_ddl(normalized_type(column.type)) is None
    )
    return {*layout.derived, *typeless}
