"""Rows as datums of Avro, and the defaults of a schema, which are datums as well."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

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
    member_name,
    parse_record,
)
from jetspark.payloads.decoder import Undecodable
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
from jetspark.payloads.framing import varint
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.kernel import avro_datums

if TYPE_CHECKING:
    from jetspark.wire.kernel import ColumnTree

_MIN_KERNEL_ROWS: Final = 30
"""With fewer rows, writing value by value is faster than building a tree for the kernel."""
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


class AvroEncoder:
    """Encodes rows as Avro payloads of one schema, each of them a datum: a value without the
    schema."""

    def __init__(self, schema: PayloadSchema) -> None:
        """Parse the schema. Raises ConfigError if it cannot be used."""
        self.fields = fields_of(schema)
        self._record = parse_record(schema)

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return an Avro payload for each row. A field without a column has its default, or is
        null."""
        columns = [self._column_or_default(field, rows) for field in self._record.fields]
        if avro_datums is None or len(rows) < _MIN_KERNEL_ROWS:
            return self._encode_by_value(columns, len(rows))
        fields = [
            build_tree(field.type, values, field.name)
            for field, values in zip(self._record.fields, columns, strict=True)
        ]
        return write_records(avro_datums, len(rows), column_tree(AvroKind.RECORD, children=fields))

    def _encode_by_value(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        """Encode rows in Python, value by value: if there is no C kernel, or for few rows.
        `columns`: one for each field of the record; `rows`: how many there are."""
        try:
            values = [column.to_pylist() for column in columns]
        except (ValueError, OverflowError):
            raise ConfigError("A time is not of the years 1 to 9999.") from None
        payloads = []
        for row in range(rows):
            datum = bytearray()
            for field, column in zip(self._record.fields, values, strict=True):
                append_value(datum, field.type, column[row], field.name)
            payloads.append(bytes(datum))
        return payloads

    def _column_or_default(self, field: Field, rows: pa.RecordBatch) -> pa.Array:
        """Return the column that the rows have for a field. If they have none, return a column of
        the field's default, or of nulls if it has no default and may be null."""
        if field.name in rows.schema.names:
            return rows.column(field.name)
        if field.type.may_be_null and not field.has_default:
            return pa.nulls(len(rows), field.type.arrow)
        return default_array(field, field.name).take(pa.repeat(0, len(rows)))


# -- value by value ------------------------------------------------------------------------------


def encode_long(number: int) -> bytes:
    """Encode a whole number as Avro's zigzag varint."""
    return varint((number << 1) ^ (number >> 63))


def append_value(datum: bytearray, type_: Type, value: Any, name: str) -> None:
    """Append a value to a datum: the bytes of an Avro payload, as far as they are written.

    `value`: as PyArrow's `as_py` returns it; `name`: the field's, for errors. Raises ConfigError
    for a value that does not fit the type.
    """
    if type_.kind == "union":
        _append_union(datum, type_, value, name)
        return
    if value is None and type_.kind != "null":
        type_name = type_.logical or type_.kind
        raise ConfigError(f"Field {name} is null, and the schema has {type_name}.")
    match type_.kind:
        case "null":
            pass
        case "boolean":
            datum.append(value)
        case "int" | "long":
            datum += encode_long(_whole_number(value, type_.logical))
        case "float":
            datum += struct.pack("<f", value)
        case "double":
            datum += struct.pack("<d", value)
        case "enum":
            try:
                datum += encode_long(type_.symbols.index(value))
            except ValueError:
                expected = f"one of {', '.join(type_.symbols)}"
                raise misfit_error(name, value, expected) from None
        case "fixed":
            datum += _fixed_bytes(type_, value, name)
        case "bytes":
            is_decimal = type_.logical == "decimal"
            _append_bytes(datum, _decimal_bytes(type_, value, name) if is_decimal else value)
        case "string":
            _append_bytes(datum, value.encode())
        case _:
            _append_nested(datum, type_, value, name)


def _append_nested(datum: bytearray, type_: Type, value: Any, name: str) -> None:
    """Append an array, a map or a record to a datum; arguments and errors as in append_value."""
    match type_.kind:
        case "array":  # one block of all items behind their number, then an empty block
            if value:
                datum += encode_long(len(value))
            item_type, item_name = type_.parts[0], f"{name}.element"
            for item in value:
                append_value(datum, item_type, item, item_name)
            datum.append(0)
        case "map":
            if value:
                datum += encode_long(len(value))
            item_type, item_name = type_.parts[0], f"{name}.value"
            for key, item in value:
                _append_bytes(datum, key.encode())
                append_value(datum, item_type, item, item_name)
            datum.append(0)
        case "record":
            for field in type_.fields:
                append_value(datum, field.type, value[field.name], f"{name}.{field.name}")


def _append_bytes(datum: bytearray, value: bytes) -> None:
    """Append bytes, behind their length."""
    datum += encode_long(len(value))
    datum += value


def _whole_number(value: Any, logical: str) -> int:
    """Return the number that Avro stores as an int or a long: of a date the days since 1970, of a
    time the micro- or milliseconds. `logical`: Avro's logical type; "": the value is a number."""
    if not logical:
        return int(value)
    if logical == "date":
        days: int = value.toordinal() - _FIRST_DAY
        return days
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    micros: int = (value - _EPOCH) // _MICROSECOND
    return micros // 1000 if logical.endswith("millis") else micros


def _fixed_bytes(type_: Type, value: Any, name: str) -> bytes:
    """Return the bytes that Avro stores for a value of a fixed type. Raises ConfigError for a value
    that does not have the size of the type."""
    if type_.logical == "decimal":
        return _decimal_bytes(type_, value, name)
    if len(value) != type_.size:
        raise ConfigError(f"Field {name} has {len(value)} bytes, and the schema has {type_.size}.")
    return bytes(value)


def _decimal_bytes(type_: Type, value: Decimal, name: str) -> bytes:
    """Return the unscaled number of a decimal (1250 for 12.50) as a big-endian two's complement: in
    the size of a fixed type, or else in as few bytes as it needs."""
    number = int(value.scaleb(type_.digits[1]))
    bits = (number ^ number >> 127).bit_length()  # without the sign
    size = type_.size if type_.kind == "fixed" else bits // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ConfigError(f"Field {name}: a number needs more than {size} bytes.") from None


def _append_union(datum: bytearray, type_: Type, value: Any, name: str) -> None:
    """Append a value of a union to a datum: the number of its branch, then the value.

    `value`: where Spark has the union as a STRUCT of its branches, a dict in which at most one
    member is not null; else the value itself.
    """
    values = list((value or {}).values()) if type_.has_members else [value]
    not_null = [at for at, member in enumerate(values) if member is not None]
    if len(not_null) > 1:
        raise ConfigError(f"Field {name} has a value in more than one member.")
    if not_null:
        number, branch = type_.written_branches[not_null[0]]
        datum += encode_long(number)
        append_value(datum, branch, values[not_null[0]], name)
    elif type_.may_be_null:
        datum += encode_long([part.kind for part in type_.parts].index("null"))
    else:
        raise ConfigError(f"Field {name} is null, and the schema has {in_words(type_)}.")


# -- columns for the C kernel --------------------------------------------------------------------


def build_tree(type_: Type, values: pa.Array, name: str) -> ColumnTree:
    """Return a column, with the columns in it, in the form that the C kernel encodes as a type of
    Avro.

    `name`: the field's, for errors. Raises ConfigError for a value that does not fit the type.
    """
    if type_.kind == "union":
        return _build_union_tree(type_, values, name)
    if type_.kind == "null":
        return column_tree(AvroKind.NULL)
    check_no_nulls(values, name, type_.logical or type_.kind)
    match type_.kind, type_.logical:
        case "record", _:
            fields = zip(type_.fields, values.flatten(), strict=True)
            children = [
                build_tree(field.type, child, f"{name}.{field.name}") for field, child in fields
            ]
            return column_tree(AvroKind.RECORD, children=children)
        case "array", _:
            offsets, items = offsets_and_items(values)
            children = [build_tree(type_.parts[0], items, f"{name}.element")]
            return column_tree(
                AvroKind.ARRAY, offsets.buffers()[1], begin=offsets.offset, children=children
            )
        case "map", _:
            offsets, entries = offsets_and_items(values)
            keys, items = entries.flatten()
            children = [
                leaf_tree(AvroKind.BYTES, keys),
                build_tree(type_.parts[0], items, f"{name}.value"),
            ]
            return column_tree(
                AvroKind.MAP, offsets.buffers()[1], begin=offsets.offset, children=children
            )
        case "enum", _:
            return leaf_tree(AvroKind.INT, symbol_indexes(values, type_.symbols, name))
        case "fixed", "decimal":
            digits = (_decimal_bytes(type_, value, name) for value in values.to_pylist())
            fixed = pa.array(digits, pa.binary(type_.size))
            return leaf_tree(AvroKind.FIXED, fixed, number=type_.size)
        case "fixed", _:
            fixed = cast(values, pa.binary(type_.size), name)
            return leaf_tree(AvroKind.FIXED, fixed, number=type_.size)
        case _, "timestamp-millis" | "local-timestamp-millis":
            floor = pc.floor_temporal(values, unit="millisecond")
            return leaf_tree(AvroKind.LONG, floor.cast(pa.timestamp("ms", values.type.tz)))
    # The flag: the values are decimals, of which the kernel writes the digits.
    return leaf_tree(KINDS[type_.kind], values, flag=type_.logical == "decimal")


def _build_union_tree(type_: Type, values: pa.Array, name: str) -> ColumnTree:
    """Return the column of a union in the form that the C kernel encodes; each row has the one
    branch that is not null.

    The kernel takes the number of each row's branch, the row's index in the column of that branch,
    and for each branch a column without the rows of other branches.
    """
    members = iter(values.flatten() if type_.has_members else [values] * len(type_.branches))
    # Of int and long Spark has one BIGINT.
    is_number = len(type_.branches) > 1 and not type_.has_members
    branch_of_row = pa.nulls(len(values), pa.int8())
    index_in_branch = pa.nulls(len(values), pa.int32())
    children = []
    for number, branch in enumerate(type_.parts):
        if branch.kind == "null":
            member, has_branch = values, values.is_null()
        else:
            member = next(members)
            if is_number and branch.arrow != type_.arrow:  # the wider branch takes all of them
                member = pa.nulls(len(values), branch.arrow)
            has_branch = member.is_valid()
        if pc.any(pc.and_(has_branch, branch_of_row.is_valid())).as_py():
            raise ConfigError(f"Field {name} has a value in more than one member.")
        children.append(build_tree(branch, member.filter(has_branch), name))
        branch_of_row = pc.if_else(has_branch, pa.scalar(number, pa.int8()), branch_of_row)
        count = pc.cumulative_sum(has_branch.cast(pa.int32()))
        index = pc.subtract(count, pa.scalar(1, pa.int32()))
        index_in_branch = pc.if_else(has_branch, index, index_in_branch)
    check_no_nulls(branch_of_row, name, in_words(type_))
    return column_tree(
        AvroKind.UNION,
        branch_of_row.buffers()[1],
        index_in_branch.buffers()[1],
        branch_of_row.offset,
        children=children,
    )


# -- defaults ------------------------------------------------------------------------------------


def default_array(field: Field, name: str) -> pa.Array:
    """Return an array of one value, a field's default. Raises Undecodable if it has no valid
    one."""
    if not field.has_default:
        raise Undecodable(f"Field {name} is missing, and has no default.")
    try:
        return pa.array([_parse_default(field.type, field.default)], field.type.arrow)
    except (TypeError, ArithmeticError, ValueError, LookupError, AttributeError) as error:
        raise Undecodable(f"The default of {name} is of another type: {error}.") from None


def default_datum(field: Field, name: str) -> bytes:
    """Return a field's default as it would be written in an Avro payload. Raises Undecodable if it
    has no valid one."""
    datum = bytearray()
    try:
        append_value(datum, field.type, default_array(field, name)[0].as_py(), name)
    except ConfigError as error:
        raise Undecodable(f"The default of {name} is of another type: {error}") from None
    return bytes(datum)


_TYPES_IN_JSON: Final[Mapping[str, type | tuple[type, ...]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "enum": str,
}


def _parse_default(type_: Type, default: Any) -> Any:
    """Convert a default, as a schema has it in JSON, to a value for PyArrow. Raises TypeError,
    ValueError and the like for a default that is no value of the type."""
    match type_.kind:
        case "union":  # its default is one of the first branch, or null
            if default is None and type_.may_be_null:
                return None
            member = _parse_default(type_.branches[0], default)
            return {member_name(0): member} if type_.has_members else member
        case "record":
            return {
                field.name: _parse_default(field.type, default.get(field.name, field.default))
                for field in type_.fields
            }
        case "array":
            return [_parse_default(type_.parts[0], item) for item in default]
        case "map":
            return [(key, _parse_default(type_.parts[0], item)) for key, item in default.items()]
        case "bytes" | "fixed":  # in JSON a text, each of whose characters is a byte
            raw = default.encode("latin-1")
            if type_.logical != "decimal":
                return raw
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-type_.digits[1])
    fits = isinstance(default, _TYPES_IN_JSON[type_.kind])
    if not fits or (isinstance(default, bool) and type_.kind != "boolean"):
        raise TypeError(f"{default!r} is no {type_.kind}")
    # Columns of times are in microseconds.
    return 1000 * default if type_.logical.endswith("-millis") else default
