"""Texts of options become `LakehouseOptions`, and those of a list of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError, named
from jetspark.nearest import did_you_mean
from jetspark.options.names import spark_name
from jetspark.options.parsers import Parsers, one_of, parse_option
from jetspark.options.scopes import TableOptions, TableReadScope, parsers_of
from jetspark.payloads.field_names import FieldNames
from jetspark.spark.table_sink.dead_letter_sink import (
    CONNECTION_PREFIX,
    STREAM_PREFIX,
    DeadLetterSink,
)
from jetspark.spark.table_sink.options import (
    PREFIX,
    ROW_RECIPE,
    TABLES,
    TASK_ROWS,
    TASK_SECRET,
    LakehouseOptions,
    RoutedTable,
)
from jetspark.spark.versions import in_arrow
from jetspark.tables.arguments import (
    parse_catalog_name,
    parse_duration,
    parse_file_size,
    table_path,
)
from jetspark.tables.formats import STORAGE, Format
from jetspark.tables.partitions import parse_partitions
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table import TableName
from jetspark.tables.table_templates import TableTemplate
from jetspark.tables.upserts import RowCondition

_CHECKPOINT = "checkpointlocation"
_IGNORED = frozenset({"queryname", "header", "inferschema"})
"""Options that Spark passes on to every format."""
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


def _read_retention(name: str, value: str) -> timedelta:
    """Parse the option for how long old versions of a table are kept, as `7d`; at least 1 hour."""
    retention = parse_duration(named(name), value)
    if not retention:  # 0; there are no units smaller than an hour
        raise ConfigError("must be at least 1h.", option=name)
    return retention


def _read_compression(name: str, value: str) -> str:
    """Parse the option with the name of a Parquet compression codec."""
    return one_of(*_COMPRESSIONS)(name, value.strip().casefold())


def _read_version(name: str, value: str) -> int:
    """Parse the option with the version of a table to read: a version of a Delta table, or the id
    of an Iceberg snapshot; both have at most 63 bits."""
    with suppress(ValueError):
        if 0 <= (version := int(value.strip())) < 2**63:
            return version
    raise ConfigError("must be the number of a version or a snapshot", option=name, value=value)


_WRITING: Parsers = {
    **parsers_of(TableOptions),
    "partition_by": lambda _, value: parse_partitions(value),
    "target_file_size": lambda name, value: parse_file_size(named(name), value),
    "file_compression": _read_compression,
    "keep_versions": _read_retention,
    "apply_as_deletes": lambda _, value: RowCondition.parse(value),
    "apply_as_truncates": lambda _, value: RowCondition.parse(value),
}
_READING: Parsers = {**parsers_of(TableReadScope), "version_as_of": _read_version}
_LOCATION_OPTIONS = {Format.DELTA: ("path",), Format.ICEBERG: ("path", "catalog", "table")}


class ListedTable(msgspec.Struct, frozen=True, kw_only=True):
    """One of a list of tables, as the option `tables` has it in JSON."""

    subjects: tuple[str, ...]
    """Patterns for the subjects of its messages."""
    options: Mapping[str, str]
    """Options of this table, beside those of the whole list, by their names in Spark."""
    json_schema: str | None = None
    """Schema of the payloads, in Spark's DDL; without one each payload is a row."""
    derived: Mapping[str, str] = {}
    """Further columns, and the expressions that they are made of."""
    renamed: Mapping[str, str] = {}
    """Columns with other names than the payloads' fields."""

    def parse(self, format_: Format, shared: Mapping[str, str]) -> RoutedTable:
        """The parsed options of this table of a list. `shared`: options of the whole list, which a
        table has unless it has its own. Raises ConfigError."""
        left_out = {"defaulttable"}  # that of the list is for messages that no table takes
        if "keys" in map(str.casefold, self.options):
            left_out.add("compactevery")  # not for tables with keys
        inherited = {name: text for name, text in shared.items() if name.casefold() not in left_out}
        options = parse_lakehouse_options(format_, {**inherited, **self.options})
        if self.json_schema is None:  # any payload is a row, so none is rejected
            options = replace(options, quarantine=None, on_bad_record=None)
        return RoutedTable(
            subjects=self.subjects,
            options=options,
            json_schema=self.json_schema,
            derived=parse_expressions(self.derived),
            names=FieldNames(self.renamed),
        )


def parse_expressions(texts: Mapping[str, str]) -> dict[str, RowExpression]:
    """Parse the expressions of derived columns, as `subject[1]`, by the names of the columns."""
    return {name: RowExpression.parse(name, text) for name, text in texts.items()}


def table_list_option(tables: Iterable[ListedTable]) -> dict[str, str]:
    """The option `tables`, a list of tables as JSON, by which a pipeline gives it to its sink."""
    return {TABLES: msgspec.json.encode(list(tables)).decode()}


def parse_lakehouse_options(format_: Format, options: Mapping[str, str]) -> LakehouseOptions:
    """Parse the options that Spark passes to format jetspark-delta or jetspark-iceberg.

    Raises ConfigError for unknown names (with the nearest known one), for bad values and for
    options that exclude each other, and if no table is named.
    """
    shared = {name: value for name, value in options.items() if name != TABLES}
    parts = _read_texts(format_, shared)
    parsed = parts.values
    _add_dead_letter_sink(shared, parsed)
    if parsed.get("evolve"):  # new fields become columns, so columns may be added
        parsed["merge_schema"] = True
    if (table_list := options.get(TABLES)) is not None:
        listed = msgspec.json.decode(table_list, type=list[ListedTable])
        tables = tuple(table.parse(format_, shared) for table in listed)
        first = tables[0].options.name
        parsed |= _parse_further_tables(first, parsed)
        name = TableName(catalog=first.catalog, properties=parts.properties)
        return LakehouseOptions(format=format_, name=name, tables=tables, **parsed)
    target = table_name(format_, parts.location, parts.properties)
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
    parsed |= _parse_further_tables(target, parsed)
    if "quarantine" in parsed:
        _check_quarantine(parsed, target, route)
    return LakehouseOptions(format=format_, name=target, route=route, **parsed)


