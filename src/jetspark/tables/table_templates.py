"""Routes rows to tables by a template of the table's name, filled in with values of the row.

`lake/{region}` has the value of a column, `lake/{subject[1]}` a token of the message's subject
(counted from 0, as in Spark's `split`), `lake/{header[Site]}` the first value of a header.

Values come from others, so they are escaped. In a folder's name every character but ASCII letters,
digits, `_`, `-` and `.` becomes its bytes, as `~` and two digits each (object stores would decode
`%`), as does a `_` or `.` at the beginning, which would hide the folder or leave it, and a sign
that the template has between two values. In a catalog every character but ASCII letters and digits
becomes `_x`, its code and `_`, as does an `x` at the beginning, if the template has a `_` between
values. A long value is cut and ends with a hash. Different values have different names: a template
in which nothing tells where a value ends is refused.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.nearest import did_you_mean_or_list
from jetspark.tables.row_expressions import RowExpression, map_distinct_values

_MAX_VALUE_LENGTH = 120
"""Characters of a value in a name."""
_VALUE = re.compile(r"\{([^{}]*)\}")
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.")
# What becomes of a value in a name.
_OF_FOLDER = r"[0-9A-Za-z~-][0-9A-Za-z_.~-]*"
_OF_CATALOG = r"(?:[0-9A-Za-z]|_x[0-9a-f]+_)+(?:[0-9a-z_]*-[0-9a-f]{16})?"


# Texts between two values that do not tell where the first one ends.
_MERGES_IN_FOLDER = re.compile(r"[0-9A-Za-z~]*")
_MERGES_IN_CATALOG = re.compile(r"[0-9A-Za-z-]*|.*_x.*", re.DOTALL)


@dataclass(frozen=True)
class TableTemplate:
    """A template: fixed texts, and values between them."""

    texts: tuple[str, ...]
    values: tuple[RowExpression, ...]
    in_catalog: bool = False

    @classmethod
    def parse(cls, option: str, template: str, *, in_catalog: bool = False) -> TableTemplate | None:
        """Parse a template; None if it has no values. Raises ConfigError."""
        parts = _VALUE.split(template)
        if any(brace in text for text in parts[::2] for brace in "{}"):
            raise ConfigError(
                f"{option}: in {template} the braces do not match: write {{column}}, "
                "{subject[1]} or {header[Name]}."
            )
        if len(parts) == 1:
            return None
        values = tuple(RowExpression.parse(option, value) for value in parts[1::2])
        merges = _MERGES_IN_CATALOG if in_catalog else _MERGES_IN_FOLDER
        if any(map(merges.fullmatch, parts[2:-1:2])):
            raise ConfigError(
                f"{option}: in {template} nothing tells where a value ends, so different values "
                f"could name one table: write a {'_ or .' if in_catalog else '-, _ or /'} between "
                "them."
            )
        return cls(tuple(parts[::2]), values, in_catalog)

    @cached_property
    def _between(self) -> frozenset[str]:
        """The signs between two values, which no value has in a folder's name."""
        return frozenset(
            character for text in self.texts[1:-1] for character in text if not character.isalnum()
        )

    @cached_property
    def _has_marks(self) -> bool:
        """Whether a `_` of the template is in front of a value, which must not look like a code."""
        return any(text.endswith("_") for text in self.texts[1:-1])

    @property
    def root(self) -> str:
        """The folder of all tables."""
        return self.texts[0].rpartition("/")[0] or "."

    def may_name(self, table: str) -> bool:
        """Whether values of a row can make this name."""
        value = _OF_CATALOG if self.in_catalog else _OF_FOLDER
        return re.fullmatch(value.join(map(re.escape, self.texts)), table) is not None

    def sibling_name(self, table: str) -> str:
        """Name beside this table's that no values of a row make."""
        parent, separator, name = table.rpartition("." if self.in_catalog else "/")
        return f"{parent}{separator}_{name}"

    def check(self, option: str, names: Sequence[str]) -> None:
        """Raise ConfigError for a value of a column that the rows lack."""
        for value in self.values:
            if value.column not in names:
                hint = did_you_mean_or_list(value.column, names)
                raise ConfigError(f"{option}: the rows have no column {value.column!r}{hint}")

    def check_types(self, option: str, rows: pa.Schema) -> None:
        """Raises ConfigError for a column whose values make no name."""
        for value in self.values:
            kind = rows.field(value.column).type
            if value.text == value.column and (
                pa.types.is_nested(kind) or pa.types.is_binary(kind)
            ):
                raise ConfigError(
                    f"{option}: {{{value.text}}} has the type {kind}, which makes no name: take a "
                    "text, a number or a time."
                )

    def missing_value(self, row: pa.RecordBatch) -> tuple[str | None, str]:
        """The column that names no table for a row, and the reason as a sentence."""
        for value in self.values:
            if not value.of(row).cast(pa.string())[0].as_py():
                return value.column, f"The row has no {value.text}, which names its table."
        return None, "No table was found for the row."

    def split_by_table(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """(name of the table, rows); the name is None for rows without one of the values."""
        columns = [
            map_distinct_values(value.of(batch).cast(pa.string()), self._escaped)
            for value in self.values
        ]
        parts: list[Any] = [self.texts[0]]
        for column, text in zip(columns, self.texts[1:], strict=True):
            parts += [column, text]
        encoded = pc.binary_join_element_wise(*parts, "").dictionary_encode(null_encoding="encode")
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], batch
            return
        order = pc.sort_indices(encoded.indices)
        rows = batch.take(order)
        counts = pc.value_counts(encoded.indices.take(order))
        start = 0
        for count in counts.to_pylist():
            yield names[count["values"]], rows.slice(start, count["counts"])
            start += count["counts"]

    def _escaped(self, value: str | None) -> str | None:
        if not value:
            return None
        if self.in_catalog:
            unsafe = r"^x|[^0-9A-Za-z]" if self._has_marks else r"[^0-9A-Za-z]"
            escaped = re.sub(unsafe, lambda character: f"_x{ord(character[0]):x}_", value)
        else:
            safe = _SAFE - self._between
            escaped = "".join(
                character if character in safe else _escape_bytes(character) for character in value
            )
            if escaped[0] in "_.":
                escaped = _escape_bytes(escaped[0]) + escaped[1:]
        if len(escaped) < _MAX_VALUE_LENGTH:  # one that is cut has just as many characters
            return escaped
        mark = "~~" if "-" in self._between and not self.in_catalog else "-"
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        return f"{escaped[: _MAX_VALUE_LENGTH - 17]}{mark}{digest}"


def _escape_bytes(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())
