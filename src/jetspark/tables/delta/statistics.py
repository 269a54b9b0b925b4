"""Statistics of a Parquet file as Delta's log keeps them, so that readers can skip the file.

Delta protocol, "Per-file Statistics": the number of rows, and for each column the minimum, the
maximum and the number of nulls. A string may be truncated as long as it remains a bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable
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
    """Statistics of a file, as JSON for Delta's log. `columns`: the columns that have statistics;
    `with_nan`: the columns with NaN in them; `long_texts`: bounds that Parquet does not have.

    deltalake's own scan takes a file for one without matching rows if it has bounds of some columns
    and lacks that of another one: so where one is not known, there are none of any column.
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
        if count == metadata.num_rows:
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
    """Whether a column of a file has bytes that are no texts."""
    column = metadata.schema.column(index)
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "STRING")


def _json_minimum(value: Any) -> Any:
    """A lower bound as JSON, not above the value; None for types without bounds."""
    match value:
        case datetime():
            return _json_time(value)
        case str():
            return value[:_MAX_BOUND_LENGTH]
    return _json_bound(value)


def _json_maximum(value: Any) -> Any:
    """An upper bound as JSON, not below the value; None for types without bounds, and without a
    text of the length that is above it."""
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
    """A timestamp in ISO 8601, to milliseconds."""
    # Not strftime, which writes the year 1 as "1" on Linux: readers leave such a file out.
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _json_bound(value: Any) -> Any:
    """The value as JSON; None for types without bounds."""
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
    """Columns of new files that have statistics, as the table's properties say."""
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
    count = int(configuration.get(_INDEXED_COLUMN_COUNT, _MAX_COLUMNS_WITH_STATISTICS))
    return names if count < 0 else names[:count]


def _parse_column_names(text: str) -> set[str]:
    """Column names in the property `delta.dataSkippingStatsColumns`."""
    return {
        match[1].replace("``", "`") if match[1] is not None else match[2].strip()
        for match in _NAME.finditer(text)
    }


def statistics_property(schema: pa.Schema, partition_by: Container[str]) -> dict[str, str]:
    """Table property of a new table that names the columns with statistics: only those whose bounds
    deltalake writes as they are when it compacts and merges. Of infinite numbers it writes none,
    and of decimals only what a double holds. Empty where it writes all bounds well."""
    if not any(map(_loses_bounds, schema.types)):
        return {}
    return statistics_property_for([column for column in schema if column.name not in partition_by])


def statistics_property_for(columns: Iterable[pa.Field]) -> dict[str, str]:
    """Table property that allows statistics for those of these columns whose bounds survive a
    rewrite by deltalake."""
    names = [
        f"`{column.name.replace('`', '``')}`"
        for column in columns
        if not pa.types.is_nested(column.type)
        and not pa.types.is_binary(column.type)
        and not _loses_bounds(column.type)
    ]
    return {INDEXED_COLUMNS: ",".join(names[:_MAX_COLUMNS_WITH_STATISTICS])}


def _loses_bounds(kind: pa.DataType) -> bool:
    """Whether deltalake does not keep the bounds of this type when it rewrites a file."""
    if pa.types.is_nested(kind):
        return any(_loses_bounds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or (
        pa.types.is_decimal(kind) and (kind.precision > _EXACT_DIGITS or kind.scale > _EXACT_PLACES)
    )
