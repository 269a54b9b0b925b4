"""Values of Kafka Connect as Arrow columns, by their schemas (`connect_schema`).

A schema compiles to columns of the JSON decoder, the *carriers*, and to conversions of whole
columns for the types that JSON lacks: an `io.debezium.time.Date` travels as a BIGINT, of which the
conversion makes a DATE. The columns of an Avro event are converted in the same way.

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

from jetspark.payloads.connect_schema import (
    CLOCK_NANOS,
    DATES,
    DECIMAL,
    TIMESTAMP_NANOS,
    VARIABLE_SCALE_DECIMAL,
    Schema,
)
from jetspark.payloads.ddl import spark_type_name
from jetspark.payloads.decoder import replace_rows
from jetspark.payloads.encoder import offsets_and_items
from jetspark.payloads.exact import cast_exactly, decimal_texts, decimals_from_bytes
from jetspark.payloads.json_columns import (
    BadValue,
    build_column,
    misfit_text,
    null_rows,
    rows_of_items,
)
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.years import DAY_SECONDS, FIRST_DAY, FIRST_MICROS, LAST_DAY, LAST_MICROS

Convert: TypeAlias = Callable[[pa.Array], tuple[pa.Array, list[BadValue]]]
"""Converts a carrier to a column, and says which values do not fit."""

_MICROSECOND, _SECOND = 10**3, 10**9
"""Nanoseconds of these."""
_UTC: Final = pa.timestamp("us", tz="UTC")
_UNSCALED: Final = pa.struct([("value", pa.binary()), ("scale", pa.int32())])
"""The carrier of a VariableScaleDecimal."""
_BEYOND_MICROS: Final = r"\.[0-9]{6}[0-9]*[1-9]"
_OFFSET: Final = r"[Tt ].*[+-][0-9]{2}:?[0-9]{2}$"
_ZERO_OFFSET: Final = r"[+-]00:?00$"
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


class ConnectDecoder:
    """Decodes JSON objects, whose fields have schemas of Kafka Connect, into columns.

    A decimal may be a number instead of its bytes in base64 (`decimal.format=NUMERIC`), and a date
    a text instead of days (`time.precision.mode=isostring`). A record that does not fit is decoded
    again, column by column and in both forms.
    """

    def __init__(self, fields: pa.Schema, schemas: Mapping[str, Schema | None]) -> None:
        """`fields`: the columns; `schemas`: Connect's schema of each. Of a field without one, the
        type of its column says what its values are."""
        readings = [compile_reading(f.type, schemas.get(f.name)) for f in fields]
        text_readings = [compile_reading(f.type, schemas.get(f.name), as_text=True) for f in fields]
        self._all = _CarrierDecoder(list(fields), readings)
        self._by_field: list[tuple[_CarrierDecoder, _CarrierDecoder | None]] = []
        """A decoder of each field alone, and one of its other form; empty: no field has one."""
        if any(a.carrier != b.carrier for a, b in zip(readings, text_readings, strict=True)):
            for field, reading, text_reading in zip(fields, readings, text_readings, strict=True):
                has_form = reading.carrier != text_reading.carrier
                text_decoder = _CarrierDecoder([field], [text_reading]) if has_form else None
                self._by_field.append((_CarrierDecoder([field], [reading]), text_decoder))

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns, and for each payload why it does not fit, or null."""
        columns, reasons = self._all.decode(payloads)
        is_bad = pc.is_valid(reasons)
        if not self._by_field or reasons.null_count == len(reasons):
            return columns, reasons
        decoded_again = self._decode_by_field(payloads.filter(is_bad))
        return replace_rows((columns, reasons), decoded_again, is_bad)

    def _decode_by_field(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode payloads field by field; the values that do not fit are tried in the field's other
        form: a decimal as a number, a date as a text. Return the columns and reasons, as
        `decode`."""
        columns, reasons = [], pa.nulls(len(payloads), pa.string())
        for decoder, text_decoder in self._by_field:
            column, problems = decoder.decode(payloads)
            if text_decoder is not None and problems.null_count < len(problems):
                is_bad = pc.is_valid(problems)
                second = text_decoder.decode(payloads.filter(is_bad))
                column, problems = replace_rows((column, problems), second, is_bad)
            columns += column
            reasons = pc.coalesce(reasons, problems)
        return columns, reasons


class _CarrierDecoder:
    """Decodes fields of JSON objects in two steps: into carriers, which are columns of types that
    JSON has, and these into the columns that are wanted."""

    def __init__(self, fields: Sequence[pa.Field], readings: Sequence[Reading]) -> None:
        """`fields`: the columns that are wanted; `readings`: how values become each of them."""
        self._fields, self._readings = fields, readings
        carriers = [
            pa.field(field.name, reading.carrier)
            for field, reading in zip(fields, readings, strict=True)
        ]
        self._json = JsonDecoder(pa.schema(carriers))

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns, and for each payload why it does not fit, or null."""
        carriers, reasons = self._json.decode(payloads)
        return convert_columns(self._fields, self._readings, carriers, reasons)


def convert_columns(
    fields: Sequence[pa.Field],
    readings: Sequence[Reading],
    carriers: Sequence[pa.Array],
    reasons: pa.StringArray,
) -> tuple[list[pa.Array], pa.StringArray]:
    """Convert carriers (columns as they were decoded) to the columns of `fields`, as `readings`
    say. A row with a value that does not fit gets a reason, unless it has one, and null in that
    column."""
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
    """How values become a column."""

    carrier: pa.DataType
    """The column that JSON values are decoded into."""
    convert: Convert | None = None
    """Converts the carrier; None: it is the column."""


def compile_reading(kind: pa.DataType, schema: Schema | None, *, as_text: bool = False) -> Reading:
    """Return how values with a schema of Kafka Connect become a column of the type `kind`.

    `as_text`: whether they come in their other form: decimals as numbers, and dates as texts.
    """
    schema = schema or {}
    if pa.types.is_struct(kind):
        schemas = {field["field"]: field for field in schema.get("fields", ())}
        readings = [compile_reading(f.type, schemas.get(f.name), as_text=as_text) for f in kind]
        carrier = pa.struct([(f.name, r.carrier) for f, r in zip(kind, readings, strict=True)])
        convert = partial(_convert_struct, kind=kind, readings=readings)
        return Reading(carrier, convert if any(r.convert for r in readings) else None)
    if pa.types.is_list(kind):
        item = compile_reading(kind.value_type, schema.get("items"), as_text=as_text)
        convert = partial(_convert_list, kind=kind, item=item)
        return Reading(pa.list_(item.carrier), convert if item.convert else None)
    if pa.types.is_map(kind):
        item = compile_reading(kind.item_type, schema.get("values"), as_text=as_text)
        convert = partial(_convert_map, kind=kind, item=item)
        return Reading(pa.map_(kind.key_type, item.carrier), convert if item.convert else None)
    carrier, convert_type = _compile_value(kind, schema, as_text=as_text)
    if convert_type is None:
        return Reading(carrier)
    return Reading(carrier, partial(_convert_values, kind=kind, convert_type=convert_type))


_ConvertType: TypeAlias = "Callable[[pa.Array, pa.DataType], pa.Array]"
"""Converts a carrier to a type, with null for each value that does not fit."""


def _compile_value(
    kind: pa.DataType, schema: Schema, *, as_text: bool
) -> tuple[pa.DataType, _ConvertType | None]:
    """Return for values that are not nested the carrier, which is the type they are decoded to
    first, and the function that converts it to `kind`; None: nothing is to be converted."""
    name, is_integer = schema.get("name"), pa.types.is_integer(kind)
    is_number = is_integer or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if name == DECIMAL and not is_integer:
        if as_text:
            return pa.string(), _parse_numbers
        scale = int(schema.get("parameters", {}).get("scale", 0))
        return pa.binary(), partial(_scale_bytes, scale=scale)
    if name == VARIABLE_SCALE_DECIMAL and not is_integer:
        return _UNSCALED, _scale_structs
    if not is_number:  # a column of numbers has a time as it came
        if name in DATES:
            return (pa.string(), _parse_dates) if as_text else (pa.int64(), _convert_days)
        if name in TIMESTAMP_NANOS:
            return pa.int64(), partial(_convert_timestamps, unit=TIMESTAMP_NANOS[name])
        if name in CLOCK_NANOS:
            return pa.int64(), partial(_convert_clocks, unit=CLOCK_NANOS[name])
    if schema.get("type") == "bytes" and not is_integer and kind not in (pa.binary(), pa.string()):
        # Bytes are no value of another type: none fits.
        return pa.binary(), lambda values, kind: pa.nulls(len(values), kind)
    if pa.types.is_date(kind):
        return pa.string(), _parse_dates
    if pa.types.is_timestamp(kind):
        return pa.string(), _parse_timestamps
    if pa.types.is_floating(kind) and schema.get("type") in (None, "string"):
        return pa.string(), _parse_numbers
    return kind, None


# -- nested columns ------------------------------------------------------------------------------


def _convert_child(
    values: pa.Array, reading: Reading, kind: pa.DataType
) -> tuple[pa.Array, list[BadValue]]:
    """Convert the carrier of a column within another one. Return the column, and the values that do
    not fit."""
    return (cast_exactly(values, kind), []) if reading.convert is None else reading.convert(values)


def _convert_struct(
    values: pa.StructArray, kind: pa.StructType, readings: Sequence[Reading]
) -> tuple[pa.Array, list[BadValue]]:
    """Convert the carrier of a STRUCT field by field. Return the column, and the values that do not
    fit, with their paths."""
    columns, bad_values = [], []
    by_name = dict(zip(values.type.names, values.flatten(), strict=True))
    for field, reading in zip(kind, readings, strict=True):
        column, bad = _convert_child(by_name[field.name], reading, field.type)
        columns.append(column)
        bad_values += [value._replace(path=f".{field.name}{value.path}") for value in bad]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null()), bad_values


