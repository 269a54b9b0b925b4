"""How messages become the rows of a table, as text that the table itself keeps.

A query that writes a stream into a table stores its recipe as a property of the table, so that
whoever reads the table can make rows of the messages that it does not have yet. A recipe is data:
schemas, names and expressions, which are parsed and checked as a user's own are. It names no file
and no address: of a registry it only says that there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeAlias

import msgspec
import pyarrow as pa

from jetspark.errors import ConfigError, DocumentError, named
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.schema import SchemaLookup
from jetspark.payloads.tolerant import Decoder, decode_in_parts
from jetspark.reserved_names import PREFIX, UNFRAMED_PAYLOAD
from jetspark.tables.row_expressions import RowExpression
from jetspark.wire.documents import decode_json

Rejected: TypeAlias = Literal["row", "left out", "error"]
"""What a payload that cannot be decoded becomes: a row with the payload in `_corrupt_record`, no
row of the table, or an error."""


@dataclass(frozen=True)
class RowBuilder:
    """Builds the rows of one table from messages, or from the entries of a bucket."""

    decoder: Decoder | None
    """The decoder of the payloads; None keeps them as they are."""
    derived: Mapping[str, RowExpression] = field(default_factory=dict)

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns that the rows have if messages have these columns, without the hidden ones
        that only tasks use."""
        decoded = columns if self.decoder is None else self.decoder.decoded_schema(columns)
        rows = self._with_derived(pa.RecordBatch.from_pylist([], decoded))
        hidden = (REASON, UNFRAMED_PAYLOAD)
        return pa.schema([column for column in rows.schema if column.name not in hidden])

    def build(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Turn messages into rows. Records that cannot be decoded are among them, with the reason
        in further columns, to be rejected later. There are fewer rows than messages if a format has
        messages that are no rows, such as heartbeats."""
        if self.decoder is None:
            yield self._with_derived(messages)
        else:
            yield from map(self._with_derived, decode_in_parts(self.decoder, [messages]))

    def _with_derived(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Compute the derived columns, and append them to the rows."""
        for name, value in self.derived.items():
            rows = rows.append_column(name, value.of(rows))
        return rows


class RowRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a query makes the rows of its table out of messages."""

    streams: tuple[str, ...]
    """All streams that the table's rows come from."""
    subjects: tuple[str, ...]
    """Only messages under these; empty: all."""
    columns: tuple[str, ...]
    """Columns of the messages, before payloads are decoded."""
    decoding: Decoding | None
    framing: Framing | None
    """What is around payloads that are not decoded."""
    registry: bool
    """Whether schemas are looked up in a registry, which the reader has to name."""
    derived: Mapping[str, str]
    """Expressions of derived columns, by their names."""
    rejected: Rejected
    keys: tuple[str, ...]
    """Columns by which a row replaces another one."""

    @classmethod
    def of(
        cls,
        decoding: Decoding | None,
        derived: Mapping[str, RowExpression],
        *,
        streams: tuple[str, ...],
        subjects: tuple[str, ...],
        columns: tuple[str, ...],
        framing: Framing | None,
        rejected: Rejected,
        keys: tuple[str, ...],
    ) -> Self:
        """The recipe of a query with this decoding and these derived columns, of which hidden ones
        are left out."""
        return cls(
            streams=streams,
            subjects=subjects,
            columns=columns,
            decoding=None if decoding is None else replace(decoding, lookup=None, watched=""),
            framing=framing,
            registry=decoding is not None and decoding.lookup is not None,
            derived={
                name: expression.text
                for name, expression in derived.items()
                if not name.startswith(PREFIX)
            },
            rejected=rejected,
            keys=keys,
        )

    def dump(self) -> str:
        """Encode the recipe as JSON; the same recipe has the same text."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def parse(cls, text: str, table: object) -> Self:
        """Decode the text of a recipe. Raises ConfigError for a text that no query has written;
        `table`: the name of the table that has it, for the message."""
        try:
            return decode_json(text.encode(), cls, "recipe of its rows")
        except DocumentError as error:
            raise ConfigError(f"{table}: {error}") from None

    def builder(self, lookup: SchemaLookup | None) -> RowBuilder:
        """The builder of rows. `lookup`: of the registry that the user has named. Raises
        ConfigError if it is needed and missing, and for schemas that cannot be used."""
        decoding = self.decoding
        if self.registry and lookup is None:
            raise ConfigError(
                "The payloads name schemas of a registry, whose address is not read from a table: "
                f"give the {named('registry')}."
            )
        if decoding is not None:
            decoding.framing.checked()
            decoding = replace(decoding, lookup=lookup if self.registry else None)
        derived = {name: RowExpression.parse(name, text) for name, text in self.derived.items()}
        return RowBuilder(None if decoding is None else decoding.decoder(), derived)
