"""Conditions, names and values in the SQL of deltalake."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from jetspark.tables.conditions import All, Comparison, Condition, IsNull, Some


def quote_name(column: str, alias: str | None = None) -> str:
    """The name of a column in quotation marks, behind the alias of its table."""
    name = '"' + column.replace('"', '""') + '"'
    return name if alias is None else f"{alias}.{name}"


def to_sql(condition: Condition) -> str:
    """The condition in the SQL of deltalake, which takes times without a zone for UTC."""
    match condition:
        case Comparison():
            value = to_literal(condition.value)
            return f"{quote_name(condition.column)} {condition.operator} {value}"
        case IsNull():
            return f"{quote_name(condition.column)} IS {'NOT ' if condition.negated else ''}NULL"
        case All() | Some():
            word = " AND " if isinstance(condition, All) else " OR "
            return f"({word.join(map(to_sql, condition.parts))})"


def to_literal(value: Any) -> str:
    """A value of a column's type as a literal."""
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
