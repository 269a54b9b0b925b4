"""Rows as datums of Avro, and the defaults of a schema, which are datums as well."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.payloads.avro_schema import (
    KINDS,
    AvroKind,
    Field,
    Type,
    fields_of,
    in_words,
    parse_record,
)
from jetspark.payloads.decoder import Undecodable
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
from jetspark.payloads.framing import varint
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.kernel import avro_datums

if TYPE_CHECKING:
    from jetspark.wire.kernel import Part

_FEW: Final = 30
"""Rows that are not worth the way by columns."""
_Put: TypeAlias = Callable[[bytearray, Any], None]
"""Appends a value, in the form of PyArrow's `as_py`. Raises ConfigError."""

_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


class AvroEncoder:
    """Encodes rows as datums of a schema."""

    def __init__(self, schema: PayloadSchema) -> None:
        """Raises ConfigError for a schema that cannot be used."""
        self.fields = fields_of(schema)
        self._type = parse_record(schema)
        self._puts = [put_of(field.type, field.name) for field in self._type.fields]

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload for each row. A field without a column has its default, or is null."""
        columns = [self._column(field, rows) for field in self._type.fields]
        if avro_datums is None or len(rows) < _FEW:
            return self._one_by_one(columns, len(rows))
        parts = [
            part_of(field.type, values, field.name)
            for field, values in zip(self._type.fields, columns, strict=True)
        ]
        return write_records(avro_datums, len(rows), part(AvroKind.RECORD, parts=parts))

    def _one_by_one(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        try:
            values = [column.to_pylist() for column in columns]
        except (ValueError, OverflowError):
            raise ConfigError("A time is not of the years 1 to 9999.") from None
        payloads = []
        for row in range(rows):
            datum = bytearray()
            for put, of_field in zip(self._puts, values, strict=True):
                put(datum, of_field[row])
            payloads.append(bytes(datum))
        return payloads

    def _column(self, field: Field, rows: pa.RecordBatch) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name)
        if field.type.may_be_null and not field.has_default:
            return pa.nulls(len(rows), field.type.arrow)
        return default_of(field, field.name).take(pa.repeat(0, len(rows)))


def long(number: int) -> bytes:
    """A whole number in Avro."""
    return varint((number << 1) ^ (number >> 63))


def put_of(type_: Type, name: str) -> _Put:
    """Return a function that appends values of a type. `name`: the field's, for errors."""
    if type_.kind == "union":
        return _put_of_union(type_, name)
    put = _put_of_kind(type_, name)
    type_name = type_.logical or type_.kind
    if type_.kind == "null":
        return put

    def put_value(datum: bytearray, value: Any) -> None:
        if value is None:
            raise ConfigError(f"Field {name} is null, and the schema has {type_name}.")
        put(datum, value)

    return put_value


def _put_of_kind(type_: Type, name: str) -> _Put:
    match type_.kind, type_.logical:
        case "null", _:
            return lambda datum, value: None
        case "boolean", _:
            return lambda datum, value: datum.append(value)
        case "int" | "long", logical:
            number = _number_of(logical)
            return lambda datum, value: datum.extend(long(number(value)))
        case ("float" | "double") as kind, _:
            pack = struct.Struct("<f" if kind == "float" else "<d").pack
            return lambda datum, value: datum.extend(pack(value))
        case "enum", _:
            return _put_of_enum(type_, name)
        case (("bytes" | "fixed"), "decimal"):
            return _put_of_decimal(type_, name)
        case "fixed", _:
            return _put_of_fixed(type_, name)
        case "bytes", _:
            return _put_bytes
        case "string", _:
            return lambda datum, value: _put_bytes(datum, value.encode())
        case "array", _:
            put = put_of(type_.parts[0], f"{name}.element")
            return lambda datum, value: _put_block(datum, [put] * len(value), value)
        case "map", _:
            put = put_of(type_.parts[0], f"{name}.value")

            def put_entry(datum: bytearray, entry: tuple[str, Any]) -> None:
                _put_bytes(datum, entry[0].encode())
                put(datum, entry[1])

            return lambda datum, value: _put_block(datum, [put_entry] * len(value), value)
    puts = [(field.name, put_of(field.type, f"{name}.{field.name}")) for field in type_.fields]

    def put_record(datum: bytearray, value: Mapping[str, Any]) -> None:
        for field, put in puts:
            put(datum, value[field])

    return put_record


