"""Statistics of a Parquet file as Delta's log keeps them, so that readers can skip the file.

Delta protocol, "Per-file Statistics": the number of rows, and for each column the minimum, the
maximum and the number of nulls. A string may be truncated as long as it remains a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow.parquet as pq

_COLUMNS = 32
"""Delta's default of delta.dataSkippingNumIndexedCols: the first columns have statistics."""
_TEXT = 32
_LAST = "\U0010ffff"
_EXACT_DIGITS = 15
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def statistics(metadata: pq.FileMetaData, columns: Iterable[str]) -> str:
    """The statistics of a file as JSON; `columns`: the table's, in its order."""
    indexed = set(list(columns)[:_COLUMNS])
    found = {
        name: one
        for name, one in _flat_columns(metadata).items()
        if name in indexed  # nested columns have none
    }
    nulls, least, greatest = {}, {}, {}
    for name, index in found.items():
        parts = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if any(part is None for part in parts):
            continue
        if all(part.has_null_count for part in parts):
            nulls[name] = sum(part.null_count for part in parts)
        bounds = [part for part in parts if part.has_min_max]
        # A row group with only nulls has no bounds, and does not change the others'.
        if not bounds or any(not part.has_min_max and part.num_values for part in parts):
            continue
        low, high = _low(min(part.min for part in bounds)), _high(max(part.max for part in bounds))
        if low is not None:
            least[name] = low
        # Parquet's bounds leave NaN out, which for Spark is greater than every number.
        if high is not None and not isinstance(high, float):
            greatest[name] = high
    return _ENCODER.encode(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    ).decode()


def _flat_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    schema = metadata.schema
    return {
        schema.column(index).name: index
        for index in range(len(schema))
        if schema.column(index).path == schema.column(index).name
    }


def _low(value: Any) -> Any:
    if isinstance(value, datetime):
        return _instant(value.replace(microsecond=value.microsecond // 1000 * 1000))
    return value[:_TEXT] if isinstance(value, str) else _plain(value)


def _high(value: Any) -> Any:
    if isinstance(value, datetime):  # to milliseconds, rounded up so that it remains a bound
        return _instant(value + timedelta(microseconds=-value.microsecond % 1000))
    if isinstance(value, str) and len(value) > _TEXT:
        return value[:_TEXT] + _LAST  # greater than every string with this prefix
    return value if isinstance(value, str) else _plain(value)


def _instant(value: datetime) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + ("Z" if value.tzinfo is not None else "")


def _plain(value: Any) -> Any:
    """As JSON; None for types that have no bounds."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            # Readers may parse it as a double.
            return value if len(value.as_tuple().digits) <= _EXACT_DIGITS else None
        case date():
            return value.isoformat()
        case bool() | int():
            return value
        case _:
            return None
