"""Columns that the C kernel builds, or makes records of: how it is told of them, and how it gives
them back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from jetspark.wire.kernel import ColumnKind

if TYPE_CHECKING:
    from jetspark.wire.kernel import ColumnBuffers, Memory, Part

_KINDS: Final[Mapping[pa.DataType, ColumnKind]] = {
    pa.bool_(): ColumnKind.BOOLEAN,
    pa.int8(): ColumnKind.INT8,
    pa.int16(): ColumnKind.INT16,
    pa.int32(): ColumnKind.INT32,
    pa.int64(): ColumnKind.INT64,
    pa.float32(): ColumnKind.FLOAT,
    pa.float64(): ColumnKind.DOUBLE,
    pa.string(): ColumnKind.STRING,
    pa.binary(): ColumnKind.BINARY,
    pa.date32(): ColumnKind.DATE,
    pa.timestamp("us", tz="UTC"): ColumnKind.TIMESTAMP,
    pa.timestamp("us"): ColumnKind.TIMESTAMP_NTZ,
    pa.null(): ColumnKind.NOTHING,
}
_NODE: Final = struct.Struct("=BBBxI")


def plan_of(fields: Sequence[pa.Field], max_depth: int) -> tuple[bytes, tuple[bytes, ...]] | None:
    """The plan of a batch's columns, and their names; None: the kernel does not build all of them,
    or they are nested more deeply."""
    plan, names = bytearray(), []

    def add(kind: pa.DataType, name: str, depth: int) -> bool:
        precision = scale = 0
        if pa.types.is_decimal128(kind):
            number, precision, scale = ColumnKind.DECIMAL, kind.precision, kind.scale
        elif pa.types.is_struct(kind):
            number = ColumnKind.STRUCT
        elif pa.types.is_map(kind):
            number = ColumnKind.MAP
        elif pa.types.is_list(kind):
            number = ColumnKind.LIST
        elif kind in _KINDS:
            number = _KINDS[kind]
        else:
            return False
        below = fields_below(kind)
        plan.extend(_NODE.pack(number, precision, max(scale, 0), len(below)))
        names.append(name.encode())
        return (
            depth < max_depth
            and scale >= 0
            and all(add(one.type, one.name, depth + 1) for one in below)
        )

    return (bytes(plan), tuple(names)) if add(pa.struct(fields), "", 0) else None


def fields_below(kind: pa.DataType) -> list[pa.Field]:
    """The columns directly below one of a type; those of a plan."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [pa.field("", pa.struct([kind.key_field, kind.item_field]))]
    return [kind.value_field] if pa.types.is_list(kind) else []


def count_columns(kind: pa.DataType) -> int:
    """How many columns one of a type is in a plan, with itself."""
    return 1 + sum(count_columns(one.type) for one in fields_below(kind))


@dataclass(frozen=True)
class Slot:
    """A column of the reader's, and its number in the plan of columns."""

    number: int
    kind: pa.DataType

    def below(self, at: int) -> Slot:
        """A column directly below."""
        fields = fields_below(self.kind)
        before = sum(count_columns(one.type) for one in fields[:at])
        return Slot(self.number + 1 + before, fields[at].type)


def arrays_of(fields: Sequence[pa.Field], buffers: Sequence[ColumnBuffers]) -> list[pa.Array]:
    """The columns that the kernel has built."""
    parts = iter(buffers[1:])
    return [_array_of(one.type, parts) for one in fields]


def _array_of(kind: pa.DataType, parts: Iterator[ColumnBuffers]) -> pa.Array:
    rows, valid, values, offsets = next(parts)
    if kind.num_buffers == 1:
        own = [valid]
    elif kind.num_buffers == 3:
        own = [valid, offsets, values]
    else:
        own = [valid, offsets if kind.num_fields else values]
    below = fields_below(kind) if kind.num_fields else ()
    children = [_array_of(one.type, parts) for one in below]
    buffers = [one if one is None else pa.py_buffer(one) for one in own]
    return pa.Array.from_buffers(kind, rows, buffers, children=children)


def buffers_of(payloads: Any) -> tuple[memoryview, memoryview]:
    """Bytes and offsets of an array, which may be a slice."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


def part(
    kind: int,
    first: pa.Buffer | None = None,
    second: pa.Buffer | None = None,
    begin: int = 0,
    *,
    valid: pa.Buffer | None = None,
    flag: bool = False,
    number: int = 0,
    parts: Sequence[Part] = (),
) -> Part:
    """A part of each record. `kind`, `flag`, `number`: of the format."""
    return kind, flag, number, begin, valid, first, second, tuple(parts)


def leaf(kind: int, values: pa.Array, *, flag: bool = False, number: int = 0) -> Part:
    """Values that have nothing below them."""
    valid, first, *more = values.buffers()
    second = more[0] if more else None
    return part(kind, first, second, values.offset, valid=valid, flag=flag, number=number)


def records_of(
    write: Callable[[int, Part], tuple[Memory, Memory]], rows: int, root: Part
) -> list[bytes]:
    """The records that the kernel writes."""
    data, ends = write(rows, root)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    records: list[bytes] = pa.Array.from_buffers(pa.large_binary(), rows, buffers).to_pylist()
    return records
