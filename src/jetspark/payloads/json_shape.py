"""Infers the schema, in Spark's DDL, that takes all JSON objects of a sample. No I/O.

| values of a field | type |
|---|---|
| true, false; whole numbers; numbers | BOOLEAN; BIGINT; DOUBLE |
| texts that are all times with a zone (RFC 3339); all dates | TIMESTAMP; DATE |
| lists; objects | ARRAY<…>; STRUCT<…> |
| anything else, also several of these | STRING |

A number beyond DOUBLE is a STRING, and so are a whole one beyond BIGINT, and one beyond 2^53 beside
other numbers, since a DOUBLE would round it. Null goes with every type. A STRING takes every value,
of what is no text its JSON; so it is the type of what is nested more than `_MAX_DEPTH` deep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.json_columns import fits_type
from jetspark.payloads.json_objects import parse_object
from jetspark.payloads.unknown_fields import common_type, plain_type, plain_type_in_ddl
from jetspark.reserved_names import is_reserved

_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_DEPTH = 30
_MAX_FIELDS = 1000
"""Fields of a nested object; with more, its names are data, and it is a STRING."""
_NULL, _STRING = "NULL", "STRING"


@dataclass(frozen=True)
class _Array:
    """The type of a list, by its items."""

    items: _Type


@dataclass(frozen=True)
class _Object:
    """The type of an object, by all fields that were seen in such objects."""

    fields: Mapping[str, _Type]


_Type = str | _Array | _Object


class _BeyondDouble:
    """Stands for a number of a sample that is beyond the range of a DOUBLE."""


def _parse_number(text: str) -> float | _BeyondDouble:
    """Parse a number with a fraction or an exponent."""
    value = float(text)
    return _BeyondDouble() if value in (float("inf"), float("-inf")) else value


_decode_object = msgspec.json.Decoder(dict[str, Any], float_hook=_parse_number).decode


def _type_of(value: Any, depth: int = 0) -> _Type:
    """Return the type that a column for this decoded JSON value would have. `depth`: how many lists
    and objects it is in; what is nested too deeply is a STRING."""
    if depth == _MAX_DEPTH and isinstance(value, list | dict):
        return _STRING
    match value:
        case None:
            return _NULL
        case _BeyondDouble():
            return _STRING
        case bool() | int() | float():
            return plain_type(value)
        case str():
            return _string_type(value)
        case list():
            items: _Type = _NULL
            for element in value:
                items = _merge_types(items, _type_of(element, depth + 1))
            return _Array(items)
        case _:
            return _Object({name: _type_of(element, depth + 1) for name, element in value.items()})


def _string_type(text: str) -> str:
    """Return DATE or TIMESTAMP for a text that its column takes; STRING for any other."""
    for name, form, kind in (
        ("DATE", _DATE, pa.date32()),
        ("TIMESTAMP", _TIME, pa.timestamp("us", tz="UTC")),
    ):
        if form.fullmatch(text) and fits_type(kind, msgspec.json.encode(text)):
            return name
    return _STRING


def _merge_types(left: _Type, right: _Type) -> _Type:
    """Return the type whose column takes the values of both types; STRING takes all."""
    if left == right or right == _NULL:
        return left
    if left == _NULL:
        return right
    if isinstance(left, str) and isinstance(right, str):
        return common_type(left, right)
    if isinstance(left, _Array) and isinstance(right, _Array):
        return _Array(_merge_types(left.items, right.items))
    if isinstance(left, _Object) and isinstance(right, _Object):
        fields = dict(left.fields)
        for name, kind in right.fields.items():
            fields[name] = _merge_types(fields.get(name, _NULL), kind)
        return _Object(fields) if len(fields) <= _MAX_FIELDS else _STRING
    return _STRING


@dataclass
class Shape:
    """Infers the schema of JSON payloads from a sample: the fields of all objects in it, and their
    types."""

    messages: int = 0
    non_objects: int = 0
    """Payloads among them that are no JSON object."""
    _fields: dict[str, _Type] = field(default_factory=dict)

    def add(self, payload: bytes) -> None:
        """Add a payload of the sample: its fields are merged with those seen before."""
        self.messages += 1
        try:
            values = parse_object(payload, _decode_object)
        except Undecodable:
            self.non_objects += 1
            return
        for name, value in values.items():
            self._fields[name] = _merge_types(self._fields.get(name, _NULL), _type_of(value))

    def schema(self) -> tuple[str, list[str]]:
        """Return the schema of the sample in Spark's DDL, and remarks about what it leaves out."""
        remarks: list[str] = []
        if self.non_objects:
            is_one = self.non_objects == 1
            are = "is no JSON object" if is_one else "are no JSON objects"
            remarks.append(f"{self.non_objects:,} of the messages {are}.")
        return _fields_ddl(self._fields, path=(), remarks=remarks, between=" "), remarks


def _fields_ddl(
    fields: Mapping[str, _Type],
    path: tuple[str, ...],
    remarks: list[str],
    between: str,
) -> str:
    """Return the fields of an object in Spark's DDL; sentences about fields that cannot be columns
    are added to `remarks`. `path`: of the object; `between`: what is between a name and a type."""
    names: set[str] = set()
    columns = []
    for name, kind in fields.items():
        path_text = ".".join((*path, name))
        if not name:
            remarks.append("A field without a name is left out.")
        elif not path and is_reserved(name):
            remarks.append(f"{path_text} is left out: the name is reserved for jetspark.")
        elif name.casefold() in names:
            remarks.append(
                f"{path_text} is left out: there is a field of that name, and Spark ignores case."
            )
        else:
            names.add(name.casefold())
            text = _ddl(kind, (*path, name), remarks)
            quoted = name if _IDENTIFIER.fullmatch(name) else f"`{name.replace('`', '``')}`"
            columns.append(f"{quoted}{between}{text}")
    return ", ".join(columns)


def _ddl(kind: _Type, path: tuple[str, ...], remarks: list[str]) -> str:
    """Return a type in Spark's DDL; a sentence about one that the sample does not tell is added to
    `remarks`. `path`: of the field that has it."""
    path_text = ".".join(path)
    match kind:
        case _Array():
            return f"ARRAY<{_ddl(kind.items, (*path[:-1], f'{path[-1]}[]'), remarks)}>"
        case _Object():
            if inside := _fields_ddl(kind.fields, path, remarks, between=": "):
                return f"STRUCT<{inside}>"
            remarks.append(f"{path_text} has only objects without fields: STRING.")
            return _STRING
        case "NULL":
            remarks.append(f"{path_text} is always null: STRING.")
            return _STRING
        case str():
            return plain_type_in_ddl(kind)
