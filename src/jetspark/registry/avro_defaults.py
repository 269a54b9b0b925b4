"""Avro: whether the defaults of a schema's fields are values of their types. Pure.

Apache's library does not look at them, and readers fail at the first record that lacks such a
field. The rules are those of the specification for defaults in JSON: bytes are text of the code
points 0 to 255, a union takes a value of any of its types, a record may lack fields with a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_WHOLE: Final = {"int": 31, "long": 63}
_LAST_BYTE: Final = "\xff"


def wrong_defaults(schema: Any) -> Iterator[str]:
    """What is wrong, field by field. `schema`: of the library `avro`."""
    seen: set[str] = set()
    todo = [schema]
    while todo:
        one = todo.pop()
        match one.type:
            case "array":
                todo.append(one.items)
            case "map":
                todo.append(one.values)
            case "union" | "error_union":
                todo += one.schemas
            case "record" | "error" if one.fullname not in seen:
                seen.add(one.fullname)
                for field in one.fields:
                    todo.append(field.type)
                    if field.has_default and not _fits(field.type, field.default):
                        said = json.dumps(field.default)
                        kind = _name(field.type)
                        yield f"the default {said} of {one.fullname}.{field.name} is no {kind}"


def _name(schema: Any) -> str:
    if schema.type == "union":
        return " or ".join(map(_name, schema.schemas))
    return str(getattr(schema, "fullname", schema.type))


def _fits(schema: Any, value: Any) -> bool:
    match schema.type:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long" as kind:
            most = 1 << _WHOLE[kind]
            return type(value) is int and -most <= value < most
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
            return isinstance(value, list) and all(_fits(schema.items, one) for one in value)
        case "map":
            return isinstance(value, dict) and all(
                _fits(schema.values, one) for one in value.values()
            )
        case "union" | "error_union":
            return any(_fits(one, value) for one in schema.schemas)
        case _:
            return isinstance(value, dict) and all(
                _fits(field.type, value[field.name]) if field.name in value else field.has_default
                for field in schema.fields
            )


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(one <= _LAST_BYTE for one in value)