def _convert_list(
    values: pa.ListArray, kind: pa.ListType, item: Reading
) -> tuple[pa.Array, list[BadValue]]:
    """Convert the carrier of an ARRAY: its items. Return the column, and the items that do not fit,
    with the rows that they are in."""
    offsets, items = offsets_and_items(values)
    items, bad_values = _convert_child(items, item, kind.value_type)
    column = pa.ListArray.from_arrays(offsets, items, type=kind, mask=values.is_null())
    return column, rows_of_items(bad_values, offsets.to_pylist(), lambda _, at: f"[{at}]")


def _convert_map(
    values: pa.MapArray, kind: pa.MapType, item: Reading
) -> tuple[pa.Array, list[BadValue]]:
    """Convert the carrier of a MAP: its values; the keys stay. Return the column, and the values
    that do not fit, with the rows that they are in."""
    offsets, entries = offsets_and_items(values)
    keys, items = entries.flatten()
    items, bad_values = _convert_child(items, item, kind.item_type)
    column = pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())
    return column, rows_of_items(
        bad_values, offsets.to_pylist(), lambda start, at: f"[{keys[start + at].as_py()!r}]"
    )


# -- single values -------------------------------------------------------------------------------


def _convert_values(
    values: pa.Array, kind: pa.DataType, convert_type: _ConvertType
) -> tuple[pa.Array, list[BadValue]]:
    """Convert values that are not nested. Return the column, which is null for values that do not
    fit, and a description of these."""
    column = convert_type(values, kind)
    is_bad = pc.and_(values.is_valid(), column.is_null())
    name = spark_type_name(kind).upper()
    bad_values = []
    for row in pc.indices_nonzero(is_bad).to_pylist():
        value = values[row].as_py()
        hint = ""
        if isinstance(value, str) and value.isdigit() and pa.types.is_timestamp(kind):
            hint = ", since only a schema says the unit of a number"
        bad_values.append(BadValue(row, "", misfit_text(_carrier_json(value), name, hint)))
    return column, bad_values


