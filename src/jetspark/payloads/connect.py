"""Kafka Connect's types as Arrow columns, and the names that Debezium gives to more types.

A schema is the JSON that Connect's converter writes: `{"type": "int64", "name": …, "field": …}`.
It compiles to columns of the JSON decoder, the *carriers*, and to conversions of whole columns for
the types that JSON lacks: an `io.debezium.time.Date` travels as a BIGINT, of which the conversion
makes a DATE. The columns of an Avro event are converted in the same way.

Without a schema a value is taken for what the column's type says, if it can only be that: a number
is no timestamp, since nothing tells its unit. A value that the column cannot have exactly makes a
bad record: nothing is rounded, cut or wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads.ddl import spark_type_name
from jetspark.payloads.decoder import replace_rows
from jetspark.payloads.encoder import offsets_and_items
from jetspark.payloads.exact import cast_exactly, decimal_texts, decimals_from_bytes
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_plain import (
    BadValue,
    build_column,
    misfit_text,
    null_rows,
    rows_of_items,
)
from jetspark.years import DAY_SECONDS, FIRST_DAY, FIRST_MICROS, LAST_DAY, LAST_MICROS

Schema: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[pa.Array], tuple[pa.Array, list[BadValue]]]

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_DECIMAL, _ANY_SCALE = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
_DATES = (f"{_CONNECT}Date", f"{_TIME}Date")
_MS, _US, _SECOND = 10**6, 10**3, 10**9
_MOMENTS = {f"{_CONNECT}Timestamp": _MS, f"{_TIME}Timestamp": _MS, f"{_TIME}MicroTimestamp": _US}
_MOMENTS |= {f"{_TIME}NanoTimestamp": 1}
"""Nanoseconds of the unit in which a timestamp counts from 1970."""
_CLOCKS = {f"{_CONNECT}Time": _MS, f"{_TIME}Time": _MS, f"{_TIME}MicroTime": _US}
_CLOCKS |= {f"{_TIME}NanoTime": 1}
"""Nanoseconds of the unit in which a time of day counts from midnight."""
_ZONED = f"{_TIME}ZonedTimestamp"
_PRIMITIVES = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "float": pa.float32(), "float32": pa.float32(), "double": pa.float64(),
    "float64": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
_FROM_AVRO = {"int": "int32", "long": "int64"}
_FROM_AVRO |= {name: name for name in _PRIMITIVES if "int" not in name}
_MAX_DIGITS: Final = 38
_UTC: Final = pa.timestamp("us", tz="UTC")
_UNSCALED: Final = pa.struct([("value", pa.binary()), ("scale", pa.int32())])
_BEYOND_MICROS: Final = r"\.[0-9]{6}[0-9]*[1-9]"
_OFFSET: Final = r"[Tt ].*[+-][0-9]{2}:?[0-9]{2}$"
_ZERO_OFFSET: Final = r"[+-]00:?00$"
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


# -- schemas -------------------------------------------------------------------------------------


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the type of a column. Times of day, numbers of any scale, and maps with keys that are
    no texts, which are lists of pairs in JSON, are texts.

    Raises ValueError for what is no schema.
    """
    kind, name = schema.get("type"), schema.get("name")
    if name == _DECIMAL:
        parameters = schema.get("parameters", {})
        scale = int(parameters.get("scale", 0))
        digits = int(parameters.get("connect.decimal.precision", _MAX_DIGITS)) - min(scale, 0)
        digits, scale = max(digits, scale), max(scale, 0)
        return pa.decimal128(digits, scale) if digits <= _MAX_DIGITS else pa.string()
    if name == _ANY_SCALE or name in _CLOCKS:
        return pa.string()
    if name in _DATES:
        return pa.date32()
    if name in _MOMENTS:
        return pa.timestamp("us")
    if name == _ZONED:
        return _UTC
    match kind:
        case "struct" if not schema["fields"]:
            raise ValueError("a struct without fields is no column")
        case "struct":
            return pa.struct([(field["field"], arrow_type(field)) for field in schema["fields"]])
        case "array":
            return pa.list_(arrow_type(schema["items"]))
        case "map" if arrow_type(schema["keys"]) != pa.string():
            return pa.string()
        case "map":
            return pa.map_(pa.string(), arrow_type(schema["values"]))
        case str() if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
    raise ValueError(f"{kind!r} is no type of Kafka Connect")


