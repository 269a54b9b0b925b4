"""The least and the greatest value of a column in a written file, as both formats record them.

They come from Parquet's own statistics, which lack what is longer than 4,096 bytes: of such texts
the writer notes the bounds (`LongTexts`). A bound that is cut is still a bound: a beginning of a
text lies below it, and the next text of that length above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MAX_PARQUET_BYTES = 4096
"""Parquet's statistics have no longer values."""
_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

Bounds = tuple[Any, Any]
"""The least and the greatest value; None: that bound is not known."""
LongTexts = Mapping[str, Sequence[tuple[str, str | None]]]
"""Bounds of the row groups whose texts are too long for Parquet's statistics, by column."""


def bounds_of_long_texts(rows: pa.Table) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """(column, bounds) of the columns with texts that Parquet's statistics lack."""
    for column in rows.schema:
        if not pa.types.is_string(column.type):
            continue
        values = rows[column.name]
        longest = pc.max(pc.binary_length(values)).as_py()
        if longest is not None and longest > _MAX_PARQUET_BYTES:
            ends = pc.min_max(values).as_py()
            width = _MAX_PARQUET_BYTES // 16
            yield column.name, (ends["min"][:width], upper_bound_of_text(ends["max"], width))


def leaf_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    """Parquet's columns by their paths."""
    schema = metadata.schema
    return {schema.column(index).path: index for index in range(len(schema))}


def null_count(metadata: pq.FileMetaData, index: int) -> int | None:
    """Number of nulls in a column of a file; None if it is not known."""
    counts = [
        part.null_count
        for part in _row_group_statistics(metadata, index)
        if part and part.has_null_count
    ]
    return sum(counts) if len(counts) == metadata.num_row_groups else None


def column_bounds(metadata: pq.FileMetaData, index: int, long: LongTexts) -> Bounds:
    """The bounds of a column of a file, without NaN."""
    texts = long.get(metadata.schema.column(index).path, ())
    ends: list[Bounds] = list(texts)
    for part in _row_group_statistics(metadata, index):
        if part is not None and part.has_min_max:
            try:
                ends.append(_bounds_of(part))
            except (OverflowError, ValueError):  # a date that Python does not have
                return None, None
        # A row group with only nulls has no bounds, and does not change the others'.
        elif not texts and (part is None or part.num_values):
            return None, None
    if not ends:
        return None, None
    lows, highs = zip(*ends, strict=True)
    return min(lows), None if None in highs else max(highs)


def _row_group_statistics(metadata: pq.FileMetaData, index: int) -> Iterator[pq.Statistics | None]:
    for group in range(metadata.num_row_groups):
        yield metadata.row_group(group).column(index).statistics


def _bounds_of(part: pq.Statistics) -> Bounds:
    try:
        return part.min, part.max
    except NotImplementedError:  # PyArrow before 22, for decimals that are stored as integers
        scale = json.loads(part.logical_type.to_json())["scale"]
        low, high = (Decimal(raw).scaleb(-scale) for raw in (part.min_raw, part.max_raw))
        return low, high


def upper_bound_of_text(text: str, width: int) -> str | None:
    """A text of at most this many characters that is not below this one; None if there is none."""
    if len(text) <= width:
        return text
    for at in range(width - 1, -1, -1):
        if (code := ord(text[at])) < _MAX_CODE_POINT:
            following = code + 1 if code + 1 not in _SURROGATES else _SURROGATES.stop
            return text[:at] + chr(following)
    return None


def upper_bound_of_binary(value: bytes, width: int) -> bytes | None:
    """Bytes, at most so many, that are not below these; None if there are none."""
    if len(value) <= width:
        return value
    prefix = value[:width].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
