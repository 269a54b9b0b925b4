"""What JSON objects look like: the schema, in Spark's DDL, that takes all of them. Pure.

| values of a field | type |
|---|---|
| true, false; whole numbers; numbers | BOOLEAN; BIGINT; DOUBLE |
| texts that are all times with a zone (RFC 3339); all dates | TIMESTAMP; DATE |
| lists; objects | ARRAY<…>; STRUCT<…> |
| anything else, also several of these | STRING |

A whole number beyond BIGINT is a STRING, since a DOUBLE would round it. Null goes with every type.
A STRING takes every value: Spark keeps the JSON of what is no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
LEAST, MOST = -(2**63), 2**63 - 1
"""Of a BIGINT."""
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


def plain_type(value: Any) -> str:
    """The type of true, false and numbers; STRING for anything else."""
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if LEAST <= value <= MOST else _STRING
        case float():
            return "DOUBLE"
    return _STRING


def common_type(one: str, other: str) -> str:
    """The plain type that takes the values of both."""
    if one == other:
        return one
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else _STRING


def _type_of(value: Any) -> _Type:
    match value:
        case None:
            return _NULL
        case bool() | int() | float():
            return plain_type(value)
        case str():
            return _of_text(value)
        case list():
            of: _Type = _NULL
            for one in value:
                of = _both(of, _type_of(one))
            return _List(of)
        case _:
            return _Object({name: _type_of(one) for name, one in value.items()})


def _of_text(text: str) -> str:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "DATE"
        if _TIME.fullmatch(text):
            datetime.fromisoformat(text.upper())
            return "TIMESTAMP"
    except ValueError:
        pass
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
            found = json.loads(payload)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.others += 1
            return
        for name, value in found.items():
            self._fields[name] = _both(self._fields.get(name, _NULL), _type_of(value))

    def schema(self, taken: Iterable[str]) -> tuple[str, list[str]]:
        """The DDL, without fields that are named as columns in `taken`, and remarks on it."""
        remarks: list[str] = []
        if self.others:
            remarks.append(f"{self.others:,} of the messages are no JSON objects.")
        return _listed(self._fields, (), taken, remarks, " "), remarks


def _listed(
    fields: Mapping[str, _Type],
    path: tuple[str, ...],
    taken: Iterable[str],
    remarks: list[str],
    between: str,
) -> str:
    there = {name.casefold() for name in taken}
    found = []
    for name, kind in fields.items():
        place = ".".join((*path, name))
        if not name:
            remarks.append("A field without a name is left out.")
        elif name.casefold() in there:
            remarks.append(
                f"{place} is left out: there is a column of that name, and Spark ignores case."
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
            if inside := _listed(kind.fields, path, (), remarks, ": "):
                return f"STRUCT<{inside}>"
            remarks.append(f"{place} has only objects without fields: STRING.")
            return _STRING
        case "NULL":
            remarks.append(f"{place} is always null: STRING.")
            return _STRING
        case str():
            return kind
