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

from jetspark.errors import ConfigError, JetsparkError, named
from jetspark.files import read_small_text
from jetspark.nearest import did_you_mean_or_list, nearest_name
from jetspark.options import values as option_values
from jetspark.options.names import spark_name
from jetspark.options.scopes import (
    ConnectionScope,
    PayloadScope,
    SchemaScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    readers,
)
from jetspark.payloads.ddl import arrow_fields
from jetspark.payloads.field_names import FieldNames, parse_renames
from jetspark.spark.pipelines.table_rows import DAY, OTHER_FIELDS, day_of, derived_columns
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.payload_columns import (
    check_only_schema,
    decoded_columns,
    json_columns,
    payload_ddl,
    timestamp_fields,
    with_json_options,
)
from jetspark.spark.stream_sink.options import Guarantee, SinkOptions, parse_sink_options
from jetspark.spark.table_sink.dead_letter_sink import with_connection
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    parse_lakehouse_options,
    table_list_option,
)
from jetspark.spark.table_sink.options import (
    FILES,
    TABLES,
    LakehouseOptions,
    RoutedTable,
    explain_not_a_table,
    lakehouse_format,
)
from jetspark.spark.table_sink.schema_evolution import check_one_schema, check_versions
from jetspark.subjects import check_subscribe_subject, subjects_overlap
from jetspark.tables.formats import STORAGE, Format
from jetspark.tables.partitions import PartitionBy, join_partitions
from jetspark.tables.quarantine import MESSAGE
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table import TableName

T = TypeVar("T")

# -------------------------------------------------------------------------------------------------
# The lines of the parts of a pipeline file, for errors.
#
# Read from the text, since Python's TOML parser keeps no positions.


_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^."'\s])+""")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\s-])+?)\s*=""")


@dataclass(frozen=True)
class KeyLines:
    """The lines of a file's tables and keys; empty for a pipeline without a file."""

    file: str = ""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """The line of the key, else of the nearest table that contains it."""
        for length in range(len(key_path), 0, -1):
            if (line := self.lines.get(key_path[:length])) is not None:
                return line
        return None

    def located(self, key_path: tuple[str, ...], sentence: str) -> str:
        """The sentence after the file's name and the line."""
        if not self.file:
            return sentence
        line = self.line(key_path)
        return f"{self.file}{'' if line is None else f':{line}'}: {sentence}"


