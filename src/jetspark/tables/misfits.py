"""Values that a table cannot hold as they are, found in the tasks that write them.

There the record can still be quarantined; at the commit one such value would end the query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.tables.file_layout import Layout, Partition
from jetspark.tables.schemas import is_list
from jetspark.years import FIRST_DAY, LAST_DAY

_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
"""A day in each unit; nanoseconds do not leave these years."""


class _Misfit(NamedTuple):
    """Values of a column that the table cannot hold, for one reason."""

    column: str
    mask: pa.Array
    """Boolean mask of the rows with these values."""
    reason: str
    """A sentence."""


def misfit_mask(layout: Layout, rows: pa.RecordBatch) -> pa.Array | None:
    """Boolean mask of the rows that a table of this layout cannot hold, for a value outside its
    range, a missing one, or one that makes no partition; None if it can hold all of them."""
    return _any_of(misfit.mask for misfit in _find_misfits(layout, rows))


def misfit_reason(layout: Layout, row: pa.RecordBatch) -> tuple[str, str]:
    """(column, reason as a sentence) why a table of this layout cannot hold a row of which
    `misfit_mask` says so. `row`: a batch of this row only."""
    misfit = next(_find_misfits(layout, row))
    return misfit.column, misfit.reason


def _find_misfits(layout: Layout, rows: pa.RecordBatch) -> Iterator[_Misfit]:
    """Find the values that a table of this layout cannot hold: yields a description for each column
    and reason. Columns that the table computes itself are left out."""
    for column in rows.schema:
        mask = _outside_of_years(rows.column(column.name))
        if mask is not None and pc.any(mask).as_py():
            reason = f"{column.name} has a date outside the years 1 to 9999."
            yield _Misfit(column.name, mask, reason)
    for field in layout.schema:
        if field.name in rows.schema.names and field.name not in layout.derived:
            for name, mask in _missing_required(field, rows.column(field.name)):
                reason = f"{name} has no value, and the table requires one."
                yield _Misfit(field.name, mask, reason)
    for partition in (*layout.partition_by, *layout.checked):
        if partition.column in rows.schema.names:
            yield from _rejected_by_partition(partition, rows)


def _missing_required(required: pa.Field, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Find required values that are missing in a column, at any depth: yields (name of a field such
    as `address.street`, mask of the column's values in which it is null). `required`: the table's
    field; `column`: the values that are to become it."""
    if not required.nullable and column.null_count:
        yield required.name, column.is_null()
    kind = required.type
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        for inner in kind:
            index = column.type.get_field_index(inner.name)
            if index < 0:
                continue
            for name, mask in _missing_required(inner, column.field(index)):
                # In a struct that is null itself, nothing is required.
                mask = pc.and_(mask, column.is_valid())
                if pc.any(mask).as_py():
                    yield f"{required.name}.{name}", mask
    elif is_list(kind) and is_list(column.type):
        for name, mask in _missing_required(kind.value_field, column.flatten()):
            yield f"{required.name}.{name}", _lists_with(mask, column)
    elif pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = _entries_of_map(column)
        # An entry has no name, so that its fields are named as `map.key` and `map.value`.
        entry = pa.field("", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        for name, mask in _missing_required(entry, entries.flatten()):
            yield f"{required.name}{name}", _lists_with(mask, entries)


def _rejected_by_partition(partition: Partition, rows: pa.RecordBatch) -> Iterator[_Misfit]:
    """Find values in a partition's column of which no partition can be made: yields a description
    for each reason. Each distinct value is looked at once."""
    if not partition.may_reject(rows.column(partition.column)):
        return
    encoded = rows.column(partition.column).dictionary_encode()
    indices_by_reason: dict[str, list[int]] = defaultdict(list)
    for index, value in enumerate(encoded.dictionary):
        if (reason := partition.rejection_reason(value)) is not None:
            indices_by_reason[reason].append(index)
    for reason, indices in indices_by_reason.items():
        mask = pc.is_in(encoded.indices, value_set=pa.array(indices, encoded.indices.type))
        sentence = f"{partition.column}, by which the table is partitioned, {reason}."
        yield _Misfit(partition.column, mask, sentence)


def _outside_of_years(column: pa.Array) -> pa.Array | None:
    """Boolean mask of the values with a date outside the years 1 to 9999 in them, at any depth:
    Python, and so the libraries of the formats, do not have these. None for types without dates."""
    kind = column.type
    if pa.types.is_date32(kind):
        return _outside_range(column.cast(pa.int32()), 1)
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS_PER_DAY:
        return _outside_range(column.cast(pa.int64()), _UNITS_PER_DAY[kind.unit])
    if pa.types.is_struct(kind):
        return _any_of(map(_outside_of_years, column.flatten()))
    if pa.types.is_map(kind):
        return _outside_of_years(_entries_of_map(column))
    if is_list(kind):
        mask = _outside_of_years(column.flatten())
        return None if mask is None else _lists_with(mask, column)
    return None


def _outside_range(instants: pa.Array, units_per_day: int) -> pa.Array:
    """Boolean mask, without nulls, of the times outside the years 1 to 9999. `instants`: whole
    numbers of a unit (seconds, days, …) since 1970."""
    first, end = FIRST_DAY * units_per_day, (LAST_DAY + 1) * units_per_day
    return pc.fill_null(pc.or_(pc.less(instants, first), pc.greater_equal(instants, end)), False)


def _any_of(masks: Iterable[pa.Array | None]) -> pa.Array | None:
    """Unite boolean masks: true where at least one of them is. None stands for a mask without true
    values; the result is None if all are."""
    some = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, some) if some else None


def _entries_of_map(column: pa.Array) -> pa.Array:
    """An array of maps as one of lists of structs."""
    return column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))


def _lists_with(mask: pa.Array, lists: pa.Array) -> pa.Array:
    """Boolean mask of the lists in which some value is marked. `mask`: marks values, one entry for
    each value of all lists, in order."""
    numbers = pc.list_parent_indices(lists).filter(mask).unique()
    return pc.is_in(pa.array(range(len(lists)), numbers.type), value_set=numbers)
