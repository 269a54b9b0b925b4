"""How messages become the rows of a table, or of each table of a list, in Arrow.

Whoever writes a table of messages uses it: the tasks of a query (`spark.direct`), and the retry of
records in a quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from jetspark.bulk.arrow import schema_of
from jetspark.codecs.decoder import REASON
from jetspark.codecs.tolerant import Decoder, decode_in_parts
from jetspark.lakehouse.routes import RowExpression
from jetspark.reserved_names import BARE_PAYLOAD
from jetspark.spark.json_payloads import (
    json_decoder,
    names_beside,
    needs_bare,
    payload_of,
)
from jetspark.spark.lakehouse import listed
from jetspark.spark.lakehouse.growth import fields_by_now, without
from jetspark.spark.lakehouse.options import LakehouseOptions, ListedTable
from jetspark.spark.options import SourceOptions


@dataclass(frozen=True)
class RowsOf:
    """How the messages of a source become rows, as data that can be sent to tasks."""

    json: tuple[str, str | None]
    """Name of the schema of JSON payloads for messages, and the schema in DDL or None."""
    made: Mapping[str, RowExpression]
    """Columns that are made of others."""
    tables: tuple[ListedTable, ...] = ()
    """In a list each has its own schema and columns."""

    def into(self, table: LakehouseOptions, source: SourceOptions) -> RowsOf:
        """The same for this table: where new fields become columns, with those that are columns by
        now, and the one for further ones."""
        (name, ddl), made, decoding = self.json, self.made, source.decoding
        if ddl is not None and decoding is not None:
            ddl = fields_by_now(table, ddl, name, made, decoding.names) or ddl
            new = table.evolve and table.route is None
            made = without(ddl, made, new=new, names=decoding.names)
        return RowsOf((name, ddl), made, tuple(map(_by_now, table.tables)))

    @property
    def needs_bare(self) -> bool:
        """Whether rows need their payload without compression and frame."""
        return needs_bare(self.made.values())

    def decoded_in(self, source: SourceOptions) -> SourceOptions:
        """The source, whose payloads are decoded as these rows need them."""
        decoding = source.decoding
        if decoding is None:
            return source
        if decoding.is_json:
            decoding = decoding.with_json_fields(self.json[1] or "")
        return replace(source, decoding=replace(decoding, bare_payload=self.needs_bare))

    def makers(self, source: SourceOptions) -> list[RowMaker]:
        """What makes the rows, of a list for each table. Raises ConfigError."""
        if self.tables:
            return [RowMaker(_decoder_of(one, source), one.made) for one in self.tables]
        if source.decoding is not None:
            return [RowMaker(source.decoder, self.made)]
        name, ddl = self.json
        if ddl is None:
            return [RowMaker(None, self.made)]
        payload, others = payload_of(source.columns, name)
        decoder = json_decoder(ddl, name, names_beside(payload, others), payload)
        return [RowMaker(decoder, self.made)]

    def schemas(self, source: SourceOptions) -> list[pa.Schema]:
        """The columns of the rows; of a list those of messages without a table, and those of the
        rows of each table. Raises ConfigError."""
        columns = schema_of(source.columns)
        found = [maker.schema(columns) for maker in self.makers(source)]
        return [columns, *found] if self.tables else found

    def dump(self) -> str:
        """The schemas and the columns as JSON."""
        of_tables = [(one.json, one.made) for one in self.tables]
        return json.dumps(
            [
                [ddl, {name: value.said for name, value in made.items()}]
                for ddl, made in [(self.json[1], self.made), *of_tables]
            ]
        )

    @classmethod
    def parse(cls, text: str, table: LakehouseOptions) -> RowsOf:
        """From what `dump` says, and the options of the table."""
        (ddl, made), *of_tables = (
            (ddl, {name: RowExpression.parse(name, said) for name, said in made.items()})
            for ddl, made in json.loads(text)
        )
        tables = [
            replace(one, json=ddl, made=made)
            for one, (ddl, made) in zip(table.tables, of_tables, strict=True)
        ]
        return cls(("the schema", ddl), made, tuple(tables))


def _by_now(one: ListedTable) -> ListedTable:
    """A table of a list, as `RowsOf.into`."""
    ddl = fields_by_now(one.options, one.json, one.option, one.made, one.names)
    if ddl is None:
        return one
    made = without(ddl, one.made, new=one.options.evolve, names=one.names)
    return replace(one, json=ddl, made=made)


def _decoder_of(one: ListedTable, source: SourceOptions) -> Decoder | None:
    """What makes columns of the payloads of a table of a list."""
    if one.json is None:
        return None
    return json_decoder(
        one.json,
        one.option,
        one.names,
        framing=source.around,
        keep_payload=one.options.quarantine is not None,
        keep_bare=needs_bare(one.made.values()),
    )


@dataclass(frozen=True)
class RowMaker:
    """Makes the rows of one table from messages, or from the entries of a bucket."""

    decoder: Decoder | None
    """What makes columns of payloads."""
    made: Mapping[str, RowExpression] = field(default_factory=dict)
    """Further columns, and what they are made of."""

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns of the rows, for messages with these columns."""
        found = columns if self.decoder is None else self.decoder.schema(columns)
        found = self._with_made(pa.RecordBatch.from_pylist([], found)).schema
        return pa.schema([one for one in found if one.name not in (REASON, BARE_PAYLOAD)])

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, with further columns for those that turn out to be none. They may be less than
        the messages: those of some formats have messages that are no rows."""
        parts = [batch] if self.decoder is None else decode_in_parts(self.decoder, [batch])
        yield from map(self._with_made, parts)

    def _with_made(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.made.items():
            rows = rows.append_column(name, value.of(rows))
        return rows


def rows_by_table(
    makers: Sequence[RowMaker], tables: Sequence[ListedTable], batch: pa.RecordBatch
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The rows of messages with the numbers of their tables in a list; those of one table have 0.
    Messages without a table have None, and stay as they are."""
    if not tables:
        for part in makers[0].parts(batch):
            yield 0, part
        return
    for number, messages in listed.divided(batch, tables):
        if number is None:
            yield None, messages
        else:
            for part in makers[number].parts(messages):
                yield number, part
