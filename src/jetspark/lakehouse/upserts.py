"""Rows that replace others with the same keys: a table of present values.

Tasks write the rows of a batch into files, as for any table. The driver reads these back, keeps the
last row of each key, and the table merges them in one commit, with the number of the batch. Names
are those of Spark's AUTO CDC flows: keys, sequence by, apply as deletes, apply as truncates.

Rows of a database's changes are ordered by their positions (`codecs.log_position`). A row without a
place in the log gets that of the change of its key before it, which may be in the table.
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

from jetspark.codecs import log_position
from jetspark.errors import CommitConflict, ConfigError
from jetspark.lakehouse.new_files import Layout, NewFile, Storage, check_unchanged
from jetspark.lakehouse.table import PLACE, Changes, Numbers, Table
from jetspark.nearest import check_column

_WITHOUT_LOG = f"{PLACE}_log"
DESCRIPTION = "jetspark.written"
"""The property of a table that says how its rows are written, as JSON."""
_TEXT = r"'(?:[^']|'')*'"
_CONDITION = re.compile(
    rf"\s*(?P<column>\w+|`[^`]+`)\s*"
    rf"(?:=\s*(?P<one>{_TEXT})|IN\s*\(\s*(?P<several>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Deletes:
    """Which rows delete their key, or all rows."""

    column: str
    values: tuple[str, ...] = ()
    """Texts of the column; empty: the column is true."""

    @classmethod
    def parse(cls, text: str) -> Deletes:
        """A condition such as `operation IN ('DEL', 'PURGE')`. Raises ConfigError."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is not column, column = 'text' or column IN ('text', …); for any other "
                "condition add a boolean column to the rows, and name it."
            )
        texts = re.findall(_TEXT, found["one"] or found["several"] or "")
        return cls(found["column"].strip("`"), tuple(one[1:-1].replace("''", "'") for one in texts))

    def of(self, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
        """For each row, whether it deletes; no nulls."""
        column = rows[self.column]
        if self.values:
            return pc.is_in(column, value_set=pa.array(self.values, column.type))
        return pc.fill_null(column, False)


@dataclass(frozen=True)
class Upsert:
    """How the rows of a batch change a table; a `Change` of `batches`."""

    keys: tuple[str, ...]
    sequence_by: str | None = None
    """The column whose greatest value marks the last row; None: a batch has each key once."""
    deletes: Deletes | None = None
    truncates: Deletes | None = None
    """Rows without a key, each of which removes all that come before it in the order."""

    history_by: str | None = None
    """Of a table with all changes (`history.History`): the column with the time of each."""

    added: ClassVar[tuple[str, ...]] = ()
    """Columns that the table has beside those of the rows."""

    def with_added(self, rows: pa.Schema) -> pa.Schema:
        """The table's columns, for these rows. Raises ConfigError."""
        return rows

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ConfigError for columns that the rows lack."""
        for option, name in self._columns():
            check_column(f"Option {option!r}", name, names)

    def check(self, rows: pa.Schema) -> None:
        """Raise ConfigError for columns that the rows lack, or with an unsuitable type."""
        self.check_names(rows.names)
        for option, name in self._columns():
            if pa.types.is_nested(kind := rows.field(name).type):
                raise ConfigError(f"Option {option!r}: {name!r} has the nested type {kind}.")
            if option == "keys" and pa.types.is_floating(kind):
                raise ConfigError(
                    f"Option 'keys': {name!r} has the type {kind}, whose values are not exact: "
                    "cast it to a decimal or a string."
                )
        for option, one in (
            ("applyAsDeletes", self.deletes),
            ("applyAsTruncates", self.truncates),
        ):
            kind = pa.null() if one is None else rows.field(one.column).type
            if one and not (pa.types.is_string if one.values else pa.types.is_boolean)(kind):
                raise ConfigError(
                    f"Option {option!r}: {one.column!r} has the type {kind}; name a boolean "
                    "column, or compare a text column."
                )

    def lacking(self, rows: pa.RecordBatch) -> pa.StringArray:
        """For each row the column in which it lacks its key, or its place in the order; null for
        those that lack nothing. Columns that are made when files are written are not looked at."""
        found = pa.nulls(rows.num_rows, pa.string())
        for name in (*self.keys, self.sequence_by):
            if name not in rows.schema.names:
                continue
            null = rows.column(name).is_null(nan_is_null=True)
            if name != self.sequence_by and self.truncates is not None:
                null = pc.and_not(null, self.truncates.of(rows))
            found = pc.coalesce(found, pc.if_else(null, name, pa.scalar(None, pa.string())))
        return found

    def _columns(self) -> Iterator[tuple[str, str]]:
        """Pairs of option and column."""
        for key in self.keys:
            yield "keys", key
        if self.sequence_by is not None:
            yield "sequenceBy", self.sequence_by
        if self.deletes is not None:
            yield "applyAsDeletes", self.deletes.column
        if self.truncates is not None:
            yield "applyAsTruncates", self.truncates.column

    def __call__(self, table: Table, files: Sequence[NewFile], numbers: Numbers) -> None:
        """Merge the rows of these files. Raises CommitConflict, and ConfigError for rows without
        a key, and for a table that has a key twice."""
        self.merge(table, self.changes(table, files), numbers)

    def merge(self, table: Table, changes: Changes, numbers: Numbers) -> None:
        """Merge these changes. Raises CommitConflict, and ConfigError for a table that has a key
        twice."""
        keys = changes.keys
        unique = f"jetspark.unique.{','.join(keys)}"
        # After any commit but such a merge, the keys are checked again.
        if table.number(unique) != table.version:
            self._check_unique(table, keys)
        table.merge(changes, {**numbers, unique: None})
        with suppress(CommitConflict):  # the next batch notes it
            self._describe(table)

    def _describe(self, table: Table) -> None:
        """Note in the table how its rows are written, for those who write it without the query."""
        text = json.dumps(
            {
                "keys": self.keys,
                "sequence_by": self.sequence_by,
                "deletes": _as_list(self.deletes),
                "truncates": _as_list(self.truncates),
                "history_by": self.history_by,
            }
        )
        if table.property(DESCRIPTION) != text:
            table.set_property(DESCRIPTION, text)

    def _check_unique(self, table: Table, keys: Sequence[str]) -> None:
        """Raise ConfigError if the table has a key twice."""
        batches = [batch for one in table.pieces(keys, None, 1) for batch in one.batches()]
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
        kept = pa.table({})
        emptied = pa.chunked_array([], pa.null())
        for rows, truncates in self.read(table, files):
            kept = self._last(pa.concat_tables([kept, rows]) if kept.num_columns else rows)
            if truncates.num_rows:
                order = truncates[self.sequence_by]
                emptied = pa.chunked_array([*emptied.chunks, *order.chunks], order.type)
        until = pc.max(emptied) if len(emptied) else None
        if self.by_position:
            kept = self._last_placed(table, kept, emptied.to_pylist())
        if until is not None:
            kept = kept.filter(pc.greater(kept[self.sequence_by], until))
        deleted = (
            pa.chunked_array([pa.repeat(pa.scalar(False), kept.num_rows)])
            if self.deletes is None or not kept.num_rows
            else self.deletes.of(kept)
        )
        return Changes(kept, deleted, self.keys, self.sequence_by, until)

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
        there = self.existing_rows(table, rows.select(columns).schema, unplaced)
        placed_before = pa.concat_tables([placed.select(columns), there])
        found = self.placed_in_log(unplaced, placed_before, truncates)
        return self._last(pa.concat_tables([placed, found]), whole=True)

    def placed_in_log(
        self, unplaced: pa.Table, others: pa.Table, truncates: Sequence[str]
    ) -> pa.Table:
        """Rows without a place in the log, with that of the last change of their key, or of all
        rows, which comes before them in the stream."""
        keys = zip(*(unplaced[key].to_pylist() for key in self.keys), strict=True)
        earlier: dict[tuple[Any, ...], list[str]] = {key: [*truncates] for key in keys}
        names = (*self.keys, log_position.COLUMN)
        for *key, position in zip(*(others[name].to_pylist() for name in names), strict=True):
            if tuple(key) in earlier:
                earlier[tuple(key)].append(position)
        positions = [
            log_position.place_after(position, earlier[tuple(key)])
            for *key, position in zip(*(unplaced[name].to_pylist() for name in names), strict=True)
        ]
        at = unplaced.schema.get_field_index(log_position.COLUMN)
        return unplaced.set_column(at, unplaced.schema.field(at), [positions])

    def existing_rows(self, table: Table, schema: pa.Schema, rows: pa.Table | None) -> pa.Table:
        """These columns of the table's rows, of the keys in `rows` or (None) of all."""
        found = [schema.empty_table()]
        keys = None if rows is None else Changes(rows, rows[self.keys[0]], self.keys, None)
        for piece in table.pieces(schema.names, None, 1):
            for batch in piece.batches():
                one = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                if keys is not None:
                    one = one.take(self._places(keys, one))
                found.append(one)
        return pa.concat_tables(found)

    def _places(self, keys: Changes, rows: pa.Table) -> pa.ChunkedArray:
        """The numbers of those rows that are read for these keys."""
        numbered = rows.append_column(PLACE, pa.array(range(rows.num_rows), pa.int64()))
        return keys.among(numbered, PLACE)[PLACE]

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
            for one in (rows, truncates):
                self._check_values(one, [self.sequence_by] if self.sequence_by else [])
            yield rows, truncates

    @staticmethod
    def _check_values(rows: pa.Table, names: Sequence[str]) -> None:
        for name in names:
            if pc.any(rows[name].is_null(nan_is_null=True), min_count=0).as_py():
                raise ConfigError(f"A row has no value in {name!r}, which is its key or order.")

    def _last(self, rows: pa.Table, *, whole: bool = False) -> pa.Table:
        """The last row of each key. `whole`: also where rows with and without a place in the log
        have the same one."""
        if self.sequence_by is not None:
            rows = rows.sort_by(self.sequence_by)
        numbers = pa.array(range(rows.num_rows), pa.int64())
        places = rows.select(self.keys).append_column(PLACE, numbers)
        by = [*self.keys]
        if self.by_position and not whole:
            without = log_position.without_log(rows[self.sequence_by])
            places = places.append_column(_WITHOUT_LOG, without)
            by.append(_WITHOUT_LOG)
        last = places.group_by(by).aggregate([(PLACE, "max")])[f"{PLACE}_max"]
        if self.sequence_by is None and len(last) < rows.num_rows:
            raise ConfigError(
                f"Two rows of a batch have the same {', '.join(self.keys)}: set the option "
                "'sequenceBy' to the column that orders them."
            )
        return rows.take(last)


def _as_list(one: Deletes | None) -> list[str] | None:
    return None if one is None else [one.column, *one.values]


def description_of(table: Table) -> dict[str, Any] | None:
    """How the rows of a table are written, as the attributes of an `Upsert`; None: they are added,
    as far as the table says. Raises ConfigError for a description that is not one of `describe`."""
    text = table.property(DESCRIPTION)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=_Description)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise ConfigError(
            f"{table.name}: its property {DESCRIPTION} is damaged: remove it, and the next batch "
            "of the query with keys sets it again."
        ) from None
    return {
        **msgspec.structs.asdict(found),
        "deletes": found.deletes and Deletes(found.deletes[0], tuple(found.deletes[1:])),
        "truncates": found.truncates and Deletes(found.truncates[0], tuple(found.truncates[1:])),
    }


def as_flags(described: Mapping[str, Any]) -> str:
    """The options of `description_of` by which rows are written so."""
    options = {
        "keys": ",".join(described["keys"]),
        "sequenceBy": described["sequence_by"],
        "historyBy": described["history_by"],
    }
    return " ".join(f"--table-option {name}={value}" for name, value in options.items() if value)


class _Description(msgspec.Struct):
    keys: tuple[str, ...]
    sequence_by: str | None
    deletes: list[str] | None
    truncates: list[str] | None
    history_by: str | None


def staged(layout: Layout) -> Layout:
    """The layout of the files that tasks write for the driver."""
    return replace(
        layout, partition_by=(), checked=layout.partition_by, keeps_partition_columns=True
    )


def remove(storage: Storage, files: Sequence[NewFile]) -> None:
    """Remove merged files; what cannot be removed is left to `vacuum`."""
    for one in files:
        with suppress(Exception):
            storage.remove(one.path)
