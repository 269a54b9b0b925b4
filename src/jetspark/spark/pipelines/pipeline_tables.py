"""What a pipeline file says of tables: derived columns, and lists of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

from jetspark.errors import ConfigError, named
from jetspark.options.scopes import (
    TableOptions,
    parsers_of,
)
from jetspark.payloads.field_names import FieldNames, parse_renames
from jetspark.spark.pipelines.table_rows import DAY, OTHER_FIELDS, day_of, derived_columns
from jetspark.spark.pipelines.toml_table import TomlTable, is_list_of_texts
from jetspark.spark.source.payload_columns import json_columns
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    table_list_option,
)
from jetspark.spark.table_sink.options import (
    TABLES,
    RoutedTable,
)
from jetspark.subjects import check_subscribe_subject, subjects_overlap
from jetspark.tables.formats import Format
from jetspark.tables.partitions import PartitionBy, join_partitions
from jetspark.tables.quarantine import MESSAGE
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table import TableName

DERIVING_KEYS = ("derive", "rescued_data_column")
TABLE_OPTIONS = (*parsers_of(TableOptions), "path", "catalog", "table")
_LISTED_TABLE_KEYS = ("subjects", "json_schema", "rename", "partition_by", *DERIVING_KEYS)
_OPTIONS_OF_EACH_TABLE = (
    *("path", "table", "keys"),
    *("sequence_by", "apply_as_deletes", "apply_as_truncates", "history_by"),
)
"""Options that a list of tables has in each of its tables."""
_OPTIONS_OF_LIST = ("default_table", "quarantine", "max_new_tables", "writer_name", "adopt")
"""Options that a list of tables has for all of them."""
PARTITIONS_EXAMPLE = '["region", "day"]'


def take_deriving_keys(table: TomlTable) -> dict[str, Any]:
    """Take the keys that derive columns."""
    return {key: table.take(key) for key in DERIVING_KEYS if key in table.keys}


def read_derived_columns(
    table: TomlTable,
    deriving: Mapping[str, Any],
    columns: Sequence[str],
    ddl: str | None,
    timestamps: Sequence[str] = (),
) -> dict[str, RowExpression]:
    """Read the derived columns of a table in a pipeline file: their names, and the expressions for
    their values.

    `deriving`: the keys `derive` and `rescued_data_column`, taken out of `table`; `columns`: those
    that the rows have without them; `ddl`: the schema of JSON payloads; `timestamps`: the columns
    that are timestamps, for payloads that are not JSON. Raises ConfigError.
    """
    items, rescued = deriving.get("derive", []), None
    if not is_list_of_texts(items):
        table.fail("derive", 'derive is a list: ["site=subject[1]"].')
    if "rescued_data_column" in deriving:
        rescued = table.text_of("rescued_data_column", deriving["rescued_data_column"])
    with table.blaming(next(iter(deriving), None)):
        return derived_columns(items, rescued, columns=columns, schema=ddl, timestamps=timestamps)


def tables_overlap(first: TableName, second: TableName) -> bool:
    """Whether two tables are the same, or one lies in the other's folder."""
    if first.path is None or second.path is None:
        return str(first) == str(second)
    first_folder, second_folder = f"{first.path.rstrip('/')}/", f"{second.path.rstrip('/')}/"
    return first_folder.startswith(second_folder) or second_folder.startswith(first_folder)


# -- lists of tables -------------------------------------------------------------------------------


def read_table_list(
    sink: TomlTable,
    tables: list[dict[str, Any]],
    format_: Format,
    shared: Mapping[str, str],
    columns: Sequence[str],
    partition_by: list[str],
) -> dict[str, str]:
    """Read the list of tables of a sink, among which the messages of a stream are divided; returns
    it as the option `tables`.

    `tables`: the keys of each; `shared`: options of all of them, by their names in Spark;
    `columns`: those of the source; `partition_by`: the partitions of tables that have none of their
    own. Raises ConfigError.
    """
    for key in _OPTIONS_OF_EACH_TABLE:
        if key in sink.keys:
            sink.fail(key, f"write {key} in each of the list's tables.")
    # Subjects tell the tables apart; a quarantine has the whole message.
    quarantines = "quarantine" in sink.keys
    for column in MESSAGE if quarantines else ("subject",):
        if column not in columns:
            sink.fail(
                "from",
                f"tables{' with quarantine' if quarantines else ''} needs the column {column} "
                "of the source: add it to columns.",
            )
    list_ = sink.inner(TABLES, {})
    entries = [list_.inner(str(index), keys) for index, keys in enumerate(tables)]
    for entry in entries if partition_by else ():
        entry.keys.setdefault("partition_by", list(partition_by))
    list_name = ".".join(sink.key_path)
    read = [
        _ListedTableReader(entry, format_, shared, columns).read(list_name) for entry in entries
    ]
    listed, routed = [table for table, _ in read], [table for _, table in read]
    for (earlier_entry, earlier), (entry, table) in combinations(
        zip(entries, routed, strict=True), 2
    ):
        _check_tables_apart(earlier_entry, earlier, entry, table)
    return table_list_option(listed)


