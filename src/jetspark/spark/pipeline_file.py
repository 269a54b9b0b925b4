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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from jetspark.codecs.ddl import arrow_fields
from jetspark.codecs.field_names import FieldNames, parse_renames
from jetspark.errors import ConfigError, JetsparkError
from jetspark.files import read_small_text
from jetspark.lakehouse.formats import Format
from jetspark.lakehouse.partitions import PartitionBy, join_partitions
from jetspark.lakehouse.quarantine import MESSAGE
from jetspark.lakehouse.row_expressions import RowExpression
from jetspark.lakehouse.table import TableName
from jetspark.nearest import instead, nearest_name
from jetspark.spark import option_values
from jetspark.spark.derived_columns import DAY, KEYS, OTHER_FIELDS, day_of, derived_columns
from jetspark.spark.json_payloads import (
    check_only_schema,
    decoded_columns,
    json_columns,
    payload_ddl,
    times_of,
    with_json_options,
)
from jetspark.spark.lakehouse.dead_letter_sink import with_connection
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
from jetspark.spark.lakehouse.schema_evolution import check_one_schema, check_versions
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.sink_options import Guarantee, SinkOptions, parse_sink_options
from jetspark.subjects import check_subscribe_subject, subjects_overlap

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
_OF_SINKS = ("from", "format", "mode", "partition_by")
_MADE = ("columns", "rest_column")
_OF_TABLES = (*_MADE, "evolve")
"""Of a sink that is a table."""
_OF_LISTED = ("subjects", "json", "rename", "partition_by", *_OF_TABLES)
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
_PARTITIONS = '["region", "day"]'


@dataclass(frozen=True)
class SourceTable:
    """A source, by its name in SQL."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    parsed: SourceOptions | None = None
    """The options, of format jetstream."""
    json: str | None = None
    """Schema of JSON payloads in Spark's DDL."""
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
        return stream.bucket is None


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
    made: Mapping[str, RowExpression] = field(default_factory=dict)
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
    adopt: bool = False
    """Add rows to tables that these queries have not written."""
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
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        match = _SYNTAX.match(str(error))
        at, what = (f":{match[2]}", match[1]) if match else ("", str(error))
        raise ConfigError(f"{path}{at}: this is not TOML: {what}.") from None
    whole = _Part(read_places(str(path), text), environment, document)
    whole.check_keys(_TOP)
    for key, what in _NEEDED.items():
        if not document.get(key):
            whole.fail(key, f"{key} is missing: {what}.")
    pipeline = whole.text("name", path.stem)
    sources = {name: _source(part) for name, part in whole.parts("sources").items()}
    views = {name: _view(part, sources) for name, part in whole.parts("views").items()}
    tables = [*sources, *views]
    sinks = {
        name: _sink(part, tables, pipeline, sources) for name, part in whole.parts("sinks").items()
    }
    _check_sinks_apart(whole.places, sinks)
    trigger = whole.inner("trigger", whole.take("trigger", {}))
    trigger.check_keys({"follow": bool, "interval": object})
    interval = str(trigger.take("interval", "5s"))
    return PipelineFile(
        name=pipeline,
        checkpoint=whole.text("checkpoint"),
        sources=sources,
        views=views,
        sinks=sinks,
        follow=bool(trigger.take("follow", False)),
        interval=trigger.checked("interval", lambda: option_values.duration("interval", interval)),
        spark=whole.inner("spark", whole.take("spark", {})).texts(),
        places=whole.places,
    )


