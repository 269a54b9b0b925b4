"""JSON payloads as Arrow columns, where their meaning is plain.

`JsonFields.of` adds the fields to a batch's columns. A payload that is no plain object with values
of the fields' types (a number for a text, a number that is too large, damaged text) has none of
them: it stays in `data`, which is null elsewhere, for a parser that knows what to do with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.wire.kernel import JsonKind, json_columns

TYPES: Final[Mapping[str, tuple[JsonKind, Any]]] = {
    "string": (JsonKind.TEXT, pa.string()),
    "tinyint": (JsonKind.INT8, pa.int8()),
    "smallint": (JsonKind.INT16, pa.int16()),
    "int": (JsonKind.INT32, pa.int32()),
    "bigint": (JsonKind.INT64, pa.int64()),
    "double": (JsonKind.DOUBLE, pa.float64()),
    "boolean": (JsonKind.TRUTH, pa.bool_()),
    "date": (JsonKind.DAY, pa.date32()),
    "timestamp": (JsonKind.TIME, pa.timestamp("us", tz="UTC")),
}
"""The types of fields, by their names in Spark."""

_PAYLOAD = "data"


class JsonFields:
    """The fields of a schema."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """`types`: of `TYPES`, by the fields' names."""
        found = [TYPES[name] for name in types.values()]
        self._names = tuple(name.encode() for name in types)
        self._kinds = bytes(kind for kind, _ in found)
        self._added = [pa.field(name, arrow) for name, (_, arrow) in zip(types, found, strict=True)]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, with the fields behind its columns."""
        payloads = batch.column(_PAYLOAD)
        left, columns = json_columns(*_buffers(payloads), self._names, self._kinds)
        rows = batch.num_rows
        fields = [
            pa.Array.from_buffers(field.type, rows, [pa.py_buffer(one) for one in buffers])
            for field, buffers in zip(self._added, map(_of_arrow, columns), strict=True)
        ]
        at = batch.schema.get_field_index(_PAYLOAD)
        kept = batch.columns
        kept[at] = _left(payloads, left)
        schema = batch.schema.set(at, pa.field(_PAYLOAD, pa.binary()))
        return pa.RecordBatch.from_arrays(
            [*kept, *fields], schema=pa.schema([*schema, *self._added])
        )


def _buffers(payloads: Any) -> tuple[memoryview, memoryview]:
    """Bytes and offsets of an array, which may be a slice."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


def _of_arrow(column: tuple[bytes, bytes, bytes]) -> list[bytes]:
    valid, values, offsets = column
    return [valid, offsets, values] if offsets else [valid, values]


def _left(payloads: Any, left: bytes) -> Any:
    if not any(left):
        return pa.nulls(len(payloads), pa.binary())
    chosen = pa.Array.from_buffers(pa.bool_(), len(payloads), [None, pa.py_buffer(left)])
    return pc.if_else(chosen, payloads, pa.scalar(None, pa.binary()))
