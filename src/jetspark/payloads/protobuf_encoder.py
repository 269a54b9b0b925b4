"""Rows as messages of Protobuf: by the C kernel, or by `protobuf_plain` where there is none.

Both write columns that have been checked, and have the form of the message: a time is its seconds
and nanoseconds, an enum its number, a map a list of entries, and fields are in the order of their
numbers.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.payloads import protobuf_plain
from jetspark.payloads.encoder import (
    cast,
    check_no_nulls,
    leaf,
    misfit,
    offsets_and_items,
    part,
    symbol_indexes,
    write_records,
)
from jetspark.payloads.protobuf_schema import (
    ProtobufKind,
    descriptor_of,
    fields_of,
    is_map,
    kind_of,
    library,
)
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.kernel import protobuf_messages
from jetspark.years import FIRST_DAY, FIRST_MICROS, FIRST_SECOND, LAST_DAY, LAST_MICROS

if TYPE_CHECKING:
    from jetspark.wire.kernel import Part

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
_MAX_DURATION: Final = 315_576_000_000 * _SECOND
"""A duration: 10,000 years."""


class ProtobufEncoder:
    """Encodes rows as messages of one type."""

    def __init__(self, schema: PayloadSchema) -> None:
        """`schema`: a result of `message_of`. Raises ConfigError."""
        self.descriptor = descriptor_of(schema)
        self.fields = fields_of(self.descriptor)

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload for each row. A field that is null, or has no column, is not in the message."""
        messages = self.checked(rows)
        if protobuf_messages is None:
            return protobuf_plain.encode(self.descriptor, messages)
        return write_records(protobuf_messages, len(rows), part_of(self.descriptor, messages))

    def checked(self, rows: pa.RecordBatch) -> pa.StructArray:
        """The rows in the form of the message. Raises ConfigError for what does not fit."""
        ancestors = frozenset({self.descriptor.full_name})
        return _checked(self.descriptor, rows.to_struct_array(), ancestors, "")


# -- checking ------------------------------------------------------------------------------------


def _struct_of(parts: dict[str, pa.Array], values: pa.Array) -> pa.StructArray:
    """Null where the values are."""
    return pa.StructArray.from_arrays(parts.values(), parts, mask=values.is_null())


def _checked(
    message: Any, values: pa.Array, ancestors: frozenset[str], name: str
) -> pa.StructArray:
    members = dict(zip(values.type.names, values.flatten(), strict=True))
    for field in message.fields:
        if field.is_required:
            column = members.get(field.name, pa.nulls(len(values))).filter(values.is_valid())
            check_no_nulls(column, f"{name}{field.name}", "a value that is required")
    for oneof in message.oneofs:
        masks = [members[field.name].is_valid() for field in oneof.fields if field.name in members]
        if any(pc.any(pc.and_(*two)).as_py() for two in combinations(masks, 2)):
            raise ConfigError(f"Field {name}{oneof.name} has a value in more than one member.")
    by_number = sorted(message.fields, key=lambda field: field.number)
    parts = {
        field.name: _checked_field(field, members[field.name], ancestors, f"{name}{field.name}")
        for field in by_number
        if field.name in members
    }
    return _struct_of(parts, values)


def _checked_field(field: Any, values: pa.Array, ancestors: frozenset[str], name: str) -> pa.Array:
    if not field.is_repeated:
        return _checked_value(field, values, ancestors, name)
    offsets, items = offsets_and_items(values)
    if is_map(field):
        entry = field.message_type.fields_by_name
        keys, items = items.flatten()
        check_no_nulls(items, f"{name}.value", "a value for each key")
        keys = _checked_value(entry["key"], keys, ancestors, f"{name}.key")
        items = _checked_value(entry["value"], items, ancestors, f"{name}.value")
        items = pa.StructArray.from_arrays([keys, items], ["key", "value"])
    else:
        check_no_nulls(items, f"{name}.element", "a value in each place")
        items = _checked_value(field, items, ancestors, f"{name}.element")
    return pa.ListArray.from_arrays(offsets, items, mask=values.is_null())