def _number_of(logical: str) -> Callable[[Any], int]:
    """Return a function that converts values of a logical type to numbers."""
    if logical == "date":
        return lambda value: value.toordinal() - _FIRST_DAY
    if not logical:
        return int
    unit = 1000 if logical.endswith("millis") else 1

    def micros(value: datetime) -> int:
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return (value - _EPOCH) // _MICROSECOND // unit

    return micros


def _put_bytes(datum: bytearray, value: bytes) -> None:
    datum += long(len(value))
    datum += value


def _put_block(datum: bytearray, puts: Sequence[_Put], values: Sequence[Any]) -> None:
    if values:
        datum += long(len(values))
        for put, value in zip(puts, values, strict=True):
            put(datum, value)
    datum.append(0)


def _put_of_enum(type_: Type, name: str) -> _Put:
    encoded = {symbol: long(at) for at, symbol in enumerate(type_.symbols)}

    def put(datum: bytearray, value: str) -> None:
        if value not in encoded:
            raise misfit(name, value, f"one of {', '.join(type_.symbols)}")
        datum += encoded[value]

    return put


def _put_of_fixed(type_: Type, name: str) -> _Put:
    def put(datum: bytearray, value: bytes) -> None:
        if len(value) != type_.size:
            raise ConfigError(
                f"Field {name} has {len(value)} bytes, and the schema has {type_.size}."
            )
        datum += value

    return put


def _put_of_decimal(type_: Type, name: str) -> _Put:
    def put(datum: bytearray, value: Decimal) -> None:
        number = int(value.scaleb(type_.digits[1]))
        size = (
            type_.size if type_.kind == "fixed" else (number ^ number >> 127).bit_length() // 8 + 1
        )
        try:
            digits = number.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise ConfigError(f"Field {name}: a number needs more than {size} bytes.") from None
        if type_.kind == "bytes":
            datum += long(size)
        datum += digits

    return put


def _put_of_union(type_: Type, name: str) -> _Put:
    """A row has the branch that is not null; of a union of numbers, the wider one."""
    members = []
    null: bytes | None = None
    for at, branch in enumerate(type_.parts):
        if branch.kind == "null":
            null = long(at)
        else:
            members.append((long(at), branch, put_of(branch, name)))
    if not type_.has_members:
        members = [branch for branch in members if branch[1].arrow == type_.arrow] or members

    def put(datum: bytearray, value: Any) -> None:
        values = [value] if not type_.has_members else list((value or {}).values())
        present = [at for at, branch in enumerate(values) if branch is not None]
        if len(present) > 1:
            raise ConfigError(f"Field {name} has a value in more than one member.")
        if present:
            number, _, put_member = members[present[0]]
            datum += number
            put_member(datum, values[present[0]])
        elif null is None:
            raise ConfigError(f"Field {name} is null, and the schema has {in_words(type_)}.")
        else:
            datum += null

    return put


# -- columns for the C kernel --------------------------------------------------------------------


def part_of(type_: Type, values: pa.Array, name: str) -> Part:
    """The values of a type as the kernel writes them. Raises ConfigError for one that does not
    fit."""
    if type_.kind == "union":
        return _part_of_union(type_, values, name)
    if type_.kind == "null":
        return part(AvroKind.NULL)
    check_no_nulls(values, name, type_.logical or type_.kind)
    match type_.kind, type_.logical:
        case "record", _:
            fields = zip(type_.fields, values.flatten(), strict=True)
            parts = [part_of(field.type, child, f"{name}.{field.name}") for field, child in fields]
            return part(AvroKind.RECORD, parts=parts)
        case "array", _:
            offsets, inner = offsets_and_items(values)
            item = part_of(type_.parts[0], inner, f"{name}.element")
            return part(AvroKind.ARRAY, offsets.buffers()[1], begin=offsets.offset, parts=[item])
        case "map", _:
            offsets, inner = offsets_and_items(values)
            keys, items = inner.flatten()
            entry = [leaf(AvroKind.BYTES, keys), part_of(type_.parts[0], items, f"{name}.value")]
            return part(AvroKind.MAP, offsets.buffers()[1], begin=offsets.offset, parts=entry)
        case "enum", _:
            return leaf(AvroKind.INT, symbol_indexes(values, type_.symbols, name))
        case "fixed", "decimal":
            fixed = _fixed_decimals(type_, values, name)
            return leaf(AvroKind.FIXED, fixed, number=type_.size)
        case "fixed", _:
            return leaf(
                AvroKind.FIXED, cast(values, pa.binary(type_.size), name), number=type_.size
            )
        case _, "timestamp-millis" | "local-timestamp-millis":
            floor = pc.floor_temporal(values, unit="millisecond")
            return leaf(AvroKind.LONG, floor.cast(pa.timestamp("ms", values.type.tz)))
    return leaf(KINDS[type_.kind], values, flag=type_.logical == "decimal")


