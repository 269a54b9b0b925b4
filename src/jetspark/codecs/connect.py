"""Types and values of Kafka Connect in JSON, with the names that Debezium gives to more than these.

A schema is the JSON that its converter writes: `{"type": "int64", "name": …, "field": …}`. Without
one a value is taken for what the column's type says, if it can only be that: a number is no
timestamp, since nothing tells its unit, and a text in base64 is no decimal.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

Schema = Mapping[str, Any]
Reader = Callable[[Any], Any]
"""A value of JSON as Arrow takes it. Raises ValueError, with a sentence, for one that is none."""

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_DECIMAL, _ANY_SCALE = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
_DATES = (f"{_CONNECT}Date", f"{_TIME}Date")
_MOMENTS = {f"{_CONNECT}Timestamp": 1000, f"{_TIME}Timestamp": 1000, f"{_TIME}MicroTimestamp": 1}
_MOMENTS |= {f"{_TIME}NanoTimestamp": 0}
_CLOCKS = {f"{_CONNECT}Time": 1000, f"{_TIME}Time": 1000, f"{_TIME}MicroTime": 1}
_CLOCKS |= {f"{_TIME}NanoTime": 0}
"""Microseconds of one; 0: there are a thousand in one microsecond."""
_ZONED = (f"{_TIME}ZonedTimestamp",)
_PLAIN = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "float": pa.float32(), "float32": pa.float32(), "double": pa.float64(),
    "float64": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
_OF_AVRO = {"int": "int32", "long": "int64"} | {name: name for name in _PLAIN if "int" not in name}
_DIGITS = 38
_MOST_SCALE = 20_000  # of PostgreSQL 16,383
_EPOCH, _FIRST = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_SHOWN = 80


class _Written(float):
    """A number with a point, and as it is written, since a decimal may have more digits."""

    def __init__(self, text: str) -> None:
        if self in (float("inf"), -float("inf")):
            raise ValueError(f"{text} is too large")
        self.text = text


decode_json = msgspec.json.Decoder(float_hook=_Written).decode


class _Micros(int):
    """Microseconds since 1970, which a schema says they are."""


def arrow_type(schema: Schema) -> pa.DataType:
    """The type of a column. Times of a day, and numbers of any scale, are text. Raises ValueError
    for what is no schema."""
    kind, name = schema.get("type"), schema.get("name")
    if name == _DECIMAL:
        given = schema.get("parameters", {})
        scale = int(given.get("scale", 0))
        digits = int(given.get("connect.decimal.precision", _DIGITS)) - min(scale, 0)
        digits, scale = max(digits, scale), max(scale, 0)
        return pa.decimal128(digits, scale) if digits <= _DIGITS else pa.string()
    if name == _ANY_SCALE or name in _CLOCKS:
        return pa.string()
    if name in _DATES:
        return pa.date32()
    if name in _MOMENTS:
        return pa.timestamp("us")
    if name in _ZONED:
        return pa.timestamp("us", tz="UTC")
    match kind:
        case "struct":
            return pa.struct([(one["field"], arrow_type(one)) for one in schema["fields"]])
        case "array":
            return pa.list_(arrow_type(schema["items"]))
        case "map":
            return pa.map_(arrow_type(schema["keys"]), arrow_type(schema["values"]))
        case str() if kind in _PLAIN:
            return _PLAIN[kind]
    raise ValueError(f"{kind!r} is no type of Kafka Connect")


def reader(kind: pa.DataType, schema: Schema | None) -> Reader:
    """How values are read for a column of this type. `schema`: what they say of themselves."""
    means, takes = _meaning(schema or {}), _taken(kind, schema or {})

    def read(value: Any) -> Any:
        return None if value is None else takes(means(value))

    return read


def of_avro(given: Any, known: dict[str, Schema] | None = None) -> Schema:
    """The schema that Connect's converter has written as one of Avro. Values are those of
    `codecs.avro`, with times as numbers. Raises ValueError."""
    known = {} if known is None else known
    match given:
        case list():
            (given,) = [one for one in given if one != "null"]
            return of_avro(given, known)
        case str() if given in _OF_AVRO:
            return {"type": _OF_AVRO[given]}
        case str() if given in known:
            return known[given]
        case {"type": "record", "name": str(name), "fields": list(fields)}:
            found: dict[str, Any] = {"type": "struct"}
            space = given.get("namespace")
            known[name] = known[f"{space}.{name}"] = found
            found["fields"] = [
                {**of_avro(one["type"], known), "field": one["name"]} for one in fields
            ]
        case {"type": "array", "items": items}:
            found = {"type": "array", "items": of_avro(items, known)}
        case {"type": "map", "values": values}:
            found = {"type": "map", "keys": {"type": "string"}, "values": of_avro(values, known)}
        case {"type": "enum"}:
            found = {"type": "string"}
        case {"type": inner}:
            found = dict(of_avro(inner, known))
        case _:
            raise ValueError(f"{given!r} is no type of Avro")
    if "connect.name" in given:
        found["name"] = given["connect.name"]
    match given.get("logicalType"):
        case "decimal":
            digits = {
                "scale": given.get("scale", 0),
                "connect.decimal.precision": given["precision"],
            }
            found |= {"name": _DECIMAL, "parameters": digits}
        case "timestamp-millis" | "timestamp-micros":
            found["name"] = f"{_TIME}MicroTimestamp"
    return found


# -- what a value means by its schema ------------------------------------------------------------


def _meaning(schema: Schema) -> Reader:
    name = schema.get("name")
    if name == _DECIMAL:
        scale = int(schema.get("parameters", {}).get("scale", 0))
        return lambda value: _unscaled(value, scale)
    if name == _ANY_SCALE:
        return lambda value: _unscaled(_object(value).get("value"), _object(value).get("scale"))
    if name in _MOMENTS:
        return lambda value: _Micros(_micros(value, _MOMENTS[name]))
    if name in _CLOCKS:
        return lambda value: _clock(_micros(value, _CLOCKS[name]))
    if schema.get("type") == "bytes":
        return _bytes
    return lambda value: value


def _unscaled(value: Any, scale: Any) -> Any:
    """A decimal in base64; in some modes a number or a text."""
    if not isinstance(value, str) or type(scale) is not int:
        return value
    if abs(scale) > _MOST_SCALE:
        raise _no(scale, "the scale of a number")
    whole = int.from_bytes(_bytes(value), "big", signed=True)
    return Decimal(f"{whole}e{-scale}")  # exact, whatever the context


def _micros(value: Any, each: int) -> int:
    found = _whole(value)
    return found * each if each else found // 1000


def _clock(micros: int) -> str:
    seconds, part = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{part:06}" if part else text


# -- what a column takes -------------------------------------------------------------------------


def _taken(kind: pa.DataType, schema: Schema) -> Reader:
    if pa.types.is_struct(kind):
        said = {one["field"]: one for one in schema.get("fields", ())}
        parts = {one.name: reader(one.type, said.get(one.name)) for one in kind}
        return lambda value: {
            name: in_field(name, read, _object(value).get(name)) for name, read in parts.items()
        }
    if pa.types.is_list(kind):
        each = reader(kind.value_type, schema.get("items"))
        return lambda value: [each(one) for one in _list(value)]
    if pa.types.is_map(kind):
        key, item = (
            reader(one, schema.get(which))
            for one, which in ((kind.key_type, "keys"), (kind.item_type, "values"))
        )
        return lambda value: [(key(a), item(b)) for a, b in _pairs(value)]
    if pa.types.is_decimal(kind):
        return _decimals(kind)
    if pa.types.is_integer(kind):
        return lambda value: _in_range(_whole(value), kind)
    for is_of, takes in _TAKES:
        if is_of(kind):
            return takes
    return lambda value: value


def in_field(name: str, read: Reader, value: Any) -> Any:
    """The value of a field. Raises ValueError, which names the field."""
    try:
        return read(value)
    except ValueError as error:
        inner = str(error).removeprefix("Field ")
        raise ValueError(f"Field {name}{': ' if inner == str(error) else '.'}{inner}") from None


def _typed(kind: type, wanted: str) -> Reader:
    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise _no(value, wanted)

    return read


_truth = _typed(bool, "true or false")
_string = _typed(str, "a text")
_object = _typed(dict, "an object")
_list = _typed(list, "a list")


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case Decimal():
            return f"{value:f}"
        case bytes():
            raise _no(value, "a text")
    return json.dumps(value, ensure_ascii=False, default=str)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise _no(value, "a number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _no(value, "a number") from None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _no(value, "a whole number")
    return value


def _in_range(value: int, kind: pa.DataType) -> int:
    most = 1 << (kind.bit_width - 1)
    if not -most <= value < most:
        raise ValueError(f"{value} is too large for {kind}")
    return value


def _decimals(kind: pa.DataType) -> Reader:
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-kind.scale)

    def read(value: Any) -> Decimal:
        try:
            written = value.text if isinstance(value, _Written) else str(value)
            found = value if isinstance(value, Decimal) else Decimal(written)
            if not found.is_finite():
                raise InvalidOperation
            return found.quantize(unit, context=exact)
        except DecimalException:
            raise _no(value, f"a number that fits {kind}") from None

    return read


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(_string(value), validate=True)
    except ValueError:
        raise _no(value, "bytes in base64") from None


def _day(value: Any) -> int:
    if isinstance(value, str):
        try:
            return (date.fromisoformat(value.removesuffix("Z")) - _FIRST).days
        except ValueError:
            raise _no(value, "a date") from None
    return _in_range(_whole(value), pa.int32())


def _moment(value: Any) -> int:
    if isinstance(value, _Micros):
        return _in_range(int(value), pa.int64())
    if not isinstance(value, str):
        raise _no(value, "a text, and only a schema says the unit of a number")
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise _no(value, "a time") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (found - _EPOCH) // timedelta(microseconds=1)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Of a map: an object, or, with keys that are no texts, a list of pairs."""
    if isinstance(value, dict):
        return list(value.items())
    pairs = _list(value)
    if not all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs):
        raise _no(value, "a map")
    return [(one[0], one[1]) for one in pairs]


def _no(value: Any, wanted: str) -> ValueError:
    shown = json.dumps(value, default=repr)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return ValueError(f"{shown} is not {wanted}")


_TAKES: tuple[tuple[Callable[[pa.DataType], bool], Reader], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, _truth),
    (pa.types.is_floating, _float),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date, _day),
    (pa.types.is_timestamp, _moment),
)
