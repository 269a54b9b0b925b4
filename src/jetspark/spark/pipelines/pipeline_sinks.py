"""The sinks of a pipeline file: streams, tables, lists of tables, and other formats of Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

from jetspark.errors import ConfigError
from jetspark.nearest import did_you_mean_or_list
from jetspark.options.scopes import (
    ConnectionScope,
    SchemaScope,
    StreamSinkScope,
    parsers_of,
)
from jetspark.spark.pipelines.pipeline_sources import JETSTREAM, PipelineSource
from jetspark.spark.pipelines.pipeline_tables import (
    DERIVING_KEYS,
    PARTITIONS_EXAMPLE,
    TABLE_OPTIONS,
    read_derived_columns,
    read_table_list,
    tables_overlap,
    take_deriving_keys,
)
from jetspark.spark.pipelines.table_rows import DAY, OTHER_FIELDS, day_of
from jetspark.spark.pipelines.toml_table import KeyLines, TomlTable
from jetspark.spark.source.payload_columns import timestamp_fields
from jetspark.spark.stream_sink.options import Guarantee, SinkOptions, parse_sink_options
from jetspark.spark.table_sink.dead_letter_sink import with_connection
from jetspark.spark.table_sink.option_texts import (
    parse_lakehouse_options,
)
from jetspark.spark.table_sink.options import (
    FILES,
    TABLES,
    LakehouseOptions,
    explain_not_a_table,
    lakehouse_format,
)
from jetspark.spark.table_sink.schema_evolution import check_one_schema, check_versions
from jetspark.tables.formats import Format
from jetspark.tables.partitions import join_partitions
from jetspark.tables.row_expressions import RowExpression

_MODES = ("append", "update", "complete")
_KEYS = ("from", "format", "mode", "partition_by")
_STREAM_OPTIONS = (
    *parsers_of(StreamSinkScope),
    *parsers_of(SchemaScope),
    *parsers_of(ConnectionScope),
)


@dataclass(frozen=True)
class PipelineSink:
    """A sink of a pipeline: what to write, and where. It has a streaming query and a checkpoint of
    its own."""

    rows: str
    """The source or view to write."""
    format: str
    """Spark's name of the format."""
    options: Mapping[str, str] = field(repr=False)
    parsed: SinkOptions | LakehouseOptions | None = None
    """The options, of a stream or of a Delta or Iceberg table."""
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    derived: Mapping[str, RowExpression] = field(default_factory=dict)
    """Further columns of a table, and what they are made of."""

    @property
    def table(self) -> LakehouseOptions | None:
        """The options of the sink if it is a Delta or Iceberg table, or a list of these; None for a
        stream and other formats."""
        return self.parsed if isinstance(self.parsed, LakehouseOptions) else None


def read_sink(
    sink: TomlTable, sources: Mapping[str, PipelineSource], views: Collection[str], pipeline: str
) -> PipelineSink:
    """Read a sink from its table in a pipeline file. `sources`, `views`: those of the file;
    `pipeline`: its name. Raises ConfigError."""
    row_names = [*sources, *views]
    rows = sink.take_text("from", row_names[-1])  # by default the last view, or the last source
    if rows not in row_names:
        hint = did_you_mean_or_list(rows, row_names)
        sink.fail("from", f"there is no source or view {rows!r}{hint}")
    format_ = _read_format(sink)
    mode = _read_mode(sink, format_)
    partition_by = sink.take_texts("partition_by", PARTITIONS_EXAMPLE)
    folded = [column.casefold() for column in partition_by]  # Spark ignores case
    for at, column in enumerate(partition_by):
        if folded[at] in folded[:at]:
            sink.fail("partition_by", f"partition_by names {column!r} twice.")
    if (table_format := lakehouse_format(format_)) is not None:
        reader = _TableSinkReader(sink, table_format, sources.get(rows))
        return reader.read(rows, format_, f"{pipeline}/{sink.name}", partition_by)
    if TABLES in sink.keys:
        sink.fail(TABLES, "tables is for jetspark-delta and jetspark-iceberg.")
    if format_ != JETSTREAM:
        options = sink.options_of_spark(_KEYS)
        return PipelineSink(
            rows, format_, options, parsed=None, mode=mode, partition_by=tuple(partition_by)
        )
    options = sink.options(_STREAM_OPTIONS, _KEYS)
    with sink.blaming():
        parsed = parse_sink_options(options).for_streaming()
    if parsed.guarantee is Guarantee.EXACTLY_ONCE:
        options = {"writerName": f"{pipeline}/{sink.name}", **options}
        parsed = parse_sink_options(options)
    return PipelineSink(rows, format_, options, parsed, mode=mode, partition_by=tuple(partition_by))


