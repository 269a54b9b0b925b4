"""Text columns whose bytes are UTF-8, as Parquet demands: other readers refuse a file otherwise."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def valid_text(column: pa.Array) -> pa.Array:
    """The column, with U+FFFD in place of bytes that are not UTF-8 (Spark lets them pass)."""
    if not _has_text(column.type):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(_as_bytes(column.type))
        return pa.array([_decoded(one, column.type) for one in raw.to_pylist()], column.type)
    return column


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_string(kind))


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_as_bytes(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    return kind


def _decoded(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value.decode(errors="replace")
    if pa.types.is_struct(kind):
        return {one.name: _decoded(value[one.name], one.type) for one in kind}
    if pa.types.is_map(kind):
        return [(_decoded(a, kind.key_type), _decoded(b, kind.item_type)) for a, b in value]
    if pa.types.is_list(kind):
        return [_decoded(one, kind.value_type) for one in value]
    return value