@dataclass(frozen=True)
class _ListedTableReader:
    """Reads one table of a sink's list of tables from a pipeline file."""

    table: TomlTable
    format: Format
    shared: Mapping[str, str] = field(repr=False)
    """Options of all tables, by their names in Spark."""
    columns: Sequence[str]
    """The columns of the source."""

    def read(self, sink: str) -> tuple[ListedTable, RoutedTable]:
        """Read the table; returns it twice: as it is stored in the option `tables`, and parsed.
        `sink`: the path of the sink in the file, for messages. Raises ConfigError."""
        table = self.table
        subjects = self._read_subjects()
        ddl = table.take("json_schema")
        columns, names = list(self.columns), self._read_field_names(has_schema=ddl is not None)
        if ddl is not None:
            ddl = table.text_of("json_schema", ddl)
            with table.blaming("json_schema"):
                columns = json_columns(ddl, named("json_schema"), self.columns, names)
        deriving = take_deriving_keys(table)
        if self._evolves(ddl):
            deriving.setdefault("rescued_data_column", OTHER_FIELDS)
        derived = read_derived_columns(table, deriving, columns, ddl)
        columns += derived
        partition_by = self._read_partitions(columns, derived)
        for key in _OPTIONS_OF_LIST:
            if key in table.keys:
                table.fail(key, f"write {key} in [{sink}], for all tables.")
        options = table.options(TABLE_OPTIONS, _LISTED_TABLE_KEYS)
        if partition_by:
            options["partitionBy"] = join_partitions(partition_by)
        listed = ListedTable(
            subjects=subjects,
            options=options,
            json_schema=ddl,
            derived={name: expression.text for name, expression in derived.items()},
            renamed=names.renamed,
        )
        with table.blaming():
            return listed, self._parse(listed, columns)

    def _parse(self, listed: ListedTable, columns: Sequence[str]) -> RoutedTable:
        """Parse the options of the table, and check that it can be one of a list. `columns`: those
        of its rows. Raises ConfigError."""
        table = listed.parse(self.format, self.shared)
        options = table.options.for_streaming()
        if options.route is not None:
            raise ConfigError(
                "A table of a list has one name: for a template make a sink of its own."
            )
        if options.upsert is not None:
            options.upsert.check_names(columns)
        if options.keys is not None and options.sequence_by is None:
            raise ConfigError(
                f"needs {named('sequence_by')} in a list of tables, the column whose greatest "
                "value is the last row of a key, such as seq.",
                option="keys",
            )
        return table

    def _read_subjects(self) -> tuple[str, ...]:
        """Read the key `subjects`: patterns for the subjects of the messages that the table gets.
        Raises ConfigError if it is missing or invalid."""
        subjects = self.table.take("subjects")
        if not is_list_of_texts(subjects) or not subjects:
            self.table.fail("subjects", 'subjects is missing or no list: ["orders.>"].')
        patterns = tuple(self.table.text_of("subjects", subject) for subject in subjects)
        with self.table.blaming("subjects"):
            for pattern in patterns:
                check_subscribe_subject(pattern)
        return patterns

    def _read_field_names(self, *, has_schema: bool) -> FieldNames:
        """Read the key `rename`, by which fields of payloads have columns of other names; without
        it they have their own. Raises ConfigError if payloads have no schema."""
        rename = self.table.take("rename")
        if rename is None:
            return FieldNames()
        if not has_schema:
            self.table.fail(
                "rename", "rename goes with json_schema: without it the payload is one column."
            )
        text = self.table.text_of("rename", rename)
        with self.table.blaming("rename"):
            return FieldNames(parse_renames(named("rename"), text))

    def _evolves(self, ddl: str | None) -> bool:
        """Whether new fields of payloads become columns of the table: as its key `evolve` says, or
        that of the whole list. Never without a schema of payloads (`ddl`)."""
        evolves = self.table.check_bool("evolve")
        if evolves and ddl is None:
            self.table.fail("evolve", "evolve goes with json_schema.")
        if evolves is None:
            evolves = self.shared.get("evolve") == "true"
        return evolves and ddl is not None

    def _read_partitions(self, columns: list[str], derived: dict[str, RowExpression]) -> list[str]:
        """Read the key `partition_by`: columns, and transforms such as `day(time)`.

        If no column has the name `day`, it may name the day of the message so: `day` is added to
        `columns`, those of the rows, and, if the table is partitioned by it, to the `derived` ones.
        """
        partition_by = self.table.take_texts("partition_by", PARTITIONS_EXAMPLE)
        partition_columns = [PartitionBy.parse(text).column for text in partition_by]
        if DAY not in columns and "timestamp" in self.columns:
            columns.append(DAY)
            if DAY in partition_columns:
                derived[DAY] = day_of("timestamp")
        for text, column in zip(partition_by, partition_columns, strict=True):
            if column not in columns:
                self.table.fail(
                    "partition_by",
                    f"partition_by: there is no column {text!r}; there are {', '.join(columns)}.",
                )
        return partition_by


def _check_tables_apart(
    earlier_entry: TomlTable, earlier: RoutedTable, entry: TomlTable, table: RoutedTable
) -> None:
    """Raise ConfigError if two tables of a list would get the same messages, since their subjects
    overlap, or if one lies in the other's folder. `entry`: where the file has the later one."""
    line = entry.key_lines.line(earlier_entry.key_path)
    for earlier_subject, subject in product(earlier.subjects, table.subjects):
        if subjects_overlap(earlier_subject, subject):
            entry.fail(
                "subjects",
                f"{subject!r} overlaps with {earlier_subject!r} of the table in line {line}: a "
                "message has one table.",
            )
    if tables_overlap(earlier.options.name, table.options.name):
        entry.fail(
            "path", f"the table in line {line} has this path, or one inside or around it, already."
        )
