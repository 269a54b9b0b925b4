"""Runs a pipeline file: sources and views in Spark SQL, one streaming query for each sink."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.connection.options import ConnectOptions
from jetspark.errors import (
    ConfigError,
    ConnectionFailure,
    JetsparkError,
    PipelineError,
    StreamNotFoundError,
    named,
)
from jetspark.nearest import check_column
from jetspark.spark.checkpoints import read_checkpoint
from jetspark.spark.failures import explain
from jetspark.spark.local_folders import check_writable, local_path
from jetspark.spark.pipelines.pipeline_file import PipelineFile
from jetspark.spark.pipelines.pipeline_sinks import PipelineSink
from jetspark.spark.pipelines.pipeline_sources import JETSTREAM, PipelineSource
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult, check_records
from jetspark.spark.pipelines.retry_quarantine import reprocess as reprocess_records
from jetspark.spark.pipelines.sequence_order import check_order, tables_ordered_by_seq
from jetspark.spark.pipelines.table_rows import DAY, RowSpec, day_of
from jetspark.spark.pipelines.task_writes import Flow, flow_into, register_formats
from jetspark.spark.queries.start import query_of, source_options, start_writing, streaming_sources
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.payload_columns import decode_json
from jetspark.spark.source.source_streams import fetch_creation_time, fetch_source_facts
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.spark.stream_sink.target import check_new_writer, inspect_target, register_name
from jetspark.spark.stream_sink.written_columns import check_written_columns
from jetspark.spark.table_sink.dataframe_columns import written_schemas
from jetspark.spark.table_sink.dead_letter_sink import STREAM_PREFIX
from jetspark.spark.table_sink.options import TABLES, default_compaction
from jetspark.spark.table_sink.schema_evolution import has_evolved
from jetspark.spark.table_sink.start_checks import check_start
from jetspark.spark.table_sink.table_preparation import check_fit
from jetspark.subjects import subjects_overlap
from jetspark.tables.arguments import absolute_path, parse_catalog_name
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.row_expressions import RowExpression

# -- before Spark is started -------------------------------------------------------------------


def sink_of_quarantine(pipeline: PipelineFile, quarantine: str) -> str:
    """The sink that has this quarantine, which exists. Raises ConfigError, and
    PipelineError that names the part of the file."""
    quarantines = {
        name: sink.table.quarantine
        for name, sink in pipeline.sinks.items()
        if sink.table is not None and sink.table.quarantine is not None
    }
    spellings = [quarantine]
    if not quarantine.startswith(STREAM_PREFIX):
        spellings += [absolute_path(quarantine), *(parse_catalog_name(quarantine) or ())[1:]]
    names = [name for name, configured in quarantines.items() if configured in spellings]
    if len(names) == 1:
        with _located(pipeline, "sinks", names[0]):
            table = pipeline.sinks[names[0]].table
            assert table is not None  # noqa: S101
            check_records(table)
        return names[0]
    file = pipeline.key_lines.file
    if names:
        raise ConfigError(
            f"{file}: the sinks {', '.join(names)} have the quarantine {quarantine}, from which a "
            "message is removed when one of them has it: give each a quarantine of its own."
        )
    all_ = ", ".join(dict.fromkeys(map(str, quarantines.values()))) or "none"
    raise ConfigError(f"{file}: no sink has the quarantine {quarantine}; there are: {all_}.")


@dataclass(frozen=True)
class ServerFacts:
    """The servers' answers before Spark was started."""

    messages: int
    """Messages in the streams that are followed; a stream counts once for each source."""
    missing: tuple[str, ...] = ()
    """Changes that a run would first make on the servers, as sentences."""


def check_servers(pipeline: PipelineFile) -> ServerFacts:
    """Check every stream of the file; changes nothing. Raises PipelineError for the first error."""
    messages = 0
    missing: list[str] = []
    for name, source in pipeline.sources.items():
        if source.parsed is not None:
            with _located(pipeline, "sources", name):
                facts = fetch_source_facts(source.parsed)
            if not source.static:
                messages += sum(stream.messages for stream in facts.values())
    for name, sink in pipeline.sinks.items():
        if isinstance(sink.parsed, SinkOptions):
            with _located(pipeline, "sinks", name):
                missing += inspect_target(sink.parsed).missing
        elif sink.table is not None and sink.table.dead_letter_sink is not None:
            with _located(pipeline, "sinks", name):
                sink.table.dead_letter_sink.check()
    return ServerFacts(messages, tuple(dict.fromkeys(missing)))