@dataclass(frozen=True)
class _Part:
    """A table of the file: what nobody has taken of it, and where it is."""

    places: Places
    environment: Mapping[str, str]
    table: dict[str, Any]
    where: tuple[str, ...] = ()

    def inner(self, key: str, table: dict[str, Any]) -> _Part:
        """A table in it."""
        return replace(self, table=dict(table), where=(*self.where, key))

    def parts(self, key: str) -> dict[str, _Part]:
        """The tables of sources, views or sinks, by their names."""
        outer, found = self.inner(key, self.take(key, {})), {}
        for name, table in outer.table.items():
            if not _NAME.fullmatch(name):
                outer.fail(name, f"{name!r} cannot be a name in SQL.")
            if not isinstance(table, dict):
                outer.fail(name, f"write [{key}.{name}] and its keys below.")
            found[name] = outer.inner(name, table)
        return found

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        return self.table.pop(key, default)

    def text(self, key: str, default: Any = None) -> str:
        """A text, which may be a number in the file."""
        return self.said(key, self.take(key, default))

    def truth(self, key: str) -> bool | None:
        """True or false, if it is there."""
        found = self.take(key)
        if not isinstance(found, bool | None):
            self.fail(key, f"{key} is true or false.")
        return found

    def columns(self, key: str, example: str) -> list[str]:
        """A list of texts."""
        found = self.take(key, [])
        if not _is_texts(found):
            self.fail(key, f"{key} is a list: {example}.")
        return list(found)

    def texts(self) -> dict[str, str]:
        """All that is left."""
        return {key: self.said(key, value) for key, value in self.table.items()}

    def said(self, key: str, value: Any) -> str:
        """A value as text, with the variables of the environment."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            self.fail(key, f"{key} is a text or a number.")

        def variable(match: re.Match[str]) -> str:
            found = self.environment.get(match[1])
            if found is None:
                self.fail(key, f"the environment has no variable {match[1]}.")
            return found

        return _VARIABLE.sub(variable, str(value))

    def check_keys(self, known: Mapping[str, type]) -> None:
        """Fail for other keys than these, and for values of another type."""
        for key, value in self.table.items():
            if key not in known:
                self.fail(key, f"unknown key {key!r}{instead(key, known)}")
            if not isinstance(value, known[key]):
                word = {dict: "a table", str: "a text", bool: "true or false"}[known[key]]
                self.fail(key, f"{key} is {word}.")

    def check_own_keys(self, kind: str, own: tuple[str, ...]) -> None:
        """Other formats than jetstream ignore unknown options, and no option is a list."""
        plain = {name.replace("_", ""): name for name in own}  # partitionBy
        plain |= {"evolveschema": "evolve"} if "evolve" in own else {}
        for key, value in self.table.items():
            near = plain.get(key.casefold())
            if near is None and (kind != JETSTREAM or isinstance(value, list)):
                near = nearest_name(key, own, cutoff=_MISSPELT)
            if near is not None:
                self.fail(key, f"unknown key {key!r}; did you mean {near!r}?")

    def parsed(
        self, options: dict[str, str], own: tuple[str, ...], parse: Callable[[dict[str, str]], T]
    ) -> T:
        """Options of the table; an error has the line of its option."""
        try:
            return parse(options)
        except JetsparkError as error:
            key = meant_by(str(error), options)
            near = None if key is None else nearest_name(key, own, cutoff=_NEAR)
            if near and str(error).startswith("Unknown option"):
                self.fail(key, f"unknown key {key!r}; did you mean {near!r}?")
            self.fail(key, str(error))

    def checked(self, key: str | None, action: Callable[[], T]) -> T:
        """The result of the action; its error has the key's line."""
        try:
            return action()
        except ConfigError as error:
            self.fail(key, str(error))

    def fail(self, key: str | None, sentence: str) -> NoReturn:
        """Raise ConfigError with the key's line; None: that of the table."""
        raise ConfigError(self.places.located((*self.where, *([key] if key else ())), sentence))


def _source(part: _Part) -> SourceTable:
    kind = part.text("format", JETSTREAM)
    json, watermark = part.take("json"), part.take("watermark")
    static = bool(part.truth("static"))
    if watermark is not None and not (_is_texts(watermark) and len(watermark) == 2):
        part.fail("watermark", 'watermark is ["column", "10 minutes"].')
    part.check_own_keys(kind, _OF_SOURCES)
    options = part.texts()
    names = set(map(str.casefold, options))
    if json is not None and kind == JETSTREAM:
        part.checked("json", lambda: check_only_schema(names, "json"))
        ddl = part.said("json", json)
        part.checked("json", lambda: arrow_fields(ddl, "json"))
        if "bucket" not in names:  # whose values stay as they are, until the rows are made
            options = with_json_options(options, ddl)
    parsed = None
    if kind == JETSTREAM:
        check = SourceOptions.for_batch if static else SourceOptions.for_streaming
        parsed = part.parsed(options, _OF_SOURCES, lambda options: check(parse_options(options)))
    if json is not None:
        if parsed is None:
            part.fail("json", f"json is for the format jetstream, not for {kind}.")
        json, columns = part.said("json", json), parsed.columns
        part.checked("json", lambda: json_columns(json, "json", columns))
    elif parsed is not None:
        json = payload_ddl(parsed.decoding)
    times = None if watermark is None else tuple(watermark)
    return SourceTable(kind, options, parsed, json, times, static)


