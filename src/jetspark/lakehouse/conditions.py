"""Conditions by which files are left out, as a tree, and in the SQL of deltalake. `prune` parses
them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Comparison:
    """A column and a value of its type."""

    column: str
    operator: str
    """=, !=, <, <=, > or >=."""
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class IsNull:
    """Whether a column is null."""

    column: str
    negated: bool = False


@dataclass(frozen=True)
class All:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Some:
    """One of the parts holds."""

    parts: tuple[Condition, ...]


Condition = Comparison | IsNull | All | Some


def to_sql(condition: Condition) -> str:
    """In the SQL of deltalake, which takes times without zone for UTC."""
    match condition:
        case Comparison():
            value = _literal(condition.value)
            return f"{_quoted(condition.column)} {condition.operator} {value}"
        case IsNull():
            return f"{_quoted(condition.column)} IS {'NOT ' if condition.negated else ''}NULL"
        case All() | Some():
            word = " AND " if isinstance(condition, All) else " OR "
            return f"({word.join(map(to_sql, condition.parts))})"


def _literal(value: Any) -> str:
    match value:
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"'{moment.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            text = value.replace("'", "''")
            return f"'{text}'"
        case bool():
            return "TRUE" if value else "FALSE"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _quoted(column: str) -> str:
    name = column.replace('"', '""')
    return f'"{name}"'