def _read_format(sink: TomlTable) -> str:
    """Read the key `format` of a sink, Spark's name of a format. Raises ConfigError for a format of
    plain files, and for a checkpoint, which the file has only once, at its top."""
    if "format" not in sink.keys:
        sink.fail(
            None,
            'format is missing: "jetspark-delta", "jetspark-iceberg", "jetstream", or another '
            "of Spark's.",
        )
    format_ = sink.take_text("format")
    if format_.casefold() in FILES:
        advice = 'Write format = "jetspark-delta" or "jetspark-iceberg".'
        sink.fail("format", f"{explain_not_a_table(format_)} {advice}")
    for key in sink.keys:
        if key.casefold().replace("_", "") == "checkpointlocation":
            sink.fail(
                key,
                f"write checkpoint at the top of the file in place of {key}: each sink has its "
                "folder there.",
            )
    return format_


def _read_mode(sink: TomlTable, format_: str) -> str:
    """Read the key `mode` of a sink, Spark's output mode, by default append. Raises ConfigError for
    a mode that the format does not have."""
    mode = sink.take_text("mode", "append")
    if mode not in _MODES:
        sink.fail("mode", f"mode is {', '.join(_MODES)}, not {mode!r}.")
    if mode != "append" and (format_ == JETSTREAM or lakehouse_format(format_) is not None):
        sink.fail(
            "mode",
            f"Spark writes {format_} with mode append only. Rows that change later, such as "
            "totals, need foreachBatch in a program of your own.",
        )
    return mode


def check_sinks_apart(key_lines: KeyLines, sinks: Mapping[str, PipelineSink]) -> None:
    """Raise ConfigError if two sinks of a pipeline would write into one table's folder, or into one
    stream under one writer's name. `key_lines`: where the file has its keys."""
    for (earlier_name, earlier), (name, sink) in combinations(sinks.items(), 2):
        if _share_table(earlier, sink):
            key, shared = "path", "this path, or one inside or around it,"
        elif _share_writer_name(earlier, sink):
            key, shared = "writer_name", "this writer_name"
        else:
            continue
        line = key_lines.line(("sinks", earlier_name, key))
        sentence = f"sink {earlier_name} (line {line}) has {shared} already."
        raise ConfigError(key_lines.located(("sinks", name, key), sentence))


def _share_table(earlier: PipelineSink, sink: PipelineSink) -> bool:
    """Whether two sinks write into the same folder, or one inside the other's folder. Tables of a
    catalog do not count, since these may have several writers."""
    names = [
        [table.options.name for table in of.table.tables] or [of.table.name]
        for of in (earlier, sink)
        if of.table is not None
    ]
    return len(names) == 2 and any(
        first.path and tables_overlap(first, second) for first, second in product(*names)
    )