def check_writers(pipeline: PipelineFile) -> None:
    """Check that no sink would write its rows again because its checkpoint was lost.

    Only checks local checkpoints; the first batch checks others. Changes nothing. Raises
    PipelineError.
    """
    for name, sink in pipeline.sinks.items():
        folder = local_path(_checkpoint(pipeline, name))
        if isinstance(sink.parsed, SinkOptions) and folder is not None:
            with _located(pipeline, "sinks", name):
                check_new_writer(sink.parsed, folder)


def check_tables(pipeline: PipelineFile) -> None:
    """Check the tables and the checkpoints before Spark is started; changes nothing.

    Raises PipelineError that names the part of the file.
    """
    with _located(pipeline, "checkpoint"):
        check_writable("checkpoint", pipeline.checkpoint)
    for name, sink in pipeline.sinks.items():
        checkpoint = _checkpoint(pipeline, name)
        with _located(pipeline, "sinks", name):
            if sink.table is not None:
                check_start(replace(sink.table, adopt=pipeline.adopt), checkpoint)
            elif (folder := local_path(checkpoint)) is not None:
                state = read_checkpoint(folder)
                state.check_complete(checkpoint, "and what the query has written")


def checkpoints(pipeline: PipelineFile) -> list[str]:
    return [_checkpoint(pipeline, name) for name in pipeline.sinks]


def _checkpoint(pipeline: PipelineFile, name: str) -> str:
    return f"{pipeline.checkpoint.rstrip('/')}/{name}"


# -- in Spark ----------------------------------------------------------------------------------


def check_queries(pipeline: PipelineFile, spark: SparkSession) -> dict[str, Flow]:
    """Let Spark read the schemas and the SQL as far as it can without reading rows.

    Starts no query; returns the rows of each sink. Raises PipelineError, which names the part of
    the file.
    """
    _define(pipeline, spark)
    flows: dict[str, Flow] = {}
    reads: dict[str, list[SourceOptions]] = {}
    for name, sink in pipeline.sinks.items():
        source = pipeline.stream_of(sink)
        if source is None or source.parsed is None:
            with _located(pipeline, "sinks", name, "from"):
                flows[name] = Flow(spark.table(sink.rows))
            reads[name] = list(streaming_sources(flows[name].rows))
        else:
            flows[name] = _flow(pipeline, name, sink, source, spark)
            reads[name] = [source.parsed]
        _check_sink(pipeline, name, sink, flows[name].rows)
        if (table := sink.table) is not None:
            with _located(pipeline, "sinks", name):
                for source_options in reads[name]:
                    if table.dead_letter_sink is not None:
                        table.dead_letter_sink.check_not_read(source_options)
                if len(reads[name]) == 1:  # of several, a join may have the sequences of one
                    check_order(table, reads[name][0])
    readers: dict[tuple[str, ...], str] = {}
    for name, sources in reads.items():
        with _located(pipeline, "sinks", name, "from"):
            _check_taken(name, sources, readers)
    writes = {
        name: sink.parsed
        for name, sink in pipeline.sinks.items()
        if isinstance(sink.parsed, SinkOptions)
    }
    for name in writes:
        with _located(pipeline, "sinks", name):
            check_no_loop(name, writes, reads, fetch_creation_time)
    return flows


def start_pipeline(
    pipeline: PipelineFile, spark: SparkSession, flows: Mapping[str, Flow] | None = None
) -> dict[str, StreamingQuery]:
    """Start the queries, by the names of their sinks; all or none.

    `flows`: what `check_queries` has returned, which is called otherwise. Raises PipelineError,
    which names the part of the file.
    """
    if flows is None:
        flows = check_queries(pipeline, spark)
    queries: dict[str, StreamingQuery] = {}
    try:
        for name, sink in pipeline.sinks.items():
            with _located(pipeline, "sinks", name):
                queries[name] = _start(pipeline, name, sink, flows[name])
    except BaseException:
        for query in queries.values():
            query.stop()
        raise
    return queries