def days_schema(kind: pa.DataType) -> Schema | None:
    """Return the schema of values without one, where numbers for dates are days, as Debezium sends
    them; None for a type without dates."""
    if pa.types.is_date(kind):
        return {"type": "int32", "name": _DATES[0]}
    if pa.types.is_struct(kind):
        parts = [(field.name, days_schema(field.type)) for field in kind]
        fields = [{**schema, "field": name} for name, schema in parts if schema is not None]
        return {"type": "struct", "fields": fields} if fields else None
    if pa.types.is_list(kind) and (items := days_schema(kind.value_type)):
        return {"type": "array", "items": items}
    if pa.types.is_map(kind) and (values := days_schema(kind.item_type)):
        return {"type": "map", "values": values}
    return None


def schema_from_avro(avro: Any, records: dict[str, Schema] | None = None) -> Schema:
    """Return the schema that Connect's converter has written as one of Avro. Raises ValueError."""
    records = {} if records is None else records
    match avro:
        case list():
            (avro,) = [branch for branch in avro if branch != "null"]
            return schema_from_avro(avro, records)
        case str() if avro in _FROM_AVRO:
            return {"type": _FROM_AVRO[avro]}
        case str() if avro in records:
            return records[avro]
        case {"type": "record", "name": str(name), "fields": list(fields)}:
            schema: dict[str, Any] = {"type": "struct"}
            namespace = avro.get("namespace")
            records[name] = records[f"{namespace}.{name}"] = schema
            schema["fields"] = [
                {**schema_from_avro(field["type"], records), "field": field["name"]}
                for field in fields
            ]
        case {"type": "array", "items": items}:
            schema = {"type": "array", "items": schema_from_avro(items, records)}
        case {"type": "map", "values": values}:
            items = schema_from_avro(values, records)
            schema = {"type": "map", "keys": {"type": "string"}, "values": items}
        case {"type": "enum"}:
            schema = {"type": "string"}
        case {"type": inner}:
            schema = dict(schema_from_avro(inner, records))
        case _:
            raise ValueError(f"{avro!r} is no type of Avro")
    if "connect.name" in avro:
        schema["name"] = avro["connect.name"]
    match avro.get("logicalType"):
        case "decimal":
            digits = {"scale": avro.get("scale", 0), "connect.decimal.precision": avro["precision"]}
            schema |= {"name": _DECIMAL, "parameters": digits}
        case "timestamp-millis" | "timestamp-micros":
            schema["name"] = f"{_TIME}MicroTimestamp"
        case "date":
            schema["name"] = _DATES[0]
    return schema


# -- rows ----------------------------------------------------------------------------------------


