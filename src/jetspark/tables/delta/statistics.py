"""Statistics of a Parquet file as Delta's log keeps them, so that readers can skip the file.

Delta protocol, "Per-file Statistics": the number of rows, and for each column the minimum, the
maximum and the number of nulls. A string may be truncated as long as it remains a bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from jetspark.tables.statistics import (
    LongTexts,
    column_bounds,
    leaf_columns,
    null_count,
    upper_bound,
)

_MAX_COLUMNS_WITH_STATISTICS = 32
"""Delta's default of delta.dataSkippingNumIndexedCols: the first columns have statistics."""
_INDEXED_COLUMN_COUNT = "delta.dataSkippingNumIndexedCols"
INDEXED_COLUMNS = "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"`((?:[^`]|``)*+)`|([^,`]++)")
_MAX_BOUND_LENGTH = 32
"""Characters of a text in a bound."""
_EXACT_DIGITS, _EXACT_PLACES = 15, 5
"""Digits, and decimal places, of the decimals whose bounds deltalake rewrites unchanged: it makes
doubles of them, and writes small ones as 1e-7, which it does not read."""
_ENCODER = msgspec.json.Encoder()


def statistics_json(
    metadata: pq.FileMetaData,
    columns: Iterable[str],
    with_nan: Container[str] = (),
    long_texts: LongTexts | None = None,
) -> str:
    """Statistics of a new Parquet file, as JSON for Delta's log, by which readers skip the file.
    `columns`: the columns that have statistics; `with_nan`: the columns with NaN in them;
    `long_texts`: bounds of texts that are too long for Parquet's own statistics.

    deltalake's own scan takes a file for one without matching rows if it has the minimum of some
    columns and lacks that of another one: so if one is not known, minima are left out of all
    columns, and likewise maxima.
    """
    indices = leaf_columns(metadata)  # nested columns have no statistics
    null_counts: dict[str, int] = {}
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    for name in columns:
        if name not in indices or _is_binary(metadata, index := indices[name]):
            continue
        if (count := null_count(metadata, index)) is not None:
            null_counts[name] = count
        if count == metadata.num_rows:  # only nulls, which have no bounds
            continue
        lower, upper = column_bounds(metadata, index, long_texts or {})
        minima[name] = None if lower is None else _json_minimum(lower)
        # For Spark NaN is greater than every number, so no number is above it.
        maxima[name] = None if upper is None or name in with_nan else _json_maximum(upper)
    statistics: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": null_counts}
    for key, bounds in (("minValues", minima), ("maxValues", maxima)):
        if None not in bounds.values():
            statistics[key] = bounds
    return _ENCODER.encode(statistics).decode()


def _is_binary(metadata: pq.FileMetaData, index: int) -> bool:
    """Whether a column of a Parquet file has binary values, which get no statistics in Delta's log
    here: JSON has no bytes."""
    column = metadata.schema.column(index)
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "STRING")


def _json_minimum(value: Any) -> Any:
    """A column's minimum for Delta's statistics, as JSON, which may be rounded down or cut, but is
    not above the value; None for types without bounds."""
    match value:
        case datetime():
            return _json_time(value)
        case str():
            return value[:_MAX_BOUND_LENGTH]
    return _json_bound(value)


def _json_maximum(value: Any) -> Any:
    """A column's maximum for Delta's statistics, as JSON, which may be rounded up or cut, but is
    not below the value; None for types without bounds, and if no short text is above the value."""
    match value:
        case datetime():
            try:  # to milliseconds, rounded up so that it remains a bound
                return _json_time(value + timedelta(microseconds=-value.microsecond % 1000))
            except OverflowError:  # readers add the millisecond that writers may cut off
                return _json_time(value)
        case str():
            return upper_bound(value, _MAX_BOUND_LENGTH)
    return _json_bound(value)


def _json_time(value: datetime) -> str:
    """A timestamp in ISO 8601, cut to milliseconds, as Delta's statistics have it."""
    # Not strftime, which writes the year 1 as "1" on Linux: readers leave such a file out.
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _json_bound(value: Any) -> Any:
    """A bound of a column for Delta's statistics, as JSON with all of its digits; None for NaN, and
    for types without bounds."""
    match value:
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float():
            return None if math.isnan(value) else value
        case Decimal():  # with all of its digits, since readers compare them; they know no 1E-7
            return msgspec.Raw(f"{value:f}".encode())
        case date():
            return value.isoformat()
        case bool() | int():
            return value
        case _:
            return None


def columns_with_statistics(table: DeltaTable) -> list[str]:
    """The columns of a Delta table that get statistics in new files: those that a property lists,
    or else the first ones, as many as another property says. Partition columns need none."""
    metadata = table.metadata()
    names = [
        field.name
        for field in table.schema().fields
        if field.name not in metadata.partition_columns
    ]
    configuration = metadata.configuration
    if (listed_names := configuration.get(INDEXED_COLUMNS)) is not None:
        names_with_statistics = _parse_column_names(listed_names)
        return [name for name in names if name in names_with_statistics]
    count = _MAX_COLUMNS_WITH_STATISTICS
    with suppress(ValueError):  # anyone who writes the table can have set it to anything
        count = int(configuration.get(_INDEXED_COLUMN_COUNT, count))
    return names if count < 0 else names[:count]


def _parse_column_names(text: str) -> set[str]:
    """The column names in the property `delta.dataSkippingStatsColumns`, which are separated by
    commas and may stand in backquotes."""
    return {
        match[1].replace("``", "`") if match[1] is not None else match[2].strip()
        for match in _NAME.finditer(text)
    }


def statistics_property(schema: pa.Schema, partition_by: Container[str]) -> dict[str, str]:
    """The property of a new Delta table that names the columns with statistics: those whose bounds
    deltalake keeps when it compacts or merges. It loses bounds of floating-point numbers and of
    long decimals. Empty if no column is of such a type, so that Delta's default does."""
    if not any(map(_loses_bounds, schema.types)):
        return {}
    return statistics_property_for([column for column in schema if column.name not in partition_by])


def statistics_property_for(columns: Iterable[pa.Field]) -> dict[str, str]:
    """The property of a Delta table that allows statistics only for some of these columns: those
    whose bounds deltalake keeps when it rewrites a file, up to Delta's default number."""
    names = [
        f"`{column.name.replace('`', '``')}`"
        for column in columns
        if not pa.types.is_nested(column.type)
        and not pa.types.is_binary(column.type)
        and not _loses_bounds(column.type)
    ]
    return {INDEXED_COLUMNS: ",".join(names[:_MAX_COLUMNS_WITH_STATISTICS])}


def _loses_bounds(kind: pa.DataType) -> bool:
    """Whether deltalake loses or changes minima and maxima of this type when it rewrites a file: it
    leaves out infinite numbers, and makes doubles of decimals."""
    if pa.types.is_nested(kind):
        return any(_loses_bounds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or (
        pa.types.is_decimal(kind) and (kind.precision > _EXACT_DIGITS or kind.scale > _EXACT_PLACES)
    )