def read_key_lines(file: str, text: str) -> KeyLines:
    """The lines of tables and keys. A line in a long text may be mistaken for a key: harmless."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counts: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        key_path: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            table = key_path = _path(header[1])
            if line.lstrip().startswith("[["):  # a list of tables: each has its number behind it
                counts[table] += 1
                table = key_path = (*table, str(counts[table] - 1))
        elif key := _KEY.match(line):
            key_path = (*table, *_path(key[1]))
        for length in range(1, len(key_path) + 1):  # [a.b] begins a, too
            lines.setdefault(key_path[:length], number)
    return KeyLines(file, lines)


def _path(dotted: str) -> tuple[str, ...]:
    """The parts of a key, each bare or quoted."""
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


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
_OF_SOURCES = ("format", "json_schema", "watermark", "static")
_OF_SINKS = ("from", "format", "mode", "partition_by")
_DERIVED = ("derive", "rescued_data_column")
_OF_LISTED = ("subjects", "json_schema", "rename", "partition_by", *_DERIVED)
_OF_ONE_TABLE = (
    *("path", "table", "keys"),
    *("sequence_by", "apply_as_deletes", "apply_as_truncates", "history_by"),
)
"""Options of each table of a list."""
_OF_LIST = ("default_table", "quarantine", "max_new_tables", "writer_name", "adopt")
"""Options of all its tables."""
_SOURCE_OPTIONS = (*readers(SourceScope), *readers(PayloadScope), *readers(ConnectionScope))
_STREAM_SINK_OPTIONS = (*readers(StreamSinkScope), *readers(SchemaScope), *readers(ConnectionScope))
_TABLE_OPTIONS = (*readers(TableOptions), "path", "catalog", "table")
_SIMILAR = 0.8
"""Similarity to ours of a key that another format may know."""
JETSTREAM = "jetstream"
_PARTITIONS = '["region", "day"]'


@dataclass(frozen=True)
class SourceTable:
    """A source, by its name in SQL."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    parsed: SourceOptions | None = None
    """The options, of format jetstream."""
    json_schema: str | None = None
    """Schema of JSON payloads in Spark's DDL."""
    watermark: tuple[str, str] | None = None
    static: bool = False
    """Read the source once, for joins, instead of following it."""

    @property
    def columns(self) -> list[str]:
        """Columns of a stream's rows, with the fields of payloads."""
        assert self.parsed is not None  # noqa: S101
        if self.parsed.decoding is not None:
            return decoded_columns(self.parsed)
        columns = list(self.parsed.columns)
        if self.json_schema is None:
            return columns
        return json_columns(self.json_schema, named("json_schema"), columns)

    @property
    def has_fields(self) -> bool:
        """Whether payloads become columns."""
        return self.json_schema is not None or bool(self.parsed and self.parsed.decoding)

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
    derived: Mapping[str, RowExpression] = field(default_factory=dict)
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
    key_lines: KeyLines = field(default_factory=KeyLines, repr=False)

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
        at, reason = (f":{match[2]}", match[1]) if match else ("", str(error))
        raise ConfigError(f"{path}{at}: this is not TOML: {reason}.") from None
    top = _Part(read_key_lines(str(path), text), environment, document)
    top.check_keys(_TOP)
    for key, purpose in _NEEDED.items():
        if not document.get(key):
            top.fail(key, f"{key} is missing: {purpose}.")
    pipeline = top.text("name", path.stem)
    sources = {name: _source(part) for name, part in top.parts("sources").items()}
    views = {name: _view(part, sources) for name, part in top.parts("views").items()}
    tables = [*sources, *views]
    sinks = {
        name: _sink(part, tables, pipeline, sources) for name, part in top.parts("sinks").items()
    }
    _check_sinks_apart(top.key_lines, sinks)
    trigger = top.inner("trigger", top.take("trigger", {}))
    trigger.check_keys({"follow": bool, "interval": object})
    interval = str(trigger.take("interval", "5s"))
    return PipelineFile(
        name=pipeline,
        checkpoint=top.text("checkpoint"),
        sources=sources,
        views=views,
        sinks=sinks,
        follow=bool(trigger.take("follow", False)),
        interval=trigger.checked("interval", lambda: option_values.duration("interval", interval)),
        spark=top.inner("spark", top.take("spark", {})).texts(),
        key_lines=top.key_lines,
    )