def _share_writer_name(earlier: PipelineSink, sink: PipelineSink) -> bool:
    """Whether two sinks write exactly once into the same stream under the same writer's name, so
    that each would take the other's batches for its own."""
    first, second = earlier.parsed, sink.parsed
    if not isinstance(first, SinkOptions) or not isinstance(second, SinkOptions):
        return False
    is_same_stream = (first.connection.servers, first.stream) == (
        second.connection.servers,
        second.stream,
    )
    is_exactly_once = first.guarantee is Guarantee.EXACTLY_ONCE
    return is_exactly_once and is_same_stream and first.writer_name == second.writer_name


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TableSinkReader:
    """Reads from a pipeline file a sink that is a Delta or Iceberg table, or a list of these."""

    sink: TomlTable
    format: Format
    source: PipelineSource | None
    """The source of its rows, if they do not come from a view."""

    @property
    def _plain_source(self) -> PipelineSource | None:
        """The source, if its rows go into the table without a query of Spark in between; None for
        rows of a view, and for a source that is a bucket, or static, or has a watermark."""
        return self.source if self.source is not None and self.source.is_plain else None

    def read(
        self, rows: str, spark_format: str, writer_name: str, partition_by: list[str]
    ) -> PipelineSink:
        """Read the sink. `rows`: the source or view that it writes; `spark_format`: as the file has
        it; `writer_name`: the default for the name under which its query writes to the table.
        Raises ConfigError."""
        sink, source = self.sink, self.source
        if "adopt" in sink.keys:
            sink.fail("adopt", "give jetspark run --adopt once in place of adopt.")
        tables, deriving = sink.take(TABLES), take_deriving_keys(sink)
        options = sink.options(TABLE_OPTIONS, (*_KEYS, *DERIVING_KEYS))
        options = {"writerName": writer_name, **options}
        evolves = bool(sink.check_bool("evolve"))
        if evolves and tables is None:
            if source is not None and not (source.is_plain and source.has_fields):
                sink.fail(
                    "evolve",
                    "evolve goes with json_schema or decode, not of a source that is static or has "
                    "a watermark.",
                )
            if source is not None and source.json_schema is not None:
                deriving.setdefault("rescued_data_column", OTHER_FIELDS)
        if source is not None and source.parsed is not None:
            options = with_connection(options, source.options)
        if tables is not None:
            options |= self._read_list(tables, options, partition_by)
            partition_by = []  # its tables have them
        elif partition_by:
            options["partitionBy"] = join_partitions(partition_by)
        with sink.blaming():
            parsed = parse_lakehouse_options(self.format, options).for_streaming()
        self._check(parsed)
        for key in deriving if tables is not None else ():  # fails for the first one
            sink.fail(key, f"write {key} in each of the list's tables.")
        derived = self._derive(deriving) if deriving else {}
        if (plain := self._plain_source) and DAY in partition_by and DAY not in plain.columns:
            derived = {DAY: day_of("timestamp"), **derived}
        return PipelineSink(
            rows,
            spark_format,
            options,
            parsed,
            mode="append",
            partition_by=tuple(partition_by),
            derived=derived,
        )

    def _check(self, table: LakehouseOptions) -> None:
        """Raise ConfigError for a table with a quarantine whose source does not decode payloads, so
        that no record is rejected; and for a table that is to evolve, if its payloads cannot get
        new fields.

        A list of tables may have a quarantine in any case: its tables decode the payloads.
        """
        source = self._plain_source  # None for rows of a view, which may lack values
        without_fields = source is not None and not source.has_fields
        is_list = bool(table.tables)
        if table.quarantine is not None and without_fields and not is_list:
            self.sink.fail(
                "quarantine",
                "quarantine is for a source with json_schema or decode: without it every payload "
                "is a row.",
            )
        if table.evolve:
            with self.sink.blaming("evolve"):
                check_one_schema(table)
                if self.source is not None and self.source.parsed is not None:
                    check_versions(self.source.parsed)

    def _derive(self, deriving: Mapping[str, Any]) -> dict[str, RowExpression]:
        """Read the derived columns of the table from `deriving`, its keys `derive` and
        `rescued_data_column`. Raises ConfigError if its rows come from a view: there SQL can have
        these columns."""
        source, key = self._plain_source, next(iter(deriving))
        if source is None or source.parsed is None:
            self.sink.fail(
                key,
                f"{key} is made of a stream's rows: from names a source, of a stream, which is not "
                "static and has no watermark. In a view write the columns in SQL.",
            )
        times = timestamp_fields(source.parsed)
        return read_derived_columns(self.sink, deriving, source.columns, source.json_schema, times)

    def _read_list(
        self, tables: Any, shared: Mapping[str, str], partition_by: list[str]
    ) -> dict[str, str]:
        """Read the key `tables` of the sink, a list of tables by which the messages of a stream are
        divided; returns it as an option of the sink.

        `tables`: its value; `shared`: options of all of the tables; `partition_by`: the partitions
        of those that have none of their own. Raises ConfigError.
        """
        sink, source = self.sink, self._plain_source
        name = ".".join(sink.key_path)
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            sink.fail(TABLES, f"tables is a list: write [[{name}.tables]] for each.")
        if source is None or source.parsed is None:
            sink.fail(
                "from",
                "tables takes the messages of a stream as they are: from names a source, of a "
                "stream, which is not static and has no watermark.",
            )
        if source.has_fields:
            sink.fail(
                "from",
                "each table of the list has its own json_schema: leave json_schema and decode out "
                "of the source.",
            )
        return read_table_list(
            sink, tables, self.format, shared, source.parsed.columns, partition_by
        )
