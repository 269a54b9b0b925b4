"""The options of format("jetspark-delta") and format("jetspark-iceberg"); secrets in no repr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError, named
from jetspark.nearest import did_you_mean
from jetspark.options import values
from jetspark.options.names import spark_name
from jetspark.options.scopes import TableOptions, TableReadScope, readers
from jetspark.payloads.field_names import FieldNames
from jetspark.spark.checkpoints import query_name
from jetspark.spark.table_sink.dead_letter_sink import (
    CONNECTION_PREFIX,
    STREAM_PREFIX,
    DeadLetterSink,
)
from jetspark.spark.versions import in_arrow
from jetspark.tables.formats import (
    STORAGE,
    Format,
    parse_catalog_name,
    parse_duration,
    parse_file_size,
    table_path,
)
from jetspark.tables.history import History
from jetspark.tables.partitions import PartitionBy, parse_partitions
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table import TableName
from jetspark.tables.table_templates import TableTemplate
from jetspark.tables.upserts import RowCondition, Upsert

PREFIX = "jetspark-"
"""Prefix of the formats' names in Spark, since a JAR may provide "delta" and "iceberg"."""
FILES = frozenset({"parquet", "json", "csv", "orc", "text", "avro", "xml"})
"""Formats of Spark's own file sink and source."""
TABLES = "tables"
"""A list of tables, as JSON (`table_list_option`)."""
_CHECKPOINT = "checkpointlocation"
TASK_SECRET = "taskSecret"
"""The secret of one start of a query (`task_output`). Spark masks such names."""
TASK_ROWS = "taskRows"
"""The columns of the rows that the query's own tasks write, as JSON."""
_OF_SPARK = frozenset({"queryname", "header", "inferschema"})
STOP = "stop"
"""Policy for records that cannot be decoded when no quarantine table is set."""
_COMPACT_EVERY = 100
"""Commits from one compaction to the next while a command follows a stream."""
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


def _keep_versions(name: str, value: str) -> timedelta:
    retention = parse_duration(named(name), value)
    if not retention:
        raise ConfigError("must be at least 1h.", option=name)
    return retention


def _compression(name: str, value: str) -> str:
    return values.word(*_COMPRESSIONS)(name, value.strip().casefold())


def _version(name: str, value: str) -> int:
    with suppress(ValueError):
        if 0 <= (version := int(value.strip())) < 2**63:
            return version
    raise ConfigError("must be the number of a version or a snapshot", option=name, value=value)


_WRITING: values.Table = {
    **readers(TableOptions),
    "partition_by": lambda _, value: parse_partitions(value),
    "target_file_size": lambda name, value: parse_file_size(named(name), value),
    "file_compression": _compression,
    "keep_versions": _keep_versions,
    "apply_as_deletes": lambda _, value: RowCondition.parse(value),
    "apply_as_truncates": lambda _, value: RowCondition.parse(value),
}
_READING: values.Table = {**readers(TableReadScope), "version_as_of": _version}
_OF_ORDER = ("apply_as_truncates", "history_by")
_LOCATION_OPTIONS = {Format.DELTA: ("path",), Format.ICEBERG: ("path", "catalog", "table")}