@dataclass(frozen=True)
class _Part:
    """A table of the file: what nobody has taken of it, and where it is."""

    key_lines: KeyLines
    environment: Mapping[str, str]
    table: dict[str, Any]
    key_path: tuple[str, ...] = ()

    def inner(self, key: str, table: dict[str, Any]) -> _Part:
        """A table in it."""
        return replace(self, table=dict(table), key_path=(*self.key_path, key))

    def parts(self, key: str) -> dict[str, _Part]:
        """The tables of sources, views or sinks, by their names."""
        outer, parts = self.inner(key, self.take(key, {})), {}
        for name, table in outer.table.items():
            if not _NAME.fullmatch(name):
                outer.fail(name, f"{name!r} cannot be a name in SQL.")
            if not isinstance(table, dict):
                outer.fail(name, f"write [{key}.{name}] and its keys below.")
            parts[name] = outer.inner(name, table)
        return parts

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        return self.table.pop(key, default)

    def text(self, key: str, default: Any = None) -> str:
        """A text, which may be a number in the file."""
        return self.text_of(key, self.take(key, default))

    def truth(self, key: str) -> bool | None:
        """True or false, if it is there."""
        value = self.truth_at(key)
        self.take(key)
        return value

    def truth_at(self, key: str) -> bool | None:
        """True or false, if it is there; the key stays."""
        value = self.table.get(key)
        if not isinstance(value, bool | None):
            self.fail(key, f"{key} is true or false.")
        return value

    def columns(self, key: str, example: str) -> list[str]:
        """A list of texts."""
        texts = self.take(key, [])
        if not _is_texts(texts):
            self.fail(key, f"{key} is a list: {example}.")
        return list(texts)

    def texts(self) -> dict[str, str]:
        """All that is left."""
        return {key: self.text_of(key, value) for key, value in self.table.items()}

    def text_of(self, key: str, value: Any) -> str:
        """A value as text, with the variables of the environment."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            self.fail(key, f"{key} is a text or a number.")

        def variable(match: re.Match[str]) -> str:
            value_of_variable = self.environment.get(match[1])
            if value_of_variable is None:
                self.fail(key, f"the environment has no variable {match[1]}.")
            return value_of_variable

        return _VARIABLE.sub(variable, str(value))

    def check_keys(self, types: Mapping[str, type]) -> None:
        """Fail for other keys than these, and for values of another type."""
        for key, value in self.table.items():
            if key not in types:
                self.fail(key, f"unknown key {key!r}{did_you_mean_or_list(key, types)}")
            if not isinstance(value, types[key]):
                word = {dict: "a table", str: "a text", bool: "true or false"}[types[key]]
                self.fail(key, f"{key} is {word}.")

    def options(self, option_names: Sequence[str], own: Sequence[str]) -> dict[str, str]:
        """Texts of options of a format of ours, by their names in Spark.

        `own`: keys of the file that are no options. Fails for a key that is neither.
        """
        texts = {}
        for key, value in self.table.items():
            prefix, dot, name = key.rpartition(".")
            if not dot and key not in option_names:
                hint = did_you_mean_or_list(key, dict.fromkeys((*own, *option_names)))
                self.fail(key, f"unknown key {key!r}{hint}")
            if key == "keys" and _is_texts(value):
                value = option_values.join_names(value)
            name = key if key.startswith(STORAGE) else f"{prefix}{dot}{spark_name(name)}"
            texts[name] = self.text_of(key, value)
        return texts

    def options_of_spark(self, own: Sequence[str]) -> dict[str, str]:
        """Texts of options of another format, which ignores unknown ones.

        Fails for a key that is nearly one of `own`.
        """
        plain = {name.replace("_", ""): name for name in own}  # partitionBy
        for key in self.table:
            near = plain.get(key.casefold()) or nearest_name(key, own, cutoff=_SIMILAR)
            if near is not None:
                self.fail(key, f"unknown key {key!r}; did you mean {near!r}?")
        return self.texts()

    def checked(self, key: str | None, action: Callable[[], T]) -> T:
        """The result of the action; its error has the line of its option, or else of the key."""
        try:
            return action()
        except JetsparkError as error:
            option = error.option if isinstance(error, ConfigError) else None
            self.fail(option if option in self.table else key, str(error))

    def fail(self, key: str | None, sentence: str) -> NoReturn:
        """Raise ConfigError with the key's line; None: that of the table."""
        key_path = (*self.key_path, key) if key else self.key_path
        raise ConfigError(self.key_lines.located(key_path, sentence))


def _source(part: _Part) -> SourceTable:
    kind = part.text("format", JETSTREAM)
    watermark = part.take("watermark")
    if watermark is not None and not (_is_texts(watermark) and len(watermark) == 2):
        part.fail("watermark", 'watermark is ["column", "10 minutes"].')
    times = None if watermark is None else tuple(watermark)
    static = bool(part.truth("static"))
    if kind == JETSTREAM:
        return _stream_source(part, times, static=static)
    if "json_schema" in part.table:
        part.fail("json_schema", f"json_schema is for the format jetstream, not for {kind}.")
    return SourceTable(kind, part.options_of_spark(_OF_SOURCES), watermark=times, static=static)


