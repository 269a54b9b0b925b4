"""Rows that replace others with the same keys: a table of present values.

Tasks write the rows of a batch into files, as for any table. The driver reads these back, keeps the
last row of each key, and the table merges them in one commit, with the number of the batch. Names
are those of Spark's AUTO CDC flows: keys, sequence by, apply as deletes, apply as truncates.

Rows of a database's changes are ordered by their positions (`payloads.log_position`). A row without
a place in the log gets that of the change of its key before it, which may be in the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.errors import CommitConflict, ConfigError, named
from jetspark.nearest import check_column
from jetspark.payloads import log_position
from jetspark.tables.file_layout import Layout
from jetspark.tables.new_files import NewFile, Storage, check_unchanged
from jetspark.tables.table import ROW_ORDER, Changes, Table, TxnVersions

_WITHOUT_LOG = f"{ROW_ORDER}_log"
WRITE_DESCRIPTION = "jetspark.written"
"""The property of a table that says how its rows are written, as JSON."""
_QUOTED_TEXT = r"'(?:[^']|'')*'"
_CONDITION = re.compile(
    rf"\s*(?P<column>\w+|`[^`]+`)\s*"
    rf"(?:=\s*(?P<one>{_QUOTED_TEXT})|IN\s*\(\s*(?P<several>{_QUOTED_TEXT}(?:\s*,\s*{_QUOTED_TEXT})*)\s*\))?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RowCondition:
    """Condition on a column, by which rows delete their key, or all rows."""

    column: str
    values: tuple[str, ...] = ()
    """Texts of the column; empty: the column is true."""

    @classmethod
    def parse(cls, text: str) -> RowCondition:
        """A condition such as `operation IN ('DEL', 'PURGE')`. Raises ConfigError."""
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"{text!r} is not column, column = 'text' or column IN ('text', …); for any other "
                "condition add a boolean column to the rows, and name it."
            )
        texts = re.findall(_QUOTED_TEXT, match["one"] or match["several"] or "")
        return cls(
            match["column"].strip("`"), tuple(literal[1:-1].replace("''", "'") for literal in texts)
        )

    def of(self, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
        """Boolean mask of the rows that delete; it has no nulls."""
        column = rows[self.column]
        if self.values:
            return pc.is_in(column, value_set=pa.array(self.values, column.type))
        return pc.fill_null(column, False)


@dataclass(frozen=True)
class Upsert:
    """Merges the rows of a batch into a table by keys; a `CommitAction` of `batches`."""

    keys: tuple[str, ...]
    sequence_by: str | None = None
    """The column whose greatest value marks the last row; None: a batch has each key once."""
    deletes: RowCondition | None = None
    truncates: RowCondition | None = None
    """Rows without a key, each of which removes all that come before it in the order."""

    history_by: str | None = None
    """Column with the time of each change, in a table of history (`history.History`)."""

    added_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that the table has in addition to those of the rows."""

    def table_schema(self, rows: pa.Schema) -> pa.Schema:
        """The table's columns, for these rows. Raises ConfigError."""
        return rows

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ConfigError for columns that the rows lack."""
        for option, name in self._columns():
            check_column(named(option), name, names)

    def check(self, rows: pa.Schema) -> None:
        """Raise ConfigError for columns that the rows lack, or with an unsuitable type."""
        self.check_names(rows.names)
        for option, name in self._columns():
            if pa.types.is_nested(kind := rows.field(name).type):
                raise ConfigError(f": {name!r} has the nested type {kind}.", option=option)
            if option == "keys" and pa.types.is_floating(kind):
                raise ConfigError(
                    f": {name!r} has the type {kind}, whose values are not exact: "
                    "cast it to a decimal or a string.",
                    option="keys",
                )
        for option, condition in (
            ("apply_as_deletes", self.deletes),
            ("apply_as_truncates", self.truncates),
        ):
            kind = pa.null() if condition is None else rows.field(condition.column).type
            if condition and not (pa.types.is_string if condition.values else pa.types.is_boolean)(
                kind
            ):
                raise ConfigError(
                    f": {condition.column!r} has the type {kind}; name a boolean "
                    "column, or compare a text column.",
                    option=option,
                )

    def missing_key_column(self, rows: pa.RecordBatch) -> pa.StringArray:
        """Name of the key or order column that is null in each row; null for rows with all of them.
        Columns that are computed when files are written are not checked."""
        missing = pa.nulls(rows.num_rows, pa.string())
        for name in (*self.keys, self.sequence_by):
            if name not in rows.schema.names:
                continue
            null = rows.column(name).is_null(nan_is_null=True)
            if name != self.sequence_by and self.truncates is not None:
                null = pc.and_not(null, self.truncates.of(rows))
            missing = pc.coalesce(missing, pc.if_else(null, name, pa.scalar(None, pa.string())))
        return missing

    def _columns(self) -> Iterator[tuple[str, str]]:
        """Pairs of option and column."""
        for key in self.keys:
            yield "keys", key
        if self.sequence_by is not None:
            yield "sequence_by", self.sequence_by
        if self.deletes is not None:
            yield "apply_as_deletes", self.deletes.column
        if self.truncates is not None:
            yield "apply_as_truncates", self.truncates.column

    def __call__(self, table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Merge the rows of these files. Raises CommitConflict, and ConfigError for rows without
        a key, and for a table that has a key twice."""
        self.merge(table, self.changes(table, files), txn_versions)

    def merge(self, table: Table, changes: Changes, txn_versions: TxnVersions) -> None:
        """Merge these changes. Raises CommitConflict, and ConfigError for a table that has a key
        twice."""
        keys = changes.keys
        unique = f"jetspark.unique.{','.join(keys)}"
        # After any commit but such a merge, the keys are checked again.
        if table.txn_version(unique) != table.version:
            self._check_unique(table, keys)
        table.merge(changes, {**txn_versions, unique: None})
        with suppress(CommitConflict):  # the next batch notes it
            self._describe(table)

    def _describe(self, table: Table) -> None:
        """Record in the table how its rows are written, for those who write it without the
        query."""
        text = json.dumps(
            {
                "keys": self.keys,
                "sequence_by": self.sequence_by,
                "deletes": _as_list(self.deletes),
                "truncates": _as_list(self.truncates),
                "history_by": self.history_by,
            }
        )
        if table.property(WRITE_DESCRIPTION) != text:
            table.set_property(WRITE_DESCRIPTION, text)

    def _check_unique(self, table: Table, keys: Sequence[str]) -> None:
        batches = [batch for task in table.scan_tasks(keys, None, 1) for batch in task.batches()]
        if not batches:
            return
        rows = pa.Table.from_batches(batches)
        more = rows.num_rows - rows.group_by(list(keys)).aggregate([]).num_rows
        if more:
            raise ConfigError(
                f"{table.name} has {more:,} row{'' if more == 1 else 's'} with the same "
                f"{', '.join(keys)} as another one, so a merge would have no single row to "
                "replace. Remove them, or write to another table."
            )

    def changes(self, table: Table, files: Sequence[NewFile]) -> Changes:
        """The last row of each key in these files. Raises ConfigError."""
        latest = pa.table({})
        emptied = pa.chunked_array([], pa.null())
        for rows, truncates in self.read(table, files):
            latest = self._last(pa.concat_tables([latest, rows]) if latest.num_columns else rows)
            if truncates.num_rows:
                order = truncates[self.sequence_by]
                emptied = pa.chunked_array([*emptied.chunks, *order.chunks], order.type)
        until = pc.max(emptied) if len(emptied) else None
        if self.by_position:
            latest = self._last_placed(table, latest, emptied.to_pylist())
        if until is not None:
            latest = latest.filter(pc.greater(latest[self.sequence_by], until))
        deleted = (
            pa.chunked_array([pa.repeat(pa.scalar(False), latest.num_rows)])
            if self.deletes is None or not latest.num_rows
            else self.deletes.of(latest)
        )
        return Changes(latest, deleted, self.keys, self.sequence_by, until)

    @property
    def by_position(self) -> bool:
        """Whether rows are ordered by the positions of a database's changes."""
        return self.sequence_by == log_position.COLUMN

    def _last_placed(self, table: Table, rows: pa.Table, truncates: Sequence[str]) -> pa.Table:
        """The last row of each key, of those with and without a place in the log."""
        if not rows.num_rows:
            return rows
        without = log_position.without_log(rows[self.sequence_by])
        if not pc.any(without).as_py():
            return rows
        placed, unplaced = rows.filter(pc.invert(without)), rows.filter(without)
        columns = [*self.keys, log_position.COLUMN]
        existing = self.existing_rows(table, rows.select(columns).schema, unplaced)
        placed_before = pa.concat_tables([placed.select(columns), existing])
        newly_placed = self.placed_in_log(unplaced, placed_before, truncates)
        return self._last(pa.concat_tables([placed, newly_placed]), across_logs=True)

    def placed_in_log(
        self, unplaced: pa.Table, placed: pa.Table, truncates: Sequence[str]
    ) -> pa.Table:
        """Rows without a place in the log, with that of the last change of their key, or of all
        rows, which comes before them in the stream."""
        keys = zip(*(unplaced[key].to_pylist() for key in self.keys), strict=True)
        earlier: dict[tuple[Any, ...], list[str]] = {key: [*truncates] for key in keys}
        names = (*self.keys, log_position.COLUMN)
        for *key, position in zip(*(placed[name].to_pylist() for name in names), strict=True):
            if tuple(key) in earlier:
                earlier[tuple(key)].append(position)
        positions = [
            log_position.place_after(position, earlier[tuple(key)])
            for *key, position in zip(*(unplaced[name].to_pylist() for name in names), strict=True)
        ]
        at = unplaced.schema.get_field_index(log_position.COLUMN)
        return unplaced.set_column(at, unplaced.schema.field(at), [positions])

    def existing_rows(self, table: Table, schema: pa.Schema, rows: pa.Table | None) -> pa.Table:
        """Read these columns of the table's rows with the keys in `rows`, or (None) of all rows."""
        tables = [schema.empty_table()]
        keys = None if rows is None else Changes(rows, rows[self.keys[0]], self.keys, None)
        for task in table.scan_tasks(schema.names, None, 1):
            for batch in task.batches():
                existing = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                if keys is not None:
                    existing = existing.take(self._row_numbers(keys, existing))
                tables.append(existing)
        return pa.concat_tables(tables)

    def _row_numbers(self, keys: Changes, rows: pa.Table) -> pa.ChunkedArray:
        """The numbers of those rows that are read for these keys."""
        ordered = rows.append_column(ROW_ORDER, pa.array(range(rows.num_rows), pa.int64()))
        return keys.matching_rows(ordered, ROW_ORDER)[ROW_ORDER]

    def read(self, table: Table, files: Sequence[NewFile]) -> Iterator[tuple[pa.Table, pa.Table]]:
        """The rows of each file, those with a key and those that truncate, with all columns of the
        table. Raises ConfigError for a row without a key or its place in the order, and TableError
        for a table whose columns were changed."""
        for file in files:
            check_unchanged(table.name, table.schema, file)
            with table.storage.open(file.path) as stream:
                rows = pq.read_table(stream, partitioning=None)
            for column in table.schema:  # which another program may have added meanwhile
                if column.name not in rows.schema.names:
                    rows = rows.append_column(
                        column.with_nullable(True), pa.nulls(rows.num_rows, column.type)
                    )
            truncates = rows.slice(0, 0)
            if self.truncates is not None:
                emptying = self.truncates.of(rows)
                rows, truncates = rows.filter(pc.invert(emptying)), rows.filter(emptying)
            self._check_values(rows, self.keys)
            for part in (rows, truncates):
                self._check_values(part, [self.sequence_by] if self.sequence_by else [])
            yield rows, truncates

    @staticmethod
    def _check_values(rows: pa.Table, names: Sequence[str]) -> None:
        for name in names:
            if pc.any(rows[name].is_null(nan_is_null=True), min_count=0).as_py():
                raise ConfigError(f"A row has no value in {name!r}, which is its key or order.")

    def _last(self, rows: pa.Table, *, across_logs: bool = False) -> pa.Table:
        """The last row of each key. `across_logs`: also where rows with and without a place in the
        log have the same one."""
        if self.sequence_by is not None:
            rows = rows.sort_by(self.sequence_by)
        row_numbers = pa.array(range(rows.num_rows), pa.int64())
        ordered = rows.select(self.keys).append_column(ROW_ORDER, row_numbers)
        by = [*self.keys]
        if self.by_position and not across_logs:
            without = log_position.without_log(rows[self.sequence_by])
            ordered = ordered.append_column(_WITHOUT_LOG, without)
            by.append(_WITHOUT_LOG)
        last = ordered.group_by(by).aggregate([(ROW_ORDER, "max")])[f"{ROW_ORDER}_max"]
        if self.sequence_by is None and len(last) < rows.num_rows:
            raise ConfigError(
                f"Two rows of a batch have the same {', '.join(self.keys)}: set the option "
                f"{named('sequence_by')} to the column that orders them."
            )
        return rows.take(last)


