"""Avro: whether the defaults of a schema's fields are values of their types. Pure.

Apache's library does not look at them, and readers fail at the first record that lacks such a
field. The rules are those of the specification for defaults in JSON: bytes are text of the code
points 0 to 255, a union takes a value of any of its types, a record may lack fields with a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_VALUE_BITS: Final = {"int": 31, "long": 63}
_LAST_BYTE: Final = "\xff"


def wrong_defaults(schema: Any) -> Iterator[str]:
    """Yield a sentence for each wrong default. `schema`: of the library `avro`."""
    seen: set[str] = set()
    todo = [schema]
    while todo:
        part = todo.pop()
        match part.type:
            case "array":
                todo.append(part.items)
            case "map":
                todo.append(part.values)
            case "union" | "error_union":
                todo += part.schemas
            case "record" | "error" if part.fullname not in seen:
                seen.add(part.fullname)
                for field in part.fields:
                    todo.append(field.type)
                    if field.has_default and not _fits(field.type, field.default):
                        default = json.dumps(field.default)
                        kind = _type_name(field.type)
                        yield f"the default {default} of {part.fullname}.{field.name} is no {kind}"


def _type_name(schema: Any) -> str:
    """Return the name of a type for a sentence."""
    if schema.type == "union":
        return " or ".join(map(_type_name, schema.schemas))
    return str(getattr(schema, "fullname", schema.type))


def _fits(schema: Any, value: Any) -> bool:
    """Return whether a default in JSON is a value of a type."""
    match schema.type:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long" as kind:
            limit = 1 << _VALUE_BITS[kind]
            return type(value) is int and -limit <= value < limit
        case "float" | "double":
            return type(value) in (int, float)
        case "string":
            return isinstance(value, str)
        case "bytes":
            return _is_bytes(value)
        case "fixed":
            return _is_bytes(value) and len(value) == schema.size
        case "enum":
            return value in schema.symbols
        case "array":
            return isinstance(value, list) and all(_fits(schema.items, item) for item in value)
        case "map":
            return isinstance(value, dict) and all(
                _fits(schema.values, item) for item in value.values()
            )
        case "union" | "error_union":
            return any(_fits(branch, value) for branch in schema.schemas)
        case _:
            return isinstance(value, dict) and all(
                _fits(field.type, value[field.name]) if field.name in value else field.has_default
                for field in schema.fields
            )


def _is_bytes(value: Any) -> bool:
    """Return whether a value is a text whose characters each stand for a byte."""
    return isinstance(value, str) and all(char <= _LAST_BYTE for char in value)
