"""The fields of a JSON object that a schema lacks, so that none of them is lost, and their types.

Within objects of the payload too: of `{"pos": {"lat": 1, "alt": 2}}` the schema
`pos STRUCT<lat: DOUBLE>` lacks `{"pos": {"alt": 2}}`. In a list null is for the elements that lack
nothing. Only fields of the payload itself become columns.

| value | type of a new column |
|---|---|
| true, false; whole numbers; numbers | BOOLEAN; BIGINT; DOUBLE |
| texts, lists, objects, numbers beyond these types | STRING; else as JSON |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from jetspark.payloads.ddl import arrow_fields
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.json_objects import parse_object
from jetspark.reserved_names import is_reserved

MIN_BIGINT, MAX_BIGINT = -(2**63), 2**63 - 1
"""The range of a BIGINT."""
LONG: Final = "LONG"
"""A BIGINT of which a DOUBLE may not have the same number."""
_EXACT: Final = 2**53
_MAX_DIGITS: Final = 20
_NO_NAME = re.compile(r"[\x00-\x20\x7f ,;{}()=.`\"]|^$")
"""Characters that formats and readers do not take in a column's name."""
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

KnownFields: TypeAlias = "Mapping[str, _Inside | None]"
"""The fields of a schema, and what is known of the objects in their values."""


class _Inside(NamedTuple):
    """The known fields of a value that has objects in it."""

    fields: KnownFields | None
    """Fields of the object; None: the value is a list or a map."""
    element: _Inside | None = None
    is_list: bool = False


def known_fields(ddl: str) -> KnownFields:
    """Return what `find_unknown` knows of payloads with this schema. Raises ConfigError."""
    return _fields_by_name(arrow_fields(ddl, "json")) if ddl else {}


def _fields_by_name(fields: Iterable[pa.Field]) -> KnownFields:
    return {field.name: _inside(field.type) for field in fields}


def _inside(kind: pa.DataType) -> _Inside | None:
    if pa.types.is_struct(kind):
        return _Inside(_fields_by_name(kind))
    if not pa.types.is_list(kind) and not pa.types.is_map(kind):
        return None
    is_list = pa.types.is_list(kind)
    element = _inside(kind.value_type if is_list else kind.item_type)
    return element and _Inside(None, element, is_list)


def find_unknown(payload: bytes | bytearray | None, fields: KnownFields) -> str | None:
    """Return an object of the other fields than these, with their values as they came.

    None if there are none, and if the payload is no JSON object.
    """
    return _find_in_object(_parsed(payload), fields)


def _find_in_object(fields: Mapping[str, msgspec.Raw], known_fields: KnownFields) -> str | None:
    rest = {
        name: _find_in_value(raw, known_fields[name])
        if name in known_fields
        else bytes(raw).decode()
        for name, raw in fields.items()
    }
    return _object(rest)


def _object(rest: Mapping[str, str | None]) -> str | None:
    parts = [
        f"{json.dumps(name, ensure_ascii=False)}:{value}"
        for name, value in rest.items()
        if value is not None
    ]
    return f"{{{','.join(parts)}}}" if parts else None


def _find_in_value(raw: msgspec.Raw, inside: _Inside | None) -> str | None:
    """Return what is unknown in a value; None if nothing is, and if the value does not fit."""
    if inside is None:
        return None
    try:
        if inside.is_list:
            rest = [_find_in_value(element, inside.element) for element in _elements(raw)]
            return f"[{','.join(part or 'null' for part in rest)}]" if any(rest) else None
        fields = _fields(raw)
    except msgspec.ValidationError:  # null, or another type: then the record is bad
        return None
    if inside.fields is not None:
        return _find_in_object(fields, inside.fields)
    return _object({name: _find_in_value(value, inside.element) for name, value in fields.items()})


def new_columns(
    payload: bytes | bytearray | None, fields: Collection[str], names: FieldNames
) -> str | None:
    """The types of the columns that the other fields than `fields` need, as a JSON object; or None.

    Null needs no column.
    """
    kinds = {
        names.column(name): type_of_raw(value)
        for name, raw in _parsed(payload).items()
        if name not in fields and (value := bytes(raw)) != b"null"
    }
    return json.dumps(kinds) if kinds else None


def can_be_column(name: str) -> bool:
    """Whether formats and readers take this name of a column."""
    return _NO_NAME.search(name) is None and not is_reserved(name)


def _parsed(payload: bytes | bytearray | None) -> Mapping[str, msgspec.Raw]:
    """The fields of a payload; none if it is no JSON object."""
    if not payload:
        return {}
    try:
        payload = bytes(payload)
        payload.decode()
        fields: Mapping[str, msgspec.Raw] = parse_object(payload, _fields)
    except (Undecodable, UnicodeDecodeError):
        return {}
    return fields


def type_of_raw(raw: bytes) -> str:
    """The type of a value, which is not null: a name in Spark's DDL, or `LONG`."""
    if raw in (b"true", b"false"):
        return "BOOLEAN"
    if raw[:1] not in b"-0123456789":
        return "STRING"
    if raw.lstrip(b"-").isdigit():
        return plain_type(int(raw)) if len(raw) <= _MAX_DIGITS else "STRING"
    return plain_type(float(raw))


def plain_type(value: Any) -> str:
    """The type of true, false and numbers; STRING for anything else."""
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            if not MIN_BIGINT <= value <= MAX_BIGINT:
                return "STRING"
            return "BIGINT" if abs(value) < _EXACT else LONG
        case float() if math.isfinite(value):
            return "DOUBLE"
    return "STRING"


def common_type(first: str, second: str) -> str:
    """The plain type that takes the values of both."""
    if first == second:
        return first
    both = {first, second}
    if both == {"BIGINT", LONG}:
        return LONG
    return "DOUBLE" if both == {"BIGINT", "DOUBLE"} else "STRING"


def in_ddl(kind: str) -> str:
    """A plain type's name in DDL."""
    return "BIGINT" if kind == LONG else kind