@dataclass(frozen=True, kw_only=True)
class LakehouseOptions:
    """The options, as explained in docs/options.md."""

    format: Format
    name: TableName
    partition_by: tuple[PartitionBy, ...] | None = None
    merge_schema: bool = False
    evolve: bool = False
    """Widen types, and add columns for a stream's new fields (`schema_evolution`)."""
    target_file_size: int = 128 * 1024 * 1024
    """Bytes."""
    file_compression: str = TableOptions.file_compression
    keep_versions: timedelta | None = None
    transaction_id: str | None = None
    writer_name: str | None = None
    adopt: bool = False
    keys: tuple[str, ...] | None = None
    sequence_by: str | None = None
    apply_as_deletes: RowCondition | None = None
    apply_as_truncates: RowCondition | None = None
    history_by: str | None = None
    """The column with the time of a change, for a table with all changes and their ends."""
    route: TableTemplate | None = None
    """The route of rows, when `name` is a template."""
    default_table: str | None = None
    """The table for rows without one."""
    quarantine: str | None = None
    """The table for records that do not become rows (`tables.quarantine`), or stream:NAME."""
    dead_letter_sink: DeadLetterSink | None = None
    """The stream in its place."""
    on_bad_record: str | None = None
    """`STOP`: the first one ends the write; else they are in `_corrupt_record`."""
    max_new_tables: int = TableOptions.max_new_tables
    compact_every: int | None = None
    """After so many commits small files are merged; 0: never; None: nobody has said."""
    tables: tuple[RoutedTable, ...] = ()
    """A list of tables, in place of `name`."""
    checkpoint: str | None = None
    task_secret: str | None = field(default=None, repr=False)
    """The secret with which the query's own tasks seal what they report (`task_output`)."""
    task_rows: tuple[pa.Schema, ...] = ()
    """The columns of their rows; of a list those of messages without a table, and of each table."""
    version_as_of: int | None = None
    prune: str | None = None
    min_partitions: int = 1

    @property
    def query_name(self) -> str | None:
        """See `checkpoints.query_name`."""
        return query_name(self.writer_name, self.checkpoint)

    @property
    def partitions(self) -> tuple[PartitionBy, ...]:
        """Partition fields of the table, which in Delta are columns only."""
        partition_by = self.partition_by or ()
        if self.format is Format.ICEBERG:
            return partition_by
        return tuple(PartitionBy(_delta_partition_column(item)) for item in partition_by)

    @property
    def partition_columns(self) -> dict[str, RowExpression]:
        """Columns that tasks add to the rows of a Delta table, for its partitions."""
        if self.format is Format.ICEBERG:
            return {}
        return {
            _delta_partition_column(item): RowExpression.parse("partition_by", str(item))
            for item in self.partition_by or ()
            if item.transform
        }

    @property
    def upsert(self) -> Upsert | None:
        """The rule by which rows replace others; None when they are added. Raises ConfigError."""
        if self.keys:
            for name in _OF_ORDER if self.sequence_by is None else ():
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"goes with {named('sequence_by')}, the column that orders the rows.",
                        option=name,
                    )
            rule = self.keys, self.sequence_by, self.apply_as_deletes, self.apply_as_truncates
            return Upsert(*rule) if self.history_by is None else History(*rule, self.history_by)
        for name in ("sequence_by", "apply_as_deletes", *_OF_ORDER):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"goes with {named('keys')}, the columns that tell which rows replace each "
                    "other.",
                    option=name,
                )
        return None

    def of_table(self, table: str) -> LakehouseOptions:
        """The options of one of the tables that rows are divided into."""
        for routed in self.tables:
            if str(routed.options.name) == table:
                return routed.options
        catalog = self.name.catalog
        name = (
            replace(self.name, path=table)
            if catalog is None
            else replace(self.name, identifier=table)
        )
        options = replace(
            self, name=name, route=None, quarantine=None, dead_letter_sink=None, tables=()
        )
        if self.tables or self.is_quarantine(options):
            of_keys = ("keys", "sequence_by", "apply_as_deletes", *_OF_ORDER)
            nothing: dict[str, Any] = dict.fromkeys((*of_keys, "partition_by"))
            options = replace(options, **nothing)
        return options

    def is_quarantine(self, options: LakehouseOptions) -> bool:
        """Whether these are the options of the table for records that do not become rows."""
        return self.quarantine is not None and self.quarantine in (
            options.name.path,
            options.name.identifier,
        )

    def for_reading(self) -> LakehouseOptions:
        """Check the options for spark.read, and return them. Raises ConfigError."""
        for name in _WRITING:
            if getattr(self, name) != getattr(_DEFAULTS, name):
                raise ConfigError("is for writing.", option=name)
        self._check_no_list()
        if self.route is not None:
            raise ConfigError(f"{self.name} is a template of tables: read one of them.")
        return self

    def for_batch(self) -> LakehouseOptions:
        """Check the options for df.write, and return them. Raises ConfigError."""
        self._check_no_list()
        for name in ("adopt", "writer_name", "compact_every"):
            if getattr(self, name) != getattr(_DEFAULTS, name):
                raise ConfigError("is for streaming queries.", option=name)
        return self._for_writing()

    def for_streaming(self) -> LakehouseOptions:
        """Check the options for df.writeStream, and return them. Raises ConfigError."""
        if self.transaction_id is not None:
            raise ConfigError(
                "is for batch writes; a streaming query is identified by its checkpoint.",
                option="transaction_id",
            )
        return self._for_writing()

    def _check_no_list(self) -> None:
        if self.tables:
            raise ConfigError("is for streaming queries of jetspark run.", option=TABLES)

    def _for_writing(self) -> LakehouseOptions:
        for name in _READING:
            if getattr(self, name) != getattr(_DEFAULTS, name):
                raise ConfigError("is for reading.", option=name)
        return self