def _stream_source(part: _Part, watermark: tuple[str, str] | None, *, static: bool) -> SourceTable:
    ddl = part.take("json_schema")
    options = part.options(_SOURCE_OPTIONS, _OF_SOURCES)
    if ddl is not None:
        ddl = part.text_of("json_schema", ddl)
        part.checked("json_schema", lambda: check_only_schema(part.table))
        part.checked("json_schema", lambda: arrow_fields(ddl, named("json_schema")))
        if "bucket" not in part.table:  # whose values stay as they are, until the rows are made
            options = with_json_options(options, ddl)
    check = SourceOptions.for_batch if static else SourceOptions.for_streaming
    parsed = part.checked(None, lambda: check(parse_options(options)))
    if ddl is None:
        ddl = payload_ddl(parsed.decoding)
    else:
        columns = parsed.columns
        part.checked("json_schema", lambda: json_columns(ddl, named("json_schema"), columns))
    return SourceTable(JETSTREAM, options, parsed, ddl, watermark, static)


def _view(part: _Part, sources: Mapping[str, SourceTable]) -> str:
    part.check_keys({"sql": str})
    if "sql" not in part.table:
        part.fail(None, "sql is missing: the SELECT that makes the view.")
    if (name := part.key_path[-1]) in sources:
        part.fail(None, f"there is a source {name!r} already.")
    return part.text("sql")


def _sink(
    part: _Part, tables: list[str], pipeline: str, sources: Mapping[str, SourceTable]
) -> SinkTable:
    rows = part.text("from", tables[-1])
    if rows not in tables:
        part.fail(
            "from", f"there is no source or view {rows!r}{did_you_mean_or_list(rows, tables)}"
        )
    kind = _format_of_sink(part)
    mode = _mode(part, kind)
    columns = _partition_columns(part)
    if (lake := lakehouse_format(kind)) is not None:
        return _TableSink(part, rows, kind, lake, sources.get(rows)).read(pipeline, columns)
    if TABLES in part.table:
        part.fail(TABLES, "tables is for jetspark-delta and jetspark-iceberg.")
    if kind != JETSTREAM:
        options = part.options_of_spark(_OF_SINKS)
        return SinkTable(rows, kind, options, None, mode, tuple(columns))
    options = part.options(_STREAM_SINK_OPTIONS, _OF_SINKS)
    parsed = part.checked(None, lambda: parse_sink_options(options).for_streaming())
    if parsed.guarantee is Guarantee.EXACTLY_ONCE:
        options = _with_writer_name(part, options, pipeline)
        parsed = parse_sink_options(options)
    return SinkTable(rows, kind, options, parsed, mode, tuple(columns))


def _format_of_sink(part: _Part) -> str:
    if "format" not in part.table:
        part.fail(
            None,
            'format is missing: "jetspark-delta", "jetspark-iceberg", "jetstream", or another '
            "of Spark's.",
        )
    kind = part.text("format")
    if kind.casefold() in FILES:
        advice = 'Write format = "jetspark-delta" or "jetspark-iceberg".'
        part.fail("format", f"{explain_not_a_table(kind)} {advice}")
    for key in part.table:
        if key.casefold().replace("_", "") == "checkpointlocation":
            part.fail(
                key,
                f"write checkpoint at the top of the file in place of {key}: each sink has its "
                "folder there.",
            )
    return kind


def _mode(part: _Part, kind: str) -> str:
    mode = part.text("mode", "append")
    if mode not in _MODES:
        part.fail("mode", f"mode is {', '.join(_MODES)}, not {mode!r}.")
    if mode != "append" and (kind == JETSTREAM or lakehouse_format(kind) is not None):
        part.fail(
            "mode",
            f"Spark writes {kind} with mode append only. Rows that change later, such as "
            "totals, need foreachBatch in a program of your own.",
        )
    return mode


def _partition_columns(part: _Part) -> list[str]:
    columns = part.columns("partition_by", _PARTITIONS)
    folded = [column.casefold() for column in columns]  # Spark ignores case
    for at, column in enumerate(columns):
        if folded[at] in folded[:at]:
            part.fail("partition_by", f"partition_by names {column!r} twice.")
    return columns


def _with_writer_name(part: _Part, options: dict[str, str], pipeline: str) -> dict[str, str]:
    """The options with the name of the sink's query, which does not depend on its checkpoint."""
    return {"writerName": f"{pipeline}/{part.key_path[-1]}", **options}