def _view(part: _Part, sources: Mapping[str, SourceTable]) -> str:
    part.check_keys({"sql": str})
    if "sql" not in part.table:
        part.fail(None, "sql is missing: the SELECT that makes the view.")
    if (name := part.where[-1]) in sources:
        part.fail(None, f"there is a source {name!r} already.")
    return part.text("sql")


def _sink(
    part: _Part, tables: list[str], pipeline: str, sources: Mapping[str, SourceTable]
) -> SinkTable:
    rows = part.text("from", tables[-1])
    if rows not in tables:
        part.fail("from", f"there is no source or view {rows!r}{instead(rows, tables)}")
    if "format" not in part.table:
        part.fail(
            None,
            'format is missing: "jetspark-delta", "jetspark-iceberg", "jetstream", or another '
            "of Spark's.",
        )
    kind = part.text("format")
    if kind.casefold() in FILES:
        advice = 'Write format = "jetspark-delta" or "jetspark-iceberg".'
        part.fail("format", f"{not_a_table(kind)} {advice}")
    mode = part.text("mode", "append")
    if mode not in _MODES:
        part.fail("mode", f"mode is {', '.join(_MODES)}, not {mode!r}.")
    columns = part.columns("partition_by", _PARTITIONS)
    folded = [column.casefold() for column in columns]  # Spark ignores case
    for at, twice in enumerate(columns):
        if folded[at] in folded[:at]:
            part.fail("partition_by", f"partition_by names {twice!r} twice.")
    lake = lakehouse_format(kind)
    if mode != "append" and (kind == JETSTREAM or lake is not None):
        part.fail(
            "mode",
            f"Spark writes {kind} with mode append only. Rows that change later, such as "
            "totals, need foreachBatch in a program of your own.",
        )
    if key := _key(part.table, "checkpointLocation"):
        part.fail(
            key,
            f"write checkpoint at the top of the file in place of {key}: each sink has its "
            "folder there.",
        )
    if lake is not None and (key := _key(part.table, "adoptTable")):
        part.fail(key, f"give jetspark run --adopt once in place of {key}.")
    listed = part.take(TABLES)
    if listed is not None and lake is None:
        part.fail(TABLES, "tables is for jetspark-delta and jetspark-iceberg.")
    said = _said(part) if lake is not None else {}
    source = sources.get(rows)
    parses = source is None or (source.is_plain and source.has_fields)
    evolving = _evolving(part, parses or listed is not None) if lake else {}
    part.check_own_keys(kind, _OF_SINKS + (_OF_TABLES if lake else ()))
    if source is not None and source.json and listed is None and evolving == _EVOLVING:
        said.setdefault("rest_column", OTHER_FIELDS)
    options = (_lake_texts(part) if lake else part.texts()) | evolving
    parsed: SinkOptions | LakehouseOptions | None = None
    # In the target the query has a name that does not depend on its checkpoint.
    name = f"{pipeline}/{part.where[-1]}"
    named = {} if _key(options, "writerName") else {"writerName": name}
    if kind == JETSTREAM:
        parsed = part.parsed(
            options, _OF_SINKS, lambda options: parse_sink_options(options).for_streaming()
        )
        if parsed.guarantee is Guarantee.EXACTLY_ONCE:
            parsed = parse_sink_options(options := options | named)
    elif lake is not None:
        options |= named
        if columns and listed is None:
            options["partitionBy"] = join_partitions(columns)
        if source is not None and source.parsed is not None:
            options = with_connection(options, source.options)
        if listed is not None:
            options |= _list(part, listed, lake, options, source, columns)
            columns = []  # its tables have them
        parsed = part.parsed(
            options,
            _OF_SINKS,
            lambda options: parse_lakehouse_options(lake, options).for_streaming(),
        )
        without_fields = source is not None and source.is_plain and not source.has_fields
        if parsed.quarantine is not None and without_fields and not parsed.tables:
            part.fail(
                _key(options, "quarantineTable") or "from",
                "quarantineTable is for a source with json or decode: without it every payload "
                "is a row.",
            )
        if parsed.evolve:
            part.checked("evolve", partial(check_one_schema, "evolve", parsed))
            if source is not None and source.parsed is not None:
                part.checked("evolve", partial(check_versions, "evolve", source.parsed))
    made = _made_of(part, said, source, listed is not None) if said else {}
    return SinkTable(rows, kind, options, parsed, mode, tuple(columns), made)