def _check_quarantine(
    parsed: Mapping[str, Any], target: TableName, route: TableTemplate | None
) -> None:
    """Raise ConfigError for a quarantine that is a table of ordinary rows, lies in the folder of
    one, or does not go with another option.

    `parsed`: the values of options; `target`: the table, or the template of tables; `route`: the
    parsed template, if it is one.
    """
    quarantine = parsed["quarantine"]
    if quarantine in (target.path, target.identifier, parsed.get("default_table")) or (
        route is not None and route.may_name(quarantine)
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
    if "on_bad_record" in parsed:
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


def _add_dead_letter_sink(options: Mapping[str, str], parsed: dict[str, Any]) -> None:
    """Add `dead_letter_sink` to the parsed options, if the option `quarantine` names a stream in
    place of a table. `options`: texts, from which it takes the connection, as quarantine.servers.
    Raises ConfigError for a connection without a stream."""
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


class _OptionParts(NamedTuple):
    """The options of a table's format, divided by what they are for: to find the table, for its
    storage, and all others."""

    location: dict[str, str]
    """What names the table: `path`, `catalog`, `table`."""
    properties: dict[str, str]
    """Properties for the library of the storage and the catalog."""
    values: dict[str, Any]
    """Values of all others, by their attributes of LakehouseOptions."""


def _read_texts(format_: Format, options: Mapping[str, str]) -> _OptionParts:
    """Parse each option on its own, and divide the options by what they are for; their names are
    Spark's, in upper or lower case. Raises ConfigError for unknown names and bad values."""
    converters = {**_WRITING, **_READING}
    names = (*converters, *_LOCATION_OPTIONS[format_])
    attributes = {"location": "path"}  # Spark's catalog gives the path of a table as `location`
    attributes |= {spark_name(name).casefold(): name for name in names}
    parts = _OptionParts(location={}, properties={}, values={})
    for option, value in options.items():
        folded = option.casefold()
        name = attributes.get(folded)
        if folded.startswith(STORAGE):
            parts.properties[option[len(STORAGE) :]] = value
        elif name in converters:
            parts.values[name] = parse_option(converters[name], name, value)
        elif name is not None:
            parts.location[name] = value.strip()
        elif folded == _CHECKPOINT:
            parts.values["checkpoint"] = value
        elif folded == TASK_SECRET.casefold():
            parts.values["task_secret"] = value
        elif folded == ROW_RECIPE.casefold():
            parts.values["row_recipe"] = value
        elif folded == TASK_ROWS.casefold():
            columns = map(StructType.fromJson, json.loads(value))
            parts.values["task_rows"] = tuple(map(in_arrow, columns))
        elif folded not in _IGNORED and not folded.startswith(CONNECTION_PREFIX):
            raise ConfigError(_explain_unknown(format_, option, list(map(spark_name, names))))
    return parts


def table_name(
    format_: Format, location: Mapping[str, str], properties: Mapping[str, str]
) -> TableName:
    """The name of the table from its options: `path`, or `catalog` and `table` for Iceberg.

    `location`: these options; `properties`: credentials and such for its storage or catalog.
    Raises ConfigError if they do not name one table.
    """
    path, catalog, table = (location.get(option) for option in ("path", "catalog", "table"))
    if path:
        if catalog or table:
            raise ConfigError(
                f"Give {named('path')}, or {named('catalog')} and {named('table')}, not both."
            )
        # A template is checked as it was written: an absolute path has no `..` any more.
        TableTemplate.parse(named("path"), path)
        return TableName(path=table_path(path), properties=dict(properties))
    if format_ is Format.ICEBERG and catalog and table:
        if "." not in table:
            raise ConfigError("must be namespace.table", option="table", value=table)
        return TableName(catalog=catalog, identifier=table, properties=dict(properties))
    also = f" (or {named('catalog')} and {named('table')})" if format_ is Format.ICEBERG else ""
    raise ConfigError(f"Name the table: save(path), load(path) or {named('path')}{also}.")


def _parse_further_tables(target: TableName, parsed: Mapping[str, Any]) -> dict[str, str]:
    """Parse the names of the query's further tables: the default table, for rows without a table,
    and the quarantine, unless it is a stream.

    Returns them by the names of their options. `target`: the query's first table; `parsed`: values
    of options.
    """
    options = ["default_table"] if "dead_letter_sink" in parsed else ["default_table", "quarantine"]
    return {
        option: _parse_further_table(target, option, parsed[option])
        for option in options
        if option in parsed
    }


def _parse_further_table(target: TableName, option: str, table: str) -> str:
    """Parse the name of a query's default table or quarantine table. It has to be a folder if the
    query's first table (`target`) is one, and else in the same catalog. Raises ConfigError.

    `option`: the name of the option, for messages; `table`: its value.
    """
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


def _explain_unknown(format_: Format, option: str, known_names: list[str]) -> str:
    """The error message for an option that the format does not have, with the nearest known name,
    or else all of them."""
    all_ = f"; known: {', '.join(known_names)}, and {STORAGE}… for the storage and the catalog."
    hint = did_you_mean(option, known_names, all_)
    return f"Unknown option {option!r} for format {PREFIX}{format_}{hint}"
