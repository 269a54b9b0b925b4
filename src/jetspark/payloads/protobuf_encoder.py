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
    column_tree,
    leaf_tree,
    misfit_error,
    offsets_and_items,
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
    from jetspark.wire.kernel import ColumnTree

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
_MAX_DURATION: Final = 315_576_000_000 * _SECOND
"""Microseconds of the longest duration, 10,000 years."""


class ProtobufEncoder:
    """Encodes rows as payloads in Protobuf, each of which is one message."""

    def __init__(self, schema: PayloadSchema) -> None:
        """`schema`: a result of `message_of`. Raises ConfigError."""
        self.descriptor = descriptor_of(schema)
        self.fields = fields_of(self.descriptor)

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return a payload for each row. A field that is null, or has no column, is left out of
        it."""
        messages = self.convert_rows(rows)
        if protobuf_messages is None:
            return protobuf_plain.encode(self.descriptor, messages)
        return write_records(
            protobuf_messages, len(rows), build_message_tree(self.descriptor, messages)
        )

    def convert_rows(self, rows: pa.RecordBatch) -> pa.StructArray:
        """Return the rows in the form of the message: checked, with a time as seconds and
        nanoseconds, and an enum as its number. Raises ConfigError for what does not fit."""
        ancestors = frozenset({self.descriptor.full_name})
        return _convert_message(self.descriptor, rows.to_struct_array(), ancestors, path="")


# -- rows in the form of messages ----------------------------------------------------------------
# `ancestors`: the full names of the messages that a field is in. `name`: the path of a field, for
# errors. All of these functions raise ConfigError for a value that the message cannot have.


def _convert_message(
    message: Any, values: pa.StructArray, ancestors: frozenset[str], path: str
) -> pa.StructArray:
    """Check a column of structs, and convert it to the form of a message, with the fields in the
    order of their numbers. `path`: of the message, with a dot at its end. Raises ConfigError."""
    columns = dict(zip(values.type.names, values.flatten(), strict=True))
    for field in message.fields:
        if field.is_required:
            column = columns.get(field.name, pa.nulls(len(values))).filter(values.is_valid())
            check_no_nulls(column, f"{path}{field.name}", "a value that is required")
    for oneof in message.oneofs:  # fields of which a message has at most one
        masks = [columns[field.name].is_valid() for field in oneof.fields if field.name in columns]
        if any(pc.any(pc.and_(*pair)).as_py() for pair in combinations(masks, 2)):
            raise ConfigError(f"Field {path}{oneof.name} has a value in more than one member.")
    converted = {
        field.name: _convert_field(field, columns[field.name], ancestors, f"{path}{field.name}")
        for field in sorted(message.fields, key=lambda field: field.number)
        if field.name in columns
    }
    return _struct_like(values, converted)


def _struct_like(values: pa.Array, columns: dict[str, pa.Array]) -> pa.StructArray:
    """Return a struct of these columns, null where `values` is."""
    return pa.StructArray.from_arrays(columns.values(), columns, mask=values.is_null())


def _convert_field(field: Any, values: pa.Array, ancestors: frozenset[str], name: str) -> pa.Array:
    """Convert a column to the form of a message's field: a repeated field is a list, and a map a
    list of entries. Raises ConfigError for a null in it, which Protobuf does not have."""
    if not field.is_repeated:
        return _convert_value(field, values, ancestors, name)
    offsets, items = offsets_and_items(values)
    if is_map(field):
        entry = field.message_type.fields_by_name
        keys, items = items.flatten()
        check_no_nulls(items, f"{name}.value", "a value for each key")
        keys = _convert_value(entry["key"], keys, ancestors, f"{name}.key")
        items = _convert_value(entry["value"], items, ancestors, f"{name}.value")
        items = pa.StructArray.from_arrays([keys, items], ["key", "value"])
    else:
        check_no_nulls(items, f"{name}.element", "a value in each place")
        items = _convert_value(field, items, ancestors, f"{name}.element")
    return pa.ListArray.from_arrays(offsets, items, mask=values.is_null())


def _convert_value(field: Any, values: pa.Array, ancestors: frozenset[str], name: str) -> pa.Array:
    """Convert values of a field, which are the items of a repeated one, to the form of the message:
    an enum as its number, a time as its parts. Raises ConfigError for what does not fit."""
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
            return _rewrite_messages(message, values, name)
        case ProtobufKind.MESSAGE:
            return _convert_message(message, values, ancestors | {message.full_name}, f"{name}.")
        case ProtobufKind.WRAPPER:
            value = _convert_value(message.fields_by_name["value"], values, ancestors, name)
            return _struct_like(values, {"value": value})
        case ProtobufKind.TIMESTAMP:
            _check_between(values.cast(pa.int64()), FIRST_MICROS, LAST_MICROS, name)
            return _split_seconds(values, FIRST_SECOND)
        case ProtobufKind.DURATION:
            _check_between(values.cast(pa.int64()), -_MAX_DURATION, _MAX_DURATION, name)
            return _split_seconds(values, 0)
        case ProtobufKind.DATE:
            _check_between(values.cast(pa.int32()), FIRST_DAY, LAST_DAY, name)
            parts = {"year": pc.year(values), "month": pc.month(values), "day": pc.day(values)}
            return _struct_like(values, {unit: n.cast(pa.int32()) for unit, n in parts.items()})
        case ProtobufKind.TIME_OF_DAY:
            return _split_time_of_day(values, name)
    return values


def _check_between(numbers: pa.Array, first: int, last: int, name: str) -> None:
    """Raise ConfigError for a number outside of `first` to `last`: a date or a time outside of the
    years 1 to 9999, or a duration of more than 10,000 years, which Protobuf does not have."""
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if pc.any(outside).as_py():
        bad = numbers.filter(outside)[0].as_py()
        raise ConfigError(f"Field {name} has a time outside of the years 1 to 9999: {bad}.")


def _rewrite_messages(message: Any, values: pa.BinaryArray, name: str) -> pa.BinaryArray:
    """Parse a column of encoded messages, which a message that contains itself is, and return them
    as Protobuf's library encodes them. Raises ConfigError for bytes that are no such message."""
    if values.null_count == len(values):
        return values
    parse = library("google.protobuf.message_factory").GetMessageClass(message).FromString
    error = library("google.protobuf.message").Error

    def rewrite(value: bytes | None) -> bytes | None:
        """Return one message as the library encodes it. Raises ConfigError."""
        try:
            payload: bytes | None = None if value is None else parse(value).SerializeToString()
        except (error, UnicodeDecodeError):
            raise misfit_error(name, value, f"a message of {message.full_name}") from None
        return payload

    return pa.array(map(rewrite, values.to_pylist()), pa.binary())


