"""New fields of payloads become columns: behind `--evolve`, and `evolve` in a pipeline's sink.

Rows have the fields that their schema lacks in a column of their own (`NEW`), which no table gets.
Tasks note their names and types; the driver adds the columns to the table, and fails the batch
before its commit, with SchemaGrown. Its query is started again with the columns that the table has
now, and Spark gives it the same batch. So a row is written when there is a column for each field,
and the columns are kept where they belong. Each table of a list grows on its own; one of them that
grows fails the batch of all.

A field becomes a column with its first value that is not null, whose types are those of
`codecs.unknown_fields`; several of them together are a STRING.

A text that looks like a time is a STRING, since the next one may not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NoReturn, TypeAlias

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.codecs.ddl import check_fields, type_in_ddl, with_types
from jetspark.codecs.field_names import FieldNames
from jetspark.codecs.tolerant import CORRUPT
from jetspark.codecs.unknown_fields import LEAST, LONG, MOST, can_be_column, common_type
from jetspark.errors import ConfigError, SchemaGrown
from jetspark.lakehouse.formats import find_table, open_table
from jetspark.lakehouse.new_files import Layout
from jetspark.lakehouse.optimistic_commits import commit_with_retries
from jetspark.lakehouse.routes import RowExpression
from jetspark.lakehouse.schemas import normalized_type
from jetspark.lakehouse.table import Table
from jetspark.spark.failures import is_of
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.options import SourceOptions

NEW: Final = "_jetspark_new"
"""The column with the new fields of each row, as JSON, or null."""
MOST_COLUMNS: Final = 1000
"""Of a table; with more their names are data."""
_KINDS: Mapping[str, pa.DataType] = {
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
class Growth:
    """Columns that payloads need, and their types in `_KINDS`."""

    added: dict[str, str] = field(default_factory=dict)
    widened: set[str] = field(default_factory=set)
    """Columns of small integers that have to become 64-bit ones."""

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)

    def update(self, other: Growth) -> None:
        """Take another task's, too."""
        for name, kind in other.added.items():
            self._add(name, kind)
        self.widened |= other.widened

    def note(self, texts: Iterable[str | None], columns: Iterable[str]) -> None:
        """The values of `NEW`; `columns`: the names that are taken."""
        taken = {name.casefold() for name in columns}
        for text in texts:
            for name, kind in json.loads(text or "{}").items():
                if name.casefold() in taken or not can_be_column(name):
                    continue
                if name in self.added or len(taken) + len(self.added) < MOST_COLUMNS:
                    self._add(name, kind)

    def note_refused(self, payloads: Iterable[str | None], columns: pa.Schema) -> None:
        """Payloads that do not become rows: whole numbers may be too large for their columns."""
        small = {
            one.name
            for one in columns
            if pa.types.is_signed_integer(one.type) and one.type.bit_width < 64
        }
        for payload in payloads if small else ():
            try:
                found = json.loads(payload or "")
            except (ValueError, RecursionError):
                continue
            for name in small & found.keys() if isinstance(found, dict) else ():
                value, most = found[name], 1 << (columns.field(name).type.bit_width - 1)
                if type(value) is int and not -most <= value < most and LEAST <= value <= MOST:
                    self.widened.add(name)

    def _add(self, name: str, kind: str) -> None:
        before = next((one for one in self.added if one.casefold() == name.casefold()), name)
        if before != name:
            return  # Spark ignores case: the first one of both
        self.added[name] = common_type(self.added.get(name, kind), kind)

    def apply(self, table: Table) -> str:
        """Change the table; returns what has changed, as a clause. Raises CommitConflict."""
        there = {name.casefold() for name in table.schema.names}
        room = max(0, MOST_COLUMNS - len(there))
        added = [(name, kind) for name, kind in self.added.items() if name.casefold() not in there]
        if fields := [pa.field(name, _KINDS[kind]) for name, kind in added[:room]]:
            table.add_columns(fields)
            table.refresh()
        schema = table.schema
        small = [name for name in self.widened if schema.field(name).type != pa.int64()]
        if small:
            table.widen([pa.field(name, pa.int64()) for name in small])
        names = ", ".join(one.name for one in fields)
        parts = [f"the columns {names} were added to it"] if fields else []
        parts += [f"its columns {', '.join(small)} have 64 bits now"] if small else []
        what = " and ".join(parts) or "its columns are those of another writer"
        return f"{table.name}: {what}"