def _said(part: _Part) -> dict[str, Any]:
    """The keys of columns that are made of others, which are taken out."""
    return {key: part.take(key) for key in _MADE if key in part.table}


def _made_of(
    part: _Part, said: Mapping[str, Any], source: SourceTable | None, is_list: bool
) -> dict[str, RowExpression]:
    """The columns that are made of those of a source."""
    key = next(iter(said))
    if is_list:
        part.fail(key, f"write {key} in each of the list's tables.")
    if source is None or not source.is_plain or source.parsed is None:
        part.fail(
            key,
            f"{key} is made of a stream's rows: from names a source, of a stream, which is not "
            "static and has no watermark. In a view write the columns in SQL.",
        )
    return _made(part, said, source.columns, source.json, times_of(source.parsed))


def _made(
    part: _Part,
    said: Mapping[str, Any],
    there: Sequence[str],
    schema: str | None,
    times: Sequence[str] = (),
) -> dict[str, RowExpression]:
    """The columns that are made of others. `there`: the columns of the rows; `times`: those
    that are timestamps, of payloads that are not JSON."""
    items, rest = said.get("columns", []), None
    if not _is_texts(items):
        part.fail("columns", 'columns is a list: ["site=subject[1]"].')
    if "rest_column" in said:
        rest = part.said("rest_column", said["rest_column"])
    return part.checked(
        next(iter(said), None),
        lambda: derived_columns(items, rest, there=there, schema=schema, times=times, said=KEYS),
    )


def _evolving(part: _Part, parses: bool) -> dict[str, str]:
    """The option for the key `evolve`, which is taken out."""
    evolve = part.truth("evolve")
    if evolve and not parses:
        part.fail(
            "evolve",
            "evolve goes with json or decode, not of a source that is static or has a watermark.",
        )
    return {} if evolve is None else {_EVOLVE: str(evolve).lower()}


_EVOLVE = "evolveSchema"
_EVOLVING = {_EVOLVE: "true"}


def _list(
    part: _Part,
    listed: Any,
    lake: Format,
    all_: Mapping[str, str],
    source: SourceTable | None,
    partition_by: list[str],
) -> dict[str, str]:
    """The option for a list of tables. `partition_by`: of those that do not say it."""
    name = ".".join(part.where)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        part.fail(TABLES, f"tables is a list: write [[{name}.tables]] for each.")
    if source is None or not source.is_plain or source.parsed is None:
        part.fail(
            "from",
            "tables takes the messages of a stream as they are: from names a source, of a "
            "stream, which is not static and has no watermark.",
        )
    if source.has_fields:
        part.fail(
            "from",
            "each table of the list has its own json: leave json and decode out of the source.",
        )
    for key in _OF_ONE_TABLE:
        if (found := _key(all_, key)) is not None:
            part.fail(found, f"write {found} in each of the list's tables.")
    columns = source.parsed.columns
    aside = _key(all_, "quarantineTable") is not None
    for one in MESSAGE if aside else ("subject",):
        if one not in columns:
            part.fail(
                "from",
                f"tables{' with quarantineTable' if aside else ''} needs the column {one} of "
                "the source: add it to columns.",
            )
    inner = [part.inner(TABLES, {}).inner(str(at), one) for at, one in enumerate(listed)]
    for table_part in inner if partition_by else ():
        table_part.table.setdefault("partition_by", list(partition_by))
    tables = [_listed(one, name, lake, all_, columns) for one in inner]
    for (before, (earlier, _)), (at, (table, _)) in combinations(enumerate(tables), 2):
        _check_tables_apart(inner[at], inner[before], table, earlier)
    return listed_option(
        [(one.subjects, one.json, own, one.made, one.names.renamed) for one, own in tables]
    )