def when_following(options: LakehouseOptions) -> dict[str, str]:
    """The options that a command adds to those of a query that follows a stream."""
    is_open = options.compact_every is None and not options.keys
    return {"compactEvery": str(_COMPACT_EVERY)} if is_open else {}


@dataclass(frozen=True, kw_only=True)
class RoutedTable:
    """One of a list of tables that a stream is divided into."""

    subjects: tuple[str, ...]
    """Patterns for the subjects of its messages."""
    options: LakehouseOptions
    json_schema: str | None = None
    """Schema of the payloads, in Spark's DDL; without one the payload is a column."""
    derived: Mapping[str, RowExpression] = field(default_factory=dict)
    """Further columns, and what they are made of."""
    names: FieldNames = field(default_factory=FieldNames)
    """The columns of the payloads' fields."""

    @property
    def option(self) -> str:
        """The name of the schema in messages to users."""
        return f"json of {self.options.name}"


def lakehouse_format(name: str) -> Format | None:
    """The table format of a Spark format's name; None for other formats."""
    suffix = name.casefold().removeprefix(PREFIX)
    return Format(suffix) if suffix != name.casefold() and suffix in tuple(Format) else None


def not_a_table(format_: str) -> str:
    """The sentence for a format of Spark's file sink, whose folder only Spark reads correctly."""
    return (
        f"jetspark writes Delta and Iceberg tables; for a folder of {format_} files use Spark's "
        f'own writeStream.format("{format_}") in a program of yours.'
    )


def table_list_option(
    tables: Iterable[
        tuple[
            Sequence[str],
            str | None,
            Mapping[str, str],
            Mapping[str, RowExpression],
            Mapping[str, str],
        ]
    ],
) -> dict[str, str]:
    """The option for a list: of each table its subjects, the payloads' schema, options, further
    columns, and other names of fields."""
    document = [
        [
            list(subjects),
            ddl,
            dict(own),
            {name: value.text for name, value in derived.items()},
            dict(names),
        ]
        for subjects, ddl, own, derived, names in tables
    ]
    return {TABLES: json.dumps(document)}


