"""Generated columns of Delta tables: what Spark's SQL makes of other columns, made with Arrow.

Delta protocol, "Generated Columns": a writer fills them in, or checks those that it gets. The forms
here are those that tables are partitioned by, where Arrow and Spark mean the same: dates and parts
of times (in UTC, as times are stored), beginnings of texts, sums and products of whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    """Raised for an expression that is not one of the supported forms."""


@dataclass(frozen=True)
class Generated:
    """Generated column of a Delta table; goes to executors."""

    expression: str
    type: pa.DataType
    tree: _Node

    @classmethod
    def parse(
        cls, column: pa.Field, expression: str, table: object, schema: pa.Schema
    ) -> Generated:
        """Raises ConfigError for an expression that is not known here."""
        try:
            tree = _ExpressionParser(expression, schema.names).parse()
            kind = tree.of(pa.RecordBatch.from_pylist([], schema=schema)).type
            if kind != normalized_type(column.type) and not (
                _is_integer(kind) and _is_integer(column.type)
            ):
                raise _NotSupported
        except (_NotSupported, pa.ArrowException, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{table} has the generated column {column.name} = {safe_repr(expression)}, which "
                f"is not one of the forms that are known here ({SUPPORTED}): write this table with "
                "Delta's own connector for Spark."
            ) from None
        return cls(expression, column.type, tree)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises ConfigError for a time outside of the years 1 to 9999, and for a number that is
        too large."""
        try:
            return self.tree.of(batch).cast(self.type)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"{self.expression}: {error}") from None


@dataclass(frozen=True)
class _ColumnReference:
    name: str

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self.name)
        if pa.types.is_temporal(column.type):
            try:
                pc.min_max(column).as_py()
            except (OverflowError, ValueError):
                raise year_out_of_range(self.name) from None
        return column


@dataclass(frozen=True)
class _Literal:
    value: Any

    def of(self, _: pa.RecordBatch) -> Any:
        return self.value


