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
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.nearest import did_you_mean_or_list
from jetspark.tables.row_expressions import RowExpression, map_distinct_values

_MAX_VALUE_LENGTH = 120
"""Characters of a value in a name."""
_DIGEST_LENGTH = 16
_VALUE = re.compile(r"\{([^{}]*)\}")
_SAFE_IN_FOLDER = frozenset(string.ascii_letters + string.digits + "_-.")
# What an escaped value looks like.
_FOLDER_VALUE = r"[0-9A-Za-z~-][0-9A-Za-z_.~-]*"
_CATALOG_VALUE = r"(?:[0-9A-Za-z]|_x[0-9a-f]+_)+(?:[0-9a-z_]*-[0-9a-f]{16})?"
# Texts between two values that do not tell where the first one ends.
_AMBIGUOUS_IN_FOLDER = re.compile(r"[0-9A-Za-z~]*")
_AMBIGUOUS_IN_CATALOG = re.compile(r"[0-9A-Za-z-]*|.*_x.*", re.DOTALL)


@dataclass(frozen=True)
class TableTemplate:
    """A template of a table's name, such as `lake/{region}`, by which each row is routed to a
    table: fixed texts, and values of the row between them."""

    texts: tuple[str, ...]
    """One more than there are values; may be empty."""
    values: tuple[RowExpression, ...]
    in_catalog: bool = False

    @classmethod
    def parse(cls, option: str, template: str, *, in_catalog: bool = False) -> TableTemplate | None:
        """Parse a template such as `lake/{region}`; None if it has no values in braces, and is just
        a table's name. Raises ConfigError if different values could make the same name, and for a
        `..` behind a value, which a file system would resolve without looking at the value."""
        parts = _VALUE.split(template)  # texts and values take turns
        if any(brace in text for text in parts[::2] for brace in "{}"):
            raise ConfigError(
                f"{option}: in {template} the braces do not match: write {{column}}, "
                "{subject[1]} or {header[Name]}."
            )
        if len(parts) == 1:
            return None
        behind_first_value = template[len(parts[0]) :]
        if ".." in map(unquote, behind_first_value.split("/")):
            raise ConfigError(
                f"{option}: in {template} a .. leads out of the folder that a value names, so the "
                "value would name nothing: write the template without it."
            )
        values = tuple(RowExpression.parse(option, value) for value in parts[1::2])
        ambiguous = _AMBIGUOUS_IN_CATALOG if in_catalog else _AMBIGUOUS_IN_FOLDER
        if any(map(ambiguous.fullmatch, parts[2:-1:2])):  # the texts between two values
            raise ConfigError(
                f"{option}: in {template} nothing tells where a value ends, so different values "
                f"could name one table: write a {'_ or .' if in_catalog else '-, _ or /'} between "
                "them."
            )
        return cls(texts=tuple(parts[::2]), values=values, in_catalog=in_catalog)

    @cached_property
    def _separators(self) -> frozenset[str]:
        """The signs that the template has between two values. They are escaped in the values, so
        that they show where a value ends."""
        return frozenset(
            character for text in self.texts[1:-1] for character in text if not character.isalnum()
        )

    @property
    def root(self) -> str:
        """The folder of all tables."""
        return self.texts[0].rpartition("/")[0] or "."

    def may_name(self, table: str) -> bool:
        """Whether this template can make a table's name, with some values of a row."""
        value = _CATALOG_VALUE if self.in_catalog else _FOLDER_VALUE
        return re.fullmatch(value.join(map(re.escape, self.texts)), table) is not None

    def sibling_name(self, table: str) -> str:
        """A name beside this table's that the template never makes, as advice for a table that must
        not be one of the template's."""
        parent, separator, name = table.rpartition("." if self.in_catalog else "/")
        return f"{parent}{separator}_{name}"

    def check(self, option: str, names: Sequence[str]) -> None:
        """Raise ConfigError if the template has a value of a column that the rows lack. `option`:
        the name of the option with the template; `names`: the columns of the rows."""
        for value in self.values:
            if value.column not in names:
                hint = did_you_mean_or_list(value.column, names)
                raise ConfigError(f"{option}: the rows have no column {value.column!r}{hint}")

    def check_types(self, option: str, rows: pa.Schema) -> None:
        """Raise ConfigError if the template has the value of a column whose type makes no name of a
        table: a nested or binary one. `option`: the name of the option with the template."""
        for value in self.values:
            kind = rows.field(value.column).type
            # Parts of a subject, headers and times always make a name.
            if value.text == value.column and (
                pa.types.is_nested(kind) or pa.types.is_binary(kind)
            ):
                raise ConfigError(
                    f"{option}: {{{value.text}}} has the type {kind}, which makes no name: take a "
                    "text, a number or a time."
                )

    def missing_value(self, row: pa.RecordBatch) -> tuple[str | None, str]:
        """(column, reason as a sentence) why a row has no table: a value that names it is null or
        empty. `row`: a batch of this row only."""
        for value in self.values:
            if not value.of(row).cast(pa.string())[0].as_py():
                return value.column, f"{value.describe_missing()}, which names its table."
        return None, "No table was found for the row."

    def split_by_table(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Divide a batch by the tables that its rows are routed to: yields (name of the table, its
        rows). The name is None for rows in which a value that names the table is missing."""
        parts: list[Any] = [self.texts[0]]
        for value, text in zip(self.values, self.texts[1:], strict=True):
            values = value.of(batch).cast(pa.string())
            parts += [map_distinct_values(values, self._escape), text]
        # Where a value is null, so is the name.
        encoded = pc.binary_join_element_wise(*parts, "").dictionary_encode(null_encoding="encode")
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], batch
            return
        order = pc.sort_indices(encoded.indices)
        rows = batch.take(order)
        start = 0
        for count in pc.value_counts(encoded.indices.take(order)).to_pylist():
            yield names[count["values"]], rows.slice(start, count["counts"])
            start += count["counts"]

    def _escape(self, value: str | None) -> str | None:
        """A value of a row in a form that is safe in a table's name: other characters are encoded,
        and a long value is cut and ends with a hash. Different values have different forms. None
        for a null or empty value."""
        if not value:
            return None
        if self.in_catalog:
            # An x behind a _ of the template would look like an escaped character.
            follows_mark = any(text.endswith("_") for text in self.texts[1:-1])
            unsafe = r"^x|[^0-9A-Za-z]" if follows_mark else r"[^0-9A-Za-z]"
            escaped = re.sub(unsafe, lambda match: f"_x{ord(match[0]):x}_", value)
        else:
            safe = _SAFE_IN_FOLDER - self._separators
            escaped = "".join(
                character if character in safe else _escape_bytes(character) for character in value
            )
            if escaped[0] in "_.":  # it would hide the folder, or lead out of it
                escaped = _escape_bytes(escaped[0]) + escaped[1:]
        if len(escaped) < _MAX_VALUE_LENGTH:  # one that is cut has just as many characters
            return escaped
        # A - could be taken for one of the template's; ~~ is no escaped character.
        mark = "~~" if "-" in self._separators and not self.in_catalog else "-"
        digest = hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"{escaped[: _MAX_VALUE_LENGTH - _DIGEST_LENGTH - 1]}{mark}{digest}"


def _escape_bytes(character: str) -> str:
    """Encode a character for a folder's name: each of its bytes in UTF-8 as `~` and two digits."""
    return "".join(f"~{byte:02X}" for byte in character.encode())