def parse_lakehouse_options(format_: Format, options: Mapping[str, str]) -> LakehouseOptions:
    """Raises ConfigError for unknown names (with the nearest known one), bad values, no table."""
    common_options = {name: value for name, value in options.items() if name != TABLES}
    location, properties, parsed = _values(format_, common_options)
    _add_dead_letter_sink(common_options, parsed)
    if parsed.get("evolve"):
        parsed["merge_schema"] = True
    if (table_list := options.get(TABLES)) is not None:
        tables = _parse_table_list(format_, common_options, table_list)
        first = tables[0].options.name
        all_ = TableName(catalog=first.catalog, properties=properties)
        parsed |= _further_tables(first, parsed)
        return LakehouseOptions(format=format_, name=all_, tables=tables, **parsed)
    target = table_name(format_, location, properties)
    route = (
        TableTemplate.parse(named("path"), target.path)
        if target.path is not None
        else TableTemplate.parse(named("table"), target.identifier or "", in_catalog=True)
    )
    for option in ("default_table", "max_new_tables") if route is None else ():
        if option in parsed:
            raise ConfigError(
                "goes with a template of tables, such as lake/{region}.", option=option
            )
    for item in parsed.get("partition_by", ()) if format_ is Format.DELTA else ():
        if item.transform not in ("", "day", "hour"):
            raise ConfigError(
                f": {item} is for Iceberg tables. Those in Delta are partitioned by "
                "columns, which day(…) and hour(…) of a time become by themselves: add any other "
                "column to the rows.",
                option="partition_by",
            )
    if "keys" in parsed and parsed.get("compact_every"):
        raise ConfigError(
            f"is for tables to which rows are added: with {named('keys')} the whole table would be "
            "looked at after each compaction, for keys that are there twice.",
            option="compact_every",
        )
    parsed |= _further_tables(target, parsed)
    quarantine = parsed.get("quarantine")
    if quarantine is not None and (
        quarantine in (target.path, target.identifier, parsed.get("default_table"))
        or (route is not None and route.may_name(quarantine))
    ):
        raise ConfigError(
            f"{quarantine} names a table of the rows: name another one"
            + ("." if route is None else f", such as {route.sibling_name(quarantine)}."),
            option="quarantine",
        )
    for inner, outer in ((quarantine, target.path), (target.path, quarantine)):
        if inner is not None and outer is not None and inner.startswith(f"{outer}/"):
            raise ConfigError(
                f"{inner} would lie in {outer}, another table, and be lost with it: name a folder "
                "outside of that."
            )
    if quarantine is not None and "on_bad_record" in parsed:
        raise ConfigError(
            f"Give either {named('quarantine')}, where records go that do not become rows, "
            f"or {named('on_bad_record')}."
        )
    if route is not None and route.in_catalog and "dead_letter_sink" in parsed:
        raise ConfigError(
            f"{quarantine}: with a template of a catalog's "
            f"tables name a table of the catalog {target.catalog}.",
            option="quarantine",
        )
    return LakehouseOptions(format=format_, name=target, route=route, **parsed)


def _add_dead_letter_sink(options: Mapping[str, str], parsed: dict[str, Any]) -> None:
    """The stream that `quarantine` names, with its connection."""
    prefix = CONNECTION_PREFIX
    connection = {
        name[len(prefix) :]: value
        for name, value in options.items()
        if name.casefold().startswith(prefix)
    }
    quarantine = parsed.get("quarantine", "").strip()
    if quarantine.startswith(STREAM_PREFIX):
        parsed["quarantine"] = quarantine
        stream = quarantine.removeprefix(STREAM_PREFIX)
        parsed["dead_letter_sink"] = DeadLetterSink.parse(stream, connection)
    elif connection:
        raise ConfigError(f"Options {prefix}… go with {named('quarantine')} {STREAM_PREFIX}NAME.")