def _part_of_union(type_: Type, values: pa.Array, name: str) -> Part:
    """Each row has the branch that is not null; of a union of numbers, the wider one."""
    rows, kind = len(values), type_.arrow
    members = iter(values.flatten() if type_.has_members else [values] * len(type_.branches))
    codes, indexes = pa.nulls(rows, pa.int8()), pa.nulls(rows, pa.int32())
    parts = []
    for code, branch in enumerate(type_.parts):
        if branch.kind == "null":
            member, mask = values, values.is_null()
        else:
            member = next(members)
            if len(type_.branches) > 1 and not type_.has_members and branch.arrow != kind:
                member = pa.nulls(rows, branch.arrow)
            mask = member.is_valid()
        if pc.any(pc.and_(mask, codes.is_valid())).as_py():
            raise ConfigError(f"Field {name} has a value in more than one member.")
        parts.append(part_of(branch, member.filter(mask), name))
        codes = pc.if_else(mask, pa.scalar(code, pa.int8()), codes)
        order = pc.subtract(pc.cumulative_sum(mask.cast(pa.int32())), pa.scalar(1, pa.int32()))
        indexes = pc.if_else(mask, order, indexes)
    check_no_nulls(codes, name, in_words(type_))
    return part(AvroKind.UNION, codes.buffers()[1], indexes.buffers()[1], codes.offset, parts=parts)


def _fixed_decimals(type_: Type, values: pa.Array, name: str) -> pa.Array:
    put = _put_of_decimal(type_, name)

    def fixed(value: Decimal) -> bytes:
        datum = bytearray()
        put(datum, value)
        return bytes(datum)

    return pa.array(map(fixed, values.to_pylist()), pa.binary(type_.size))


# -- defaults ------------------------------------------------------------------------------------


def default_of(field: Field, name: str) -> pa.Array:
    """An array with it."""
    if not field.has_default:
        raise Undecodable(f"Field {name} is missing, and has no default.")
    try:
        return pa.array([_value(field.type, field.default)], field.type.arrow)
    except (TypeError, ArithmeticError, ValueError, LookupError, AttributeError) as error:
        raise Undecodable(f"The default of {name} is of another type: {error}.") from None


_IN_JSON: Final[Mapping[str, type | tuple[type, ...]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "enum": str,
}


def _value(type_: Type, default: Any) -> Any:
    """A default in JSON, for PyArrow."""
    match type_.kind:
        case "union":
            return _value_of_union(type_, default)
        case "record":
            return {
                field.name: _value(field.type, default.get(field.name, field.default))
                for field in type_.fields
            }
        case "array":
            return [_value(type_.parts[0], item) for item in default]
        case "map":
            return [(key, _value(type_.parts[0], item)) for key, item in default.items()]
        case "bytes" | "fixed":
            raw = default.encode("latin-1")
            if type_.logical != "decimal":
                return raw
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-type_.digits[1])
    fits = isinstance(default, _IN_JSON[type_.kind])
    if not fits or (isinstance(default, bool) and type_.kind != "boolean"):
        raise TypeError(f"{default!r} is no {type_.kind}")
    return 1000 * default if type_.logical.endswith("-millis") else default


def _value_of_union(type_: Type, default: Any) -> Any:
    """Return a default of the first branch, or null."""
    if default is None and type_.may_be_null:
        return None
    member = _value(type_.branches[0], default)
    return {"member0": member} if type_.has_members else member


def default_datum(field: Field, name: str) -> bytes:
    """The default of a field as a datum of its type. Raises Undecodable."""
    datum = bytearray()
    try:
        put_of(field.type, name)(datum, default_of(field, name)[0].as_py())
    except ConfigError as error:
        raise Undecodable(f"The default of {name} is of another type: {error}") from None
    return bytes(datum)