@dataclass(frozen=True)
class _TableSink:
    """A sink that is a Delta or Iceberg table, or a list of these."""

    part: _Part
    rows: str
    kind: str
    format: Format
    source: SourceTable | None
    """The source of its rows, if they do not come from a view."""

    @property
    def plain_source(self) -> SourceTable | None:
        """The source, if its rows are written as they are."""
        return self.source if self.source is not None and self.source.is_plain else None

    def read(self, pipeline: str, partition_by: list[str]) -> SinkTable:
        """Parse the sink. `pipeline`: its name."""
        part, source = self.part, self.source
        if "adopt" in part.table:
            part.fail("adopt", "give jetspark run --adopt once in place of adopt.")
        tables, derived = part.take(TABLES), _take_derived(part)
        options = part.options(_TABLE_OPTIONS, (*_OF_SINKS, *_DERIVED))
        options = _with_writer_name(part, options, pipeline)
        evolves = self._evolves(is_list=tables is not None)
        if evolves and source is not None and source.json_schema is not None and tables is None:
            derived.setdefault("rescued_data_column", OTHER_FIELDS)
        if source is not None and source.parsed is not None:
            options = with_connection(options, source.options)
        if tables is not None:
            options |= self._list(tables, options, partition_by)
            partition_by = []  # its tables have them
        elif partition_by:
            options["partitionBy"] = join_partitions(partition_by)
        parsed = part.checked(
            None, lambda: parse_lakehouse_options(self.format, options).for_streaming()
        )
        self._check(parsed)
        values = self._derived(derived, is_list=tables is not None) if derived else {}
        return SinkTable(
            self.rows, self.kind, options, parsed, "append", tuple(partition_by), values
        )

    def _evolves(self, *, is_list: bool) -> bool:
        """Whether the table gets columns for new fields."""
        source = self.source
        has_fields = source is None or (source.is_plain and source.has_fields)
        evolves = bool(self.part.truth_at("evolve"))
        if evolves and not (has_fields or is_list):
            self.part.fail(
                "evolve",
                "evolve goes with json_schema or decode, not of a source that is static or has a "
                "watermark.",
            )
        return evolves

    def _check(self, table: LakehouseOptions) -> None:
        source = self.plain_source
        without_fields = source is not None and not source.has_fields
        if table.quarantine is not None and without_fields and not table.tables:
            self.part.fail(
                "quarantine",
                "quarantine is for a source with json_schema or decode: without it every payload "
                "is a row.",
            )
        if table.evolve:
            self.part.checked("evolve", lambda: check_one_schema(table))
            if self.source is not None and (stream := self.source.parsed) is not None:
                self.part.checked("evolve", lambda: check_versions(stream))

    def _derived(self, keys: Mapping[str, Any], *, is_list: bool) -> dict[str, RowExpression]:
        """The columns that are derived from those of a source."""
        key = next(iter(keys))
        if is_list:
            self.part.fail(key, f"write {key} in each of the list's tables.")
        source = self.plain_source
        if source is None or source.parsed is None:
            self.part.fail(
                key,
                f"{key} is made of a stream's rows: from names a source, of a stream, which is not "
                "static and has no watermark. In a view write the columns in SQL.",
            )
        return _derive(
            self.part, keys, source.columns, source.json_schema, timestamp_fields(source.parsed)
        )

    def _list(
        self, tables: Any, options: Mapping[str, str], partition_by: list[str]
    ) -> dict[str, str]:
        """The option for a list of tables. `partition_by`: of those that do not say it."""
        part, source = self.part, self.plain_source
        name = ".".join(part.key_path)
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            part.fail(TABLES, f"tables is a list: write [[{name}.tables]] for each.")
        if source is None or source.parsed is None:
            part.fail(
                "from",
                "tables takes the messages of a stream as they are: from names a source, of a "
                "stream, which is not static and has no watermark.",
            )
        if source.has_fields:
            part.fail(
                "from",
                "each table of the list has its own json_schema: leave json_schema and decode out "
                "of the source.",
            )
        for key in _OF_ONE_TABLE:
            if key in part.table:
                part.fail(key, f"write {key} in each of the list's tables.")
        columns = source.parsed.columns
        quarantines = "quarantine" in part.table
        for column in MESSAGE if quarantines else ("subject",):
            if column not in columns:
                part.fail(
                    "from",
                    f"tables{' with quarantine' if quarantines else ''} needs the column {column} "
                    "of the source: add it to columns.",
                )
        parts = [part.inner(TABLES, {}).inner(str(at), table) for at, table in enumerate(tables)]
        for table_part in parts if partition_by else ():
            table_part.table.setdefault("partition_by", list(partition_by))
        parsed = [_ListedPart(item, self.format, options, columns).read(name) for item in parts]
        for (before, (earlier, _)), (at, (table, _)) in combinations(enumerate(parsed), 2):
            _check_tables_apart(parts[at], parts[before], table, earlier)
        return table_list_option(listed for _, listed in parsed)


