"""Generated columns of Delta tables: what Spark's SQL makes of other columns, made with Arrow.

Delta protocol, "Generated Columns": a writer fills them in, or checks those that it gets. The forms
here are those that tables are partitioned by, where Arrow and Spark mean the same: dates and parts
of times (in UTC, as times are stored), beginnings of texts, sums and products of whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_signed_integer

from jetspark.errors import ConfigError, safe_repr
from jetspark.tables.file_layout import year_out_of_range
from jetspark.tables.schemas import normalized_type

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)(?![\w.])"
    r"|(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<sign>[-+*%(),]))\s*"
)
SUPPORTED = (
    "CAST(… AS DATE), YEAR, MONTH, DAY and HOUR, DATE_TRUNC, DATE_FORMAT with yyyy, MM, dd, HH and "
    "mm, SUBSTRING, and +, -, * and % of whole numbers"
)


class _NotSupported(Exception):
    """Raised for an SQL expression of a generated column that is not one of the known forms."""


@dataclass(frozen=True)
class Generated:
    """A generated column of a Delta table, with its SQL expression parsed, so that tasks can
    compute its values with Arrow."""

    expression: str
    type: pa.DataType
    tree: _Node

    @classmethod
    def parse(
        cls, column: pa.Field, expression: str, table: object, schema: pa.Schema
    ) -> Generated:
        """Parse the SQL expression of a generated column. `table`: the table's name; `schema`: its
        columns. Raises ConfigError for an expression that is not supported, or has another type
        than the column."""
        try:
            tree = _ExpressionParser(expression, schema.names).parse()
            # Computed for no rows, the expression shows its type.
            kind = tree.of(pa.RecordBatch.from_pylist([], schema=schema)).type
            are_integers = is_signed_integer(kind) and is_signed_integer(column.type)
            if not are_integers and kind != normalized_type(column.type):
                raise _NotSupported
        except (_NotSupported, pa.ArrowException, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{table} has the generated column {column.name} = {safe_repr(expression)}, which "
                f"is not one of the forms that are known here ({SUPPORTED}): write this table with "
                "Delta's own connector for Spark."
            ) from None
        return cls(expression, column.type, tree)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute the generated column's values for these rows. Raises ConfigError for a time
        outside of the years 1 to 9999, and for a number that is too large."""
        try:
            return self.tree.of(batch).cast(self.type)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"{self.expression}: {error}") from None


