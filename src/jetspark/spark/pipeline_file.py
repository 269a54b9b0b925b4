"""Reads and checks a pipeline file, TOML with sources, views and sinks, without Spark.

Every mistake is reported with the file's name and the line. `${NAME}` in a text stands for the
environment variable NAME, so that secrets need not be in the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from jetspark.errors import ConfigError, JetsparkError
from jetspark.files import read_small_text
from jetspark.lakehouse.formats import Format
from jetspark.lakehouse.partitions import PartitionBy
from jetspark.lakehouse.quarantine import MESSAGE
from jetspark.lakehouse.routes import ValueOf
from jetspark.lakehouse.table import TableName
from jetspark.spark import option_values
from jetspark.spark.json_payloads import decoded_columns, json_columns, taken_ddl, times_of
from jetspark.spark.lakehouse.growth import check_one_schema, check_versions
from jetspark.spark.lakehouse.letters import with_connection
from jetspark.spark.lakehouse.listed import DAY, OF_DAY
from jetspark.spark.lakehouse.options import (
    FILES,
    PREFIX,
    TABLES,
    LakehouseOptions,
    ListedTable,
    lakehouse_format,
    listed_option,
    not_a_table,
    of_one,
    parse_lakehouse_options,
)
from jetspark.spark.made_columns import KEYS, made_columns
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.sink_options import Guarantee, SinkOptions, parse_sink_options
from jetspark.subjects import check_subscribe_subject, nearest_name, subjects_overlap

T = TypeVar("T")

# -------------------------------------------------------------------------------------------------
# The lines of the parts of a pipeline file, for errors.
#
# Read from the text, since Python's TOML parser keeps no positions.


_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^."'\s])+""")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\s-])+?)\s*=""")
_TELLING = 4
"""Minimum length of a value for searching a sentence without quotation marks."""


@dataclass(frozen=True)
class Places:
    """The lines of a file's tables and keys; empty for a pipeline without a file."""

    file: str = ""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def line(self, where: tuple[str, ...]) -> int | None:
        """The line of the key, else of the nearest table that contains it."""
        for length in range(len(where), 0, -1):
            if (line := self.lines.get(where[:length])) is not None:
                return line
        return None

    def located(self, where: tuple[str, ...], sentence: str) -> str:
        """The sentence after the file's name and the line."""
        if not self.file:
            return sentence
        line = self.line(where)
        return f"{self.file}{'' if line is None else f':{line}'}: {sentence}"


