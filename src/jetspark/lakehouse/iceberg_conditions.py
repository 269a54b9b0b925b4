"""Conditions by which files are left out, in PyIceberg's form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNull,
    Or,
    Reference,
)
from pyiceberg.expressions import IsNull as Null

from jetspark.lakehouse.conditions import All, Comparison, Condition, IsNull, Some

_COMPARISONS: dict[str, Any] = {
    "=": EqualTo, "!=": NotEqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}  # fmt: skip


def to_iceberg(condition: Condition) -> BooleanExpression:
    """For a scan of PyIceberg."""
    match condition:
        case Comparison():
            found: BooleanExpression = _COMPARISONS[condition.operator](
                Reference(condition.column), condition.value
            )
            # NaN is greater than every number in Spark, and above no file's bounds.
            if pa.types.is_floating(condition.type) and condition.operator in (">", ">=", "!="):
                return Or(found, IsNaN(term=Reference(condition.column)))
            return found
        case IsNull():
            column = Reference(condition.column)
            return NotNull(term=column) if condition.negated else Null(term=column)
        case All() | Some():
            first, *more = map(to_iceberg, condition.parts)
            # Of all parts at once a tree is built that is not deep; its readers are recursive.
            return (And if isinstance(condition, All) else Or)(first, *more) if more else first