def _carrier_json(value: Any) -> bytes:
    """Return the JSON that a carrier's value came from, for errors: a text that is a number came as
    one."""
    if isinstance(value, str) and pc.match_substring_regex(value, _NUMBER).as_py():
        return value.encode()
    return msgspec.json.encode(value)


def _keep(values: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """Return the values where `mask` is true, and null elsewhere."""
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _keep_between(values: pa.Array, first: int, last: int) -> pa.Array:
    """Return the values from `first` to `last`, and null in place of others."""
    return _keep(values, pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last)))


def _divide_exactly(values: pa.Array, divisor: int) -> pa.Array:
    """Return the quotients, and null where there is a remainder."""
    quotients = pc.divide(values, divisor)
    return _keep(quotients, pc.equal(pc.multiply(quotients, divisor), values))


def _convert_days(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert days since 1970 to dates, or to texts of dates. A day outside of the years 1 to 9999
    becomes null."""
    days = _keep_between(values.cast(pa.int64()), FIRST_DAY, LAST_DAY)
    dates = days.cast(pa.int32()).cast(pa.date32())
    return dates.cast(kind) if kind in (pa.date32(), pa.string()) else pa.nulls(len(values), kind)


def _convert_timestamps(values: pa.Array, kind: pa.DataType, unit: int) -> pa.Array:
    """Convert times since 1970 to timestamps, dates (of times at midnight) or texts, and to null
    what does not fit exactly. `unit`: the nanoseconds that each counts for."""
    values = values.cast(pa.int64())
    if pa.types.is_string(kind) and unit < _MICROSECOND:
        texts = values.cast(pa.timestamp("ns")).cast(kind)
        # Whole microseconds have six digits.
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})000$", r"\1")
    else:
        if unit < _MICROSECOND:
            micros = _divide_exactly(values, _MICROSECOND)
        else:
            factor = unit // _MICROSECOND
            # So that the product is in the years 1 to 9999.
            values = _keep_between(values, -(-FIRST_MICROS // factor), LAST_MICROS // factor)
            micros = pc.multiply(values, factor)
        if pa.types.is_timestamp(kind):
            return micros.cast(kind)
        if pa.types.is_date(kind):
            return _divide_exactly(micros, DAY_SECONDS * 10**6).cast(pa.int32()).cast(kind)
        if not pa.types.is_string(kind):
            return pa.nulls(len(values), kind)
        texts = micros.cast(pa.timestamp("us")).cast(kind)
    texts = pc.replace_substring(texts, " ", "T")
    return pc.replace_substring_regex(texts, r"\.000000$", "")


def _convert_clocks(values: pa.Array, kind: pa.DataType, unit: int) -> pa.Array:
    """Convert times of day to texts such as 12:34:56.000001. A span of time, as MySQL has them, may
    be negative, or many hours. `unit`: the nanoseconds that each counts for."""
    if not pa.types.is_string(kind):
        return pa.nulls(len(values), kind)
    lowest = -(2**63) + 1  # the amount of -2**63 would be no BIGINT
    amounts = pc.abs(_keep_between(values.cast(pa.int64()), lowest, -lowest))
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
    # Nanoseconds, or a fraction at all, are written where there are any.
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})000$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.000000$", "")
    sign = pc.if_else(pc.less(values, 0), "-", "")
    return pc.binary_join_element_wise(sign, texts, "")


def _scale_bytes(values: pa.Array, kind: pa.DataType, scale: int) -> pa.Array:
    """Convert decimals of one scale to a type: their unscaled numbers in bytes, or (from Avro)
    decimals. What does not fit becomes null."""
    if pa.types.is_decimal(kind):
        if pa.types.is_decimal(values.type):
            return cast_exactly(values, kind)
        if (decimals := decimals_from_bytes(values, scale, kind)) is not None:
            return decimals
    scales = pa.repeat(pa.scalar(scale, pa.int32()), len(values))
    return _scale_structs(pa.StructArray.from_arrays([values, scales], names=_UNSCALED.names), kind)


def _scale_structs(values: pa.StructArray, kind: pa.DataType) -> pa.Array:
    """Convert decimals that each have a scale beside their unscaled number to a type. What does not
    fit, or would be rounded, becomes null."""
    texts = decimal_texts(values.field("value"), values.field("scale"))
    texts = _keep(texts, values.is_valid())
    if pa.types.is_string(kind):
        return texts
    numbers = _parse_numbers(texts, kind)
    if not pa.types.is_floating(kind):
        return numbers
    pairs = zip(numbers.to_pylist(), texts.to_pylist(), strict=True)
    is_exact = [number is not None and Decimal(repr(number)) == Decimal(t) for number, t in pairs]
    return _keep(numbers, pa.array(is_exact, pa.bool_()))


def _parse_numbers(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert texts that are numbers, or words such as NaN, to a type; others become null."""
    is_number = pc.match_substring_regex(texts, _NUMBER)
    if pa.types.is_string(kind):
        return _keep(texts, is_number)
    if not pa.types.is_floating(kind) and not pa.types.is_decimal(kind):
        return pa.nulls(len(texts), kind)
    pairs = zip(texts.to_pylist(), is_number.to_pylist(), strict=True)
    return build_column(
        kind,
        [
            text if text is None else text.encode() if is_bare else msgspec.json.encode(text)
            for text, is_bare in pairs
        ],
    )


def _parse_texts(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert texts to a type as the JSON decoder converts a text of JSON; null where that takes
    none."""
    values = texts.to_pylist()
    return build_column(
        kind, [None if text is None else msgspec.json.encode(text) for text in values]
    )


def _parse_dates(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert texts such as 2026-01-31 or 2026-01-31Z to dates, or keep them as texts. What is no
    date becomes null."""
    dates = _parse_texts(pc.replace_substring_regex(texts, "([0-9])Z$", r"\1"), pa.date32())
    if pa.types.is_string(kind):
        return _keep(texts, dates.is_valid())
    return dates if pa.types.is_date(kind) else pa.nulls(len(texts), kind)


def _parse_timestamps(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert texts in ISO 8601 to timestamps; a time finer than microseconds becomes null. For a
    TIMESTAMP_NTZ a time has no offset, or a zero one."""
    is_bad = pc.match_substring_regex(texts, _BEYOND_MICROS)
    if kind.tz is None:
        is_zero = pc.match_substring_regex(texts, _ZERO_OFFSET)
        is_bad = pc.or_(is_bad, pc.and_not(pc.match_substring_regex(texts, _OFFSET), is_zero))
    return _parse_texts(_keep(texts, pc.invert(is_bad)), _UTC).cast(pa.int64()).cast(kind)
