"""Parses `partitionBy`, the columns and transforms by which a table is partitioned.

| text | value |
|---|---|
| `region` | of the column |
| `year(timestamp)`, `month(…)`, `day(…)`, `hour(…)` | the unit of time, in UTC |
| `bucket(16, id)` | one of 16 numbers, by a hash of the value |
| `truncate(4, name)` | the first characters of a text, or a number rounded down to a multiple |

Iceberg computes them when it reads and writes (specification, "Partition Transforms").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from jetspark.errors import ConfigError, named, safe_repr

_SEPARATOR = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)(?![^()]*\))")
"""A comma outside of backquotes and parentheses."""
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_TIME_UNIT = re.compile(r"(year|month|day|hour)s?\s*\((.+)\)", re.IGNORECASE)
_WITH_WIDTH = re.compile(r"(bucket|truncate)\s*\(\s*(-?\d+(?:\.\d+)?)\s*,(.+)\)", re.IGNORECASE)
EXAMPLES = "day(timestamp), hour(…), month(…), year(…), bucket(16, id), truncate(4, name)"


_SUPPORTED_TYPES: dict[str, Callable[[pa.DataType], bool]] = {
    "": lambda kind: (
        not (types.is_nested(kind) or types.is_binary(kind) or types.is_floating(kind))
    ),
    **dict.fromkeys(
        ("year", "month", "day"), lambda kind: types.is_timestamp(kind) or types.is_date(kind)
    ),
    "hour": types.is_timestamp,
    "bucket": lambda kind: (
        not (types.is_nested(kind) or types.is_floating(kind) or types.is_boolean(kind))
    ),
    "truncate": lambda kind: any(
        is_type(kind)
        for is_type in (types.is_integer, types.is_string, types.is_binary, types.is_decimal)
    ),
}
"""Whether a transform takes values of a type, by the transform's name; "": the column itself."""


@dataclass(frozen=True)
class PartitionBy:
    """A column, or a transform of it, by which a user lets a table be partitioned."""

    column: str
    transform: str = ""
    """Empty: the column's values themselves."""
    width: int = 0
    """Number of buckets, or width of a truncation."""

    @classmethod
    def parse(cls, text: str) -> PartitionBy:
        """Parse a column's name, or a transform of a column such as `day(timestamp)` or
        `bucket(16, id)`. Raises ConfigError."""
        text = text.strip()
        if (match := _TIME_UNIT.fullmatch(text)) is not None:
            return cls(_unquote(match[2]), transform=match[1].casefold())
        if (match := _WITH_WIDTH.fullmatch(text)) is None:
            return cls(_unquote(text))
        # Iceberg keeps it in 32 bits, and Python refuses to read thousands of digits.
        if not match[2].isdecimal() or len(match[2]) > 10 or not 1 <= int(match[2]) < 2**31:
            raise ConfigError(
                f"{named('partition_by')}: {safe_repr(text)}: its number must be 1 or more, a "
                f"whole one, and {2**31 - 1} at most."
            )
        return cls(_unquote(match[3]), transform=match[1].casefold(), width=int(match[2]))

    def __str__(self) -> str:
        """The text that `parse` reads as this; a column with a comma stands in backquotes."""
        column = self.column
        if {*column} & {",", "`"}:
            column = f"`{column.replace('`', '``')}`"
        if not self.transform:
            return column
        width = f"{self.width}, " if self.width else ""
        return f"{self.transform}({width}{column})"

    def check(self, schema: pa.Schema) -> None:
        """Raise ConfigError unless a table with these columns can be partitioned by this: the
        column exists, and the transform takes values of its type."""
        index = schema.get_field_index(self.column)
        if index < 0:
            also = f"; transforms are {EXAMPLES}" if "(" in self.column else ""
            raise ConfigError(
                f"{named('partition_by')}: there is no column {self.column!r}; there are "
                f"{', '.join(schema.names)}{also}."
            )
        kind = schema.field(index).type
        if not _SUPPORTED_TYPES[self.transform](kind):
            subject = self if self.transform else repr(self.column)
            raise ConfigError(
                f"{named('partition_by')}: a table cannot be partitioned by {subject}: the type of "
                f"{self.column!r} is {kind}."
            )


def _unquote(text: str) -> str:
    """The name of a column in a text where it may stand in backquotes."""
    text = text.strip()
    quoted = _QUOTED.fullmatch(text)
    return text if quoted is None else quoted[1].replace("``", "`")


def join_partitions(texts: Iterable[str]) -> str:
    """Join partition columns and transforms into one text, separated by commas, which
    `parse_partitions` divides again."""
    return ",".join(str(PartitionBy.parse(text)) for text in texts)


def parse_partitions(text: str) -> tuple[PartitionBy, ...]:
    """Parse the columns and transforms by which a table is partitioned, with commas between them.
    Raises ConfigError if there are none, or one twice."""
    partitions = tuple(PartitionBy.parse(part) for part in _SEPARATOR.split(text) if part.strip())
    if not partitions:
        raise ConfigError(
            f"{named('partition_by')} is empty: leave it out for a table without partitions."
        )
    if len(set(partitions)) < len(partitions):
        raise ConfigError(f"{named('partition_by')} names a column twice: {text}.")
    return partitions


def check_partitions(schema: pa.Schema, partition_by: Iterable[PartitionBy]) -> None:
    """Raise ConfigError for partitions that a table with these columns cannot have: by a missing
    column or an unsuitable type, or by all columns, so that none is left for the files."""
    columns = set()
    for partition in partition_by:
        partition.check(schema)
        if not partition.transform:
            columns.add(partition.column)
    if columns and len(columns) == len(schema.names):
        raise ConfigError(
            f"{named('partition_by')} names every column: leave out at least one, for the files."
        )
