"""The columns of JSON objects, from a JSON Schema or from a schema in Spark's DDL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from jetspark.codecs.ddl import arrow_columns
from jetspark.codecs.schema import UnusableSchema

_TIMES: Final = {"date": pa.date32(), "date-time": pa.timestamp("us", tz="UTC")}
_PLAIN: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def columns_of(text: str) -> pa.Schema:
    """The properties of an object. What may be of several types is text, in which it is JSON.

    Raises ConfigError.
    """
    try:
        if not text.lstrip().startswith("{"):
            return arrow_columns(text)
        whole = json.loads(text)
        found = _type(whole, whole, ())
    except (ValueError, RecursionError) as error:
        raise UnusableSchema(f"The schema of the data cannot be used: {error}.") from None
    if not pa.types.is_struct(found) or not found.num_fields:
        raise UnusableSchema("The JSON Schema of the data is not one of an object with properties.")
    return pa.schema(list(found))


def _type(schema: Any, whole: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if not isinstance(schema, dict):  # true takes everything
        return pa.string()
    if (reference := schema.get("$ref")) is not None:
        if reference in inside or not str(reference).startswith("#"):
            raise ValueError(f"{reference} is in another document, or contains itself")
        target: Any = whole
        for part in str(reference).split("/")[1:]:
            target = target[part.replace("~1", "/").replace("~0", "~")]
        return _type(target, whole, (*inside, reference))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            parts = [one for one in schema[key] if one != {"type": "null"}]
            return _type(parts[0], whole, inside) if len(parts) == 1 else pa.string()
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "object" if schema.get("properties"):
            properties = schema["properties"].items()
            return pa.struct([(name, _type(one, whole, inside)) for name, one in properties])
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return pa.map_(pa.string(), _type(schema["additionalProperties"], whole, inside))
        case "array" if "items" in schema:
            return pa.list_(pa.field("element", _type(schema["items"], whole, inside)))
        case "string":
            return _TIMES.get(schema.get("format", ""), pa.string())
    return _PLAIN.get(str(kind), pa.string())