@dataclass(frozen=True)
class _Call:
    function: str
    parts: tuple[_Node, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return _FUNCTIONS[self.function](*(part.of(batch) for part in self.parts))


_Node = _ColumnReference | _Literal | _Call


class _ExpressionParser:
    def __init__(self, text: str, columns: list[str]) -> None:
        self._columns = {name.casefold(): name for name in columns}
        self._tokens = _tokens(text)
        self._kind, self._text = next(self._tokens)

    def parse(self) -> _Node:
        tree = self._sum()
        if self._kind or isinstance(tree, _Literal):
            raise _NotSupported
        return tree

    def _sum(self) -> _Node:
        return self._operation("+-", lambda: self._operation("*%", self._operand))

    def _operation(self, signs: str, part: Callable[[], _Node]) -> _Node:
        tree = part()
        while self._kind == "sign" and self._text in signs:
            sign = self._next()
            tree = _Call(sign, (tree, part()))
        return tree

    def _operand(self) -> _Node:
        kind, text = self._kind, self._next()
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
            case "name" if self._text == "(" and self._kind == "sign":
                return self._call(text.casefold())
            case "name":
                return self._column(text)
        raise _NotSupported

    def _call(self, function: str) -> _Node:
        self._expect("(")
        parts = [self._sum()]
        if function == "cast":
            if self._next().casefold() != "as":
                raise _NotSupported
            parts.append(_Literal(self._next().casefold()))
        while self._text == "," and self._kind == "sign":
            self._next()
            parts.append(self._sum())
        self._expect(")")
        if function not in _FUNCTIONS:
            raise _NotSupported
        return _Call(function, tuple(parts))

    def _column(self, name: str) -> _ColumnReference:
        if name.casefold() not in self._columns:
            raise _NotSupported
        return _ColumnReference(self._columns[name.casefold()])

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            raise _NotSupported

    def _next(self) -> str:
        text = self._text
        self._kind, self._text = next(self._tokens)
        return text


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text), and ("", "") at the end."""
    at = 0
    while at < len(text):
        if (match := _TOKEN.match(text, at)) is None:
            raise _NotSupported
        at = match.end()
        kind = match.lastgroup or ""
        yield kind, match[kind]
    while True:
        yield "", ""


# -- functions: as in Spark; TypeError for what is left to it -------------------------------------


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind))


def _cast(value: pa.Array, kind: str) -> pa.Array:
    if kind == "date":
        return _to_date(value)
    if kind in _INTEGER_TYPES and _is_integer(value.type):
        return value.cast(_INTEGER_TYPES[kind])
    if kind == "string" and (_is_integer(value.type) or pa.types.is_date32(value.type)):
        return value.cast(pa.string())
    raise TypeError(kind)


_INTEGER_TYPES = {
    "smallint": pa.int16(), "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
}  # fmt: skip


def _to_date(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        return pc.floor_temporal(value, unit="day").cast(pa.date32())
    if pa.types.is_date32(value.type):
        return value
    raise TypeError(value.type)


def _extract(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    return lambda value: function(value).cast(pa.int32())


_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"), "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"), "week": "week",
    **dict.fromkeys(("day", "dd"), "day"), "hour": "hour", "minute": "minute",
}  # fmt: skip


def _date_trunc(unit: str, value: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(value.type) or unit.casefold() not in _UNITS:
        raise TypeError(unit)
    return pc.floor_temporal(value, unit=_UNITS[unit.casefold()])


def _trunc(value: pa.Array, unit: str) -> pa.Array:
    if _UNITS.get(unit.casefold()) not in ("year", "quarter", "month", "week"):
        raise TypeError(unit)
    return pc.floor_temporal(_to_date(value), unit=_UNITS[unit.casefold()])


_DATE_FIELDS: dict[str, tuple[Callable[[pa.Array], pa.Array], int]] = {
    "yyyy": (pc.year, 4), "MM": (pc.month, 2), "dd": (pc.day, 2), "HH": (pc.hour, 2),
    "mm": (pc.minute, 2),
}  # fmt: skip
_FORMAT_PART = re.compile(r"(yyyy|MM|dd|HH|mm)|([^A-Za-z'\[\]{}#]+)")


def _date_format(value: pa.Array, pattern: str) -> pa.Array:
    parts = _FORMAT_PART.findall(pattern)
    if _FORMAT_PART.sub("", pattern) or not any(field for field, _ in parts):
        raise TypeError(pattern)
    texts: list[Any] = []
    for field, between in parts:
        if field:
            part, width = _DATE_FIELDS[field]
            texts.append(pc.utf8_lpad(part(value).cast(pa.string()), width, "0"))
        else:
            texts.append(between)
    return pc.binary_join_element_wise(*texts, "")


def _substring(value: pa.Array, start: int, length: int) -> pa.Array:
    if start < 1:
        raise TypeError(start)
    return pc.utf8_slice_codeunits(value, start - 1, start - 1 + length)


def _remainder(value: pa.Array, by: int) -> pa.Array:
    """The remainder, with the sign of the value as in Spark."""
    if not by:
        raise TypeError(by)
    value = _require_integer(value)
    return pc.subtract_checked(value, pc.multiply_checked(pc.divide_checked(value, by), by))


def _require_integer(value: Any) -> Any:
    if isinstance(value, int) or _is_integer(value.type):
        return value
    raise TypeError(value)


_FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "cast": _cast,
    "to_date": _to_date,
    "date": _to_date,
    "year": _extract(pc.year),
    "month": _extract(pc.month),
    "day": _extract(pc.day),
    "dayofmonth": _extract(pc.day),
    "hour": _extract(pc.hour),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_format": _date_format,
    "substring": _substring,
    "substr": _substring,
    "left": lambda value, length: _substring(value, 1, length),
    "+": lambda left, right: pc.add_checked(_require_integer(left), _require_integer(right)),
    "-": lambda left, right: pc.subtract_checked(_require_integer(left), _require_integer(right)),
    "*": lambda left, right: pc.multiply_checked(_require_integer(left), _require_integer(right)),
    "%": _remainder,
}