class ConnectDecoder:
    """Decodes JSON objects with the schemas of their fields into columns.

    A decimal may be a number instead of its bytes in base64 (`decimal.format=NUMERIC`), and a date
    a text instead of days (`time.precision.mode=isostring`). A record that does not fit is decoded
    again, column by column and in both forms.
    """

    def __init__(self, fields: pa.Schema, schemas: Mapping[str, Schema | None]) -> None:
        """`schemas`: of the fields; the type of a field without one says what its values are."""
        parts = [(field, schemas.get(field.name)) for field in fields]
        readings = [compile_reading(field.type, schema) for field, schema in parts]
        text_readings = [
            compile_reading(field.type, schema, as_text=True) for field, schema in parts
        ]
        self._all = _Columns(list(fields), readings)
        self._singly: list[tuple[_Columns, _Columns | None]] = []
        if any(a.carrier != b.carrier for a, b in zip(readings, text_readings, strict=True)):
            for field, reading, text_reading in zip(fields, readings, text_readings, strict=True):
                is_ambiguous = reading.carrier != text_reading.carrier
                second = _Columns([field], [text_reading]) if is_ambiguous else None
                self._singly.append((_Columns([field], [reading]), second))

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns, and for each payload why it does not fit, or null."""
        columns, reasons = self._all.decode(payloads)
        is_bad = pc.is_valid(reasons)
        if not self._singly or reasons.null_count == len(reasons):
            return columns, reasons
        return replace_rows(
            (columns, reasons), self._decode_singly(payloads.filter(is_bad)), is_bad
        )

    def _decode_singly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        columns, reasons = [], pa.nulls(len(payloads), pa.string())
        for decoder, text_decoder in self._singly:
            column, problems = decoder.decode(payloads)
            if text_decoder is not None and problems.null_count < len(problems):
                is_bad = pc.is_valid(problems)
                second = text_decoder.decode(payloads.filter(is_bad))
                column, problems = replace_rows((column, problems), second, is_bad)
            columns += column
            reasons = pc.coalesce(reasons, problems)
        return columns, reasons


class _Columns:
    """Decodes fields of JSON objects by their carriers."""

    def __init__(self, fields: Sequence[pa.Field], readings: Sequence[Reading]) -> None:
        self._fields, self._readings = fields, readings
        carriers = [
            pa.field(field.name, reading.carrier)
            for field, reading in zip(fields, readings, strict=True)
        ]
        self._json = JsonDecoder(pa.schema(carriers))

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        carriers, reasons = self._json.decode(payloads)
        return convert_columns(self._fields, self._readings, carriers, reasons)


def convert_columns(
    fields: Sequence[pa.Field],
    readings: Sequence[Reading],
    carriers: Sequence[pa.Array],
    reasons: pa.StringArray,
) -> tuple[list[pa.Array], pa.StringArray]:
    """Convert decoded columns; a row with a value that does not fit gets a reason, and null."""
    columns: list[pa.Array] = []
    problems: dict[int, str] = {}
    for field, reading, carrier in zip(fields, readings, carriers, strict=True):
        if reading.convert is None:
            columns.append(cast_exactly(carrier, field.type))
            continue
        column, bad_values = reading.convert(carrier)
        for bad in bad_values:
            problems.setdefault(bad.row, f"{field.name}{bad.path}: {bad.problem}.")
        bad_rows = {bad.row for bad in bad_values}
        columns.append(null_rows(column, bad_rows) if bad_rows else column)
    if problems:
        texts = pa.array(map(problems.get, range(len(reasons))), pa.string())
        reasons = pc.coalesce(reasons, texts)
    return columns, reasons


@dataclass(frozen=True)
class Reading:
    """A way from values to a column."""

    carrier: pa.DataType
    """The column that JSON values are decoded into."""
    convert: Convert | None = None
    """Converts the carrier; None: it is the column."""


def compile_reading(kind: pa.DataType, schema: Schema | None, *, as_text: bool = False) -> Reading:
    """Return how values with this schema become a column of a type.

    `as_text`: from their other form, of decimals as numbers, of dates as texts.
    """
    schema = schema or {}
    if pa.types.is_struct(kind):
        schemas = {field["field"]: field for field in schema.get("fields", ())}
        parts = [compile_reading(f.type, schemas.get(f.name), as_text=as_text) for f in kind]
        carrier = pa.struct([(f.name, part.carrier) for f, part in zip(kind, parts, strict=True)])
        return _nested(carrier, partial(_convert_struct, kind=kind, parts=parts), parts)
    if pa.types.is_list(kind):
        part = compile_reading(kind.value_type, schema.get("items"), as_text=as_text)
        carrier = pa.list_(part.carrier)
        return _nested(carrier, partial(_convert_list, kind=kind, part=part), [part])
    if pa.types.is_map(kind):
        part = compile_reading(kind.item_type, schema.get("values"), as_text=as_text)
        carrier = pa.map_(kind.key_type, part.carrier)
        return _nested(carrier, partial(_convert_map, kind=kind, part=part), [part])
    carrier, function = _compile_value(kind, schema, as_text=as_text)
    if function is None:
        return Reading(carrier)
    return Reading(carrier, partial(_convert_values, kind=kind, function=function))


_Values: TypeAlias = "Callable[[pa.Array, pa.DataType], pa.Array]"
"""Converts a column into a type, with null for each value that does not fit."""


def _compile_value(
    kind: pa.DataType, schema: Schema, *, as_text: bool
) -> tuple[pa.DataType, _Values | None]:
    """Return the carrier of single values, and its conversion."""
    name, is_integer = schema.get("name"), pa.types.is_integer(kind)
    is_number = is_integer or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if name == _DECIMAL and not is_integer:
        if as_text:
            return pa.string(), _parse_numbers
        scale = int(schema.get("parameters", {}).get("scale", 0))
        return pa.binary(), partial(_scale_bytes, scale=scale)
    if name == _ANY_SCALE and not is_integer:
        return _UNSCALED, _scale_structs
    if not is_number:  # a column of numbers has a time as it came
        if name in _DATES:
            return (pa.string(), _parse_dates) if as_text else (pa.int64(), _convert_days)
        if name in _MOMENTS:
            return pa.int64(), partial(_convert_moments, unit=_MOMENTS[name])
        if name in _CLOCKS:
            return pa.int64(), partial(_convert_clocks, unit=_CLOCKS[name])
    if schema.get("type") == "bytes" and not is_integer and kind not in (pa.binary(), pa.string()):
        return pa.binary(), lambda values, kind: pa.nulls(len(values), kind)
    if pa.types.is_date(kind):
        return pa.string(), _parse_dates
    if pa.types.is_timestamp(kind):
        return pa.string(), _parse_timestamps
    if pa.types.is_floating(kind) and schema.get("type") in (None, "string"):
        return pa.string(), _parse_numbers
    return kind, None


# -- nested columns ------------------------------------------------------------------------------


def _nested(carrier: pa.DataType, convert: Convert, parts: Sequence[Reading]) -> Reading:
    return Reading(carrier, convert if any(part.convert for part in parts) else None)


def _convert_part(values: pa.Array, part: Reading, kind: pa.DataType) -> Any:
    return (cast_exactly(values, kind), []) if part.convert is None else part.convert(values)


def _convert_struct(
    values: pa.StructArray, kind: pa.StructType, parts: Sequence[Reading]
) -> tuple[pa.Array, list[BadValue]]:
    columns, bad_values = [], []
    by_name = dict(zip(values.type.names, values.flatten(), strict=True))
    for field, part in zip(kind, parts, strict=True):
        column, bad = _convert_part(by_name[field.name], part, field.type)
        columns.append(column)
        bad_values += [value._replace(path=f".{field.name}{value.path}") for value in bad]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null()), bad_values


def _convert_list(
    values: pa.ListArray, kind: pa.ListType, part: Reading
) -> tuple[pa.Array, list[BadValue]]:
    offsets, items = offsets_and_items(values)
    items, bad_values = _convert_part(items, part, kind.value_type)
    column = pa.ListArray.from_arrays(offsets, items, type=kind, mask=values.is_null())
    return column, rows_of_items(bad_values, offsets.to_pylist(), lambda _, at: f"[{at}]")


def _convert_map(
    values: pa.MapArray, kind: pa.MapType, part: Reading
) -> tuple[pa.Array, list[BadValue]]:
    offsets, entries = offsets_and_items(values)
    keys, items = entries.flatten()
    items, bad_values = _convert_part(items, part, kind.item_type)
    column = pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())
    return column, rows_of_items(
        bad_values, offsets.to_pylist(), lambda start, at: f"[{keys[start + at].as_py()!r}]"
    )


# -- single values -------------------------------------------------------------------------------


def _convert_values(
    values: pa.Array, kind: pa.DataType, function: _Values
) -> tuple[pa.Array, list[BadValue]]:
    column = function(values, kind)
    is_bad = pc.and_(values.is_valid(), column.is_null())
    name = spark_type_name(kind).upper()
    bad_values = []
    for row in pc.indices_nonzero(is_bad).to_pylist():
        value = values[row].as_py()
        hint = ""
        if isinstance(value, str) and value.isdigit() and pa.types.is_timestamp(kind):
            hint = ", since only a schema says the unit of a number"
        bad_values.append(BadValue(row, "", misfit_text(_json_of(value), name, hint)))
    return column, bad_values


def _json_of(value: Any) -> bytes:
    """The JSON of which a carrier has this value."""
    if isinstance(value, str) and pc.match_substring_regex(value, _NUMBER).as_py():
        return value.encode()
    return msgspec.json.encode(value)


def _keep(values: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _between(values: pa.Array, first: int, last: int) -> pa.Array:
    """The values from `first` to `last`, and null for others."""
    return _keep(values, pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last)))


def _divide(values: pa.Array, divisor: int) -> pa.Array:
    """The quotients, and null where there is a remainder."""
    quotients = pc.divide(values, divisor)
    return _keep(quotients, pc.equal(pc.multiply(quotients, divisor), values))


def _convert_days(values: pa.Array, kind: pa.DataType) -> pa.Array:
    days = _between(values.cast(pa.int64()), FIRST_DAY, LAST_DAY)
    dates = days.cast(pa.int32()).cast(pa.date32())
    return dates.cast(kind) if kind in (pa.date32(), pa.string()) else pa.nulls(len(values), kind)


def _convert_moments(values: pa.Array, kind: pa.DataType, unit: int) -> pa.Array:
    values = values.cast(pa.int64())
    if pa.types.is_string(kind) and unit < _US:
        texts = values.cast(pa.timestamp("ns")).cast(kind)
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})000$", r"\1")
    else:
        if unit < _US:
            micros = _divide(values, _US)
        else:
            factor = unit // _US
            values = _between(values, -(-FIRST_MICROS // factor), LAST_MICROS // factor)
            micros = pc.multiply(values, factor)
        if pa.types.is_timestamp(kind):
            return micros.cast(kind)
        if pa.types.is_date(kind):
            return _divide(micros, DAY_SECONDS * 10**6).cast(pa.int32()).cast(kind)
        if not pa.types.is_string(kind):
            return pa.nulls(len(values), kind)
        texts = micros.cast(pa.timestamp("us")).cast(kind)
    texts = pc.replace_substring(texts, " ", "T")
    return pc.replace_substring_regex(texts, r"\.000000$", "")


def _convert_clocks(values: pa.Array, kind: pa.DataType, unit: int) -> pa.Array:
    """Texts such as 12:34:56.000001. A span of time (MySQL) may be negative, or many hours."""
    if not pa.types.is_string(kind):
        return pa.nulls(len(values), kind)
    lowest = -(2**63) + 1
    amounts = pc.abs(_between(values.cast(pa.int64()), lowest, -lowest))
    seconds = pc.divide(amounts, _SECOND // unit)
    nanos = pc.multiply(pc.subtract(amounts, pc.multiply(seconds, _SECOND // unit)), unit)
    minutes = pc.divide(seconds, 60)
    hours = pc.divide(minutes, 60)
    parts = (
        hours,
        pc.subtract(minutes, pc.multiply(hours, 60)),
        pc.subtract(seconds, pc.multiply(minutes, 60)),
    )
    clock = [pc.utf8_lpad(part.cast(kind), 2, "0") for part in parts]
    fraction = pc.utf8_lpad(nanos.cast(kind), 9, "0")
    texts = pc.binary_join_element_wise(*clock, ":")
    texts = pc.binary_join_element_wise(texts, fraction, ".")
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})000$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.000000$", "")
    sign = pc.if_else(pc.less(values, 0), "-", "")
    return pc.binary_join_element_wise(sign, texts, "")


def _scale_bytes(values: pa.Array, kind: pa.DataType, scale: int) -> pa.Array:
    """Decimals of the bytes of their digits; those of Avro are decimals already."""
    if pa.types.is_decimal(kind):
        if pa.types.is_decimal(values.type):
            return cast_exactly(values, kind)
        if (decimals := decimals_from_bytes(values, scale, kind)) is not None:
            return decimals
    scales = pa.repeat(pa.scalar(scale, pa.int32()), len(values))
    return _scale_structs(pa.StructArray.from_arrays([values, scales], names=_UNSCALED.names), kind)


def _scale_structs(values: pa.StructArray, kind: pa.DataType) -> pa.Array:
    """Decimals that have their scale beside their digits."""
    texts = decimal_texts(values.field("value"), values.field("scale"))
    texts = _keep(texts, values.is_valid())
    if pa.types.is_string(kind):
        return texts
    numbers = _parse_numbers(texts, kind)
    if not pa.types.is_floating(kind):
        return numbers
    pairs = zip(numbers.to_pylist(), texts.to_pylist(), strict=True)
    is_same = [number is not None and Decimal(repr(number)) == Decimal(t) for number, t in pairs]
    return _keep(numbers, pa.array(is_same, pa.bool_()))


def _parse_numbers(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    is_number = pc.match_substring_regex(texts, _NUMBER)
    if pa.types.is_string(kind):
        return _keep(texts, is_number)
    if not pa.types.is_floating(kind) and not pa.types.is_decimal(kind):
        return pa.nulls(len(texts), kind)
    return build_column(
        kind,
        [
            text if text is None else text.encode() if is_plain else msgspec.json.encode(text)
            for text, is_plain in zip(texts.to_pylist(), is_number.to_pylist(), strict=True)
        ],
    )


def _parse(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    values = texts.to_pylist()
    return build_column(
        kind, [None if text is None else msgspec.json.encode(text) for text in values]
    )


def _parse_dates(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    dates = _parse(pc.replace_substring_regex(texts, "([0-9])Z$", r"\1"), pa.date32())
    if pa.types.is_string(kind):
        return _keep(texts, dates.is_valid())
    return dates if pa.types.is_date(kind) else pa.nulls(len(texts), kind)


def _parse_timestamps(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    is_bad = pc.match_substring_regex(texts, _BEYOND_MICROS)
    if kind.tz is None:
        is_zero = pc.match_substring_regex(texts, _ZERO_OFFSET)
        is_bad = pc.or_(is_bad, pc.and_not(pc.match_substring_regex(texts, _OFFSET), is_zero))
    return _parse(_keep(texts, pc.invert(is_bad)), _UTC).cast(pa.int64()).cast(kind)
