"""Rows that replace others with the same keys: a table of present values.

Tasks write the rows of a batch into files, as for any table. The driver reads these back, keeps the
last row of each key, and the table merges them in one commit, with the number of the batch. Names
are those of Spark's AUTO CDC flows: keys, sequence by, apply as deletes, apply as truncates.

Rows of a database's changes are ordered by their positions (`payloads.log_position`). A row without
a place in the log is *unplaced*: it gets the place of the change of its key before it, which may be
in the table.
"""

from __future__ import annotations

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
from jetspark.tables.changes import ROW_ORDER, Changes, matching_mask, with_row_order
from jetspark.tables.file_layout import Layout
from jetspark.tables.new_files import NewFile, Storage, check_unchanged
from jetspark.tables.table import Table, TxnVersions

_IS_UNPLACED = f"{ROW_ORDER}_unplaced"
WRITE_DESCRIPTION = "jetspark.written"
"""The property of a table that says how its rows are written, as JSON."""
_QUOTED_TEXT = r"'(?:[^']|'')*'"
_CONDITION = re.compile(
    rf"\s*(?P<column>\w+|`[^`]+`)\s*(?:=\s*(?P<text>{_QUOTED_TEXT})"
    rf"|IN\s*\(\s*(?P<texts>{_QUOTED_TEXT}(?:\s*,\s*{_QUOTED_TEXT})*)\s*\))?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RowCondition:
    """Condition on a column by which a user marks rows that delete the table's row of their key, or
    all rows of the table (a truncate)."""

    column: str
    values: tuple[str, ...] = ()
    """Texts of the column; empty: the column is true."""

    @classmethod
    def parse(cls, text: str) -> RowCondition:
        """Parse a condition such as `operation IN ('DEL', 'PURGE')`, or the name of a boolean
        column. Raises ConfigError."""
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"{text!r} is not column, column = 'text' or column IN ('text', …); for any other "
                "condition add a boolean column to the rows, and name it."
            )
        # The text of one comparison, the texts of IN, or none for a column by itself.
        literals = re.findall(_QUOTED_TEXT, match["text"] or match["texts"] or "")
        values = tuple(literal[1:-1].replace("''", "'") for literal in literals)
        return cls(match["column"].strip("`"), values)

    def of(self, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
        """Boolean mask, without nulls, of the rows that meet the condition."""
        column = rows[self.column]
        if self.values:
            return pc.is_in(column, value_set=pa.array(self.values, column.type))
        return pc.fill_null(column, False)


@dataclass(frozen=True)
class Upsert:
    """Merges the rows of a batch into a table, where each row replaces the one with its keys; holds
    the user's options for that. A `CommitAction` of `batches`."""

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
        """The columns of a table that is created for these rows: the same ones, or more in a table
        of history. Raises ConfigError for rows that it cannot have."""
        return rows

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ConfigError if an option, such as the keys, names a column that the rows lack.
        `names`: the columns of the rows."""
        for option, name in self._columns_by_option():
            check_column(named(option), name, names)

    def check(self, rows: pa.Schema) -> None:
        """Raise ConfigError if an option, such as the keys, names a column that the rows lack, or
        whose type does not suit the option. `rows`: the columns of the rows."""
        self.check_names(rows.names)
        for option, name in self._columns_by_option():
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
            if condition is None:
                continue
            kind = rows.field(condition.column).type
            fits = pa.types.is_string if condition.values else pa.types.is_boolean
            if not fits(kind):
                raise ConfigError(
                    f": {condition.column!r} has the type {kind}; name a boolean "
                    "column, or compare a text column.",
                    option=option,
                )

    def _columns_by_option(self) -> Iterator[tuple[str, str]]:
        """Yield (option, column) for each column that one of the user's options names."""
        for key in self.keys:
            yield "keys", key
        if self.sequence_by is not None:
            yield "sequence_by", self.sequence_by
        if self.deletes is not None:
            yield "apply_as_deletes", self.deletes.column
        if self.truncates is not None:
            yield "apply_as_truncates", self.truncates.column

    def missing_key_column(self, rows: pa.RecordBatch) -> pa.StringArray:
        """For each row, the name of a key or order column without which it cannot be merged, and
        which is null or NaN in it; null for rows that have all of them. Columns that the rows lack
        are computed when files are written, and not checked here."""
        missing = pa.nulls(rows.num_rows, pa.string())
        for name in (*self.keys, self.sequence_by):
            if name not in rows.schema.names:
                continue
            null = rows.column(name).is_null(nan_is_null=True)
            if name != self.sequence_by and self.truncates is not None:  # a truncate has no key
                null = pc.and_not(null, self.truncates.of(rows))
            missing = pc.coalesce(missing, pc.if_else(null, name, pa.scalar(None, pa.string())))
        return missing

    # -- the commit ------------------------------------------------------------------------

    def __call__(self, table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Merge the rows of a batch into the table, in one commit with these transaction versions.
        `files`: the files in which tasks have staged the rows, and which are not part of the table.
        Raises CommitConflict, and ConfigError for rows without a key, and for a table that has a
        key twice."""
        self.merge(table, self.changes(table, files), txn_versions)

    def merge(self, table: Table, changes: Changes, txn_versions: TxnVersions) -> None:
        """Merge the changes of a batch into the table, in one commit with these transaction
        versions, and note in the table how its rows are written. Raises CommitConflict, and
        ConfigError for a table that has a key twice."""
        unique = f"jetspark.unique.{','.join(changes.keys)}"
        # A merge sets this version to that of the table. If it is another one, somebody else has
        # committed, so the keys are checked again.
        if table.txn_version(unique) != table.version:
            self._check_unique(table, changes.keys)
        table.merge(changes, {**txn_versions, unique: None})
        description = _WriteDescription(
            keys=self.keys,
            sequence_by=self.sequence_by,
            apply_as_deletes=self.deletes,
            apply_as_truncates=self.truncates,
            history_by=self.history_by,
        )
        with suppress(CommitConflict):  # the next batch sets it
            table.set_property(WRITE_DESCRIPTION, msgspec.json.encode(description).decode())

    def _check_unique(self, table: Table, keys: Sequence[str]) -> None:
        """Raise ConfigError if two rows of the table have the same keys, so that a merge would have
        no single row to replace. Reads these columns of the whole table."""
        tasks = table.scan_tasks(keys, prune=None, at_least=1)
        batches = [batch for task in tasks for batch in task.batches()]
        if not batches:
            return
        rows = pa.Table.from_batches(batches)
        repeated = rows.num_rows - rows.group_by(list(keys)).aggregate([]).num_rows  # distinct keys
        if repeated:
            raise ConfigError(
                f"{table.name} has {repeated:,} row{'' if repeated == 1 else 's'} with the same "
                f"{', '.join(keys)} as another one, so a merge would have no single row to "
                "replace. Remove them, or write to another table."
            )

    def changes(self, table: Table, files: Sequence[NewFile]) -> Changes:
        """Compute what a batch of upserts changes: the last row of each key in these files, and the
        last truncate, which removes all rows before it. Raises ConfigError as `read`, and for two
        rows of a key that nothing orders."""
        latest: pa.Table | None = None
        truncated: list[pa.Array] = []  # the truncates' values of `sequence_by`
        for rows, truncates in self.read(table, files):
            latest = self._last(rows if latest is None else pa.concat_tables([latest, rows]))
            if truncates.num_rows:
                truncated += truncates[self.sequence_by].chunks
        latest = pa.table({}) if latest is None else latest
        truncated_before = pc.max(pa.chunked_array(truncated)) if truncated else None
        if self.by_position and latest.num_rows:
            positions = [position for chunk in truncated for position in chunk.to_pylist()]
            latest = self._last_placed(table, latest, positions)
        if truncated_before is not None:  # it removes the rows of the batch before it, too
            latest = latest.filter(pc.greater(latest[self.sequence_by], truncated_before))
        deleted = pa.chunked_array([pa.repeat(pa.scalar(False), latest.num_rows)])
        if self.deletes is not None and latest.num_rows:
            deleted = self.deletes.of(latest)
        return Changes(
            rows=latest,
            deleted=deleted,
            keys=self.keys,
            sequence_by=self.sequence_by,
            truncated_before=truncated_before,
        )

    def read(self, table: Table, files: Sequence[NewFile]) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Read the rows of a batch from the files in which tasks have staged them: yields (rows
        with a key, truncates) of each file, with all columns of the table. Raises ConfigError for a
        row without a key or its place in the order, and TableError for a table whose columns were
        changed."""
        for file in files:
            check_unchanged(table.name, table.schema, file)
            with table.storage.open(file.path) as stream:
                rows = pq.read_table(stream, partitioning=None)
            for column in table.schema:  # which another program may have added meanwhile
                if column.name not in rows.schema.names:
                    nulls = pa.nulls(rows.num_rows, column.type)
                    rows = rows.append_column(column.with_nullable(True), nulls)
            truncates = rows.slice(0, 0)
            if self.truncates is not None:
                is_truncate = self.truncates.of(rows)
                rows, truncates = rows.filter(pc.invert(is_truncate)), rows.filter(is_truncate)
            order = [self.sequence_by] if self.sequence_by else []
            _check_no_nulls(rows, [*self.keys, *order])
            _check_no_nulls(truncates, order)
            yield rows, truncates

    def _last(self, rows: pa.Table, *, unplaced_apart: bool = True) -> pa.Table:
        """The last row of each key. `unplaced_apart`: of each key also the last *unplaced* row, a
        database's change without a place in its log, which gets its place later. Raises ConfigError
        for two rows of a key if there is no column that orders them."""
        if self.sequence_by is not None:
            rows = rows.sort_by(self.sequence_by)
        ordered = with_row_order(rows.select(self.keys))
        by = [*self.keys]
        if self.by_position and unplaced_apart:
            is_unplaced = log_position.without_log(rows[self.sequence_by])
            ordered = ordered.append_column(_IS_UNPLACED, is_unplaced)
            by.append(_IS_UNPLACED)
        last = ordered.group_by(by).aggregate([(ROW_ORDER, "max")])[f"{ROW_ORDER}_max"]
        if self.sequence_by is None and len(last) < rows.num_rows:
            raise ConfigError(
                f"Two rows of a batch have the same {', '.join(self.keys)}: set the option "
                f"{named('sequence_by')} to the column that orders them."
            )
        return rows.take(last)

    # -- positions of a database's changes -------------------------------------------------

    @property
    def by_position(self) -> bool:
        """Whether rows are changes of a database (of Debezium), ordered by their positions in its
        log."""
        return self.sequence_by == log_position.COLUMN

    def _last_placed(self, table: Table, rows: pa.Table, truncates: Sequence[str]) -> pa.Table:
        """The last row of each key of a database's changes, after the unplaced ones, which came
        without a place in its log, have got one. `rows`: of each key the last row with a place, and
        the last without; `truncates`: positions of the truncates."""
        is_unplaced = log_position.without_log(rows[self.sequence_by])
        if not pc.any(is_unplaced).as_py():
            return rows
        placed, unplaced = rows.filter(pc.invert(is_unplaced)), rows.filter(is_unplaced)
        positions = placed.select([*self.keys, log_position.COLUMN])
        existing = existing_rows(table, positions.schema, unplaced.select(self.keys))
        earlier = pa.concat_tables([positions, existing])
        newly_placed = self.place_in_log(unplaced, placed=earlier, truncates=truncates)
        return self._last(pa.concat_tables([placed, newly_placed]), unplaced_apart=False)

    def place_in_log(
        self, unplaced: pa.Table, placed: pa.Table, truncates: Sequence[str]
    ) -> pa.Table:
        """Give each unplaced row, a database's change without a place in its log, the place of the
        last change of its key, or of the last truncate, that comes before it in the stream.

        `placed`: keys and positions of other changes; `truncates`: positions of the truncates.
        """
        names = (*self.keys, log_position.COLUMN)
        # Positions of other changes by key, but only for the keys of unplaced rows; a truncate
        # concerns all keys.
        earlier: dict[tuple[Any, ...], list[str]] = {
            tuple(key): [*truncates] for *key, _ in _tuples(unplaced, names)
        }
        for *key, position in _tuples(placed, names):
            if tuple(key) in earlier:
                earlier[tuple(key)].append(position)
        positions = [
            log_position.place_after(position, earlier[tuple(key)])
            for *key, position in _tuples(unplaced, names)
        ]
        index = unplaced.schema.get_field_index(log_position.COLUMN)
        return unplaced.set_column(index, unplaced.schema.field(index), [positions])


def existing_rows(table: Table, schema: pa.Schema, keys: pa.Table | None) -> pa.Table:
    """Read these columns (`schema`) of the table's rows that have one of these keys, or no key at
    all, as a truncate in a table of history has none. `keys`: a table of key columns; None: read
    all rows."""
    tables = [schema.empty_table()]
    for task in table.scan_tasks(schema.names, prune=None, at_least=1):
        for batch in task.batches():
            rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            if keys is not None:
                has_no_key = rows[keys.column_names[0]].is_null()
                rows = rows.filter(pc.or_(matching_mask(rows, keys), has_no_key))
            tables.append(rows)
    return pa.concat_tables(tables)


def _tuples(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of these columns in each row."""
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _check_no_nulls(rows: pa.Table, names: Sequence[str]) -> None:
    """Raise ConfigError if a row has a null or NaN in one of these columns, its keys and order,
    without which it cannot be merged."""
    for name in names:
        if pc.any(rows[name].is_null(nan_is_null=True), min_count=0).as_py():
            raise ConfigError(f"A row has no value in {name!r}, which is its key or order.")


# -- the description of a table --------------------------------------------------------------


class _WriteDescription(msgspec.Struct):
    """How the rows of a table are written, under the names of the options: what a property of the
    table keeps as JSON."""

    keys: tuple[str, ...]
    sequence_by: str | None
    apply_as_deletes: RowCondition | None
    apply_as_truncates: RowCondition | None
    history_by: str | None


def read_description(table: Table) -> dict[str, Any] | None:
    """The options (keys, order, …) with which upserts are written to a table, which a property of
    the table keeps; None if it does not have it, so that rows seem to be appended. Raises
    ConfigError for a property that is damaged."""
    text = table.property(WRITE_DESCRIPTION)
    if text is None:
        return None
    try:
        return msgspec.structs.asdict(msgspec.json.decode(text, type=_WriteDescription))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise ConfigError(
            f"{table.name}: its property {WRITE_DESCRIPTION} is damaged: remove it, and the next "
            "batch of the query with keys sets it again."
        ) from None


def description_flags(description: Mapping[str, Any]) -> str:
    """The keys, order and history column of `read_description` as a text for people, with the
    options' names as the user writes them: in Python, in Spark or on the command line."""
    options = {**description, "keys": ",".join(description["keys"])}
    names = ("keys", "sequence_by", "history_by")
    return ", ".join(f"{named(name)} {options[name]}" for name in names if options[name])


# -- staged files ------------------------------------------------------------------------------


def staging_layout(layout: Layout) -> Layout:
    """Layout of staged files, in which tasks put the rows of a batch of upserts for the driver,
    which merges them. They have all columns and are not divided by partition, but the values are
    checked for the partitions of the merged files."""
    return replace(
        layout, partition_by=(), checked=layout.partition_by, keeps_partition_columns=True
    )


def remove_staged_files(storage: Storage, files: Sequence[NewFile]) -> None:
    """Remove staged files, whose rows the driver has merged into the table; what cannot be removed
    is left to a vacuum."""
    for file in files:
        with suppress(Exception):
            storage.remove(file.path)
