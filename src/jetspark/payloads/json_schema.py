"""The columns of JSON objects, from a JSON Schema or from a schema in Spark's DDL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.ddl import arrow_columns, arrow_fields
from jetspark.payloads.schema import UnusableSchema

_TIMES: Final = {"date": pa.date32(), "date-time": pa.timestamp("us", tz="UTC")}
MAX_TYPES: Final = 10_000
"""Types in a schema where each reference counts as all that it leads to."""
_PRIMITIVES: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def columns_of(text: str) -> pa.Schema:
    """Return the columns that a JSON Schema, or a schema of plain types in Spark's DDL, describes.
    What may be of several types is a STRING, with its JSON.

    Raises ConfigError.
    """
    try:
        if not text.lstrip().startswith("{"):
            return arrow_columns(text)
        document = json.loads(text)
        type_ = _TypeReader(document).read(document)
    except RecursionError:
        raise UnusableSchema("The schema of the data is nested too deeply.") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = f"there is no {error}" if isinstance(error, LookupError) else error
        raise UnusableSchema(f"The schema of the data cannot be used: {problem}.") from None
    if not pa.types.is_struct(type_) or not type_.num_fields:
        raise UnusableSchema("The JSON Schema of the data is not one of an object with properties.")
    return pa.schema(list(type_))


def json_columns_of(text: str) -> pa.Schema:
    """Return the columns of JSON payloads by their schema: as `columns_of`, and in Spark's DDL also
    of nested types. Raises ConfigError."""
    return columns_of(text) if text.lstrip().startswith("{") else arrow_fields(text, "schema:")


class _TypeReader:
    """Reads the column types of a JSON Schema, and bounds how many there are."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._left = MAX_TYPES

    def read(self, schema: Any, inside: tuple[str, ...] = ()) -> pa.DataType:
        """Return the column type of the values that a JSON Schema describes. `inside`: the
        references (`$ref`) that have led to it, none of which may come again. Raises ValueError."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {MAX_TYPES:,} fields")
        if not isinstance(schema, dict):  # true takes everything
            return pa.string()
        if (reference := schema.get("$ref")) is not None:
            if reference in inside or not str(reference).startswith("#"):
                raise ValueError(f"{reference} is in another document, or contains itself")
            target: Any = self._document
            for part in str(reference).split("/")[1:]:
                target = target[part.replace("~1", "/").replace("~0", "~")]
            return self.read(target, (*inside, reference))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                parts = [part for part in schema[key] if part != {"type": "null"}]
                return self.read(parts[0], inside) if len(parts) == 1 else pa.string()
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [name for name in kind if name != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        match kind:
            case "object" if schema.get("properties"):
                properties = schema["properties"].items()
                return pa.struct([(name, self.read(part, inside)) for name, part in properties])
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                return pa.map_(pa.string(), self.read(schema["additionalProperties"], inside))
            case "array" if "items" in schema:
                return pa.list_(pa.field("element", self.read(schema["items"], inside)))
            case "string":
                return _TIMES.get(schema.get("format", ""), pa.string())
        return _PRIMITIVES.get(str(kind), pa.string())
