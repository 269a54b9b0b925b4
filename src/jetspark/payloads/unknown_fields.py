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
"""The type of whole numbers so large that a DOUBLE may not have the same number: a BIGINT."""
_DOUBLE_EXACT_LIMIT: Final = 2**53
_MAX_BIGINT_CHARS: Final = 20
_UNUSABLE_NAME = re.compile(r"[\x00-\x20\x7f ,;{}()=.`\"]|^$")
"""Characters that formats and readers do not take in a column's name."""
_parse_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_parse_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

KnownFields: TypeAlias = "Mapping[str, _KnownObjects | None]"
"""The fields of a schema, each with the known fields of objects in its values; None: these have no
objects."""


class _KnownObjects(NamedTuple):
    """Which fields the schema knows in the objects that a value is, or has in it."""

    fields: KnownFields | None
    """Fields of the value, which is an object; None: it is a list or a map."""
    items: _KnownObjects | None = None
    """Of a list or a map: the known fields of objects in its items."""
    is_list: bool = False


def known_fields(ddl: str) -> KnownFields:
    """Return the fields that a schema has, in the form that `find_unknown` takes. `ddl`: the schema
    in Spark's DDL, "" for none. Raises ConfigError."""
    return _fields_by_name(arrow_fields(ddl, option="json")) if ddl else {}


def _fields_by_name(fields: Iterable[pa.Field]) -> KnownFields:
    """Return what `find_unknown` has to know of fields."""
    return {field.name: _known_objects(field.type) for field in fields}


def _known_objects(kind: pa.DataType) -> _KnownObjects | None:
    """Return which fields a type knows in objects within its values; None if it has no objects."""
    if pa.types.is_struct(kind):
        return _KnownObjects(_fields_by_name(kind))
    if not pa.types.is_list(kind) and not pa.types.is_map(kind):
        return None
    is_list = pa.types.is_list(kind)
    items = _known_objects(kind.value_type if is_list else kind.item_type)
    return items and _KnownObjects(None, items, is_list)


def find_unknown(payload: bytes | bytearray | None, fields: KnownFields) -> str | None:
    """Return a JSON object of the fields in a JSON payload that its schema does not have, with
    their values as they came.

    `fields`: of the schema. None if there are none, and if the payload is no JSON object.
    """
    return _find_in_object(_parse_payload(payload), fields)


def _find_in_object(fields: Mapping[str, msgspec.Raw], known_fields: KnownFields) -> str | None:
    """Return a JSON object of the fields that the schema does not have, also of objects within;
    None if there are none. `known_fields`: those of the schema."""
    unknown = {
        name: _find_in_value(raw, known_fields[name])
        if name in known_fields
        else bytes(raw).decode()
        for name, raw in fields.items()
    }
    return _format_object(unknown)


def _format_object(fields: Mapping[str, str | None]) -> str | None:
    """Return the JSON of an object. `fields`: the JSON of each field's value; None: it is left out.
    Return None if no field is left."""
    parts = [
        f"{json.dumps(name, ensure_ascii=False)}:{value}"
        for name, value in fields.items()
        if value is not None
    ]
    return f"{{{','.join(parts)}}}" if parts else None


def _find_in_value(raw: msgspec.Raw, known: _KnownObjects | None) -> str | None:
    """Return the JSON of those parts of a value that its schema does not have; None if there are
    none, and if the value does not fit the schema. `known`: what the schema has; None: no
    objects."""
    if known is None:
        return None
    try:
        if known.is_list:
            # Null is for the elements without unknown fields.
            unknown = [_find_in_value(item, known.items) for item in _parse_elements(raw)]
            return f"[{','.join(item or 'null' for item in unknown)}]" if any(unknown) else None
        fields = _parse_fields(raw)
    except msgspec.ValidationError:  # null, or another type: then the record is bad
        return None
    if known.fields is not None:
        return _find_in_object(fields, known.fields)
    return _format_object({key: _find_in_value(item, known.items) for key, item in fields.items()})


def new_columns(
    payload: bytes | bytearray | None, fields: Collection[str], names: FieldNames
) -> str | None:
    """Return the columns that a JSON payload needs beside those of its schema, as a JSON object of
    their types by name. `fields`: those that have columns already.

    None if there are none; a field that is null needs no column.
    """
    kinds = {
        names.column(name): type_of_raw(value)
        for name, raw in _parse_payload(payload).items()
        if name not in fields and (value := bytes(raw)) != b"null"
    }
    return json.dumps(kinds) if kinds else None


def can_be_column(name: str) -> bool:
    """Return whether table formats and readers take this name of a column."""
    return _UNUSABLE_NAME.search(name) is None and not is_reserved(name)


def _parse_payload(payload: bytes | bytearray | None) -> Mapping[str, msgspec.Raw]:
    """Return the fields of a payload, with their values undecoded; none if it is no JSON object."""
    if not payload:
        return {}
    try:
        payload = bytes(payload)
        payload.decode()
        fields: Mapping[str, msgspec.Raw] = parse_object(payload, _parse_fields)
    except (Undecodable, UnicodeDecodeError):
        return {}
    return fields


def type_of_raw(raw: bytes) -> str:
    """Return the type of a column for a value in JSON, which is not null: a name in Spark's DDL, or
    `LONG` for a BIGINT that a DOUBLE might round."""
    if raw in (b"true", b"false"):
        return "BOOLEAN"
    if raw[:1] not in b"-0123456789":
        return "STRING"
    if raw.lstrip(b"-").isdigit():
        return plain_type(int(raw)) if len(raw) <= _MAX_BIGINT_CHARS else "STRING"
    return plain_type(float(raw))


def plain_type(value: Any) -> str:
    """Return the type of a column for true, false or a number; STRING for anything else. `LONG` is
    a BIGINT that a DOUBLE might round."""
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            if not MIN_BIGINT <= value <= MAX_BIGINT:
                return "STRING"
            return "BIGINT" if abs(value) < _DOUBLE_EXACT_LIMIT else LONG
        case float() if math.isfinite(value):
            return "DOUBLE"
    return "STRING"


def common_type(first: str, second: str) -> str:
    """Return the type whose column takes the values of both types without rounding: `LONG`, a
    BIGINT that a DOUBLE might round, does not go with DOUBLE."""
    if first == second:
        return first
    both = {first, second}
    if both == {"BIGINT", LONG}:
        return LONG
    return "DOUBLE" if both == {"BIGINT", "DOUBLE"} else "STRING"


def plain_type_in_ddl(kind: str) -> str:
    """Return a plain type's name in DDL."""
    return "BIGINT" if kind == LONG else kind
