"""Values of rows that tables are named by, and columns that are derived from messages.

| text | value |
|---|---|
| `region` | of the column |
| `subject[1]` | a token of the message's subject, counted from 0 as in Spark's `split` |
| `header[Site]` | the first value of a header |
| `day(timestamp)`, `hour(timestamp)` | the unit of time, in UTC |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.unknown_fields import KnownFields, find_unknown, known_fields, new_columns
from jetspark.reserved_names import UNFRAMED_PAYLOAD

_WITH_KEY = re.compile(r"(?P<column>subject|header)\[(?P<key>.*)\]")
_MAX_TOKEN_DIGITS = 9
_TIME_UNIT = re.compile(r"(?P<unit>day|hour)\((?P<column>.*)\)")
_UNKNOWN_FIELDS = re.compile(r"(?P<kind>rest|new)(?P<json>\[.*\])", re.DOTALL)
_AS_MADE: dict[str, msgspec.json.Decoder[Any]] = {
    "rest": msgspec.json.Decoder(tuple[str]),
    "new": msgspec.json.Decoder(tuple[str, dict[str, str]]),
}
"""What `rest` and `new_columns` write; users can write anything else."""


@dataclass(frozen=True)
class RowExpression:
    """An expression that has a value for each row, by which tables are named and columns derived:
    a column, a token of the message's subject, a header, a unit of time, or the payload's *rest*
    (the fields that a schema does not have)."""

    text: str
    """The expression as users write it."""
    column: str
    """The column of the rows from which the value is computed."""
    token: int | None = None
    """Number of the subject's token, from 0, if that is the value."""
    header: str | None = None
    """Name of the header whose first value is the value."""
    unit: str | None = None
    """`day` or `hour`, if the value is the start of that unit of time."""
    schema: str | None = None
    """In DDL, the fields of the payload that are not in the rest, if the value is of the rest."""
    new: FieldNames | None = None
    """Rule by which the rest's fields become columns, if the value is their types; None: the value
    is the rest itself."""

    @classmethod
    def rest(cls, schema: str) -> RowExpression:
        """An expression for the payload's *rest*: the fields that this schema, in DDL, lacks, as
        JSON."""
        return cls.parse("rest", f"rest{json.dumps([schema])}")

    @classmethod
    def new_columns(cls, schema: str, names: FieldNames) -> RowExpression:
        """An expression for the new columns that a table needs for the payload's *rest*, the fields
        that this schema lacks: their types as JSON. `names`: the rule for the columns' names."""
        return cls.parse("new", f"new{json.dumps([schema, dict(names.renamed)])}")

    @classmethod
    def parse(cls, option: str, text: str) -> RowExpression:
        """Parse a value of rows: `region`, `subject[1]`, `header[Site]`, `day(timestamp)`,
        `hour(timestamp)`, or the text that `rest` and `new_columns` make.

        Raises ConfigError; `option`: the name of the option with this text, for the error.
        """
        text = text.strip()
        if (match := _TIME_UNIT.fullmatch(text)) is not None:
            return cls(text, column=match["column"].strip(), unit=match["unit"])
        if (match := _UNKNOWN_FIELDS.fullmatch(text)) is not None:
            try:
                schema, *renamed = _AS_MADE[match["kind"]].decode(match["json"])
            except msgspec.DecodeError:
                raise ConfigError(f"{option}: {{{text}}} is not a value of a row.") from None
            new = FieldNames(*renamed) if renamed else None
            return cls(text, column=UNFRAMED_PAYLOAD, schema=schema, new=new)
        if (match := _WITH_KEY.fullmatch(text)) is None:
            if not text or "[" in text:
                raise ConfigError(
                    f"{option}: {{{text}}} is not a value of a row: write {{column}}, "
                    "{subject[1]} or {header[Name]}."
                )
            return cls(text, column=text)
        key = match["key"].strip()
        if match["column"] == "header":
            if not key:
                raise ConfigError(f"{option}: {{{text}}}: name the header.")
            return cls(text, column="headers", header=key)
        if not key.isdecimal() or len(key) > _MAX_TOKEN_DIGITS:
            raise ConfigError(f"{option}: {{{text}}}: a token of a subject has a number, from 0.")
        return cls(text, column="subject", token=int(key))

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute the value of each row, or null. The day of a timestamp is a date, its hour a
        timestamp."""
        column = batch.column(self.column)
        if self.unit is not None:
            start = pc.floor_temporal(column, unit=self.unit)
            return start.cast(pa.date32()) if self.unit == "day" else start
        if self.schema is not None:
            return pa.array(map(self.of_payload, column.to_pylist()), pa.string())
        if self.header is not None:
            return _first_header(column, self.header)
        if self.token is not None:
            return map_distinct_values(column, self._subject_token)
        return column

    def describe_missing(self) -> str:
        """Say, as the beginning of a sentence, that a row has no value of this expression."""
        if self.token is not None:
            return f"The row's subject has no token {self.token} (counted from 0)"
        return f"The row has no {self.text if self.header is None else f'header {self.header}'}"

    def of_payload(self, payload: bytes | bytearray | None) -> str | None:
        """The rest of one payload (the fields that the schema lacks) as JSON, or the types of the
        columns that it needs, also as JSON; None without a rest."""
        assert self.schema is not None  # noqa: S101
        if self.new is not None:
            return new_columns(payload, self._known_fields, self.new)
        return find_unknown(payload, self._known_fields)

    @cached_property
    def _known_fields(self) -> KnownFields:
        return known_fields(self.schema or "")

    def _subject_token(self, subject: str | None) -> str | None:
        """The token of a message's subject that this expression names by its number, from 0; None
        if the subject has fewer."""
        tokens = [] if subject is None else subject.split(".")
        assert self.token is not None  # noqa: S101
        return tokens[self.token] if self.token < len(tokens) else None


def map_distinct_values(column: pa.Array, function: Callable[[Any], str | None]) -> pa.StringArray:
    """Apply a function that makes texts to each value of a column; it is called once for each
    distinct value, since it is slower than Arrow."""
    encoded = column.dictionary_encode()
    return pa.array(map(function, encoded.dictionary.to_pylist()), pa.string()).take(
        encoded.indices
    )


def _first_header(headers: pa.Array, name: str) -> pa.Array:
    """The first value of a message header, by its name, in each row; null if it is missing.
    `headers`: lists of (key, value)."""
    pairs = headers.flatten()
    named = pc.equal(pairs.field("key"), name)
    rows = pc.list_parent_indices(headers).filter(named).to_pylist()
    values = pairs.field("value").filter(named).to_pylist()
    # In reverse, so that the first value of a row is the last one that the dict gets.
    first = dict(zip(reversed(rows), reversed(values), strict=True))
    return pa.array([first.get(row) for row in range(len(headers))], pa.string())