def start_again(
    pipeline: PipelineFile, spark: SparkSession, query: StreamingQuery
) -> StreamingQuery | None:
    """The query anew, which goes on with the same batch, if it has ended since its tables have got
    columns for new fields (`evolve`); else None. Otherwise as `start`."""
    if not has_evolved(query):
        return None
    name = str(query.name)
    only = replace(pipeline, sinks={name: pipeline.sinks[name]})
    return start_pipeline(only, spark)[name]


def reprocess(pipeline: PipelineFile, name: str) -> ReprocessResult:
    """Try the quarantined records of the sink of this name again, by the file as it is now:
    those that are rows are added to its tables, each once, and the others get their new reasons.

    It needs neither the stream nor the checkpoint, and the pipeline may run meanwhile. Raises
    PipelineError, which names the part of the file.
    """
    sink = pipeline.sinks[name]
    source = pipeline.stream_of(sink)
    with _located(pipeline, "sinks", name):
        if source is None or source.parsed is None or sink.table is None:
            raise ConfigError(
                "its rows come from a view: take the source out of the file, or name the schema "
                "and the table (jetspark table retry --to … --json-schema …)."
            )
        table = replace(sink.table, checkpoint=_checkpoint(pipeline, name))
        return reprocess_records(table, source.parsed, _rows_of(sink, source))


def _define(pipeline: PipelineFile, spark: SparkSession) -> None:
    """The sources and views, under their names in SQL."""
    register_formats(spark)
    for name, source in pipeline.sources.items():
        _load(pipeline, name, source, spark).createOrReplaceTempView(name)
    for name in pipeline.views:
        spark.catalog.dropTempView(name)  # left by an earlier run in this session
    for name, sql in pipeline.views.items():
        with _located(pipeline, "views", name, "sql"):
            _view(name, sql, [*pipeline.views], spark).createOrReplaceTempView(name)


def _load(
    pipeline: PipelineFile, name: str, source: PipelineSource, spark: SparkSession
) -> DataFrame:
    key_path = ("sources", name)
    reader = spark.read if source.static else spark.readStream
    with _located(pipeline, *key_path):
        options = source.options
        if source.format == JETSTREAM and not source.static:
            options = source_options(options, follow=pipeline.follow)
            views = (sink for sink in pipeline.sinks.values() if pipeline.stream_of(sink) is None)
            if any(sink.table is not None and tables_ordered_by_seq(sink.table) for sink in views):
                options["ordersBySeq"] = "true"
        decoding = None if source.parsed is None else source.parsed.decoding
        rows = reader.format(source.format).options(**options).load()
    if decoding is None and source.json_schema is not None:
        with _located(pipeline, *key_path, "json_schema"):
            rows = decode_json(rows, source.json_schema, named("json_schema"))
    if source.watermark is not None:
        with _located(pipeline, *key_path, "watermark"):
            rows = rows.withWatermark(*source.watermark)
    return rows


def _view(name: str, sql: str, views: list[str], spark: SparkSession) -> DataFrame:
    """Raises ConfigError for SQL that is not a query: Spark would execute a command at once; and
    for a view that uses itself, or one below it."""
    jvm_session: Any = spark._jsparkSession
    parser = jvm_session.sessionState().sqlParser()
    parser.parsePlan(sql)
    if not _is_query(parser, sql):
        raise ConfigError(
            "sql is a command, which Spark would execute at once; a view is a query: SELECT, "
            "WITH, VALUES, TABLE or FROM. Nothing was executed."
        )
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        unknown = str((error.getMessageParameters() or {}).get("relationName")).strip("`")
        used = next((view for view in views if view.casefold() == unknown.casefold()), None)
        if used is None:
            raise
        used_view = "itself" if used == name else f"the view {used}, which is below it"
        raise ConfigError(
            f"sql uses {used_view}: a view uses the sources, and the views above it in the file."
        ) from error


def _is_query(parser: Any, sql: str) -> bool:
    """Whether the SQL is a query: EXISTS takes nothing else, and no semicolon at the end."""
    while True:
        try:
            parser.parseQuery(f"SELECT EXISTS (\n{sql}\n)")
            return True
        except PySparkException:
            sql, semicolon, _ = sql.rpartition(";")
            if not semicolon:
                return False