@dataclass(frozen=True)
class _Column:
    """A column of the table in the expression of a generated column."""

    name: str

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The column of these rows. Raises ConfigError for a time outside the years 1 to 9999."""
        column = batch.column(self.name)
        if pa.types.is_temporal(column.type):
            try:  # Python, unlike Arrow, refuses other years
                pc.min_max(column).as_py()
            except (OverflowError, ValueError):
                raise year_out_of_range(self.name) from None
        return column


@dataclass(frozen=True)
class _Literal:
    """A number, a text, or the type of a CAST, in the expression of a generated column."""

    value: Any

    def of(self, _: pa.RecordBatch) -> Any:
        return self.value


@dataclass(frozen=True)
class _Call:
    """A call of a function, or an operator between two operands, in the expression of a generated
    column."""

    function: str
    """A key of `_FUNCTIONS`."""
    arguments: tuple[_Node, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return _FUNCTIONS[self.function](*(argument.of(batch) for argument in self.arguments))


_Node = _Column | _Literal | _Call


class _ExpressionParser:
    """Parses the SQL expression of a generated column by recursive descent. Raises _NotSupported
    for what Arrow and Spark would not compute alike."""

    def __init__(self, text: str, columns: list[str]) -> None:
        """Begin with the first token. `text`: the expression; `columns`: the table's, which it may
        name in any case."""
        self._columns = {name.casefold(): name for name in columns}
        self._tokens = _tokenize(text)
        self._kind, self._text = next(self._tokens)  # the next token

    def parse(self) -> _Node:
        """The whole expression as a tree, which has to be computed from a column."""
        tree = self._sum()
        # With tokens left over, or for a constant, it is not one of the supported forms.
        if self._kind or isinstance(tree, _Literal):
            raise _NotSupported
        return tree

    def _sum(self) -> _Node:
        """Parse products with + and - between them; these bind less than * and %."""
        return self._operations("+-", self._product)

    def _product(self) -> _Node:
        """Parse operands with * and % between them."""
        return self._operations("*%", self._operand)

    def _operations(self, operators: str, parse_operand: Callable[[], _Node]) -> _Node:
        """Parse operands with some of these operators between them, which are applied from left to
        right. `parse_operand`: parses one."""
        tree = parse_operand()
        while self._kind == "sign" and self._text in operators:
            operator = self._take()
            tree = _Call(operator, (tree, parse_operand()))
        return tree

    def _operand(self) -> _Node:
        """Parse a literal, a column, a call of a function, or an expression in parentheses."""
        kind, text = self._kind, self._take()
        match kind:
            case "number":
                return _Literal(int(text))
            case "text":
                return _Literal(text[1:-1])
            case "quoted":
                return self._column(text.replace("``", "`"))
            case "sign" if text == "(":
                tree = self._sum()
                self._expect(")")
                return tree
            case "name" if self._text == "(" and self._kind == "sign":  # the token after the name
                return self._call(text.casefold())
            case "name":
                return self._column(text)
        raise _NotSupported

    def _call(self, function: str) -> _Node:
        """Parse the arguments of a call, in parentheses; the function's name was taken before."""
        self._expect("(")
        arguments = [self._sum()]
        if function == "cast":  # CAST(value AS type)
            if self._take().casefold() != "as":
                raise _NotSupported
            arguments.append(_Literal(self._take().casefold()))
        while self._text == "," and self._kind == "sign":
            self._take()
            arguments.append(self._sum())
        self._expect(")")
        if function not in _FUNCTIONS:
            raise _NotSupported
        return _Call(function, tuple(arguments))

    def _column(self, name: str) -> _Column:
        """The table's column of this name, whatever the case of its letters."""
        if name.casefold() not in self._columns:
            raise _NotSupported
        return _Column(self._columns[name.casefold()])

    def _expect(self, sign: str) -> None:
        """Take the next token, which has to be this sign."""
        if self._take() != sign:
            raise _NotSupported

    def _take(self) -> str:
        """Return the text of the next token, and go on to the one after it."""
        text = self._text
        self._kind, self._text = next(self._tokens)
        return text


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    """Divide an SQL expression into tokens: yields (kind, text) of each, and then ("", "") without
    end, so that a parser need not ask whether there are more. A kind is a group of `_TOKEN`."""
    position = 0
    while position < len(text):
        if (match := _TOKEN.match(text, position)) is None:
            raise _NotSupported
        position = match.end()
        kind = match.lastgroup or ""
        yield kind, match[kind]
    yield from repeat(("", ""))


# -- functions, as in Spark; they raise TypeError for arguments that are not supported -------------


def _cast(value: pa.Array, kind: str) -> pa.Array:
    """Spark's CAST(value AS kind), for the casts in which Arrow and Spark agree; TypeError for
    others."""
    if kind == "date":
        return _to_date(value)
    if kind in _INTEGER_TYPES and is_signed_integer(value.type):
        return value.cast(_INTEGER_TYPES[kind])
    if kind == "string" and (is_signed_integer(value.type) or pa.types.is_date32(value.type)):
        return value.cast(pa.string())
    raise TypeError(kind)


_INTEGER_TYPES = {
    "smallint": pa.int16(), "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
}  # fmt: skip


def _to_date(value: pa.Array) -> pa.Array:
    """Spark's TO_DATE: the day (in UTC) of each timestamp or date; TypeError for other types."""
    if pa.types.is_timestamp(value.type):
        return pc.floor_temporal(value, unit="day").cast(pa.date32())
    if pa.types.is_date32(value.type):
        return value
    raise TypeError(value.type)


def _field_of_time(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Change a function that extracts a field of times, such as their years: it returns INT, as
    Spark has them, in place of Arrow's BIGINT."""
    return lambda value: function(value).cast(pa.int32())


_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"), "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"), "week": "week",
    **dict.fromkeys(("day", "dd"), "day"), "hour": "hour", "minute": "minute",
}  # fmt: skip


