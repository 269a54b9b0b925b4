"""Statistics of a Parquet file as Delta's log keeps them, so that readers can skip the file.

Delta protocol, "Per-file Statistics": the number of rows, and for each column the minimum, the
maximum and the number of nulls. A string may be truncated as long as it remains a bound.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import msgspec
import pyarrow.parquet as pq

_COLUMNS = 32
"""Delta's default of delta.dataSkippingNumIndexedCols: the first columns have statistics."""
_TEXT = 32
_LAST = "\U0010ffff"
_EXACT_DIGITS = 15
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def statistics(
    metadata: pq.FileMetaData, columns: Iterable[str], with_nan: Container[str] = ()
) -> str:
    """The statistics of a file as JSON; `columns`: the table's, in its order; `with_nan`: those
    with NaN in them. A bound is left out only where there is none: deltalake's own scan takes a
    file whose bound is missing for one without matching rows."""
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
        low, high = _bounds(bounds)
        if low is not None:
            least[name] = low
        # For Spark NaN is greater than every number, so no number is above it.
        if high is not None and name not in with_nan:
            greatest[name] = high
    return _ENCODER.encode(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    ).decode()


def _bounds(parts: Sequence[pq.Statistics]) -> tuple[Any, Any]:
    """None for a bound that Python or JSON cannot hold, such as a date after the year 9999."""
    try:
        low, high = min(part.min for part in parts), max(part.max for part in parts)
    except (OverflowError, ValueError):
        return None, None
    return _low(low), _high(high)


def _flat_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    schema = metadata.schema
    return {
        schema.column(index).name: index
        for index in range(len(schema))
        if schema.column(index).path == schema.column(index).name
    }


def _low(value: Any) -> Any:
    match value:
        case datetime():
            return _instant(value)
        case str():
            return value[:_TEXT]
        case Decimal():
            return _rounded(value, ROUND_FLOOR)
    return _plain(value)


def _high(value: Any) -> Any:
    match value:
        case datetime():
            try:  # to milliseconds, rounded up so that it remains a bound
                return _instant(value + timedelta(microseconds=-value.microsecond % 1000))
            except OverflowError:  # readers add the millisecond that the protocol lets be cut off
                return _instant(value)
        case str() if len(value) > _TEXT:
            return value[:_TEXT] + _LAST  # greater than every string with this prefix
        case str():
            return value
        case Decimal():
            return _rounded(value, ROUND_CEILING)
    return _plain(value)


def _rounded(value: Decimal, rounding: str) -> Decimal:
    """To digits that a double holds, since readers may parse it as one; unless the column's type
    may be too small for the rounded number."""
    rounded = Context(prec=_EXACT_DIGITS, rounding=rounding).plus(value)
    return value if rounded.adjusted() > value.adjusted() else Decimal(f"{rounded:f}")


def _instant(value: datetime) -> str:
    # Not strftime, which writes the year 1 as "1" on Linux: readers leave such a file out.
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _plain(value: Any) -> Any:
    """As JSON; None for types that have no bounds."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case date():
            return value.isoformat()
        case bool() | int():
            return value
        case _:
            return None
