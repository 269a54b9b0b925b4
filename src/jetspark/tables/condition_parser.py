"""Parses conditions that skip files: comparisons of columns with values, in Spark's SQL.

The text means the same for both formats, since it is typed here, by the table's columns, not by
each library. Conditions that a file's statistics cannot answer are refused. Imported on demand,
since sqlglot takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jetspark.errors import ConfigError
from jetspark.tables.conditions import All, Comparison, Condition, IsNull, Some

_SUPPORTED = (
    "write comparisons of a column with a value (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), "
    "combined by AND, OR and NOT"
)
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def parse_condition(text: str, schema: pa.Schema) -> Condition:
    """A condition on the columns of a table. Raises ConfigError."""
    try:
        statements = sqlglot.parse(text, dialect="spark")
        if len(statements) == 1 and statements[0] is not None:
            return _ConditionParser(text, schema).condition(statements[0], negated=False)
    except SqlglotError:
        pass
    except RecursionError:
        raise ConfigError(
            "prune: the condition is nested too deeply; write a list of values with IN."
        ) from None
    raise ConfigError(f"prune {text!r} is not a condition: {_SUPPORTED}.")


class _ConditionParser:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def condition(self, node: exp.Expr, *, negated: bool) -> Condition:
        match node:
            case exp.Paren():
                return self.condition(node.this, negated=negated)
            case exp.Not():
                return self.condition(node.this, negated=not negated)
            case exp.And() | exp.Or():
                parts = tuple(
                    self.condition(part, negated=negated) for part in (node.this, node.expression)
                )
                return All(parts) if isinstance(node, exp.And) != negated else Some(parts)
            case exp.Is(expression=exp.Null()):
                return IsNull(self._column(node.this), negated)
            case exp.Between():
                ends = (
                    self._compared(node.this, ">=", node.args["low"], negated=negated),
                    self._compared(node.this, "<=", node.args["high"], negated=negated),
                )
                return Some(ends) if negated else All(ends)
            case exp.In(expressions=[_, *_] as values):
                one_of = tuple(
                    self._compared(node.this, "=", part, negated=negated) for part in values
                )
                return All(one_of) if negated else Some(one_of)
            case exp.Column():
                return self._compared(node, "=", exp.true(), negated=negated)
        operator = _OPERATORS.get(type(node))
        if operator is None:
            raise self._unsupported(node)
        left, right = node.this, node.expression
        if isinstance(left, exp.Column):
            return self._compared(left, operator, right, negated=negated)
        if isinstance(right, exp.Column):
            return self._compared(right, _MIRRORED[operator], left, negated=negated)
        raise self._unsupported(node)

    def _compared(
        self, column: exp.Expr, operator: str, value: exp.Expr, *, negated: bool
    ) -> Condition:
        name = self._column(column)
        kind = self._schema.field(name).type
        return Comparison(
            name, _NEGATED[operator] if negated else operator, self._value(name, kind, value), kind
        )

    def _column(self, node: exp.Expr) -> str:
        if not isinstance(node, exp.Column):
            raise self._unsupported(node)
        name = ".".join(part.name for part in node.parts)
        if name in self._schema.names:
            return name
        folded = [part for part in self._schema.names if part.casefold() == name.casefold()]
        if not folded:
            raise ConfigError(
                f"prune {self._text!r}: there is no column {name!r}; there are "
                f"{', '.join(self._schema.names)}."
            )
        return str(folded[0])

    def _value(self, column: str, kind: pa.DataType, node: exp.Expr) -> Any:
        try:
            return _value_of(kind, node)
        except (ValueError, ArithmeticError):
            raise ConfigError(
                f"prune {self._text!r}: {column} has the type {kind}; compare it with "
                f"{_example(kind)}, not with {node.sql(dialect='spark')}."
            ) from None

    def _unsupported(self, node: exp.Expr) -> ConfigError:
        expression = node.sql(dialect="spark")
        return ConfigError(
            f"prune {self._text!r}: {expression} cannot be decided for a file; {_SUPPORTED}."
        )


def _value_of(kind: pa.DataType, node: exp.Expr) -> Any:
    """A literal in the column's type. Raises ValueError or ArithmeticError for another one."""
    if isinstance(node, exp.Cast):  # DATE'…', TIMESTAMP'…'
        node = node.this
    if isinstance(node, exp.Boolean) and pa.types.is_boolean(kind):
        return bool(node.this)
    sign = -1 if isinstance(node, exp.Neg) else 1
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal):
        raise ValueError(node)
    text = str(literal.this)
    if not literal.is_string:
        return _numeric_value(kind, sign * Decimal(text))
    if pa.types.is_string(kind):
        return text
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        if (moment.tzinfo is None) == (kind.tz is None):
            return moment
    raise ValueError(text)


def _numeric_value(kind: pa.DataType, value: Decimal) -> Any:
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind):
        if value == int(value):
            return pa.scalar(int(value), kind).as_py()
    elif pa.types.is_decimal(kind):
        return pa.scalar(value, kind).as_py()
    raise ValueError(value)


def _example(kind: pa.DataType) -> str:
    """A value with which a column of this type can be compared."""
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return "a time without zone such as '2026-01-31T12:00:00'"
        return "a time with its zone such as '2026-01-31T12:00:00Z'"
    return next((example for is_so, example in _EXAMPLES if is_so(kind)), "nothing but null")


_EXAMPLES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a whole number that it can hold"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_decimal, "a number with at most as many digits"),
    (pa.types.is_string, "a text such as 'eu'"),
    (pa.types.is_date, "a date such as '2026-01-31'"),
)
