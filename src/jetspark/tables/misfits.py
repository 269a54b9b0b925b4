"""Values that a table cannot hold as they are, found in the tasks that write them.

There the record can still be quarantined; at the commit one such value would end the query.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.tables.file_layout import Layout, Partition
from jetspark.tables.schemas import is_list
from jetspark.years import FIRST_DAY, LAST_DAY

_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
"""A day in each unit; nanoseconds do not leave these years."""


def misfit_mask(layout: Layout, rows: pa.RecordBatch) -> pa.Array | None:
    """Boolean mask of the rows that the table cannot hold; None if it can hold all of them."""
    misfits = None
    for _, mask, _ in _misfits(layout, rows):
        misfits = mask if misfits is None else pc.or_(misfits, mask)
    return misfits


def misfit_reason(layout: Layout, row: pa.RecordBatch) -> tuple[str, str]:
    """The column and the reason of a single row that the table cannot hold."""
    column, _, reason = next(_misfits(layout, row))
    return column, reason


def _misfits(layout: Layout, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array, str]]:
    """(column, mask of the rows, reason)."""
    for column in rows.schema:
        mask = _outside_of_years(rows.column(column.name))
        if mask is not None and pc.any(mask).as_py():
            yield column.name, mask, f"{column.name} has a date outside the years 1 to 9999."
    for field in layout.schema:
        if field.name in rows.schema.names and field.name not in layout.derived:
            for name, mask in _missing_required(field, rows.column(field.name)):
                yield field.name, mask, f"{name} has no value, and the table requires one."
    for by in (*layout.partition_by, *layout.checked):
        if by.column in rows.schema.names:
            yield from _outside_partitions(by, rows)


def _missing_required(required: pa.Field, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """(name of a part that must not be null, mask of the values in which it is)."""
    if not required.nullable and column.null_count:
        yield required.name, column.is_null()
    kind = required.type
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        for at, part in enumerate(kind):
            if (index := column.type.get_field_index(part.name)) >= 0:
                for name, mask in _missing_required(kind.field(at), column.field(index)):
                    if pc.any(mask := pc.and_(mask, column.is_valid())).as_py():
                        yield f"{required.name}.{name}", mask
    elif is_list(kind) and is_list(column.type):
        for name, mask in _missing_required(kind.value_field, column.flatten()):
            yield f"{required.name}.{name}", _rows_with(mask, column)
    elif pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
        entry = pa.field("", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        for name, mask in _missing_required(entry, entries.flatten()):
            yield f"{required.name}{name}", _rows_with(mask, entries)


def _outside_partitions(by: Partition, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array, str]]:
    if not by.may_reject(rows.column(by.column)):
        return
    different = rows.column(by.column).dictionary_encode()
    values = different.dictionary
    reasons: dict[str, list[int]] = {}
    for at in range(len(values)):
        if (reason := by.rejection_reason(values[at])) is not None:
            reasons.setdefault(reason, []).append(at)
    for reason, indices in reasons.items():
        codes = different.indices
        mask = pc.is_in(codes, value_set=pa.array(indices, codes.type))
        yield by.column, mask, f"{by.column}, by which the table is partitioned, {reason}."


def _outside_of_years(column: pa.Array) -> pa.Array | None:
    """Boolean mask of the values with a date in them that Python does not have; None for types
    without dates."""
    kind = column.type
    if pa.types.is_date32(kind):
        return _outside_range(column.cast(pa.int32()), 1)
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS_PER_DAY:
        return _outside_range(column.cast(pa.int64()), _UNITS_PER_DAY[kind.unit])
    if pa.types.is_struct(kind):
        outside = None
        for part in column.flatten():
            mask = _outside_of_years(part)
            if mask is not None:
                outside = mask if outside is None else pc.or_(outside, mask)
        return outside
    if pa.types.is_map(kind):
        entries = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        return _outside_of_years(column.cast(entries))
    if is_list(kind):
        mask = _outside_of_years(column.flatten())
        return None if mask is None else _rows_with(mask, column)
    return None


def _rows_with(mask: pa.Array, lists: pa.Array) -> pa.Array:
    """Mask of the lists with an item that the mask of all items has."""
    rows = pc.list_parent_indices(lists).filter(mask).unique()
    return pc.is_in(pa.array(range(len(lists)), rows.type), value_set=rows)


def _outside_range(instants: pa.Array, day: int) -> pa.Array:
    first, end = FIRST_DAY * day, (LAST_DAY + 1) * day
    return pc.fill_null(pc.or_(pc.less(instants, first), pc.greater_equal(instants, end)), False)