Growths: TypeAlias = dict[str, Growth]
"""By the names of the tables of a list; that of a single table is ""."""


def united(some: Iterable[Growths]) -> Growths:
    """The growth that all of these tasks need."""
    found: Growths = {}
    for one in some:
        for name, growth in one.items():
            found.setdefault(name, Growth()).update(growth)
    return found


def grow(tables: Mapping[str, LakehouseOptions], growths: Growths) -> NoReturn:
    """Give the tables the columns that rows need. Raises SchemaGrown."""
    said = "; ".join(_grown(tables[name], growth) for name, growth in growths.items())
    raise SchemaGrown(f"{said}. The batch was not written: start the query again.")


def _grown(options: LakehouseOptions, growth: Growth) -> str:
    return commit_with_retries(
        options.name, lambda: growth.apply(open_table(options.format, options.name))
    )


def has_grown(query: StreamingQuery) -> bool:
    """Whether the query has ended since its tables have got columns, or its schema a version."""
    if (error := query.exception()) is None or not is_of(error, SchemaGrown):
        return False
    from jetspark.registry.lookup import forget_latest  # its imports are not for every worker

    forget_latest()
    return True


def check_one_schema(said: str, options: LakehouseOptions) -> None:
    """Raises ConfigError for a template. `said`: the flag, or the key."""
    if options.route is not None:
        raise ConfigError(
            f"{said}: the tables of {options.name} have one schema, which new fields of one of "
            "them would change in all: name one table, or leave it out."
        )


def check_versions(said: str, source: SourceOptions) -> None:
    """Raises ConfigError for payloads, not in JSON, whose schema gets no new versions."""
    if source.decoding is None or source.decoding.is_json:
        return
    if not source.decoding.schema.version or "schemaVersion" in source.given:
        raise ConfigError(
            f"{said} follows the versions that a schema has in a registry: name the schema "
            "(schemaName), and no version. Columns of a schema that you give are added with "
            "mergeSchema (--merge-schema)."
        )


def fields_by_now(
    options: LakehouseOptions,
    ddl: str | None,
    option: str,
    made: Iterable[str],
    names: FieldNames = FieldNames(),  # noqa: B008  it is immutable
) -> str | None:
    """The schema of payloads for a table whose new fields become columns, with those that it has
    got by now. `made`: the columns that are made of others. Raises ConfigError."""
    if ddl is None or not options.evolve or options.route is not None:
        return ddl
    table = find_table(options.format, options.name)
    if table is None:
        return ddl
    history = () if options.upsert is None else options.upsert.added
    others = (*names.taken, CORRUPT, *made, *options.made, *table.generated_columns, *history)
    return grown(ddl, option, table.schema, others, names)


def no_fields(layout: Layout) -> set[str]:
    """The columns of a table that no field of a payload becomes, however often the query is started
    again."""
    typeless = (one.name for one in layout.schema if type_in_ddl(normalized_type(one.type)) is None)
    return {*layout.derived, *typeless}


def without(
    ddl: str,
    made: Mapping[str, RowExpression],
    *,
    new: bool,
    names: FieldNames = FieldNames(),  # noqa: B008  it is immutable
) -> dict[str, RowExpression]:
    """Columns that are made of others, where the rest of the payload is without the fields of this
    schema; and with `NEW` on demand."""
    rest = RowExpression.rest(ddl)
    found = {name: one if one.known is None else rest for name, one in made.items()}
    return {**found, NEW: RowExpression.new_columns(ddl, names)} if new else found


def grown(
    ddl: str,
    option: str,
    table: pa.Schema,
    others: Iterable[str],
    names: FieldNames = FieldNames(),  # noqa: B008  it is immutable
) -> str:
    """The schema of payloads for a table that may have more columns, and wider ones.

    `others`: its columns that are no fields. Raises ConfigError.
    """
    given = check_fields(ddl, option)
    taken = {name.casefold() for name in (*others, *map(names.column, given))}
    kinds = {}
    for one in table:
        kind, name = type_in_ddl(normalized_type(one.type)), names.field(one.name)
        if name in given:
            if (given[name], kind) in _WIDER:
                kinds[name] = str(kind)
        elif kind is not None and one.name.casefold() not in taken:
            kinds[name] = kind
    return with_types(ddl, kinds)
