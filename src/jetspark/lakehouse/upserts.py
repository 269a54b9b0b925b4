"""Rows that replace others with the same keys: a table of present values.

Tasks write the rows of a batch into files, as for any table. The driver reads these back, keeps the
last row of each key, and the table merges them in one commit, with the number of the batch. Names
are those of Spark's AUTO CDC flows: keys, sequence by, apply as deletes, apply as truncates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.errors import ConfigError
from jetspark.lakehouse.new_files import Layout, NewFile, Storage
from jetspark.lakehouse.table import PLACE, Changes, Numbers, Table
from jetspark.nearest import check_column

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
        self.merge(table, self.changes(table.storage, files), numbers)

    def merge(self, table: Table, changes: Changes, numbers: Numbers) -> None:
        """Merge these changes. Raises CommitConflict, and ConfigError for a table that has a key
        twice."""
        unique = f"jetspark.unique.{','.join(self.keys)}"
        # After any commit but such a merge, the keys are checked again.
        if table.number(unique) != table.version:
            self._check_unique(table)
        table.merge(changes, {**numbers, unique: None})

    def _check_unique(self, table: Table) -> None:
        """Raise ConfigError if the table has a key twice."""
        batches = [batch for one in table.pieces(self.keys, None, 1) for batch in one.batches()]
        if not batches:
            return
        rows = pa.Table.from_batches(batches)
        more = rows.num_rows - rows.group_by(list(self.keys)).aggregate([]).num_rows
        if more:
            raise ConfigError(
                f"{table.name} has {more:,} row{'' if more == 1 else 's'} with the same "
                f"{', '.join(self.keys)} as another one, so a merge would have no single row to "
                "replace. Remove them, or write to another table."
            )

    def changes(self, storage: Storage, files: Sequence[NewFile]) -> Changes:
        """The last row of each key in these files. Raises ConfigError."""
        kept = pa.table({})
        emptied: pa.Scalar | None = None
        for rows, truncates in self.read(storage, files):
            kept = self._last(pa.concat_tables([kept, rows]) if kept.num_columns else rows)
            if truncates.num_rows:
                last = pc.max(truncates[self.sequence_by])
                if emptied is None or pc.greater(last, emptied).as_py():
                    emptied = last
        if emptied is not None:
            kept = kept.filter(pc.greater(kept[self.sequence_by], emptied))
        deleted = (
            pa.chunked_array([pa.repeat(pa.scalar(False), kept.num_rows)])
            if self.deletes is None or not kept.num_rows
            else self.deletes.of(kept)
        )
        return Changes(kept, deleted, self.keys, self.sequence_by, emptied)

    def read(
        self, storage: Storage, files: Sequence[NewFile]
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """The rows of each file, those with a key and those that truncate. Raises ConfigError for a
        row without a key or its place in the order."""
        for file in files:
            with storage.open(file.path) as stream:
                rows = pq.read_table(stream, partitioning=None)
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

    def _last(self, rows: pa.Table) -> pa.Table:
        if self.sequence_by is not None:
            rows = rows.sort_by(self.sequence_by)
        numbers = pa.array(range(rows.num_rows), pa.int64())
        places = rows.select(self.keys).append_column(PLACE, numbers)
        last = places.group_by(list(self.keys)).aggregate([(PLACE, "max")])[f"{PLACE}_max"]
        if self.sequence_by is None and len(last) < rows.num_rows:
            raise ConfigError(
                f"Two rows of a batch have the same {', '.join(self.keys)}: set the option "
                "'sequenceBy' to the column that orders them."
            )
        return rows.take(last)


def staged(layout: Layout) -> Layout:
    """The layout of the files that tasks write for the driver."""
    return replace(layout, partition_by=(), keeps_partition_columns=True)


def remove(storage: Storage, files: Sequence[NewFile]) -> None:
    """Remove merged files; what cannot be removed is left to `vacuum`."""
    for one in files:
        with suppress(Exception):
            storage.remove(one.path)