def read_places(file: str, text: str) -> Places:
    """The lines of tables and keys. A line in a long text may be mistaken for a key: harmless."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counts: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        where: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            table = where = _path(header[1])
            if line.lstrip().startswith("[["):  # a list of tables: each has its number behind it
                counts[table] += 1
                table = where = (*table, str(counts[table] - 1))
        elif key := _KEY.match(line):
            where = (*table, *_path(key[1]))
        for length in range(1, len(where) + 1):  # [a.b] begins a, too
            found.setdefault(where[:length], number)
    return Places(file, found)


def _path(dotted: str) -> tuple[str, ...]:
    """The parts of a key, each bare or quoted."""
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def meant_by(sentence: str, options: Mapping[str, str]) -> str | None:
    """The option of an error: the one that it names, or whose value it quotes."""
    if named := re.search(r"option '([^']+)'", sentence, re.IGNORECASE):
        return _key(options, named[1])
    for name, value in options.items():
        if value and (f"'{value}'" in sentence or f'"{value}"' in sentence):
            return name
    for name, value in options.items():
        # A name such as credsFile does not occur in a sentence about something else.
        if name != name.lower() and re.search(rf"\b{re.escape(name)}\b", sentence):
            return name
        if any(len(one) >= _TELLING and one in sentence for one in re.split(r"[,\s]+", value)):
            return name
    return None


def _key(table: Mapping[str, Any], name: str) -> str | None:
    """The key of this name; Spark ignores the case."""
    return next((key for key in table if key.casefold() == name.casefold()), None)


# -------------------------------------------------------------------------------------------------


_NAME = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SYNTAX = re.compile(r"(.*) \(at line (\d+), column \d+\)")
_MODES = ("append", "update", "complete")
_TOP = {"name": str, "checkpoint": str, "trigger": dict, "spark": dict, "sources": dict}
_TOP |= {"views": dict, "sinks": dict}
_NEEDED = {
    "checkpoint": "the folder that keeps the progress",
    "sources": "what to read, as [sources.<name>]",
    "sinks": "what to write, as [sinks.<name>]",
}
_OF_SOURCES = ("format", "json", "watermark", "static")
_OF_SINKS = ("from", "format", "mode", "partition_by", "through_spark")
_MADE = ("columns", "rest_column")
_OF_TABLES = (*_MADE, "evolve")
"""Of a sink that is a table."""
_OF_LISTED = ("subjects", "json", "partition_by", *_OF_TABLES)
_OF_ONE_TABLE = (
    *("path", "table", "partitionBy", "keys"),
    *("sequenceBy", "applyAsDeletes", "applyAsTruncates", "historyBy"),
)
"""Options of each table of a list."""
_OF_LIST = ("restTable", "quarantineTable", "maxNewTables", "writerName", "adoptTable")
"""Options of all its tables."""
_NEAR, _MISSPELT = 0.7, 0.8
"""Similarity of a key to ours: for an unknown option, and for one that may be known."""
JETSTREAM = "jetstream"


@dataclass(frozen=True)
class SourceTable:
    """A source, by its name in SQL."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    parsed: SourceOptions | None = None
    """The options, of format jetstream."""
    json: str | None = None
    watermark: tuple[str, str] | None = None
    static: bool = False
    """Whether it is read once, for joins, instead of followed."""

    @property
    def columns(self) -> list[str]:
        """Those of a stream's rows, with the fields of payloads."""
        assert self.parsed is not None  # noqa: S101
        if self.parsed.decoding is not None:
            return decoded_columns(self.parsed)
        columns = list(self.parsed.columns)
        return columns if self.json is None else json_columns(self.json, "json", columns)

    @property
    def has_fields(self) -> bool:
        """Whether payloads become columns."""
        return self.json is not None or bool(self.parsed and self.parsed.decoding)

    @property
    def is_plain(self) -> bool:
        """Whether Spark does nothing with the rows but, at most, parse their payloads."""
        stream = self.parsed
        if stream is None or self.static or self.watermark:
            return False
        return stream.bucket is None and not stream.json_fields


@dataclass(frozen=True)
class SinkTable:
    """A sink, with a query and a checkpoint of its own."""

    rows: str
    """The source or view to write."""
    format: str
    options: Mapping[str, str] = field(repr=False)
    parsed: SinkOptions | LakehouseOptions | None = None
    """The options, of a stream or of a Delta or Iceberg table."""
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    through_spark: bool = False
    """Rows go through Spark also where tasks could write the table's files themselves."""
    made: Mapping[str, ValueOf] = field(default_factory=dict)
    """Further columns of a table, and what they are made of."""

    @property
    def table(self) -> LakehouseOptions | None:
        """The options of a Delta or Iceberg table."""
        return self.parsed if isinstance(self.parsed, LakehouseOptions) else None


@dataclass(frozen=True)
class PipelineFile:
    """The contents of a pipeline file."""

    name: str
    checkpoint: str
    sources: Mapping[str, SourceTable]
    views: Mapping[str, str]
    sinks: Mapping[str, SinkTable]
    follow: bool = False
    interval: float = 5.0
    spark: Mapping[str, str] = field(default_factory=dict)
    places: Places = field(default_factory=Places, repr=False)

    def stream_of(self, sink: SinkTable) -> SourceTable | None:
        """The source of a table that gets a stream's rows as they are; None for any other sink."""
        source = self.sources.get(sink.rows)
        return source if source and source.is_plain and sink.table is not None else None