def _listed(
    part: _Part, sink: str, lake: Format, all_: Mapping[str, str], columns: Sequence[str]
) -> tuple[ListedTable, dict[str, str]]:
    """A table of the list, and its own options."""
    subjects = part.take("subjects")
    if not _is_texts(subjects) or not subjects:
        part.fail("subjects", 'subjects is missing or no list: ["orders.>"].')
    subjects = [part.said("subjects", one) for one in subjects]
    for one in subjects:
        part.checked("subjects", partial(check_subscribe_subject, one))
    ddl = part.take("json")
    names = list(columns)
    fields = _field_names(part, ddl)
    if ddl is not None:
        ddl = part.said("json", ddl)
        names = part.checked("json", lambda: json_columns(ddl, "json", columns, fields))
    evolving = _evolving(part, ddl is not None)
    said_of_made = _said(part)
    if ddl is not None and {**all_, **evolving}.get(_EVOLVE) == "true":
        said_of_made.setdefault("rest_column", OTHER_FIELDS)
    made = _made(part, said_of_made, names, ddl)
    names += made
    partition_by = part.columns("partition_by", _PARTITIONS)
    by = [PartitionBy.parse(one).column for one in partition_by]
    if DAY not in names and "timestamp" in columns:
        names.append(DAY)
        made |= {DAY: day_of("timestamp")} if DAY in by else {}
    for said, column in zip(partition_by, by, strict=True):
        if column not in names:
            part.fail(
                "partition_by",
                f"partition_by: there is no column {said!r}; there are {', '.join(names)}.",
            )
    for key in _OF_LIST:
        if (found := _key(part.table, key)) is not None:
            part.fail(found, f"write {found} in [{sink}], for all tables.")
    part.check_own_keys(PREFIX + lake, _OF_LISTED)
    own = _lake_texts(part) | evolving
    own |= {"partitionBy": join_partitions(partition_by)} if partition_by else {}

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

    options = part.parsed(own, _OF_LISTED, parse)
    of_table = {"options": options, "json": ddl, "made": made, "names": fields}
    return ListedTable(subjects=tuple(subjects), **of_table), own


def _field_names(part: _Part, ddl: Any) -> FieldNames:
    """The columns of the fields of a listed table, as its `rename` says."""
    rename = part.take("rename")
    if rename is None:
        return FieldNames()
    if ddl is None:
        part.fail("rename", "rename goes with json: without it the payload is one column.")
    text = part.said("rename", rename)
    return FieldNames(part.checked("rename", lambda: parse_renames("rename", text)))


def _check_tables_apart(
    part: _Part, before: _Part, table: ListedTable, earlier: ListedTable
) -> None:
    line = part.places.line(before.where)
    for one, other in product(earlier.subjects, table.subjects):
        if subjects_overlap(one, other):
            part.fail(
                "subjects",
                f"{other!r} overlaps with {one!r} of the table in line {line}: a message has one "
                "table.",
            )
    if _within(earlier.options.name, table.options.name):
        part.fail(
            "path",
            f"the table in line {line} has this path, or one inside or around it, already.",
        )


def _check_sinks_apart(places: Places, sinks: Mapping[str, SinkTable]) -> None:
    """Of two queries with one table, or one name, the second one would be refused."""
    for (before, one), (name, other) in combinations(sinks.items(), 2):
        if conflict := _conflict(one, other):
            key, what = conflict
            where = ("sinks", name, _key(other.options, key) or key)
            line = places.line(("sinks", before, _key(one.options, key) or key))
            said = f"sink {before} (line {line}) has {what} already."
            raise ConfigError(places.located(where, said))


def _lake_texts(part: _Part) -> dict[str, str]:
    """Options of a table; keys may be a list."""
    keys = part.table.get("keys", "")
    if _is_texts(keys):
        part.table["keys"] = option_values.join_names(keys)
    return part.texts()


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _conflict(one: SinkTable, other: SinkTable) -> tuple[str, str] | None:
    """What two sinks cannot share: the key, and its name for the message."""
    match one.parsed, other.parsed:
        case LakehouseOptions() as a, LakehouseOptions() as b:
            pairs = product(
                *([one.options.name for one in of.tables] or [of.name] for of in (a, b))
            )
            # A table of a catalog may have several writers.
            if any(here.path and _within(here, there) for here, there in pairs):
                return "path", "this path, or one inside or around it,"
        case SinkOptions() as a, SinkOptions() as b if a.guarantee is Guarantee.EXACTLY_ONCE:
            same = (a.connection.servers, a.stream) == (b.connection.servers, b.stream)
            if same and a.writer_name == b.writer_name:
                return "writerName", "this writerName"
    return None


def _within(one: TableName, other: TableName) -> bool:
    """Whether two tables are the same, or one is in the other's folder."""
    if one.path is None or other.path is None:
        return str(one) == str(other)
    here, there = f"{one.path.rstrip('/')}/", f"{other.path.rstrip('/')}/"
    return here.startswith(there) or there.startswith(here)