def _split_seconds(values: pa.Array, first_second: int) -> pa.StructArray:
    """Return microseconds as `seconds` and `nanos`. Seconds are rounded towards `first_second`: in
    a timestamp (the first second of the year 1) down, so that `nanos` is not negative; in a
    duration (0) towards 0, so that both have the same sign."""
    micros = values.cast(pa.int64())
    since_first = pc.subtract(micros, first_second * _SECOND)
    seconds = pc.add(pc.divide(since_first, _SECOND), first_second)
    nanos = pc.multiply(pc.subtract(micros, pc.multiply(seconds, _SECOND)), 1000)
    return _struct_like(values, {"seconds": seconds, "nanos": nanos.cast(pa.int32())})


def _split_time_of_day(values: pa.Array, name: str) -> pa.StructArray:
    """Return microseconds since midnight as a google.type.TimeOfDay: hours, minutes, seconds and
    nanoseconds. Raises ConfigError for a time that this cannot have."""
    earliest, latest = pc.min_max(values).as_py().values()
    # TimeOfDay may have the hour 24, for the end of a day.
    if earliest is not None and not 0 <= earliest <= latest < 25 * _HOUR:
        raise ConfigError(f"Field {name} has a time that no day has.")
    parts, rest = {}, values
    for unit, micros in (("hours", _HOUR), ("minutes", 60 * _SECOND), ("seconds", _SECOND)):
        parts[unit] = pc.divide(rest, micros)
        rest = pc.subtract(rest, pc.multiply(parts[unit], micros))
    parts["nanos"] = pc.multiply(rest, 1000)
    return _struct_like(values, {unit: n.cast(pa.int32()) for unit, n in parts.items()})


# -- columns for the C kernel --------------------------------------------------------------------


def build_message_tree(message: Any, values: pa.StructArray, number: int = 0) -> ColumnTree:
    """Return a column of converted messages in the form that the C kernel encodes. `number`: of the
    field that they are in; 0: they are payloads."""
    fields = (message.fields_by_name[name] for name in values.type.names)
    children = [_build_field_tree(field, values.field(at)) for at, field in enumerate(fields)]
    valid = values.buffers()[0]
    return column_tree(
        ProtobufKind.MESSAGE, begin=values.offset, valid=valid, number=number, children=children
    )


def _build_field_tree(field: Any, values: pa.Array) -> ColumnTree:
    """Return the column of a field in the form that the C kernel encodes. The items of a packed
    list have no number of their own: the list has it."""
    if not field.is_repeated:
        is_entry = field.containing_type.GetOptions().map_entry
        omits_default = not field.has_presence and not is_entry  # an entry always has both
        return _build_value_tree(field, values, field.number, flag=omits_default)
    packed = field.number if field.is_packed else 0
    item = _build_value_tree(field, values.values, field.number - packed)
    valid, offsets, *_ = values.buffers()
    return column_tree(
        ProtobufKind.LIST,
        offsets,
        begin=values.offset,
        valid=valid,
        number=packed,
        children=[item],
    )


def _build_value_tree(
    field: Any, values: pa.Array, number: int, *, flag: bool = False
) -> ColumnTree:
    """Return the values of a field in the form that the C kernel encodes. `number`: what is written
    before each; `flag`: whether a value that is the default of its type is left out."""
    message = field.message_type
    if pa.types.is_struct(values.type):
        return build_message_tree(message, values, number)
    kind = kind_of(field, frozenset()) if message is None else ProtobufKind.BYTES
    return leaf_tree(kind, values, flag=flag, number=number)