def _take_derived(part: _Part) -> dict[str, Any]:
    """The keys of derived columns, which are taken out."""
    return {key: part.take(key) for key in _DERIVED if key in part.table}


def _derive(
    part: _Part,
    keys: Mapping[str, Any],
    columns: Sequence[str],
    schema: str | None,
    times: Sequence[str] = (),
) -> dict[str, RowExpression]:
    """The derived columns. `columns`: of the rows; `times`: those that are timestamps, of payloads
    that are not JSON."""
    items, rescued = keys.get("derive", []), None
    if not _is_texts(items):
        part.fail("derive", 'derive is a list: ["site=subject[1]"].')
    if "rescued_data_column" in keys:
        rescued = part.text_of("rescued_data_column", keys["rescued_data_column"])
    return part.checked(
        next(iter(keys), None),
        lambda: derived_columns(items, rescued, columns=columns, schema=schema, timestamps=times),
    )


@dataclass(frozen=True)
class _ListedPart:
    part: _Part
    format: Format
    shared: Mapping[str, str] = field(repr=False)
    """Options of all tables, in Spark's form."""
    columns: Sequence[str]
    """The columns of the source."""

    def read(self, sink: str) -> tuple[RoutedTable, ListedTable]:
        """The table, and its own options. `sink`: the list's name in the file."""
        part = self.part
        subjects = self._subjects()
        ddl = part.take("json_schema")
        names, fields = list(self.columns), self._field_names(ddl)
        if ddl is not None:
            ddl = part.text_of("json_schema", ddl)
            names = part.checked(
                "json_schema", lambda: json_columns(ddl, named("json_schema"), self.columns, fields)
            )
        derive_keys = _take_derived(part)
        if self._evolves(ddl):
            derive_keys.setdefault("rescued_data_column", OTHER_FIELDS)
        derived = _derive(part, derive_keys, names, ddl)
        names += derived
        partition_by = self._partition_by(names, derived)
        for key in _OF_LIST:
            if key in part.table:
                part.fail(key, f"write {key} in [{sink}], for all tables.")
        own = part.options(_TABLE_OPTIONS, _OF_LISTED)
        own |= {"partitionBy": join_partitions(partition_by)} if partition_by else {}
        listed = ListedTable(
            subjects=subjects,
            options=own,
            json_schema=ddl,
            derived={name: value.text for name, value in derived.items()},
            renamed=fields.renamed,
        )
        return part.checked(None, lambda: self._parse(listed, names)), listed

    def _subjects(self) -> tuple[str, ...]:
        subjects = self.part.take("subjects")
        if not _is_texts(subjects) or not subjects:
            self.part.fail("subjects", 'subjects is missing or no list: ["orders.>"].')
        texts = tuple(self.part.text_of("subjects", subject) for subject in subjects)
        for subject in texts:
            self.part.checked("subjects", partial(check_subscribe_subject, subject))
        return texts

    def _field_names(self, ddl: Any) -> FieldNames:
        """The columns of the payloads' fields, as `rename` says."""
        rename = self.part.take("rename")
        if rename is None:
            return FieldNames()
        if ddl is None:
            self.part.fail(
                "rename", "rename goes with json_schema: without it the payload is one column."
            )
        text = self.part.text_of("rename", rename)
        return FieldNames(self.part.checked("rename", lambda: parse_renames(named("rename"), text)))

    def _evolves(self, ddl: str | None) -> bool:
        evolves = self.part.truth_at("evolve")
        if evolves and ddl is None:
            self.part.fail("evolve", "evolve goes with json_schema.")
        if evolves is None:
            evolves = self.shared.get("evolve") == "true"
        return evolves and ddl is not None

    def _partition_by(self, names: list[str], derived: dict[str, RowExpression]) -> list[str]:
        """The columns and transforms to partition by; adds a column of days to `derived`."""
        partition_by = self.part.columns("partition_by", _PARTITIONS)
        columns = [PartitionBy.parse(text).column for text in partition_by]
        if DAY not in names and "timestamp" in self.columns:
            names.append(DAY)
            derived |= {DAY: day_of("timestamp")} if DAY in columns else {}
        for text, column in zip(partition_by, columns, strict=True):
            if column not in names:
                self.part.fail(
                    "partition_by",
                    f"partition_by: there is no column {text!r}; there are {', '.join(names)}.",
                )
        return partition_by

    def _parse(self, listed: ListedTable, names: Sequence[str]) -> RoutedTable:
        table = listed.parse(self.format, self.shared)
        options = table.options.for_streaming()
        if options.route is not None:
            raise ConfigError(
                "A table of a list has one name: for a template make a sink of its own."
            )
        if options.upsert is not None:
            options.upsert.check_names(names)
        if options.keys is not None and options.sequence_by is None:
            raise ConfigError(
                f"needs {named('sequence_by')} in a list of tables, the column whose greatest "
                "value is the last row of a key, such as seq.",
                option="keys",
            )
        return table


