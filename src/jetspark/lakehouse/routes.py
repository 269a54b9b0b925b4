"""Which table a row goes to: a template of the table's name, filled in with values of the row.

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
import json
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs.field_names import FieldNames
from jetspark.codecs.unknown_fields import KnownFields, known_fields, new_columns, rest_of
from jetspark.errors import ConfigError
from jetspark.nearest import instead
from jetspark.reserved_names import BARE_PAYLOAD

_LONGEST = 120
"""Characters of a value in a name."""
_PLACE = re.compile(r"\{([^{}]*)\}")
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.")
_WITH_KEY = re.compile(r"(subject|header)\[(.*)\]")
_OF_TIME = re.compile(r"(day|hour)\((.*)\)")
_REST = re.compile(r"(rest|new)(\[.*\])", re.DOTALL)
# What becomes of a value in a name.
_OF_FOLDER = r"[0-9A-Za-z~-][0-9A-Za-z_.~-]*"
_OF_CATALOG = r"(?:[0-9A-Za-z]|_x[0-9a-f]+_)+(?:[0-9a-z_]*-[0-9a-f]{16})?"


# Texts between two values that do not tell where the first one ends.
_MERGES_IN_FOLDER = re.compile(r"[0-9A-Za-z~]*")
_MERGES_IN_CATALOG = re.compile(r"[0-9A-Za-z-]*|.*_x.*", re.DOTALL)


@dataclass(frozen=True)
class ValueOf:
    """A value of each row: of a column, of a part of the columns subject and headers, or what a
    schema leaves of the payload."""

    said: str
    column: str
    token: int | None = None
    header: str | None = None
    unit: str | None = None
    known: str | None = None
    """The schema of the fields of the payload that the rest is without, in DDL."""
    new: FieldNames | None = None
    """Of the rest, the types of the columns that it needs, by this rule."""

    @classmethod
    def rest(cls, known: str) -> ValueOf:
        """The fields of the payload but those of this schema."""
        return cls.parse("rest", f"rest{json.dumps([known])}")

    @classmethod
    def new_columns(cls, known: str, names: FieldNames) -> ValueOf:
        """The types of the columns that the payload's fields but those of this schema need, as
        JSON."""
        return cls.parse("new", f"new{json.dumps([known, dict(names.renamed)])}")

    @classmethod
    def parse(cls, option: str, said: str) -> ValueOf:
        """From `region`, `subject[1]`, `header[Site]`, `day(timestamp)`, `hour(timestamp)`, or what
        `rest` says.

        Raises ConfigError.
        """
        said = said.strip()
        if (of_time := _OF_TIME.fullmatch(said)) is not None:
            return cls(said, of_time[2].strip(), unit=of_time[1])
        if (rest := _REST.fullmatch(said)) is not None:
            known, *renamed = json.loads(rest[2])
            new = FieldNames(*renamed) if renamed else None
            return cls(said, BARE_PAYLOAD, known=known, new=new)
        if (keyed := _WITH_KEY.fullmatch(said)) is None:
            if not said or "[" in said:
                raise ConfigError(
                    f"{option}: {{{said}}} is not a value of a row: write {{column}}, "
                    "{subject[1]} or {header[Name]}."
                )
            return cls(said, said)
        kind, key = keyed[1], keyed[2].strip()
        if kind == "header":
            if not key:
                raise ConfigError(f"{option}: {{{said}}}: name the header.")
            return cls(said, "headers", header=key)
        if not key.isdecimal():
            raise ConfigError(f"{option}: {{{said}}}: a token of a subject has a number, from 0.")
        return cls(said, "subject", token=int(key))

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Each row's value, or null. A time's day is a date, its hour a time."""
        column = batch.column(self.column)
        if self.unit is not None:
            floor = pc.floor_temporal(column, unit=self.unit)
            return floor.cast(pa.date32()) if self.unit == "day" else floor
        if self.known is not None:
            return pa.array(map(self.of_payload, column.to_pylist()), pa.string())
        if self.header is not None:
            return _header(column, self.header)
        if self.token is not None:
            return _each(column, self._token)
        return column

    def of_payload(self, payload: bytes | bytearray | None) -> str | None:
        """The value of one payload, if it is a rest."""
        assert self.known is not None  # noqa: S101
        if self.new is not None:
            return new_columns(payload, self._known_fields, self.new)
        return rest_of(payload, self._known_fields)

    @cached_property
    def _known_fields(self) -> KnownFields:
        return known_fields(self.known or "")

    def _token(self, subject: str | None) -> str | None:
        tokens = [] if subject is None else subject.split(".")
        assert self.token is not None  # noqa: S101
        return tokens[self.token] if self.token < len(tokens) else None