def _as_list(condition: RowCondition | None) -> list[str] | None:
    return None if condition is None else [condition.column, *condition.values]


def read_description(table: Table) -> dict[str, Any] | None:
    """Read how the rows of a table are written, as options of the table; None: they are
    appended, as far as the table says. Raises ConfigError for a description that `Upsert` did not
    write."""
    text = table.property(WRITE_DESCRIPTION)
    if text is None:
        return None
    try:
        description = msgspec.json.decode(text, type=_Description)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise ConfigError(
            f"{table.name}: its property {WRITE_DESCRIPTION} is damaged: remove it, and the next "
            "batch of the query with keys sets it again."
        ) from None
    return {
        "keys": description.keys,
        "sequence_by": description.sequence_by,
        "history_by": description.history_by,
        "apply_as_deletes": description.deletes
        and RowCondition(description.deletes[0], tuple(description.deletes[1:])),
        "apply_as_truncates": description.truncates
        and RowCondition(description.truncates[0], tuple(description.truncates[1:])),
    }


def description_flags(described: Mapping[str, Any]) -> str:
    """The options of `read_description` by which rows are written so."""
    options = {
        "keys": ",".join(described["keys"]),
        "sequence_by": described["sequence_by"],
        "history_by": described["history_by"],
    }
    return ", ".join(f"{named(name)} {value}" for name, value in options.items() if value)


class _Description(msgspec.Struct):
    keys: tuple[str, ...]
    sequence_by: str | None
    deletes: list[str] | None
    truncates: list[str] | None
    history_by: str | None


def staging_layout(layout: Layout) -> Layout:
    """Layout of the staged files that tasks write and the driver merges."""
    return replace(
        layout, partition_by=(), checked=layout.partition_by, keeps_partition_columns=True
    )


def remove_staged_files(storage: Storage, files: Sequence[NewFile]) -> None:
    """Remove merged files; what cannot be removed is left to `vacuum`."""
    for file in files:
        with suppress(Exception):
            storage.remove(file.path)
