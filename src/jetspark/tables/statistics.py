"""Minimum and maximum of a column in a written file, as both formats record them.

They come from Parquet's own statistics, which lack what is longer than 4,096 bytes: of such texts
the writer records the bounds (`LongTexts`). A bound that is cut is still a bound: a beginning of a
text lies below it, and the next text of that length above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MAX_PARQUET_BYTES = 4096
"""Parquet's statistics have no longer values."""
_LAST_CHARACTER = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)

Bounds = tuple[Any, Any]
"""(lower, upper) bound of the values; None: that bound is not known."""
LongTexts = Mapping[str, Sequence[tuple[str, str | None]]]
"""Bounds of the row groups whose texts are too long for Parquet's statistics, by column."""


def bounds_of_long_texts(rows: pa.Table) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Compute bounds of the texts that are too long for Parquet's own statistics: yields (column,
    (lower, upper bound)) for each column of a row group that has such texts."""
    for column in rows.schema:
        if not pa.types.is_string(column.type):
            continue
        values = rows[column.name]
        longest = pc.max(pc.binary_length(values)).as_py()
        if longest is not None and longest > _MAX_PARQUET_BYTES:
            least, greatest = pc.min_max(values).as_py().values()
            width = _MAX_PARQUET_BYTES // 16  # much shorter bounds still tell files apart
            yield column.name, (least[:width], upper_bound(greatest, width))


def leaf_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    """The index of each column of a Parquet file, by its path; in nested columns only the innermost
    ones, such as `address.street`, are columns of Parquet."""
    schema = metadata.schema
    return {schema.column(index).path: index for index in range(len(schema))}


def null_count(metadata: pq.FileMetaData, index: int) -> int | None:
    """Number of nulls in a column of a Parquet file, given by its index; None if some row group
    does not have it in its statistics."""
    counts = [
        statistics.null_count
        for statistics in _row_group_statistics(metadata, index)
        if statistics is not None and statistics.has_null_count
    ]
    return sum(counts) if len(counts) == metadata.num_row_groups else None


def column_bounds(metadata: pq.FileMetaData, index: int, long_texts: LongTexts) -> Bounds:
    """The least and the greatest value of a column of a Parquet file, given by its index, by the
    statistics of the row groups; NaN does not count. None for a bound that is not known.
    `long_texts`: bounds of texts that are too long for Parquet's own statistics."""
    bounds: list[Bounds] = list(long_texts.get(metadata.schema.column(index).path, ()))
    has_long_texts = bool(bounds)
    for statistics in _row_group_statistics(metadata, index):
        if statistics is not None and statistics.has_min_max:
            try:
                bounds.append(_row_group_bounds(statistics))
            except (OverflowError, ValueError):  # a date that Python does not have
                return None, None
        # A row group with only nulls has no bounds, and does not change the others'. One with long
        # texts has none in Parquet either, but in `long_texts`. Any other makes all unknown.
        elif not has_long_texts and (statistics is None or statistics.num_values):
            return None, None
    if not bounds:
        return None, None
    lower, upper = zip(*bounds, strict=True)
    return min(lower), None if None in upper else max(upper)


def _row_group_statistics(metadata: pq.FileMetaData, index: int) -> Iterator[pq.Statistics | None]:
    """Yield Parquet's statistics of a column, given by its index, in each row group of a file; None
    where there are none."""
    for group in range(metadata.num_row_groups):
        yield metadata.row_group(group).column(index).statistics


def _row_group_bounds(statistics: pq.Statistics) -> Bounds:
    """(least, greatest) value of a column in a row group of a Parquet file, as Python's values.
    Raises ValueError or OverflowError for a date outside the years 1 to 9999."""
    try:
        return statistics.min, statistics.max
    except NotImplementedError:  # PyArrow before 22, for decimals that are stored as integers
        scale = json.loads(statistics.logical_type.to_json())["scale"]
        raw_bounds = statistics.min_raw, statistics.max_raw
        lower, upper = (Decimal(raw).scaleb(-scale) for raw in raw_bounds)
        return lower, upper


_Text = TypeVar("_Text", str, bytes)


def upper_bound(value: _Text, width: int) -> _Text | None:
    """Shorten a text, or bytes, to at most this length so that the result is not below the value,
    and can be an upper bound: the last character that can be is raised by one. None if none can
    be."""
    if len(value) <= width:
        return value
    if isinstance(value, bytes):
        prefix = value[:width].rstrip(b"\xff")
        return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    prefix_text = value[:width].rstrip(_LAST_CHARACTER)
    if not prefix_text:
        return None
    code = ord(prefix_text[-1]) + 1
    return prefix_text[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)
