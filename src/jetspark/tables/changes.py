"""The changes of a batch of upserts, and their comparison with the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

ROW_ORDER = "_jetspark_place"
"""Column that holds the order of a row among others; no table has a column of this name."""


@dataclass(frozen=True)
class Changes:
    """What a batch of upserts changes in a table: the last row of each key, which is inserted,
    replaces the table's row, or removes it, and perhaps a truncate."""

    rows: pa.Table
    deleted: pa.ChunkedArray
    """Boolean mask of the rows whose key is deleted."""
    keys: tuple[str, ...]
    sequence_by: str | None
    """Column whose greatest value marks the last row of a key; None: a batch has each key once."""
    truncated_before: pa.Scalar | None = None
    """Truncate: all rows of the table before this value of `sequence_by` are removed."""

    @property
    def columns(self) -> list[str]:
        """The keys, and the column that orders their rows."""
        order = () if self.sequence_by is None else (self.sequence_by,)
        return list(dict.fromkeys((*self.keys, *order)))

    @property
    def is_empty(self) -> bool:
        """Whether no row of a table is inserted, replaced or removed."""
        return not self.rows.num_rows and self.truncated_before is None

    def matching_mask(self, table_rows: pa.Table) -> pa.ChunkedArray:
        """Boolean mask of the table's rows that have one of the changed keys."""
        return matching_mask(table_rows, self.rows.select(self.keys))

    def truncated_mask(self, table_rows: pa.Table) -> pa.ChunkedArray:
        """Boolean mask of the table's rows that a truncate removes: those that come before it, and
        those without a place in the order."""
        if self.truncated_before is None or self.sequence_by is None:
            return pa.chunked_array([pa.repeat(pa.scalar(False), table_rows.num_rows)])
        return pc.fill_null(pc.less(table_rows[self.sequence_by], self.truncated_before), True)

    def without_outdated(self, table_rows: pa.Table) -> Changes:
        """The changes, without those whose key has a newer row in the table: a change that comes
        late must not replace it.

        `table_rows`: has at least the columns `columns`.
        """
        # Without an order, or with it among the keys, no row of a key is older than another.
        if self.sequence_by is None or self.sequence_by in self.keys or not table_rows.num_rows:
            return self
        changed = self.rows.select(self.columns)
        orders = with_row_order(changed)
        typed = table_rows.select(self.columns).cast(changed.schema)
        newest = typed.group_by(list(self.keys)).aggregate([(self.sequence_by, "max")])
        joined = orders.join(newest, list(self.keys))  # null for a key that the table lacks
        # One with the same order is taken for a repeat, and replaces the row.
        newer = pc.greater_equal(joined[self.sequence_by], joined[f"{self.sequence_by}_max"])
        current = joined.filter(pc.fill_null(newer, True))[ROW_ORDER]
        return replace(self, rows=self.rows.take(current), deleted=self.deleted.take(current))


def with_row_order(rows: pa.Table) -> pa.Table:
    """The rows with the column `ROW_ORDER`, which numbers them from 0."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return rows.append_column(ROW_ORDER, pc.cumulative_sum(ones, start=-1))


def matching_mask(rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """Boolean mask of the rows that have one of these keys. `keys`: a table whose columns are the
    key columns."""
    # Arrow joins only columns of the same types.
    ordered = with_row_order(rows.select(keys.column_names).cast(keys.schema))
    matching = ordered.join(keys, keys.column_names, join_type="left semi")
    return pc.is_in(ordered[ROW_ORDER], value_set=matching[ROW_ORDER])
