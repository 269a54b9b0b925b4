"""Conditions that skip files (`prune`): comparisons of columns with values, in Spark's SQL.

The text means the same for both formats, since it is typed here, by the table's columns, not by
each library. Conditions that a file's statistics cannot answer are refused. Imported on demand,
since sqlglot takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jetspark.errors import ConfigError

_SUPPORTED = (
    "write comparisons of a column with a value (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), "
    "combined by AND, OR and NOT"
)
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Comparison:
    """A condition by which files are skipped: a column is compared with a value of its type."""

    column: str
    operator: str
    """=, !=, <, <=, > or >=."""
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class IsNull:
    """A condition by which files are skipped: `column IS NULL`, or `IS NOT NULL` if negated."""

    column: str
    negated: bool


@dataclass(frozen=True)
class And:
    """A condition that is met if all of its operands are."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    """A condition that is met if at least one of its operands is."""

    operands: tuple[Condition, ...]


Condition = Comparison | IsNull | And | Or


def parse_condition(text: str, schema: pa.Schema) -> Condition:
    """Parse a text such as `day >= DATE'2026-01-31'` into a condition on a table's columns, by
    which files are skipped. Raises ConfigError for one that a file's statistics cannot answer."""
    try:
        statements = sqlglot.parse(text, dialect="spark")
        if len(statements) == 1 and statements[0] is not None:
            return _ConditionParser(text, schema).condition(statements[0], negated=False)
    except SqlglotError:
        pass  # raises the error at the end
    except RecursionError:
        raise ConfigError(
            "prune: the condition is nested too deeply; write a list of values with IN."
        ) from None
    raise ConfigError(f"prune {text!r} is not a condition: {_SUPPORTED}.")


class _ConditionParser:
    """Translates an SQL expression that sqlglot has parsed into a `Condition`. A condition has no
    NOT, so each one is moved down to the comparisons, which are negated."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def condition(self, node: exp.Expr, *, negated: bool) -> Condition:
        """The condition that an SQL expression stands for, or its negation (NOT (a AND b) is NOT a
        OR NOT b). Raises ConfigError for what a file's statistics cannot answer."""
        match node:
            case exp.Paren():
                return self.condition(node.this, negated=negated)
            case exp.Not():
                return self.condition(node.this, negated=not negated)
            case exp.And() | exp.Or():
                operands = tuple(
                    self.condition(operand, negated=negated)
                    for operand in (node.this, node.expression)
                )
                return And(operands) if isinstance(node, exp.And) != negated else Or(operands)
            case exp.Is(expression=exp.Null()):
                return IsNull(self._column_name(node.this), negated)
            case exp.Between():
                bounds = (
                    self._comparison(node.this, ">=", node.args["low"], negated=negated),
                    self._comparison(node.this, "<=", node.args["high"], negated=negated),
                )
                return Or(bounds) if negated else And(bounds)
            case exp.In(expressions=[_, *_] as values):  # a list of values, not a subquery
                comparisons = tuple(
                    self._comparison(node.this, "=", value, negated=negated) for value in values
                )
                return And(comparisons) if negated else Or(comparisons)
            case exp.Column():  # a boolean column by itself
                return self._comparison(node, "=", exp.true(), negated=negated)
        operator = _OPERATORS.get(type(node))
        if operator is None:
            raise self._unsupported(node)
        if isinstance(node.this, exp.Column):
            return self._comparison(node.this, operator, node.expression, negated=negated)
        if isinstance(node.expression, exp.Column):  # 5 < x is x > 5
            mirrored = _MIRRORED[operator]
            return self._comparison(node.expression, mirrored, node.this, negated=negated)
        raise self._unsupported(node)

    def _comparison(
        self, column: exp.Expr, operator: str, value: exp.Expr, *, negated: bool
    ) -> Comparison:
        """The comparison of a column with a literal, or its negation (NOT x < 5 is x >= 5). Raises
        ConfigError for a literal that the column's type does not have."""
        name = self._column_name(column)
        kind = self._schema.field(name).type
        try:
            literal = _parse_literal(kind, value)
        except (ValueError, ArithmeticError):
            raise ConfigError(
                f"prune {self._text!r}: {name} has the type {kind}; compare it with "
                f"{_describe_literal(kind)}, not with {value.sql(dialect='spark')}."
            ) from None
        return Comparison(
            column=name,
            operator=_NEGATED[operator] if negated else operator,
            value=literal,
            type=kind,
        )

    def _column_name(self, node: exp.Expr) -> str:
        """The table's column that a part of the condition names: exactly, or else whatever the case
        of the letters. Raises ConfigError if there is none."""
        if not isinstance(node, exp.Column):
            raise self._unsupported(node)
        name = ".".join(part.name for part in node.parts)  # a name with dots has several parts
        names: list[str] = self._schema.names
        if name in names:
            return name
        for column in names:
            if column.casefold() == name.casefold():
                return column
        raise ConfigError(
            f"prune {self._text!r}: there is no column {name!r}; there are {', '.join(names)}."
        )

    def _unsupported(self, node: exp.Expr) -> ConfigError:
        """The error for a part of the condition that statistics of a file cannot answer."""
        expression = node.sql(dialect="spark")
        return ConfigError(
            f"prune {self._text!r}: {expression} cannot be decided for a file; {_SUPPORTED}."
        )


def _parse_literal(kind: pa.DataType, node: exp.Expr) -> Any:
    """The value of an SQL literal, for a comparison with a column of this type. Raises ValueError
    or ArithmeticError for a literal of another type."""
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
        return _as_number(kind, sign * Decimal(text))
    if pa.types.is_string(kind):
        return text
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        # A time has a zone if the column's have one: nothing else says which moment is meant.
        if (moment.tzinfo is None) == (kind.tz is None):
            return moment
    raise ValueError(text)


def _as_number(kind: pa.DataType, value: Decimal) -> Any:
    """A number, for a comparison with a column of this type. Raises ValueError or ArithmeticError
    for an integer or decimal column that cannot hold the number, and for one of texts or times."""
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind):
        if value == int(value):
            return pa.scalar(int(value), kind).as_py()
    elif pa.types.is_decimal(kind):
        return pa.scalar(value, kind).as_py()
    raise ValueError(value)


def _describe_literal(kind: pa.DataType) -> str:
    """What a column of this type can be compared with, as part of a sentence."""
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return "a time without zone such as '2026-01-31T12:00:00'"
        return "a time with its zone such as '2026-01-31T12:00:00Z'"
    return next((literal for is_type, literal in _LITERALS if is_type(kind)), "nothing but null")


_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a whole number that it can hold"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_decimal, "a number with at most as many digits"),
    (pa.types.is_string, "a text such as 'eu'"),
    (pa.types.is_date, "a date such as '2026-01-31'"),
)