def read_pipeline(path: str | Path, environment: Mapping[str, str] = os.environ) -> PipelineFile:
    """Raises ConfigError, which names the file and the line."""
    path = Path(path)
    try:
        text = read_small_text(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None
    return _Reader(path, text, environment).read()


class _Reader:
    def __init__(self, path: Path, text: str, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self._places = read_places(str(path), text)
        try:
            self._document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            match = _SYNTAX.match(str(error))
            at, what = (f":{match[2]}", match[1]) if match else ("", str(error))
            raise ConfigError(f"{path}{at}: this is not TOML: {what}.") from None

    def read(self) -> PipelineFile:
        document = self._document
        self._check_keys((), document, _TOP)
        for key, what in _NEEDED.items():
            if not document.get(key):
                self._fail((key,), f"{key} is missing: {what}.")
        name = self._text(("name",), document.get("name", self._path.stem))
        sources = {one: self._source(one) for one in self._names("sources")}
        views = {one: self._view(one, sources) for one in self._names("views")}
        tables = [*sources, *views]
        sinks = {one: self._sink(one, tables, name, sources) for one in self._names("sinks")}
        self._check_sinks_apart(sinks)
        trigger = document.get("trigger", {})
        self._check_keys(("trigger",), trigger, {"follow": bool, "interval": object})
        interval = str(trigger.get("interval", "5s"))
        return PipelineFile(
            name=name,
            checkpoint=self._text(("checkpoint",), document["checkpoint"]),
            sources=sources,
            views=views,
            sinks=sinks,
            follow=bool(trigger.get("follow", False)),
            interval=self._checked(
                ("trigger", "interval"), lambda: option_values.duration("interval", interval)
            ),
            spark=self._texts(("spark",), document.get("spark", {})),
            places=self._places,
        )

    # -- parts ---------------------------------------------------------------------------------

    def _names(self, part: str) -> list[str]:
        tables = self._document.get(part, {})
        for name, table in tables.items():
            if not _NAME.fullmatch(name):
                self._fail((part, name), f"{name!r} cannot be a name in SQL.")
            if not isinstance(table, dict):
                self._fail((part, name), f"write [{part}.{name}] and its keys below.")
        return list(tables)

    def _source(self, name: str) -> SourceTable:
        where = ("sources", name)
        table = dict(self._document["sources"][name])
        kind = self._text((*where, "format"), table.pop("format", JETSTREAM))
        json = table.pop("json", None)
        watermark = table.pop("watermark", None)
        static = table.pop("static", False)
        if not isinstance(static, bool):
            self._fail((*where, "static"), "static is true or false.")
        if watermark is not None and not (_is_texts(watermark) and len(watermark) == 2):
            self._fail((*where, "watermark"), 'watermark is ["column", "10 minutes"].')
        self._check_own_keys(where, kind, table, _OF_SOURCES)
        options = self._texts(where, table)
        if json is None:
            json = self._checked((*where, "decode"), partial(taken_ddl, options))
        parsed = None
        if kind == JETSTREAM:
            check = SourceOptions.for_batch if static else SourceOptions.for_streaming
            parsed = self._parsed(
                where, options, _OF_SOURCES, lambda options: check(parse_options(options))
            )
        if json is not None:
            at = (*where, "json")
            if parsed is None:
                self._fail(at, f"json is for the format jetstream, not for {kind}.")
            if parsed.decoding is not None:
                self._fail(at, "Give either json or decode: both say what the payloads are.")
            json, columns = self._text(at, json), parsed.columns
            self._checked(at, lambda: json_columns(json, "json", columns))
        return SourceTable(
            kind, options, parsed, json, None if watermark is None else tuple(watermark), static
        )

    def _view(self, name: str, sources: Mapping[str, SourceTable]) -> str:
        where = ("views", name)
        table = self._document["views"][name]
        self._check_keys(where, table, {"sql": str})
        if "sql" not in table:
            self._fail(where, "sql is missing: the SELECT that makes the view.")
        if name in sources:
            self._fail(where, f"there is a source {name!r} already.")
        return self._text((*where, "sql"), table["sql"])

    def _sink(
        self, name: str, tables: list[str], pipeline: str, sources: Mapping[str, SourceTable]
    ) -> SinkTable:
        where = ("sinks", name)
        table = dict(self._document["sinks"][name])
        rows = self._text((*where, "from"), table.pop("from", tables[-1]))
        if rows not in tables:
            near = nearest_name(rows, tables)
            hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(tables)}."
            self._fail((*where, "from"), f"there is no source or view {rows!r}{hint}")
        if "format" not in table:
            self._fail(
                where,
                'format is missing: "jetspark-delta", "jetspark-iceberg", "jetstream", or another '
                "of Spark's.",
            )
        kind = self._text((*where, "format"), table.pop("format"))
        if kind.casefold() in FILES:
            self._fail(
                (*where, "format"),
                f'{not_a_table(kind)} Write format = "jetspark-delta" or "jetspark-iceberg".',
            )
        mode = self._text((*where, "mode"), table.pop("mode", "append"))
        if mode not in _MODES:
            self._fail((*where, "mode"), f"mode is {', '.join(_MODES)}, not {mode!r}.")
        columns = table.pop("partition_by", [])
        if not _is_texts(columns):
            self._fail((*where, "partition_by"), 'partition_by is a list: ["region", "day"].')
        if twice := _repeated(columns):
            self._fail((*where, "partition_by"), f"partition_by names {twice!r} twice.")
        lake = lakehouse_format(kind)
        through_spark = table.pop("through_spark", None)
        if through_spark is not None and (lake is None or not isinstance(through_spark, bool)):
            self._fail(
                (*where, "through_spark"),
                "through_spark is true or false, for jetspark-delta and jetspark-iceberg.",
            )
        if mode != "append" and (kind == JETSTREAM or lake is not None):
            self._fail(
                (*where, "mode"),
                f"Spark writes {kind} with mode append only. Rows that change later, such as "
                "totals, need foreachBatch in a program of your own.",
            )
        if key := _key(table, "checkpointLocation"):
            self._fail(
                (*where, key),
                f"write checkpoint at the top of the file in place of {key}: each sink has its "
                "folder there.",
            )
        if lake is not None and (key := _key(table, "adoptTable")):
            self._fail((*where, key), f"give jetspark run --adopt once in place of {key}.")
        listed = table.pop(TABLES, None)
        if listed is not None and lake is None:
            self._fail((*where, TABLES), "tables is for jetspark-delta and jetspark-iceberg.")
        said = {key: table.pop(key) for key in _MADE if lake is not None and key in table}
        source = sources.get(rows)
        parses = source is None or (source.is_plain and source.has_fields)
        evolving = self._evolving(where, table, parses or listed is not None) if lake else {}
        self._check_own_keys(where, kind, table, _OF_SINKS + (_OF_TABLES if lake else ()))
        options = self._lake_texts(where, table) if lake else self._texts(where, table)
        options |= evolving
        parsed: SinkOptions | LakehouseOptions | None = None
        # In the target the query has a name that does not depend on its checkpoint.
        named = {} if _key(options, "writerName") else {"writerName": f"{pipeline}/{name}"}
        if kind == JETSTREAM:
            parsed = self._parsed(
                where,
                options,
                _OF_SINKS,
                lambda options: parse_sink_options(options).for_streaming(),
            )
            if parsed.guarantee is Guarantee.EXACTLY_ONCE:
                parsed = parse_sink_options(options := options | named)
        elif lake is not None:
            options |= named | ({"partitionBy": ",".join(columns)} if columns else {})
            if source is not None and source.parsed is not None:
                options = with_connection(options, source.options)
            if listed is not None:
                options |= self._list(where, listed, lake, options, source)
            parsed = self._parsed(
                where,
                options,
                _OF_SINKS,
                lambda options: parse_lakehouse_options(lake, options).for_streaming(),
            )
            without_fields = source is not None and source.is_plain and not source.has_fields
            if parsed.quarantine is not None and without_fields and not parsed.tables:
                self._fail(
                    (*where, _key(options, "quarantineTable") or "from"),
                    "quarantineTable is for a source with json or decode: without it every payload "
                    "is a row.",
                )
            if parsed.evolve:
                at = (*where, "evolve")
                self._checked(at, partial(check_one_schema, "evolve", parsed))
                if source is not None and source.parsed is not None:
                    self._checked(at, partial(check_versions, "evolve", source.parsed))
        made = self._made_of(where, said, source, listed is not None) if said else {}
        return SinkTable(
            rows, kind, options, parsed, mode, tuple(columns), bool(through_spark), made
        )

    def _made_of(
        self,
        where: tuple[str, ...],
        said: Mapping[str, Any],
        source: SourceTable | None,
        is_list: bool,
    ) -> dict[str, ValueOf]:
        """The columns that are made of those of a source."""
        key = next(iter(said))
        if is_list:
            self._fail((*where, key), f"write {key} in each of the list's tables.")
        if source is None or not source.is_plain or source.parsed is None:
            self._fail(
                (*where, key),
                f"{key} is made of a stream's rows: from names a source, of a stream, which is not "
                "static and has no watermark. In a view write the columns in SQL.",
            )
        times = times_of(source.parsed)
        return self._made(where, said, source.columns, source.json, times)

    def _made(
        self,
        where: tuple[str, ...],
        said: Mapping[str, Any],
        there: Sequence[str],
        schema: str | None,
        times: Sequence[str] = (),
    ) -> dict[str, ValueOf]:
        """The columns that are made of others. `there`: the columns of the rows; `times`: those
        that are timestamps, of payloads that are not JSON."""
        items, rest = said.get("columns", []), None
        if not _is_texts(items):
            self._fail((*where, "columns"), 'columns is a list: ["site=subject[1]"].')
        if "rest_column" in said:
            rest = self._text((*where, "rest_column"), said["rest_column"])
        return self._checked(
            (*where, *said),
            lambda: made_columns(items, rest, there=there, schema=schema, times=times, said=KEYS),
        )

    def _evolving(
        self, where: tuple[str, ...], table: dict[str, Any], parses: bool
    ) -> dict[str, str]:
        """The option for the key `evolve`, which is taken out."""
        evolve, at = table.pop("evolve", None), (*where, "evolve")
        if not isinstance(evolve, bool | None):
            self._fail(at, "evolve is true or false.")
        if evolve and not parses:
            self._fail(
                at,
                "evolve goes with json or decode, not of a source that is static or has a "
                "watermark.",
            )
        return {} if evolve is None else {"evolveSchema": str(evolve).lower()}

    def _list(
        self,
        where: tuple[str, ...],
        listed: Any,
        lake: Format,
        all_: Mapping[str, str],
        source: SourceTable | None,
    ) -> dict[str, str]:
        """The option for a list of tables."""
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            self._fail(
                (*where, TABLES), f"tables is a list: write [[{'.'.join(where)}.tables]] for each."
            )
        if source is None or not source.is_plain or source.parsed is None:
            self._fail(
                (*where, "from"),
                "tables takes the messages of a stream as they are: from names a source, of a "
                "stream, which is not static and has no watermark.",
            )
        if source.has_fields:
            self._fail(
                (*where, "from"),
                "each table of the list has its own json: leave json and decode out of the source.",
            )
        for key in _OF_ONE_TABLE:
            if (found := _key(all_, key)) is not None:
                self._fail((*where, found), f"write {found} in each of the list's tables.")
        columns = source.parsed.columns
        aside = _key(all_, "quarantineTable") is not None
        for one in MESSAGE if aside else ("subject",):
            if one not in columns:
                self._fail(
                    (*where, "from"),
                    f"tables{' with quarantineTable' if aside else ''} needs the column {one} of "
                    "the source: add it to columns.",
                )
        tables = [
            self._listed(where, at, dict(one), lake, all_, columns) for at, one in enumerate(listed)
        ]
        self._check_tables_apart(where, tables)
        return listed_option([(one.subjects, one.json, own, one.made) for one, own in tables])

    def _listed(
        self,
        sink: tuple[str, ...],
        at: int,
        table: dict[str, Any],
        lake: Format,
        all_: Mapping[str, str],
        columns: Sequence[str],
    ) -> tuple[ListedTable, dict[str, str]]:
        """A table of the list, and its own options."""
        where = (*sink, TABLES, str(at))
        subjects = table.pop("subjects", None)
        if not _is_texts(subjects) or not subjects:
            self._fail((*where, "subjects"), 'subjects is missing or no list: ["orders.>"].')
        subjects = [self._text((*where, "subjects"), one) for one in subjects]
        for one in subjects:
            self._checked((*where, "subjects"), partial(check_subscribe_subject, one))
        ddl = table.pop("json", None)
        names = list(columns)
        if ddl is not None:
            ddl = self._text((*where, "json"), ddl)
            aside = _key(all_, "quarantineTable") is not None
            names = self._checked(
                (*where, "json"),
                lambda: json_columns(ddl, "json", columns, keep_payload=aside),
            )
        said = {key: table.pop(key) for key in _MADE if key in table}
        made = self._made(where, said, names, ddl)
        names += made
        partition_by = table.pop("partition_by", [])
        if not _is_texts(partition_by):
            self._fail((*where, "partition_by"), 'partition_by is a list: ["region", "day"].')
        by = [PartitionBy.parse(one).column for one in partition_by]
        if DAY not in names and "timestamp" in columns:
            names.append(DAY)
            made |= {DAY: OF_DAY} if DAY in by else {}
        for one, column in zip(partition_by, by, strict=True):
            if column not in names:
                self._fail(
                    (*where, "partition_by"),
                    f"partition_by: there is no column {one!r}; there are {', '.join(names)}.",
                )
        for key in _OF_LIST:
            if (found := _key(table, key)) is not None:
                self._fail((*where, found), f"write {found} in [{'.'.join(sink)}], for all tables.")
        evolving = self._evolving(where, table, ddl is not None)
        self._check_own_keys(where, PREFIX + lake, table, _OF_LISTED)
        own = self._lake_texts(where, table) | evolving
        own |= {"partitionBy": ",".join(partition_by)} if partition_by else {}

        def parse(own: dict[str, str]) -> LakehouseOptions:
            options = parse_lakehouse_options(lake, of_one(all_, own)).for_streaming()
            if options.route is not None:
                raise ConfigError(
                    "A table of a list has one name: for a template make a sink of its own."
                )
            if options.upsert is not None:
                options.upsert.check_names(names)
            if options.keys is not None and options.sequence_by is None:
                raise ConfigError(
                    "Option 'keys' needs sequenceBy in a list of tables, the column whose greatest "
                    "value is the last row of a key, such as seq."
                )
            return options

        options = self._parsed(where, own, _OF_LISTED, parse)
        return ListedTable(subjects=tuple(subjects), options=options, json=ddl, made=made), own

    def _check_tables_apart(
        self, sink: tuple[str, ...], tables: Sequence[tuple[ListedTable, Mapping[str, str]]]
    ) -> None:
        for (before, (one, _)), (at, (other, _)) in combinations(enumerate(tables), 2):
            where = (*sink, TABLES, str(at))
            line = self._places.line((*sink, TABLES, str(before)))
            for a, b in product(one.subjects, other.subjects):
                if subjects_overlap(a, b):
                    self._fail(
                        (*where, "subjects"),
                        f"{b!r} overlaps with {a!r} of the table in line {line}: a message has one "
                        "table.",
                    )
            if _within(one.options.name, other.options.name):
                self._fail(
                    (*where, "path"),
                    f"the table in line {line} has this path, or one inside or around it, already.",
                )

    def _check_sinks_apart(self, sinks: Mapping[str, SinkTable]) -> None:
        """Of two queries with one table, or one name, the second one would be refused."""
        for (before, one), (name, other) in combinations(sinks.items(), 2):
            if conflict := _conflict(one, other):
                key, what = conflict
                where = ("sinks", name, _key(other.options, key) or key)
                line = self._places.line(("sinks", before, _key(one.options, key) or key))
                self._fail(where, f"sink {before} (line {line}) has {what} already.")

    # -- values --------------------------------------------------------------------------------

    def _text(self, where: tuple[str, ...], value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            self._fail(where, f"{where[-1]} is a text or a number.")

        def variable(match: re.Match[str]) -> str:
            found = self._environment.get(match[1])
            if found is None:
                self._fail(where, f"the environment has no variable {match[1]}.")
            return found

        return _VARIABLE.sub(variable, str(value))

    def _texts(self, where: tuple[str, ...], table: Mapping[str, Any]) -> dict[str, str]:
        return {key: self._text((*where, key), value) for key, value in table.items()}

    def _lake_texts(self, where: tuple[str, ...], table: Mapping[str, Any]) -> dict[str, str]:
        """Options of a table; keys may be a list."""
        lists = {key: ",".join(one) for key, one in table.items() if _is_texts(one)}
        return self._texts(where, {**table, **{key: lists[key] for key in lists if key == "keys"}})

    def _check_keys(
        self, where: tuple[str, ...], table: Mapping[str, Any], known: Mapping[str, type]
    ) -> None:
        for key, value in table.items():
            if key not in known:
                near = nearest_name(key, known)
                hint = f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}."
                self._fail((*where, key), f"unknown key {key!r}{hint}")
            if not isinstance(value, known[key]):
                word = {dict: "a table", str: "a text", bool: "true or false"}[known[key]]
                self._fail((*where, key), f"{key} is {word}.")

    def _check_own_keys(
        self, where: tuple[str, ...], kind: str, table: Mapping[str, Any], own: tuple[str, ...]
    ) -> None:
        """Other formats than jetstream ignore unknown options, and no option is a list."""
        plain = {name.replace("_", ""): name for name in own}  # partitionBy
        plain |= {"evolveschema": "evolve"} if "evolve" in own else {}
        for key, value in table.items():
            near = plain.get(key.casefold())
            if near is None and (kind != JETSTREAM or isinstance(value, list)):
                near = nearest_name(key, own, cutoff=_MISSPELT)
            if near is not None:
                self._fail((*where, key), f"unknown key {key!r}; did you mean {near!r}?")

    def _parsed(
        self,
        where: tuple[str, ...],
        options: dict[str, str],
        own: tuple[str, ...],
        parse: Callable[[dict[str, str]], T],
    ) -> T:
        """The parsed options of a table; an error has the line of its option."""
        try:
            return parse(options)
        except JetsparkError as error:
            key = meant_by(str(error), options)
            if key is None:
                self._fail(where, str(error))
            near = nearest_name(key, own, cutoff=_NEAR)
            if near and str(error).startswith("Unknown option"):
                self._fail((*where, key), f"unknown key {key!r}; did you mean {near!r}?")
            self._fail((*where, key), str(error))

    def _checked(self, where: tuple[str, ...], action: Callable[[], T]) -> T:
        try:
            return action()
        except ConfigError as error:
            self._fail(where, str(error))

    def _fail(self, where: tuple[str, ...], sentence: str) -> NoReturn:
        raise ConfigError(self._places.located(where, sentence))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _repeated(columns: list[str]) -> str | None:
    """The first key that is there twice, since Spark ignores case."""
    folded = [column.casefold() for column in columns]
    return next((one for at, one in enumerate(columns) if folded[at] in folded[:at]), None)


def _conflict(one: SinkTable, other: SinkTable) -> tuple[str, str] | None:
    """What two sinks cannot share: the key, and its name for the message."""
    match one.parsed, other.parsed:
        case LakehouseOptions() as a, LakehouseOptions() as b:
            pairs = product(*([one.name for one in _each_table(all_)] for all_ in (a, b)))
            # A table of a catalog may have several writers.
            if any(here.path and _within(here, there) for here, there in pairs):
                return "path", "this path, or one inside or around it,"
        case SinkOptions() as a, SinkOptions() as b if a.guarantee is Guarantee.EXACTLY_ONCE:
            same = (a.connection.servers, a.stream) == (b.connection.servers, b.stream)
            if same and a.writer_name == b.writer_name:
                return "writerName", "this writerName"
    return None


def _each_table(options: LakehouseOptions) -> list[LakehouseOptions]:
    return [one.options for one in options.tables] or [options]


def _within(one: TableName, other: TableName) -> bool:
    """Whether two tables are the same, or one is in the other's folder."""
    if one.path is None or other.path is None:
        return str(one) == str(other)
    here, there = f"{one.path.rstrip('/')}/", f"{other.path.rstrip('/')}/"
    return here.startswith(there) or there.startswith(here)
