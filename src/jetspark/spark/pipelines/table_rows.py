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
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.tolerant import Decoder
from jetspark.ranges.arrow import schema_of
from jetspark.reserved_names import check_names
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
from jetspark.spark.table_sink.options import STOP, LakehouseOptions, RoutedTable
from jetspark.spark.table_sink.schema_evolution import evolve_rows
from jetspark.subjects import subject_matches
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.stream_positions import MAX_STREAMS
from jetspark.tails.row_recipe import Rejected, RowBuilder, RowRecipe

OTHER_FIELDS: Final = "other_fields"
"""The default column for the rescued data of payloads whose new fields become columns: some fields
can become no column."""
DAY: Final = "day"
"""A partition column that is derived if the rows have none of this name."""


@dataclass(frozen=True)
class RowSpec:
    """How messages become the rows of a table: the payloads' schema and the derived columns. It is
    data, which the driver sends to tasks as text (`dump`, `parse`)."""

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
        """Adapt this to the columns that a table has when a query starts.

        Where new fields of payloads become columns (`evolve`), the schema gets the fields that have
        become columns of the table since, and a hidden column has those that are still unknown.
        Raises ConfigError.
        """
        ddl, derived, decoding = self.ddl, self.derived, source.decoding
        if ddl is not None and decoding is not None:
            ddl, derived = evolve_rows(table, ddl, self.option, derived, decoding.names)
        tables = tuple(map(_evolve_listed, table.tables))
        keep_payload = table.quarantine is not None
        return replace(self, ddl=ddl, derived=derived, tables=tables, keep_payload=keep_payload)

    def builders(self, source: SourceOptions) -> list[RowBuilder]:
        """Make the objects that turn messages of this source into rows: one, or for a list of
        tables one for each of them. Raises ConfigError."""
        if self.tables:
            return [
                RowBuilder(_listed_decoder(table, source), table.derived) for table in self.tables
            ]
        return [RowBuilder(self._decoder(source), self.derived)]

    def _decoder(self, source: SourceOptions) -> Decoder | None:
        """Make the decoder of payloads for a single table; None if payloads stay as they are, in
        the column `data`."""
        if source.decoding is not None:
            return self._decoding(source.decoding).decoder()
        if self.ddl is None:
            return None
        payload, columns = payload_of(source.columns, self.option)
        return json_decoder(self.ddl, self.option, names_beside(payload, columns), payload)

    def _decoding(self, decoding: Decoding) -> Decoding:
        """Adapt the decoding that a source is configured with: the schema of these rows, and the
        payload in further columns if the quarantine or derived columns need it."""
        if decoding.is_json:
            decoding = decoding.with_json_fields(self.ddl or "")
        keep_payload = self.keep_payload or decoding.keep_payload
        needs_unframed = _need_unframed_payload(self.derived)
        return replace(decoding, keep_payload=keep_payload, unframed_payload=needs_unframed)

    def schemas(self, source: SourceOptions) -> list[pa.Schema]:
        """The columns of the rows, as a list of one schema. For a list of tables, first the columns
        of messages that no table takes, and then those of each table's rows. Raises ConfigError."""
        columns = schema_of(source.columns)
        schemas = [builder.schema(columns) for builder in self.builders(source)]
        return [columns, *schemas] if self.tables else schemas

    def recipe(self, source: SourceOptions, table: LakehouseOptions) -> RowRecipe | None:
        """How messages become the rows of the table, for those who read the table together with
        what its streams have beyond it. None where a message alone does not tell its rows: for a
        bucket, for several tables, and for streams that are found by a pattern or are too many."""
        is_told = source.bucket is None and table.has_one_table
        if not is_told or not 0 < len(source.streams) <= MAX_STREAMS:
            return None
        if len(source.streams) > 1 and "stream" not in source.columns:
            return None
        rejected: Rejected = "row" if table.on_bad_record != STOP else "error"
        return RowRecipe.of(
            None if source.decoding is None else self._decoding(source.decoding),
            {**self.derived, **table.partition_columns},
            streams=tuple(sorted(source.streams)),
            subjects=tuple(sorted(source.subjects)),
            columns=source.columns,
            framing=source.framing,
            rejected=rejected if table.quarantine is None else "left out",
            keys=table.keys or (),
        )

    def dump(self) -> str:
        """Encode the schemas and derived columns as JSON, for an option that tasks get; `parse`
        reads it."""
        listed = [(table.json_schema, table.derived) for table in self.tables]
        specs = [
            [ddl, {name: expression.text for name, expression in derived.items()}]
            for ddl, derived in [(self.ddl, self.derived), *listed]
        ]
        return json.dumps([self.keep_payload, specs])

    @classmethod
    def parse(cls, text: str, table: LakehouseOptions) -> RowSpec:
        """Decode the text that `dump` has made. `table`: the options of the table, which the text
        does not have."""
        keep_payload, specs = json.loads(text)
        (ddl, derived), *listed = (
            (table_ddl, parse_expressions(expressions)) for table_ddl, expressions in specs
        )
        tables = tuple(
            replace(routed, json_schema=table_ddl, derived=table_derived)
            for routed, (table_ddl, table_derived) in zip(table.tables, listed, strict=True)
        )
        return cls(
            option="the schema",  # what messages call it: tasks do not know the user's option
            ddl=ddl,
            derived=derived,
            tables=tables,
            keep_payload=keep_payload,
        )


