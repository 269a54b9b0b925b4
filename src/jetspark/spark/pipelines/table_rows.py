"""Messages become the rows of a table, or of each table of a list, in Arrow.

Their columns are those of the message, the fields of its payload, and derived ones. The tasks of a
query use it (`task_writes`), and the retry of quarantined records.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, named
from jetspark.payloads.ddl import arrow_fields, check_fields
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.tolerant import Decoder, decode_in_parts
from jetspark.ranges.arrow import schema_of
from jetspark.reserved_names import UNFRAMED_PAYLOAD, check_names
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.payload_columns import (
    check_only_schema,
    decoded_columns,
    json_columns,
    json_decoder,
    names_beside,
    payload_of,
    with_json_options,
)
from jetspark.spark.table_sink.option_texts import parse_expressions
from jetspark.spark.table_sink.options import LakehouseOptions, RoutedTable
from jetspark.spark.table_sink.schema_evolution import evolve_rows
from jetspark.subjects import subject_matches
from jetspark.tables.row_expressions import RowExpression

OTHER_FIELDS: Final = "other_fields"
"""The default column for the rescued data of payloads whose new fields become columns: some fields
can become no column."""
DAY: Final = "day"
"""A partition column that is derived if the rows have none of this name."""


@dataclass(frozen=True)
class RowSpec:
    """The payloads' schema and the derived columns of a table's rows, as data for tasks."""

    option: str
    """The name of the option with the schema, for messages to users."""
    ddl: str | None = None
    """The schema of JSON payloads, as Spark DDL; None for other formats."""
    derived: Mapping[str, RowExpression] = field(default_factory=dict)
    """Derived columns, and the values that they have."""
    tables: tuple[RoutedTable, ...] = ()
    """The tables of a list, each of which has its own schema and columns."""
    keep_payload: bool = False
    """Keep the payload of each row: it may turn out to lack its key, or its table."""

    def for_table(self, table: LakehouseOptions, source: SourceOptions) -> RowSpec:
        """The rows that this table gets now.

        Where new fields become columns, the schema has those that are columns by now, and there is
        a column for further ones. Raises ConfigError.
        """
        ddl, derived, decoding = self.ddl, self.derived, source.decoding
        if ddl is not None and decoding is not None:
            ddl, derived = evolve_rows(table, ddl, self.option, derived, decoding.names)
        tables = tuple(map(_evolve_listed, table.tables))
        return RowSpec(self.option, ddl, derived, tables, table.quarantine is not None)

    def builders(self, source: SourceOptions) -> list[RowBuilder]:
        """The builder of the rows, in a list one for each table. Raises ConfigError."""
        if self.tables:
            return [
                RowBuilder(_listed_decoder(table, source), table.derived) for table in self.tables
            ]
        return [RowBuilder(self._decoder(source), self.derived)]

    def _decoder(self, source: SourceOptions) -> Decoder | None:
        """The decoder of the payloads of a single table; None keeps them as they are."""
        if source.decoding is not None:
            return self._decoding(source.decoding).decoder()
        if self.ddl is None:
            return None
        payload, columns = payload_of(source.columns, self.option)
        return json_decoder(self.ddl, self.option, names_beside(payload, columns), payload)

    def _decoding(self, decoding: Decoding) -> Decoding:
        """The decoding of the source, with the schema and the columns that these rows need."""
        if decoding.is_json:
            decoding = decoding.with_json_fields(self.ddl or "")
        keep_payload = self.keep_payload or decoding.keep_payload
        needs_unframed = _need_unframed_payload(self.derived)
        return replace(decoding, keep_payload=keep_payload, unframed_payload=needs_unframed)

    def schemas(self, source: SourceOptions) -> list[pa.Schema]:
        """The columns of the rows; in a list those of messages without a table, and those of the
        rows of each table. Raises ConfigError."""
        columns = schema_of(source.columns)
        schemas = [builder.schema(columns) for builder in self.builders(source)]
        return [columns, *schemas] if self.tables else schemas

    def dump(self) -> str:
        """The schemas and the columns as JSON."""
        listed = [(table.json_schema, table.derived) for table in self.tables]
        specs = [
            [ddl, {name: expression.text for name, expression in derived.items()}]
            for ddl, derived in [(self.ddl, self.derived), *listed]
        ]
        return json.dumps([self.keep_payload, specs])

    @classmethod
    def parse(cls, text: str, table: LakehouseOptions) -> RowSpec:
        """Parse the text of `dump`, for a table with these options."""
        keep_payload, specs = json.loads(text)
        (ddl, derived), *listed = (
            (table_ddl, parse_expressions(expressions)) for table_ddl, expressions in specs
        )
        tables = tuple(
            replace(routed, json_schema=table_ddl, derived=table_derived)
            for routed, (table_ddl, table_derived) in zip(table.tables, listed, strict=True)
        )
        return cls("the schema", ddl, derived, tables, keep_payload)


def _evolve_listed(table: RoutedTable) -> RoutedTable:
    """A table of a list with the rows that it gets now, as `RowSpec.for_table`."""
    if table.json_schema is None:
        return table
    ddl, derived = evolve_rows(
        table.options, table.json_schema, table.option, table.derived, table.names
    )
    return replace(table, json_schema=ddl, derived=derived)


def _listed_decoder(table: RoutedTable, source: SourceOptions) -> Decoder | None:
    """The decoder of the payloads of a table of a list; None keeps them as they are."""
    if table.json_schema is None:
        return None
    return json_decoder(
        table.json_schema,
        table.option,
        table.names,
        framing=source.payload_framing,
        keep_payload=table.options.quarantine is not None,
        keep_unframed=_need_unframed_payload(table.derived),
    )


def _need_unframed_payload(derived: Mapping[str, RowExpression]) -> bool:
    """Whether derived columns need payloads without compression and frame."""
    return any(value.schema is not None for value in derived.values())


@dataclass(frozen=True)
class RowBuilder:
    """Builds the rows of one table from messages, or from the entries of a bucket."""

    decoder: Decoder | None
    """The decoder of the payloads; None keeps them as they are."""
    derived: Mapping[str, RowExpression] = field(default_factory=dict)

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns of the rows, for messages with these columns."""
        decoded = columns if self.decoder is None else self.decoder.decoded_schema(columns)
        rows = self._with_derived(pa.RecordBatch.from_pylist([], decoded))
        hidden = (REASON, UNFRAMED_PAYLOAD)
        return pa.schema([column for column in rows.schema if column.name not in hidden])

    def build(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Build the rows, with further columns for those that will be rejected. They are fewer than
        the messages where a format has messages that are no rows, such as heartbeats."""
        if self.decoder is None:
            yield self._with_derived(messages)
        else:
            yield from map(self._with_derived, decode_in_parts(self.decoder, [messages]))

    def _with_derived(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Append the derived columns."""
        for name, value in self.derived.items():
            rows = rows.append_column(name, value.of(rows))
        return rows


def build_rows(
    builders: Sequence[RowBuilder], tables: Sequence[RoutedTable], messages: pa.RecordBatch
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Build the rows of messages: yields the index of a table in the list, and rows of it.

    The index is 0 for a single table, and None for messages without a table, which stay as they
    are. `builders`: one for each table.
    """
    if not tables:
        for rows in builders[0].build(messages):
            yield 0, rows
        return
    for index, table_messages in split_by_table(messages, tables):
        if index is None:
            yield None, table_messages
        else:
            for rows in builders[index].build(table_messages):
                yield index, rows


def split_by_table(
    messages: pa.RecordBatch, tables: Sequence[RoutedTable]
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Split messages by their subjects: yields the index of a table in the list, and its messages;
    the index is None for messages without a table."""
    subjects = messages.column("subject").dictionary_encode()
    of_subjects = [_table_index(subject, tables) for subject in subjects.dictionary.to_pylist()]
    indices = pa.array(of_subjects, pa.int32()).take(subjects.indices)
    for index in pc.unique(indices).to_pylist():
        chosen = pc.is_null(indices) if index is None else pc.equal(indices, index)
        yield index, messages.filter(chosen)


def _table_index(subject: str, tables: Sequence[RoutedTable]) -> int | None:
    """The index of the first table that takes messages with this subject."""
    for index, table in enumerate(tables):
        if any(subject_matches(pattern, subject) for pattern in table.subjects):
            return index
    return None


# -- derived columns -------------------------------------------------------------------------------


def day_of(column: str) -> RowExpression:
    """The day of a time in another column."""
    return RowExpression.parse(DAY, f"day({column})")


def derived_columns(
    items: Sequence[str],
    rescued_data: str | None,
    *,
    columns: Sequence[str],
    schema: str | None,
    timestamps: Collection[str] = (),
) -> dict[str, RowExpression]:
    """Parse the derived columns, and check them against the columns of the rows.

    `items`: as `site=subject[1]`; `rescued_data`: the column for fields that the payloads' `schema`
    lacks; `columns`: of the rows; `timestamps`: those of them that are timestamps, where payloads
    are not JSON. Raises ConfigError.
    """
    derived: dict[str, RowExpression] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        label = f"{named('derive')} {item!r}"
        if not name or not equals:
            raise ConfigError(
                f"{label}: write name=subject[1], name=header[Name] or name=day(timestamp)."
            )
        check_names(label, [name])
        for existing in (*columns, *derived):
            if existing.casefold() == name.casefold():
                raise ConfigError(f"{label}: there is a column {existing} already.")
        derived[name] = RowExpression.parse(named("derive"), value)
        if derived[name].column not in columns:
            raise ConfigError(
                f"{label}: there is no column {derived[name].column}; there are "
                f"{', '.join(columns)}."
            )
        _check_unit(label, derived[name], schema, timestamps)
    if rescued_data is not None:
        if schema is None:
            raise ConfigError(
                f"goes with {named('json_schema')}: it has what that schema lacks.",
                option="rescued_data_column",
            )
        if not rescued_data.strip() or rescued_data.casefold() in map(
            str.casefold, (*columns, *derived)
        ):
            raise ConfigError(
                f"{rescued_data!r}: give it a name that no column has.",
                option="rescued_data_column",
            )
        check_names(named("rescued_data_column"), [rescued_data])
        derived[rescued_data] = RowExpression.rest(schema)
    return derived


def _check_unit(
    label: str, expression: RowExpression, schema: str | None, timestamps: Collection[str]
) -> None:
    """Raise ConfigError for the day or the hour of what is no timestamp. The arguments are those of
    `derived_columns`; `label`: begins the message."""
    if expression.unit is None:
        return
    types = {} if schema is None else check_fields(schema, named("json_schema"))
    types |= dict.fromkeys(("timestamp", "created", *timestamps), "timestamp")
    type_ = types.get(expression.column, "no timestamp")
    if type_ and not type_.startswith("timestamp"):  # empty: what depends on a setting
        raise ConfigError(
            f"{label}: {expression.column} is {type_}, and {expression.unit}(…) is of a timestamp."
        )


# -- columns of the source -------------------------------------------------------------------------


def with_json_schema(options: Mapping[str, str], ddl: str) -> dict[str, str]:
    """The options of a source with the schema of its JSON payloads, in Spark's DDL.

    Those of a bucket do not get it, since its values stay as they are until the rows are made.
    Raises ConfigError for a bad schema, and for options that give another one.
    """
    arrow_fields(ddl, named("json_schema"))
    check_only_schema(options)
    if "bucket" in map(str.casefold, options):
        return dict(options)
    return with_json_options(options, ddl)


def row_columns(source: SourceOptions, ddl: str | None) -> list[str]:
    """Names of the columns of a source's rows, with the fields of payloads. `ddl`: the schema of
    JSON payloads."""
    if source.decoding is not None:
        return decoded_columns(source)
    if ddl is None:
        return list(source.columns)
    return json_columns(ddl, named("json_schema"), source.columns)