def _flow(
    pipeline: PipelineFile,
    name: str,
    sink: PipelineSink,
    source: PipelineSource,
    spark: SparkSession,
) -> Flow:
    """The rows of a stream for a table."""
    assert sink.table is not None  # noqa: S101
    columns, derived = _columns(sink, source)
    _check_partition_by(pipeline, name, sink, [*columns, *derived])
    with _located(pipeline, "sinks", name):
        return flow_into(
            spark,
            source_options(source.options, follow=pipeline.follow),
            sink.table,
            _sink_options(pipeline, name, sink),
            _rows_of(sink, source),
        )


def _rows_of(sink: PipelineSink, source: PipelineSource) -> RowSpec:
    tables = () if sink.table is None else sink.table.tables
    return RowSpec(named("json_schema"), source.json_schema, _columns(sink, source)[1], tables)


def _columns(
    sink: PipelineSink, source: PipelineSource
) -> tuple[list[str], dict[str, RowExpression]]:
    """The columns of a stream's rows, and those that are made of them for a table."""
    columns = source.columns
    of_day = DAY in sink.partition_by and DAY not in columns
    return columns, {**({DAY: day_of("timestamp")} if of_day else {}), **sink.derived}


def _check_partition_by(
    pipeline: PipelineFile, name: str, sink: PipelineSink, columns: Sequence[str]
) -> None:
    folded = {column.casefold() for column in columns}
    with _located(pipeline, "sinks", name, "partition_by"):
        for text in sink.partition_by:
            column = text if sink.table is None else PartitionBy.parse(text).column
            if column.casefold() not in folded:
                check_column("partition_by", column, columns)


def _check_sink(pipeline: PipelineFile, name: str, sink: PipelineSink, rows: DataFrame) -> None:
    """Raise the errors that Spark would raise at the query's start."""
    spark: Any = rows.sparkSession
    jvm = spark._jvm
    key_path = ("sinks", name)
    with _located(pipeline, *key_path, "from"):
        if not rows.isStreaming:
            raise ConfigError(
                f"{sink.rows!r} holds only static sources, so there is nothing to follow: use "
                "spark.read and df.write, or leave static out."
            )
    if pipeline.stream_of(sink) is None:
        _check_partition_by(pipeline, name, sink, rows.columns)
        with _located(pipeline, *key_path):
            if isinstance(sink.parsed, SinkOptions):
                check_written_columns(sink.parsed, rows.schema)
            elif sink.table is not None:
                check_fit(sink.table, written_schemas(sink.table, rows.schema))
    with _located(pipeline, *key_path, "mode"):
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    if sink.format != JETSTREAM:
        with _located(pipeline, *key_path, "format"):
            formats = jvm.org.apache.spark.sql.execution.datasources.DataSource
            formats.lookupDataSource(sink.format, spark._jsparkSession.sessionState().conf())


def _check_taken(
    name: str, sources: Iterable[SourceOptions], readers: dict[tuple[str, ...], str]
) -> None:
    """Raise ConfigError if another source, of this sink or of one before it, reads the same stream,
    from which is removed what was read. `readers`: the sinks by their streams."""
    for source in sources:
        consumer = source.interest_consumer or ""
        for stream in fetch_source_facts(source).values() if source.removes_read_messages else ():
            key = (stream.name, stream.created, consumer)
            if (reader := readers.get(key)) is not None:
                twice = (
                    "twice for this sink (a join of a source with itself reads it twice), and what "
                    "is read once is gone for the other: use one source, without such a join,"
                    if reader == name
                    else f"for the sink {reader}, too, with a query of its own, and what one query "
                    "has read is gone for the other: leave out one of the sinks and read the "
                    "other's table,"
                )
                advice = "a stream with retention 'limits' that has this one as a source"
                if consumer:
                    advice = f"a source with another interest_consumer than {consumer!r}"
                raise ConfigError(f"the stream {stream.name!r} is read {twice} or read {advice}.")
            readers[key] = name


Created: TypeAlias = Callable[[ConnectOptions, str], str]
"""When a stream was created, to the nanosecond, which identifies it; "" where there is none."""


