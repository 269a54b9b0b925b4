"""Schemas of Kafka Connect, and the columns of their values; Debezium gives names to more types.

A schema is the JSON that Connect's converter writes: `{"type": "int64", "name": …, "field": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

Schema: TypeAlias = Mapping[str, Any]

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
DECIMAL: Final = f"{_CONNECT}Decimal"
VARIABLE_SCALE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
DATES: Final = (f"{_CONNECT}Date", f"{_TIME}Date")
TIMESTAMP_NANOS: Final = {
    f"{_CONNECT}Timestamp": 10**6,
    f"{_TIME}Timestamp": 10**6,
    f"{_TIME}MicroTimestamp": 10**3,
    f"{_TIME}NanoTimestamp": 1,
}
"""Nanoseconds of the unit in which a timestamp counts from 1970."""
CLOCK_NANOS: Final = {
    f"{_CONNECT}Time": 10**6,
    f"{_TIME}Time": 10**6,
    f"{_TIME}MicroTime": 10**3,
    f"{_TIME}NanoTime": 1,
}
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


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the column type of values with a schema of Kafka Connect. Raises ValueError for what
    is no schema.

    Times of day, numbers of any scale, and maps with keys that are no texts, which are lists of
    pairs in JSON, become texts.
    """
    kind, name = schema.get("type"), schema.get("name")
    if name == DECIMAL:
        parameters = schema.get("parameters", {})
        scale = int(parameters.get("scale", 0))
        # A scale below 0 is a number with so many zeros at its end.
        digits = int(parameters.get("connect.decimal.precision", _MAX_DIGITS)) - min(scale, 0)
        digits, scale = max(digits, scale), max(scale, 0)
        return pa.decimal128(digits, scale) if digits <= _MAX_DIGITS else pa.string()
    if name == VARIABLE_SCALE_DECIMAL or name in CLOCK_NANOS:
        return pa.string()
    if name in DATES:
        return pa.date32()
    if name in TIMESTAMP_NANOS:
        return pa.timestamp("us")
    if name == _ZONED:
        return pa.timestamp("us", tz="UTC")
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
    """Return the schema of Kafka Connect that reads numbers as dates where a type has dates: values
    that come without a schema count the days since 1970, as Debezium sends them. None for a type
    without dates."""
    if pa.types.is_date(kind):
        return {"type": "int32", "name": DATES[0]}
    if pa.types.is_struct(kind):
        schemas = [(field.name, days_schema(field.type)) for field in kind]
        fields = [{**schema, "field": name} for name, schema in schemas if schema is not None]
        return {"type": "struct", "fields": fields} if fields else None
    if pa.types.is_list(kind) and (items := days_schema(kind.value_type)):
        return {"type": "array", "items": items}
    if pa.types.is_map(kind) and (values := days_schema(kind.item_type)):
        return {"type": "map", "values": values}
    return None


def schema_from_avro(avro: Any, records: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of Kafka Connect from which its converter has made this schema of Avro.

    `records`: the records that are already read, by name. Raises ValueError.
    """
    records = {} if records is None else records
    match avro:
        case list():  # a type that may be null
            (avro,) = [branch for branch in avro if branch != "null"]
            return schema_from_avro(avro, records)
        case str() if avro in _FROM_AVRO:
            return {"type": _FROM_AVRO[avro]}
        case str() if avro in records:
            return records[avro]
        case {"type": "record", "name": str(name), "fields": list(fields)}:
            schema: dict[str, Any] = {"type": "struct"}
            namespace = avro.get("namespace")
            # Its fields may refer to it.
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
            schema |= {"name": DECIMAL, "parameters": digits}
        case "timestamp-millis" | "timestamp-micros":
            schema["name"] = f"{_TIME}MicroTimestamp"
        case "date":
            schema["name"] = DATES[0]
    return schema