def _checked_value(field: Any, values: pa.Array, ancestors: frozenset[str], name: str) -> pa.Array:
    message = field.message_type
    match kind_of(field, ancestors):
        case ProtobufKind.ENUM:
            symbols = field.enum_type.values_by_name
            numbers = pa.array([symbol.number for symbol in symbols.values()], pa.int32())
            return numbers.take(symbol_indexes(values, list(symbols), name))
        case ProtobufKind.UINT64 | ProtobufKind.FIXED64:
            return cast(values, pa.uint64(), name)
        case ProtobufKind.UINT32 | ProtobufKind.FIXED32:
            return cast(values, pa.uint32(), name)
        case ProtobufKind.BYTES if message is not None:
            return _checked_bytes(message, values, name)
        case ProtobufKind.MESSAGE:
            return _checked(message, values, ancestors | {message.full_name}, f"{name}.")
        case ProtobufKind.WRAPPER:
            value = _checked_value(message.fields_by_name["value"], values, ancestors, name)
            return _struct_of({"value": value}, values)
        case ProtobufKind.TIMESTAMP:
            _check_between(values, pa.int64(), FIRST_MICROS, LAST_MICROS, name)
            return _seconds_and_nanos(values, FIRST_SECOND)
        case ProtobufKind.DURATION:
            _check_between(values, pa.int64(), -_MAX_DURATION, _MAX_DURATION, name)
            return _seconds_and_nanos(values, 0)
        case ProtobufKind.DATE:
            _check_between(values, pa.int32(), FIRST_DAY, LAST_DAY, name)
            parts = {"year": pc.year(values), "month": pc.month(values), "day": pc.day(values)}
            return _struct_of(
                {part: column.cast(pa.int32()) for part, column in parts.items()}, values
            )
        case ProtobufKind.TIME_OF_DAY:
            return _time_of_day(values, name)
    return values


def _check_between(
    values: pa.Array, number_type: pa.DataType, first: int, last: int, name: str
) -> None:
    """Raise ConfigError for a date or time of other years, or too long a duration: Protobuf has
    none."""
    numbers = values.cast(number_type)
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if pc.any(outside).as_py():
        bad = numbers.filter(outside)[0].as_py()
        raise ConfigError(f"Field {name} has a time outside of the years 1 to 9999: {bad}.")


def _checked_bytes(message: Any, values: pa.Array, name: str) -> pa.Array:
    """Messages that came as bytes, as Protobuf's library writes them."""
    if values.null_count == len(values):
        return values
    parse = library("google.protobuf.message_factory").GetMessageClass(message).FromString
    error = library("google.protobuf.message").Error

    def written(value: bytes | None) -> bytes | None:
        try:
            payload: bytes | None = None if value is None else parse(value).SerializeToString()
        except (error, UnicodeDecodeError):
            raise misfit(name, value, f"a message of {message.full_name}") from None
        return payload

    return pa.array(map(written, values.to_pylist()), pa.binary())


def _seconds_and_nanos(values: pa.Array, first: int) -> pa.StructArray:
    """Microseconds as seconds since `first`, cut off, and what is left as nanoseconds."""
    micros = values.cast(pa.int64())
    seconds = pc.add(pc.divide(pc.subtract(micros, first * _SECOND), _SECOND), first)
    nanos = pc.multiply(pc.subtract(micros, pc.multiply(seconds, _SECOND)), 1000)
    return _struct_of({"seconds": seconds, "nanos": nanos.cast(pa.int32())}, values)


def _time_of_day(values: pa.Array, name: str) -> pa.StructArray:
    parts, rest = {}, values
    for unit, size in (("hours", _HOUR), ("minutes", 60 * _SECOND), ("seconds", _SECOND)):
        column = pc.divide(rest, size)
        parts[unit], rest = column, pc.subtract(rest, pc.multiply(column, size))
    earliest, latest = pc.min_max(values).as_py().values()
    if earliest is not None and not 0 <= earliest <= latest < 25 * _HOUR:
        raise ConfigError(f"Field {name} has a time that no day has.")
    parts["nanos"] = pc.multiply(rest, 1000)
    return _struct_of({part: column.cast(pa.int32()) for part, column in parts.items()}, values)


# -- columns for the C kernel --------------------------------------------------------------------


def part_of(message: Any, values: pa.StructArray, number: int = 0) -> Part:
    """Messages as the kernel writes them. `number`: of the field that they are in."""
    fields = (message.fields_by_name[name] for name in values.type.names)
    parts = [_part_of_field(field, values.field(at)) for at, field in enumerate(fields)]
    valid = values.buffers()[0]
    return part(ProtobufKind.MESSAGE, begin=values.offset, valid=valid, number=number, parts=parts)


def _part_of_field(field: Any, values: pa.Array) -> Part:
    if not field.is_repeated:
        is_entry = field.containing_type.GetOptions().map_entry
        flag = not field.has_presence and not is_entry
        return _part_of_value(field, values, field.number, flag=flag)
    packed = field.number if field.is_packed else 0
    item = _part_of_value(field, values.values, field.number - packed)
    valid, offsets, *_ = values.buffers()
    return part(
        ProtobufKind.LIST, offsets, begin=values.offset, valid=valid, number=packed, parts=[item]
    )


def _part_of_value(field: Any, values: pa.Array, number: int, *, flag: bool = False) -> Part:
    message = field.message_type
    if pa.types.is_struct(values.type):
        return part_of(message, values, number)
    kind = kind_of(field, frozenset()) if message is None else ProtobufKind.BYTES
    return leaf(kind, values, flag=flag, number=number)
