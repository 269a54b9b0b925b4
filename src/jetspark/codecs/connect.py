"""Types and values of Kafka Connect in JSON, with the names that Debezium gives to more than these.

A schema is the JSON that its converter writes: `{"type": "int64", "name": …, "field": …}`. Without
one a value is taken for what the column's type says, if it can only be that: a number is no
timestamp, since nothing tells its unit, and a text in base64 is no decimal. A value that the column
cannot have exactly is refused: nothing is rounded, cut or wrapped.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from jetspark.codecs.exact import single_of

Schema = Mapping[str, Any]
Reader = Callable[[Any], Any]
"""A value of JSON as Arrow takes it. Raises ValueError, with a sentence, for one that is none."""

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_DECIMAL, _ANY_SCALE = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
_DATES = (f"{_CONNECT}Date", f"{_TIME}Date")
_MS, _US, _SECOND, _DAY = 10**6, 10**3, 10**9, 86_400 * 10**9
_MOMENTS = {f"{_CONNECT}Timestamp": _MS, f"{_TIME}Timestamp": _MS, f"{_TIME}MicroTimestamp": _US}
_MOMENTS |= {f"{_TIME}NanoTimestamp": 1}
_CLOCKS = {f"{_CONNECT}Time": _MS, f"{_TIME}Time": _MS, f"{_TIME}MicroTime": _US}
_CLOCKS |= {f"{_TIME}NanoTime": 1}
"""Nanoseconds of one."""
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
_DAYS = range((date.min - _FIRST).days, (date.max - _FIRST).days + 1)
"""The days of the years 1 to 9999, as the other times of these years."""
_DATE_TEXT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})Z?")
_TIME_TEXT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,12}))?"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_SHOWN = 80


class _Written(float):
    """A number with a point, and as it is written, since a decimal may have more digits."""

    def __init__(self, text: str) -> None:
        if self in (float("inf"), -float("inf")):
            raise ValueError(f"{text} is too large")
        self.text = text


decode_json = msgspec.json.Decoder(float_hook=_Written).decode


def _raw(value: Any) -> msgspec.Raw:
    if isinstance(value, _Written):
        return msgspec.Raw(value.text.encode())
    return msgspec.Raw(msgspec.json.encode(str(value)))


encode_json = msgspec.json.Encoder(enc_hook=_raw).encode
"""A value of `decode_json` as JSON again, with each number as it was written."""


class _Moment(int):
    """Nanoseconds since 1970, of a number whose unit a schema says."""

    came: int

    @classmethod
    def of(cls, came: int, unit: int) -> _Moment:
        """`came`: the number in the message; `unit`: nanoseconds of one."""
        moment = cls(came * unit)
        moment.came = came
        return moment


class _Days(int):
    """Days since 1970, which a schema says they are."""

    @property
    def came(self) -> int:
        """The number in the message."""
        return int(self)


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
        case "struct" if not schema["fields"]:
            raise ValueError("a struct without fields is no column")
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
    means, takes = _meaning(schema or {}, kind), _taken(kind, schema or {})

    def read(value: Any) -> Any:
        return None if value is None else takes(means(value))

    return read


def days_schema(kind: pa.DataType) -> Schema | None:
    """The schema of values without one, where numbers for dates are days, as Debezium sends them;
    None for a type without dates."""
    if pa.types.is_date(kind):
        return {"type": "int32", "name": _DATES[0]}
    if pa.types.is_struct(kind):
        parts = [(one.name, days_schema(one.type)) for one in kind]
        fields = [{**schema, "field": name} for name, schema in parts if schema is not None]
        return {"type": "struct", "fields": fields} if fields else None
    if pa.types.is_list(kind) and (items := days_schema(kind.value_type)):
        return {"type": "array", "items": items}
    if pa.types.is_map(kind) and (values := days_schema(kind.item_type)):
        return {"type": "map", "values": values}
    return None


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
        case "date":
            found["name"] = _DATES[0]
    return found


# -- what a value means by its schema ------------------------------------------------------------


def _meaning(schema: Schema, kind: pa.DataType) -> Reader:
    name = schema.get("name")
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_integer(kind) or (is_number and name in (*_DATES, *_MOMENTS, *_CLOCKS)):
        return lambda value: value  # as if there were no schema
    if name == _DECIMAL:
        scale = int(schema.get("parameters", {}).get("scale", 0))
        return lambda value: _unscaled(value, scale)
    if name == _ANY_SCALE:
        return lambda value: _unscaled(_object(value).get("value"), _object(value).get("scale"))
    if name in _DATES:
        return lambda value: value if isinstance(value, str) else _Days(_whole(value))
    if name in _MOMENTS:
        return lambda value: _Moment.of(_whole(value), _MOMENTS[name])
    if name in _CLOCKS:
        return lambda value: _clock(_whole(value) * _CLOCKS[name])
    if schema.get("type") == "bytes" and not pa.types.is_string(kind):
        return _bytes
    return lambda value: value


def _unscaled(value: Any, scale: Any) -> Any:
    """A decimal in base64; in some modes a number or a text."""
    if not isinstance(value, str | bytes) or type(scale) is not int:
        return value
    if abs(scale) > _MOST_SCALE:
        raise _no(scale, "the scale of a number")
    digits = _bytes(value)
    if not digits:
        raise _no(value, "the bytes of a number")
    whole = int.from_bytes(digits, "big", signed=True)
    return Decimal(f"{whole}e{-scale}")  # exact, whatever the context


def _clock(nanos: int) -> str:
    """A time of a day, or a span of time, which may be negative (MySQL)."""
    seconds, part = divmod(abs(nanos), _SECOND)
    minutes, second = divmod(seconds, 60)
    sign = "-" if nanos < 0 else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(part)}"


def _fraction(nanos: int) -> str:
    if nanos % _US:
        return f".{nanos:09}"
    return f".{nanos // _US:06}" if nanos else ""


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
    if pa.types.is_floating(kind):
        return _floats(kind)
    if pa.types.is_timestamp(kind):
        return _moments(kind)
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
        case _Days():
            return (_FIRST + timedelta(days=_day(value))).isoformat()
        case _Moment():
            seconds, part = divmod(value, _SECOND)
            _check_years(seconds // 86_400, value)
            moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
            return f"{moment.isoformat()}{_fraction(part)}"
    return encode_json(value).decode()


def _floats(kind: pa.DataType) -> Reader:
    single = pa.types.is_float32(kind)

    def read(value: Any) -> float:
        try:
            found = _float(value)
            if single and found == found and abs(found) != float("inf"):
                packed = single_of(value.text if isinstance(value, _Written) else str(value))
                if abs(packed) == float("inf"):
                    raise ValueError
                # A point stands for the nearest number; a whole number stands for itself.
                if (found and not packed) or (
                    not isinstance(value, float | str) and packed != found
                ):
                    raise ValueError
                found = packed
        except (ValueError, OverflowError):
            raise _no(value, f"a number that fits {kind}") from None
        return found

    return read


def _float(value: Any) -> float:
    """Raises ValueError or OverflowError."""
    match value:
        case bool():
            raise ValueError
        case int() | float() | Decimal():
            found = float(value)
        case str() if value in _NOT_FINITE:
            return float(value)
        case str() if _NUMBER.fullmatch(value):
            found = float(value)
        case _:
            raise ValueError
    exact = True
    if isinstance(value, int):
        exact = int(found) == value
    elif isinstance(value, Decimal):
        exact = Decimal(repr(found)) == value
    if not exact or (isinstance(value, str | Decimal) and abs(found) == float("inf")):
        raise ValueError
    return found


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
            found = value if isinstance(value, Decimal) else Decimal(_digits(value))
            if not found.is_finite():
                raise InvalidOperation
            return found.quantize(unit, context=exact)
        except DecimalException:
            raise _no(value, f"a number that fits {kind}") from None

    return read


def _digits(value: Any) -> str:
    """A number as it is written. Raises DecimalException."""
    match value:
        case _Written():
            return value.text
        case float():
            return repr(value)
        case int() if not isinstance(value, bool):
            return str(value) if abs(value) < 10**100 else "NaN"
        case str() if _NUMBER.fullmatch(value):
            return value
    raise InvalidOperation


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(_string(value), validate=True)
    except ValueError:
        raise _no(value, "bytes in base64") from None


def _day(value: Any) -> int:
    match value:
        case _Days():
            return _check_years(int(value), value)
        case _Moment() if value % _DAY == 0:
            return _check_years(value // _DAY, value)
        case str() if text := _DATE_TEXT.fullmatch(value):
            try:
                return (date.fromisoformat(text[1]) - _FIRST).days
            except ValueError:
                pass
    raise _no(value, "a date")


def _check_years(day: int, value: Any) -> int:
    if day not in _DAYS:
        raise _no(value, "in the years 1 to 9999, and may be infinity")
    return day


def _moments(kind: pa.DataType) -> Reader:
    def read(value: Any) -> int:
        if isinstance(value, _Moment):
            _check_years(value // _DAY, value)
            return _micros(value, value)
        if not isinstance(value, str):
            raise _no(value, "a text, and only a schema says the unit of a number")
        text = _TIME_TEXT.fullmatch(value)
        zone = "" if text is None else (text[3] or "").upper()
        try:
            if text is None:
                raise ValueError
            found = datetime.fromisoformat(text[1].upper() + zone)
        except ValueError:
            raise _no(value, "a time") from None
        if kind.tz is None and found.utcoffset():
            raise _no(value, "a time without a zone")
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        seconds = (found - _EPOCH) // timedelta(seconds=1)
        _check_years(seconds // 86_400, value)
        fraction = (text[2] or "").ljust(9, "0")
        if fraction[9:].strip("0"):
            raise _no(value, "a time with at most six digits of a second")
        return _micros(seconds * _SECOND + int(fraction[:9]), value)

    return read


def _micros(nanos: int, value: Any) -> int:
    if nanos % _US:
        raise _no(value, "a time with at most six digits of a second")
    return nanos // _US


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Of a map: an object, or, with keys that are no texts, a list of pairs."""
    if isinstance(value, dict):
        return list(value.items())
    pairs = _list(value)
    if not all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs):
        raise _no(value, "a map")
    keys = [encode_json(one[0]) for one in pairs]
    if b"null" in keys or len({*keys}) < len(keys):
        raise _no(value, "a map, whose keys are not null and different")
    return [(one[0], one[1]) for one in pairs]


def _no(value: Any, wanted: str) -> ValueError:
    text = encode_json(value.came if isinstance(value, _Moment | _Days) else value).decode()
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return ValueError(f"{text} is not {wanted}")


_TAKES: tuple[tuple[Callable[[pa.DataType], bool], Reader], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, _truth),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date, _day),
)