def _values(
    format_: Format, options: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """The names of the table, properties for its library, and the other options by attributes."""
    converters = {**_WRITING, **_READING}
    names = (*converters, *_LOCATION_OPTIONS[format_])
    attributes = {"location": "path"}  # set by a table of Spark's catalog
    attributes |= {spark_name(name).casefold(): name for name in names}
    location: dict[str, str] = {}
    properties: dict[str, str] = {}
    parsed: dict[str, Any] = {}
    for option, value in options.items():
        folded = option.casefold()
        name = attributes.get(folded)
        if folded.startswith(STORAGE):
            properties[option[len(STORAGE) :]] = value
        elif name in converters:
            parsed[name] = values.read(converters[name], name, value)
        elif name is not None:
            location[name] = value.strip()
        elif folded == _CHECKPOINT:
            parsed["checkpoint"] = value
        elif folded == TASK_SECRET.casefold():
            parsed["task_secret"] = value
        elif folded == TASK_ROWS.casefold():
            columns = map(StructType.fromJson, json.loads(value))
            parsed["task_rows"] = tuple(map(in_arrow, columns))
        elif folded not in _OF_SPARK and not folded.startswith(CONNECTION_PREFIX):
            raise ConfigError(_unknown(format_, option, list(map(spark_name, names))))
    return location, properties, parsed


def of_one(all_: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The options of one table of a list, from those of all and its own."""
    merged = "keys" in map(str.casefold, own)
    not_here = {"defaulttable"} | ({"compactevery"} if merged else set())
    inherited = {name: value for name, value in all_.items() if name.casefold() not in not_here}
    return {**inherited, **own}


def _parse_table_list(
    format_: Format, options: Mapping[str, str], table_list: str
) -> tuple[RoutedTable, ...]:
    tables = []
    for subjects, ddl, own, texts, renamed in json.loads(table_list):
        parsed = parse_lakehouse_options(format_, of_one(options, own))
        if ddl is None:  # each payload is a row
            parsed = replace(parsed, quarantine=None, on_bad_record=None)
        derived = {name: RowExpression.parse("columns", value) for name, value in texts.items()}
        names = FieldNames(renamed)
        tables.append(
            RoutedTable(
                subjects=tuple(subjects),
                options=parsed,
                json_schema=ddl,
                derived=derived,
                names=names,
            )
        )
    return tuple(tables)


def _delta_partition_column(partition: PartitionBy) -> str:
    return f"{partition.column}_{partition.transform}" if partition.transform else partition.column


def table_name(
    format_: Format, location: Mapping[str, str], properties: Mapping[str, str]
) -> TableName:
    """The table that `path`, or `catalog` and `table`, name. Raises ConfigError."""
    path, catalog, table = (location.get(option) for option in ("path", "catalog", "table"))
    if path:
        if catalog or table:
            raise ConfigError(
                f"Give {named('path')}, or {named('catalog')} and {named('table')}, not both."
            )
        return TableName(path=table_path(path), properties=dict(properties))
    if format_ is Format.ICEBERG and catalog and table:
        if "." not in table:
            raise ConfigError("must be namespace.table", option="table", value=table)
        return TableName(catalog=catalog, identifier=table, properties=dict(properties))
    also = f" (or {named('catalog')} and {named('table')})" if format_ is Format.ICEBERG else ""
    raise ConfigError(f"Name the table: save(path), load(path) or {named('path')}{also}.")


def _further_tables(target: TableName, parsed: Mapping[str, Any]) -> dict[str, str]:
    return {
        option: _parse_further_table(target, option, parsed[option])
        for option in ("default_table", "quarantine")
        if option in parsed and not (option == "quarantine" and "dead_letter_sink" in parsed)
    }


def _parse_further_table(target: TableName, option: str, table: str) -> str:
    """The name of a further table of a query: a folder, or one of the same catalog, as the first
    table is. Raises ConfigError."""
    if {"{", "}"} & set(table):
        raise ConfigError(f": {table} is a template; name a single table.", option=option)
    catalog = parse_catalog_name(table)
    if target.catalog is None:
        if catalog is not None:
            raise ConfigError(
                f": {table} is a table of a catalog, and the other one is "
                f"{target}: name a folder; for one with a colon write ./{table}.",
                option=option,
            )
        return table_path(table)
    if catalog is not None and catalog[0] == target.catalog:
        table = catalog[1]
    if parse_catalog_name(f"{target.catalog}:{table}") is None:
        raise ConfigError(
            f": {table} is not a table of the catalog {target.catalog}, as the "
            "other one is: write namespace.table.",
            option=option,
        )
    return table


def _unknown(format_: Format, option: str, known_names: list[str]) -> str:
    all_ = f"; known: {', '.join(known_names)}, and {STORAGE}… for the storage and the catalog."
    hint = did_you_mean(option, known_names, all_)
    return f"Unknown option {option!r} for format {PREFIX}{format_}{hint}"


_DEFAULTS = LakehouseOptions(format=Format.DELTA, name=TableName())
