"""What JSON objects look like: the schema, in Spark's DDL, that takes all of them. Pure.

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

from jetspark.codecs.decoder import Undecodable
from jetspark.codecs.json_decoder import parse_object, takes
from jetspark.codecs.unknown_fields import common_type, in_ddl, plain_type
from jetspark.reserved_names import is_reserved

_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_DEPTH = 30
_MOST_FIELDS = 1000
"""Of an object within another; with more its names are data."""
_NULL, _STRING = "NULL", "STRING"


@dataclass(frozen=True)
class _List:
    of: _Type


@dataclass(frozen=True)
class _Object:
    fields: Mapping[str, _Type]


_Type = str | _List | _Object


class _Beyond:
    """A number beyond DOUBLE."""


def _number(text: str) -> float | _Beyond:
    found = float(text)
    return _Beyond() if found in (float("inf"), float("-inf")) else found


_object = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode


def _type_of(value: Any, depth: int = 0) -> _Type:
    if depth == _MAX_DEPTH and isinstance(value, list | dict):
        return _STRING
    match value:
        case None:
            return _NULL
        case _Beyond():
            return _STRING
        case bool() | int() | float():
            return plain_type(value)
        case str():
            return _of_text(value)
        case list():
            of: _Type = _NULL
            for one in value:
                of = _both(of, _type_of(one, depth + 1))
            return _List(of)
        case _:
            return _Object({name: _type_of(one, depth + 1) for name, one in value.items()})


def _of_text(text: str) -> str:
    for name, form, kind in (
        ("DATE", _DATE, pa.date32()),
        ("TIMESTAMP", _TIME, pa.timestamp("us", tz="UTC")),
    ):
        if form.fullmatch(text) and takes(kind, msgspec.json.encode(text)):
            return name
    return _STRING


def _both(one: _Type, other: _Type) -> _Type:
    """The type that takes the values of both."""
    if one == other or other == _NULL:
        return one
    if one == _NULL:
        return other
    if isinstance(one, str) and isinstance(other, str):
        return common_type(one, other)
    if isinstance(one, _List) and isinstance(other, _List):
        return _List(_both(one.of, other.of))
    if isinstance(one, _Object) and isinstance(other, _Object):
        found = dict(one.fields)
        for name, kind in other.fields.items():
            found[name] = _both(found.get(name, _NULL), kind)
        return _Object(found) if len(found) <= _MOST_FIELDS else _STRING
    return _STRING


@dataclass
class Shape:
    """The objects that were seen, together."""

    messages: int = 0
    others: int = 0
    """Payloads among them that are no JSON object."""
    _fields: dict[str, _Type] = field(default_factory=dict)

    def add(self, payload: bytes) -> None:
        """One more payload."""
        self.messages += 1
        try:
            found = parse_object(payload, _object)
        except Undecodable:
            self.others += 1
            return
        for name, value in found.items():
            self._fields[name] = _both(self._fields.get(name, _NULL), _type_of(value))

    def schema(self) -> tuple[str, list[str]]:
        """The DDL, and remarks on it."""
        remarks: list[str] = []
        if self.others:
            remarks.append(f"{self.others:,} of the messages are no JSON objects.")
        return _listed(self._fields, (), remarks, " "), remarks


def _listed(
    fields: Mapping[str, _Type],
    path: tuple[str, ...],
    remarks: list[str],
    between: str,
) -> str:
    there: set[str] = set()
    found = []
    for name, kind in fields.items():
        place = ".".join((*path, name))
        if not name:
            remarks.append("A field without a name is left out.")
        elif not path and is_reserved(name):
            remarks.append(f"{place} is left out: the name is reserved for jetspark.")
        elif name.casefold() in there:
            remarks.append(
                f"{place} is left out: there is a field of that name, and Spark ignores case."
            )
        else:
            there.add(name.casefold())
            text = _ddl(kind, (*path, name), remarks)
            quoted = name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
            found.append(f"{quoted}{between}{text}")
    return ", ".join(found)


def _ddl(kind: _Type, path: tuple[str, ...], remarks: list[str]) -> str:
    place = ".".join(path)
    match kind:
        case _List():
            return f"ARRAY<{_ddl(kind.of, (*path[:-1], f'{path[-1]}[]'), remarks)}>"
        case _Object():
            if inside := _listed(kind.fields, path, remarks, ": "):
                return f"STRUCT<{inside}>"
            remarks.append(f"{place} has only objects without fields: STRING.")
            return _STRING
        case "NULL":
            remarks.append(f"{place} is always null: STRING.")
            return _STRING
        case str():
            return in_ddl(kind)