def _date_trunc(unit: str, value: pa.Array) -> pa.Array:
    """Spark's DATE_TRUNC: each timestamp rounded down to the start of its hour, day, year, …;
    TypeError for other types and units."""
    if not pa.types.is_timestamp(value.type) or unit.casefold() not in _UNITS:
        raise TypeError(unit)
    return pc.floor_temporal(value, unit=_UNITS[unit.casefold()])


def _trunc(value: pa.Array, unit: str) -> pa.Array:
    """Spark's TRUNC: each date rounded down to the first day of its week, month, quarter or year;
    TypeError for other units."""
    if _UNITS.get(unit.casefold()) not in ("year", "quarter", "month", "week"):
        raise TypeError(unit)
    return pc.floor_temporal(_to_date(value), unit=_UNITS[unit.casefold()])


_DATE_FIELDS: dict[str, tuple[Callable[[pa.Array], pa.Array], int]] = {
    "yyyy": (pc.year, 4), "MM": (pc.month, 2), "dd": (pc.day, 2), "HH": (pc.hour, 2),
    "mm": (pc.minute, 2),
}  # fmt: skip
"""Fields of Spark's datetime patterns: how each is extracted, and its number of digits."""
_FORMAT_PART = re.compile(r"(yyyy|MM|dd|HH|mm)|([^A-Za-z'\[\]{}#]+)")


def _date_format(value: pa.Array, pattern: str) -> pa.Array:
    """Spark's DATE_FORMAT: times as texts such as 2026-01-31. `pattern`: fields such as yyyy and
    MM with other characters between them; TypeError for letters that are no known field."""
    parts = _FORMAT_PART.findall(pattern)
    if _FORMAT_PART.sub("", pattern) or not any(field for field, _ in parts):
        raise TypeError(pattern)
    texts: list[Any] = []
    for field, separator in parts:
        if field:
            extract, width = _DATE_FIELDS[field]
            texts.append(pc.utf8_lpad(extract(value).cast(pa.string()), width, "0"))
        else:
            texts.append(separator)
    return pc.binary_join_element_wise(*texts, "")


def _substring(value: pa.Array, start: int, length: int) -> pa.Array:
    """Spark's SUBSTRING: a part of each text, whose first character has the number 1."""
    if start < 1:  # Spark counts negative ones from the end
        raise TypeError(start)
    return pc.utf8_slice_codeunits(value, start - 1, start - 1 + length)


def _remainder(value: pa.Array, divisor: int) -> pa.Array:
    """Spark's %: the remainder, which has the sign of the value, not of the divisor."""
    if not divisor:  # Spark makes null of it, or an error
        raise TypeError(divisor)
    quotient = pc.divide_checked(value, divisor)
    return pc.subtract_checked(value, pc.multiply_checked(quotient, divisor))


def _of_integers(function: Callable[..., pa.Array]) -> Callable[[Any, Any], pa.Array]:
    """The function of two operands, restricted to whole numbers, with which Arrow and Spark compute
    alike: it raises TypeError for others."""

    def call(left: Any, right: Any) -> pa.Array:
        """Apply the function; an operand is an array, or a literal as an int."""
        for operand in (left, right):
            if not isinstance(operand, int) and not is_signed_integer(operand.type):
                raise TypeError(operand)
        return function(left, right)

    return call


_FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "cast": _cast,
    "to_date": _to_date,
    "date": _to_date,
    "year": _field_of_time(pc.year),
    "month": _field_of_time(pc.month),
    "day": _field_of_time(pc.day),
    "dayofmonth": _field_of_time(pc.day),
    "hour": _field_of_time(pc.hour),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_format": _date_format,
    "substring": _substring,
    "substr": _substring,
    "left": lambda value, length: _substring(value, 1, length),
    "+": _of_integers(pc.add_checked),
    "-": _of_integers(pc.subtract_checked),
    "*": _of_integers(pc.multiply_checked),
    "%": _of_integers(_remainder),
}