def check_no_loop(
    name: str,
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Iterable[SourceOptions]],
    fetch_creation_time: Created,
) -> None:
    """Raises ConfigError if the sink `name` reads what it writes, also by way of other sinks: its
    rows would be read and written without an end.

    `writes` and `reads`: what each sink of the pipeline writes, and the sources of its rows.
    """
    fed, waiting = {name}, [name]
    while waiting:
        sink = waiting.pop()
        for reader, sources in reads.items():
            feeding = (read for read in sources if _feeds(writes[sink], read, fetch_creation_time))
            source = next(feeding, None)
            if source is not None and reader == name:
                way = "" if sink == name else f", by way of the sink {sink}"
                kind, chosen = ("bucket", "keys") if source.bucket else ("stream", "subjects")
                raise ConfigError(
                    f"it writes into the stream {writes[name].stream!r}, which is read for it "
                    f"again{way}: its rows would come back without an end. Write into another "
                    f"{kind}, or give the source {chosen!r} to which it does not write."
                )
            if source is not None and reader in writes and reader not in fed:
                fed.add(reader)
                waiting.append(reader)


def _feeds(sink: SinkOptions, source: SourceOptions, fetch_creation_time: Created) -> bool:
    """Whether a source reads what a sink writes, as far as options and servers show."""
    pattern = source.stream_pattern
    if sink.stream not in source.streams and not (
        pattern is not None and re.fullmatch(pattern, sink.stream)
    ):
        return False
    # A column of subjects is not known before the rows are.
    if source.subjects and not (
        sink.subject is not None
        and any(subjects_overlap(sink.subject, subject) for subject in source.subjects)
    ):
        return False
    to, from_ = sink.connection, source.connection
    if set(to.urls()) & set(from_.urls()) and replace(to, servers=from_.servers) == from_:
        return True
    # The same server may have another name, the cluster another server, the account another user.
    when = fetch_creation_time(to, sink.stream)
    return bool(when) and when == fetch_creation_time(from_, sink.stream)


def _sink_options(pipeline: PipelineFile, name: str, sink: PipelineSink) -> dict[str, str]:
    options = {**sink.options, "checkpointLocation": _checkpoint(pipeline, name)}
    if sink.table is not None:
        options["adopt"] = str(pipeline.adopt).lower()
        if pipeline.follow:
            options |= default_compaction(sink.table)
    return options


def _start(pipeline: PipelineFile, name: str, sink: PipelineSink, flow: Flow) -> StreamingQuery:
    checkpoint, rows = _checkpoint(pipeline, name), flow.rows
    writer = (
        rows.writeStream.format(sink.format)
        .queryName(name)
        .outputMode(sink.mode)
        .options(**_sink_options(pipeline, name, sink), **flow.sink)
    )
    if sink.table is not None:
        check_start(replace(sink.table, adopt=pipeline.adopt), checkpoint)
    elif sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if isinstance(sink.parsed, SinkOptions):
        register_name(sink.parsed, query_of(rows.sparkSession, checkpoint))
    interval = pipeline.interval if pipeline.follow else None
    return start_writing(rows.sparkSession, writer, checkpoint, interval)


def _blamed_key(error: JetsparkError) -> str | None:
    """The key of a source or sink that an error is about, if that is known."""
    if isinstance(error, ConfigError):
        return error.option
    if isinstance(error, ConnectionFailure):
        return "servers"
    return "stream" if isinstance(error, StreamNotFoundError) else None


@contextmanager
def _located(pipeline: PipelineFile, *key_path: str) -> Iterator[None]:
    """Errors of the block name the part of the file, and the line.

    `key_path`: a part and a name, and the key if known; otherwise the error shows it. Raises
    PipelineError.
    """
    try:
        yield
    except (PySparkException, Py4JError, JetsparkError) as error:
        explained = explain(error)
        part, *names = key_path
        key = None
        if len(names) == 1 and part != "views":
            key = _blamed_key(explained)
            tables: Mapping[str, PipelineSource | PipelineSink] = getattr(pipeline, part)
            table = tables[names[0]]
            if isinstance(table, PipelineSink) and table.table is not None:
                for at, routed in enumerate(table.table.tables):
                    if str(routed.options.name) in str(explained):
                        key_path, key = (*key_path, TABLES), str(at)
        whose = " ".join([part.removesuffix("s"), *names[:1]])
        full_path = key_path if key is None else (*key_path, key)
        sentence = f"{whose}: {explained.sentence()}"
        raise PipelineError(pipeline.key_lines.located(full_path, sentence)) from error