def _each(column: pa.Array, change: Callable[[Any], Any]) -> pa.Array:
    """The column as text, with a change to each of its different values."""
    encoded = column.dictionary_encode()
    changed = pa.array([change(one) for one in encoded.dictionary.to_pylist()], pa.string())
    return changed.take(encoded.indices)


def _header(headers: pa.Array, name: str) -> pa.Array:
    pairs = headers.flatten()
    named = pc.equal(pairs.field("key"), name)
    rows = pc.list_parent_indices(headers).filter(named).to_pylist()
    values = pairs.field("value").filter(named).to_pylist()
    first = dict(zip(reversed(rows), reversed(values), strict=True))
    return pa.array([first.get(row) for row in range(len(headers))], pa.string())


@dataclass(frozen=True)
class Route:
    """A template: fixed texts, and values between them."""

    texts: tuple[str, ...]
    values: tuple[ValueOf, ...]
    in_catalog: bool = False

    @classmethod
    def parse(cls, option: str, template: str, *, in_catalog: bool = False) -> Route | None:
        """Parse a template; None if it has no values. Raises ConfigError."""
        parts = _PLACE.split(template)
        if any(one in text for text in parts[::2] for one in "{}"):
            raise ConfigError(
                f"{option}: in {template} the braces do not match: write {{column}}, "
                "{subject[1]} or {header[Name]}."
            )
        if len(parts) == 1:
            return None
        values = tuple(ValueOf.parse(option, said) for said in parts[1::2])
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
        return frozenset(one for text in self.texts[1:-1] for one in text if not one.isalnum())

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

    def another(self, table: str) -> str:
        """A name beside this one that no value makes."""
        place, separator, name = table.rpartition("." if self.in_catalog else "/")
        return f"{place}{separator}_{name}"

    def check(self, option: str, names: Sequence[str]) -> None:
        """Raise ConfigError for a value of a column that the rows lack."""
        for one in self.values:
            if one.column not in names:
                hint = instead(one.column, names)
                raise ConfigError(f"{option}: the rows have no column {one.column!r}{hint}")

    def check_types(self, option: str, rows: pa.Schema) -> None:
        """Raises ConfigError for a column whose values make no name."""
        for one in self.values:
            kind = rows.field(one.column).type
            if one.said == one.column and (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
                raise ConfigError(
                    f"{option}: {{{one.said}}} has the type {kind}, which makes no name: take a "
                    "text, a number or a time."
                )

    def lacking(self, row: pa.RecordBatch) -> tuple[str | None, str]:
        """The column that names no table for a row, and a sentence."""
        for one in self.values:
            if not one.of(row).cast(pa.string())[0].as_py():
                return one.column, f"The row has no {one.said}, which names its table."
        return None, "No table was found for the row."

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """(name of the table, rows); the name is None for rows without one of the values."""
        columns = [_each(one.of(batch).cast(pa.string()), self._escaped) for one in self.values]
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
        for found in counts.to_pylist():
            yield names[found["values"]], rows.slice(start, found["counts"])
            start += found["counts"]

    def _escaped(self, value: str | None) -> str | None:
        if not value:
            return None
        if self.in_catalog:
            other = r"^x|[^0-9A-Za-z]" if self._has_marks else r"[^0-9A-Za-z]"
            found = re.sub(other, lambda one: f"_x{ord(one[0]):x}_", value)
        else:
            safe = _SAFE - self._between
            found = "".join(one if one in safe else _coded(one) for one in value)
            if found[0] in "_.":
                found = _coded(found[0]) + found[1:]
        if len(found) < _LONGEST:  # one that is cut has just as many characters
            return found
        mark = "~~" if "-" in self._between and not self.in_catalog else "-"
        return f"{found[: _LONGEST - 17]}{mark}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def _coded(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())
