"""The column that a field of a payload becomes: one rule for the payloads of all formats.

A row has the columns of its message beside those of its payload. A field keeps its name, unless a
column of the message has it (`timestamp`, `data`), or would have it in another case: then it is
`payload_timestamp`. People can choose another name (`--rename timestamp=sent_at`). Different fields
have different columns, and each column tells its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from jetspark.errors import ConfigError, named
from jetspark.payloads.ddl import ambiguous
from jetspark.reserved_names import check_names

MESSAGE_COLUMNS: Final = ("stream", "subject", "seq", "timestamp", "headers", "data")
"""The columns of a message in a stream."""
PREFIX: Final = "payload_"


@dataclass(frozen=True)
class FieldNames:
    """Says which column a field of payloads becomes, and which field a column has."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    """Columns that people have chosen, by their fields."""
    taken: tuple[str, ...] = MESSAGE_COLUMNS
    """Columns that a row has beside those of its payload."""

    def column(self, name: str) -> str:
        """Return the name of the column that a field becomes."""
        if name in self.renamed:
            return self.renamed[name]
        return f"{PREFIX}{name}" if self._is_prefixed(name) else name

    def field(self, column: str) -> str:
        """Return the name of the field that becomes a column."""
        for name, renamed in self.renamed.items():
            if renamed == column:
                return name
        name = column.removeprefix(PREFIX)
        return name if name != column and self._is_prefixed(name) else column

    def _is_prefixed(self, name: str) -> bool:
        """Return whether the column of a field has the prefix. It does if its name is taken by a
        column of the message, or is such a name with prefixes: else two fields could have one
        column."""
        folded = name.casefold()
        while folded not in self.taken and folded.startswith(PREFIX):
            folded = folded.removeprefix(PREFIX)
        return folded in self.taken

    def check(self, where: str, fields: Iterable[str]) -> list[str]:
        """Return the columns of these fields. Raises ConfigError if Spark could not tell them
        apart, from each other or from those of the message. `where`: the beginning of the error."""
        columns = [self.column(name) for name in fields]
        check_names(where, (*self.renamed.values(), *columns))
        if (column := ambiguous(self.taken, columns)) is not None:
            raise ConfigError(
                f"{where}: {self.field(column)} would be the column {column}, whose name another "
                f"column has, and Spark ignores case: give it another name ({named('rename')}), or "
                "leave it out."
            )
        return columns

    def schema(self, where: str, fields: pa.Schema) -> pa.Schema:
        """Return the fields as columns. Raises as `check`."""
        columns = self.check(where, fields.names)
        return pa.schema(
            [field.with_name(name) for field, name in zip(fields, columns, strict=True)]
        )


def parse_renames(where: str, text: str) -> dict[str, str]:
    """Parse `timestamp=sent_at, data=body`. Raises ConfigError."""
    renames: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = (word.strip() for word in part.partition("="))
        if not name or not equals or not column or name in renames:
            raise ConfigError(
                f"{where} must be fields of payloads with the names of their columns, such as "
                f"timestamp=sent_at, not {text!r}."
            )
        renames[name] = column
    return renames