def _evolve_listed(table: RoutedTable) -> RoutedTable:
    """Adapt the payloads' schema and derived columns of a table of a list to the columns that it
    has when a query starts, as `RowSpec.for_table` does for a single table."""
    if table.json_schema is None:
        return table
    ddl, derived = evolve_rows(
        table.options, table.json_schema, table.option, table.derived, table.names
    )
    return replace(table, json_schema=ddl, derived=derived)


def _listed_decoder(table: RoutedTable, source: SourceOptions) -> Decoder | None:
    """Make the decoder of JSON payloads for one table of a list; None if it has no schema, so that
    payloads stay as they are."""
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
    """Whether a derived column is computed from the whole payload, as the rescued data column is:
    then rows need the payload without compression and frame in a column."""
    return any(value.schema is not None for value in derived.values())


def build_rows(
    builders: Sequence[RowBuilder], tables: Sequence[RoutedTable], messages: pa.RecordBatch
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Turn messages into rows of the tables that they belong to: yields pairs of a table's index in
    the list, and rows for it.

    The index is 0 for a single table (`tables` is empty), and None for messages that no table
    takes, which stay as they are. `builders`: one for each table.
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
    """Divide messages among the tables of a list by their subjects: yields pairs of a table's index
    and its messages; the index is None for messages that no table takes."""
    subjects = messages.column("subject").dictionary_encode()
    of_subjects = [_table_index(subject, tables) for subject in subjects.dictionary.to_pylist()]
    indices = pa.array(of_subjects, pa.int32()).take(subjects.indices)
    for index in pc.unique(indices).to_pylist():
        chosen = pc.is_null(indices) if index is None else pc.equal(indices, index)
        yield index, messages.filter(chosen)


def _table_index(subject: str, tables: Sequence[RoutedTable]) -> int | None:
    """The index of the first table of a list that takes messages with this subject; None if no
    table does."""
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
    """Parse the definitions of derived columns, and check them against the columns of the rows;
    returns the expressions by the names of the new columns.

    `items`: texts as `site=subject[1]`; `rescued_data`: the name of a column for fields that the
    payloads' `schema` lacks, or None; `columns`: those that the rows have without derived ones;
    `timestamps`: those of them that are timestamps, for payloads that are not JSON. Raises
    ConfigError.
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
    """Raise ConfigError if a derived column is the day or the hour of what is no timestamp.

    `label`: names the derived column in the message; `schema`: that of JSON payloads; `timestamps`:
    the columns that are timestamps, for other payloads.
    """
    if expression.unit is None:  # not day(…) or hour(…)
        return
    types = {} if schema is None else check_fields(schema, named("json_schema"))
    types |= dict.fromkeys(("timestamp", "created", *timestamps), "timestamp")
    type_ = types.get(expression.column, "no timestamp")
    if type_ and not type_.startswith("timestamp"):  # "": of several words, not known here
        raise ConfigError(
            f"{label}: {expression.column} is {type_}, and {expression.unit}(…) is of a timestamp."
        )


# -- columns of the source -------------------------------------------------------------------------


def with_json_schema(options: Mapping[str, str], ddl: str) -> dict[str, str]:
    """Add the schema of JSON payloads, in Spark's DDL, to the options of a source, so that the
    source decodes them.

    The options of a bucket stay as they are, since its values are decoded only when rows are made
    of them. Raises ConfigError for a bad schema, and for options that give another one.
    """
    arrow_fields(ddl, named("json_schema"))
    check_only_schema(options)
    if "bucket" in map(str.casefold, options):
        return dict(options)
    return with_json_options(options, ddl)


def row_columns(source: SourceOptions, ddl: str | None) -> list[str]:
    """The names of the columns that a source's rows have: those of the message, and the fields of
    its payload. `ddl`: the schema of JSON payloads, if the source's options do not have it."""
    if source.decoding is not None:
        return decoded_columns(source)
    if ddl is None:
        return list(source.columns)
    return json_columns(ddl, named("json_schema"), source.columns)