def _check_tables_apart(
    part: _Part, before: _Part, table: RoutedTable, earlier: RoutedTable
) -> None:
    line = part.key_lines.line(before.key_path)
    for earlier_subject, subject in product(earlier.subjects, table.subjects):
        if subjects_overlap(earlier_subject, subject):
            part.fail(
                "subjects",
                f"{subject!r} overlaps with {earlier_subject!r} of the table in line {line}: a "
                "message has one table.",
            )
    if _overlap(earlier.options.name, table.options.name):
        part.fail(
            "path", f"the table in line {line} has this path, or one inside or around it, already."
        )


def _check_sinks_apart(key_lines: KeyLines, sinks: Mapping[str, SinkTable]) -> None:
    """Raise ConfigError for two queries with one table, or one writer's name."""
    for (before, earlier), (name, sink) in combinations(sinks.items(), 2):
        if conflict := _conflict(earlier, sink):
            key, shared = conflict
            key_path = ("sinks", name, key)
            line = key_lines.line(("sinks", before, key))
            sentence = f"sink {before} (line {line}) has {shared} already."
            raise ConfigError(key_lines.located(key_path, sentence))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _conflict(earlier: SinkTable, sink: SinkTable) -> tuple[str, str] | None:
    """The key that two sinks cannot share, and its name for the message."""
    match earlier.parsed, sink.parsed:
        case LakehouseOptions() as a, LakehouseOptions() as b:
            pairs = product(
                *([table.options.name for table in of.tables] or [of.name] for of in (a, b))
            )
            # A table of a catalog may have several writers.
            if any(first.path and _overlap(first, second) for first, second in pairs):
                return "path", "this path, or one inside or around it,"
        case SinkOptions() as a, SinkOptions() as b if a.guarantee is Guarantee.EXACTLY_ONCE:
            is_same_stream = (a.connection.servers, a.stream) == (b.connection.servers, b.stream)
            if is_same_stream and a.writer_name == b.writer_name:
                return "writer_name", "this writer_name"
    return None


def _overlap(first: TableName, second: TableName) -> bool:
    """Whether two tables are the same, or one is in the other's folder."""
    if first.path is None or second.path is None:
        return str(first) == str(second)
    first_folder, second_folder = f"{first.path.rstrip('/')}/", f"{second.path.rstrip('/')}/"
    return first_folder.startswith(second_folder) or second_folder.startswith(first_folder)
