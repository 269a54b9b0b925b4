"""Runs a pipeline file: sources and views in Spark SQL, one streaming query for each sink."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

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
from jetspark.spark.pipelines.stream_conflicts import check_no_loop, check_read_once
from jetspark.spark.pipelines.table_rows import RowSpec
from jetspark.spark.pipelines.task_writes import Flow, flow_into, register_formats
from jetspark.spark.pipelines.views import read_view
from jetspark.spark.queries.start import query_of, source_options, start_writing, streaming_sources
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.payload_columns import decode_json
from jetspark.spark.source.source_streams import fetch_creation_time, fetch_source_facts
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.spark.stream_sink.target import check_new_writer, inspect_target, register_name
from jetspark.spark.stream_sink.written_columns import check_written_columns
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.dead_letter_sink import STREAM_PREFIX
from jetspark.spark.table_sink.options import (
    PREFIX,
    TABLES,
    LakehouseOptions,
    default_compaction,
)
from jetspark.spark.table_sink.schema_evolution import has_evolved
from jetspark.spark.table_sink.start_checks import check_start
from jetspark.spark.table_sink.table_preparation import check_fit
from jetspark.tables.arguments import absolute_path, parse_catalog_name
from jetspark.tables.formats import Format
from jetspark.tables.partitions import PartitionBy

_JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_JAR_VARIABLES = {"SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_CLASSPATH"}
"""By which Spark may have further JARs that the settings do not name."""

# -- before Spark is started -------------------------------------------------------------------


def sink_of_quarantine(pipeline: PipelineFile, quarantine: str) -> str:
    """Find the sink of a pipeline by its quarantine, the table or stream for rejected records;
    returns the sink's name.

    Raises ConfigError if no sink has this quarantine, or several have it; and PipelineError if the
    quarantine, or the table of the sink, does not exist.
    """
    quarantines = {
        name: sink.table.quarantine
        for name, sink in pipeline.sinks.items()
        if sink.table is not None and sink.table.quarantine is not None
    }
    spellings = [quarantine]  # as an option has it: also absolute, or without the catalog's name
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
    """What the NATS servers said of a pipeline's streams before Spark was started."""

    messages: int
    """Messages in the streams that are followed; a stream counts once for each source."""
    missing: tuple[str, ...] = ()
    """Changes that a run would first make on the servers, as sentences."""


def check_servers(pipeline: PipelineFile) -> ServerFacts:
    """Ask the NATS servers about each stream that a pipeline reads or writes; changes nothing.

    Returns how many messages there are to read, and what a run would first create or change.
    Raises PipelineError for the first stream with an error.
    """
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


def check_formats(pipeline: PipelineFile, settings: Mapping[str, str]) -> None:
    """Check that no source or sink has the format `delta` or `iceberg`, which Spark has only with a
    JAR, where no setting names one: ours have other names.

    `settings`: those of Spark. Raises PipelineError.
    """
    if any(setting in settings for setting in _JAR_SETTINGS) or _JAR_VARIABLES & os.environ.keys():
        return
    for section, tables in (("sources", pipeline.sources), ("sinks", pipeline.sinks)):
        for name, table in tables.items():
            if table.format.casefold() in tuple(Format):
                own = PREFIX + table.format.casefold()
                with _located(pipeline, section, name, "format"):
                    raise ConfigError(
                        f'Spark has the format "{table.format}" only with a JAR of it: write '
                        f'format = "{own}", or name the JAR in spark.jars.packages.'
                    )


def check_writers(pipeline: PipelineFile) -> None:
    """Check that no sink of a pipeline would write its rows into a stream again because its
    checkpoint was lost; changes nothing.

    Only checks checkpoints on this machine; the first batch checks others. Raises PipelineError.
    """
    for name, sink in pipeline.sinks.items():
        folder = local_path(pipeline.checkpoint_of(name))
        if isinstance(sink.parsed, SinkOptions) and folder is not None:
            with _located(pipeline, "sinks", name):
                check_new_writer(sink.parsed, folder)


def check_tables(pipeline: PipelineFile) -> None:
    """Check that the tables of a pipeline and the checkpoints of its queries belong together,
    before Spark is started; changes nothing.

    Raises PipelineError that names the part of the file.
    """
    with _located(pipeline, "checkpoint"):
        check_writable("checkpoint", pipeline.checkpoint)
    for name, sink in pipeline.sinks.items():
        checkpoint = pipeline.checkpoint_of(name)
        with _located(pipeline, "sinks", name):
            if sink.table is not None:
                check_start(replace(sink.table, adopt=pipeline.adopt), checkpoint)
            elif (folder := local_path(checkpoint)) is not None:
                state = read_checkpoint(folder)
                state.check_complete(checkpoint, "and what the query has written")


# -- in Spark ----------------------------------------------------------------------------------


def check_queries(pipeline: PipelineFile, spark: SparkSession) -> dict[str, Flow]:
    """Check the queries of a pipeline in Spark, as far as that is possible without reading rows:
    schemas, SQL, and sources that sinks cannot share.

    Starts no query. Returns what each sink's query is to write, by the name of the sink. Raises
    PipelineError, which names the part of the file.
    """
    _define_views(pipeline, spark)
    flows: dict[str, Flow] = {}
    reads: dict[str, list[SourceOptions]] = {}
    for name, sink in pipeline.sinks.items():
        source = pipeline.stream_of(sink)
        if source is None or source.parsed is None:  # otherwise tasks write the rows themselves
            with _located(pipeline, "sinks", name, "from"):
                flows[name] = Flow(spark.table(sink.rows))
            reads[name] = list(streaming_sources(flows[name].rows))
        else:
            flows[name] = _flow_into_table(pipeline, name, source, spark)
            reads[name] = [source.parsed]
        _check_sink(pipeline, name, flows[name].rows)
        if sink.table is not None:
            with _located(pipeline, "sinks", name):
                _check_sources_of_table(sink.table, reads[name])
    readers: dict[tuple[str, ...], str] = {}
    for name, sources in reads.items():
        with _located(pipeline, "sinks", name, "from"):
            check_read_once(name, sources, readers)
    writes = {
        name: sink.parsed
        for name, sink in pipeline.sinks.items()
        if isinstance(sink.parsed, SinkOptions)
    }
    for name in writes:
        with _located(pipeline, "sinks", name):
            check_no_loop(name, writes, reads, fetch_creation_time)
    return flows


def _check_sources_of_table(table: LakehouseOptions, sources: Sequence[SourceOptions]) -> None:
    """Raise ConfigError if the table of a sink would get its own dead letters as messages, or, if
    it is ordered by `seq`, the sequences of another stream than those that it has."""
    for source in sources:
        if table.dead_letter_sink is not None:
            table.dead_letter_sink.check_not_read(source)
    if len(sources) == 1:  # with several, the rows of a join may have the sequences of just one
        check_order(table, sources[0])


def start_pipeline(
    pipeline: PipelineFile, spark: SparkSession, flows: Mapping[str, Flow] | None = None
) -> dict[str, StreamingQuery]:
    """Start one streaming query for each sink of a pipeline, all or none; returns them by the names
    of the sinks.

    `flows`: the result of `check_queries`, if that was called before; otherwise this calls it.
    Raises PipelineError, which names the part of the file.
    """
    if flows is None:
        flows = check_queries(pipeline, spark)
    queries: dict[str, StreamingQuery] = {}
    try:
        for name in pipeline.sinks:
            with _located(pipeline, "sinks", name):
                queries[name] = _start(pipeline, name, flows[name])
    except BaseException:
        for query in queries.values():
            query.stop()
        raise
    return queries


def start_again(
    pipeline: PipelineFile, spark: SparkSession, query: StreamingQuery
) -> StreamingQuery | None:
    """Start a query of a pipeline again if it has ended only because its tables have got columns
    for new fields (`evolve`); it goes on with the same batch.

    Returns the new query; None if the query has not ended, or for another reason. Raises as
    `start_pipeline`.
    """
    if not has_evolved(query):
        return None
    name = str(query.name)
    only = replace(pipeline, sinks={name: pipeline.sinks[name]})
    return start_pipeline(only, spark)[name]


def reprocess(pipeline: PipelineFile, name: str) -> ReprocessResult:
    """Decode the quarantined records of one sink again, by the pipeline file as it is now: those
    that are rows now are added to its tables, each once, and the others get their new reasons.

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
        table = replace(sink.table, checkpoint=pipeline.checkpoint_of(name))
        return reprocess_records(table, source.parsed, _row_spec(sink, source))


def _define_views(pipeline: PipelineFile, spark: SparkSession) -> None:
    """Define the sources and the views of a pipeline file as temporary views of Spark, so that SQL
    finds them by their names."""
    register_formats(spark)
    for name in pipeline.sources:
        _load_source(pipeline, name, spark).createOrReplaceTempView(name)
    for name in pipeline.views:
        spark.catalog.dropTempView(name)  # left by an earlier run in this session
    for name, sql in pipeline.views.items():
        with _located(pipeline, "views", name, "sql"):
            read_view(name, sql, [*pipeline.views], spark).createOrReplaceTempView(name)


def _load_source(pipeline: PipelineFile, name: str, spark: SparkSession) -> DataFrame:
    """The rows of a source of the pipeline as a DataFrame, with the fields of payloads as columns,
    and its watermark."""
    source, key_path = pipeline.sources[name], ("sources", name)
    reader = spark.read if source.static else spark.readStream
    with _located(pipeline, *key_path):
        options = source.options
        if source.format == JETSTREAM and not source.static:
            options = source_options(options, follow=pipeline.follow)
            # A view may pass the rows on into a table that is ordered by their sequences, for which
            # the source then checks that these go on.
            of_views = [
                sink for sink in pipeline.sinks.values() if pipeline.stream_of(sink) is None
            ]
            if any(sink.table and tables_ordered_by_seq(sink.table) for sink in of_views):
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


def _flow_into_table(
    pipeline: PipelineFile, name: str, source: PipelineSource, spark: SparkSession
) -> Flow:
    """Plan the query of a sink that writes a stream into a table without a view in between: its
    tasks decode the messages and write the table's files themselves."""
    sink = pipeline.sinks[name]
    assert sink.table is not None  # noqa: S101
    _check_partition_by(pipeline, name, [*source.columns, *sink.derived])
    with _located(pipeline, "sinks", name):
        return flow_into(
            spark,
            options=source_options(source.options, follow=pipeline.follow),
            table=sink.table,
            sink=_sink_options(pipeline, name),
            spec=_row_spec(sink, source),
        )


def _row_spec(sink: PipelineSink, source: PipelineSource) -> RowSpec:
    """What tasks need to make the rows of a sink's table of the messages of a source: the payloads'
    schema, derived columns, and the tables of a list."""
    tables = () if sink.table is None else sink.table.tables
    return RowSpec(
        option=named("json_schema"),
        ddl=source.json_schema,
        derived=sink.derived,
        tables=tables,
    )


def _check_partition_by(pipeline: PipelineFile, name: str, columns: Sequence[str]) -> None:
    """Raise PipelineError if `partition_by` of a sink names a column that its rows do not have.
    `columns`: those of the rows."""
    sink = pipeline.sinks[name]
    folded = {column.casefold() for column in columns}
    with _located(pipeline, "sinks", name, "partition_by"):
        for text in sink.partition_by:
            column = text if sink.table is None else PartitionBy.parse(text).column
            if column.casefold() not in folded:
                check_column("partition_by", column, columns)


def _check_sink(pipeline: PipelineFile, name: str, rows: DataFrame) -> None:
    """Check the query of a sink as Spark does when it starts a query: that there is a stream to
    follow, that the columns fit, and that the output mode and the format exist for it. `rows`: what
    it writes. Raises PipelineError."""
    sink = pipeline.sinks[name]
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
        _check_partition_by(pipeline, name, rows.columns)
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


def _sink_options(pipeline: PipelineFile, name: str) -> dict[str, str]:
    """The options of a sink in the pipeline file, and those that a run of the pipeline adds: its
    checkpoint, `adopt`, and a default for compactions."""
    sink = pipeline.sinks[name]
    options = {**sink.options, "checkpointLocation": pipeline.checkpoint_of(name)}
    if sink.table is not None:
        options["adopt"] = str(pipeline.adopt).lower()
        if pipeline.follow:
            options |= default_compaction(sink.table)
    return options


def _start(pipeline: PipelineFile, name: str, flow: Flow) -> StreamingQuery:
    """Start the streaming query of one sink of the pipeline. `flow`: what it writes, and options
    with which its tasks write it."""
    sink, checkpoint, rows = pipeline.sinks[name], pipeline.checkpoint_of(name), flow.rows
    writer = (
        rows.writeStream.format(sink.format)
        .queryName(name)
        .outputMode(sink.mode)
        .options(**_sink_options(pipeline, name), **flow.sink)
    )
    if sink.table is not None:
        check_start(replace(sink.table, adopt=pipeline.adopt), checkpoint)
    elif sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if isinstance(sink.parsed, SinkOptions):
        register_name(sink.parsed, query_of(rows.sparkSession, checkpoint))
    interval = pipeline.interval if pipeline.follow else None
    return start_writing(rows.sparkSession, writer, checkpoint, interval)


@contextmanager
def _located(pipeline: PipelineFile, section: str, *names: str) -> Iterator[None]:
    """Turn an error of the block into a PipelineError that names the line of the pipeline file.

    `section`: of the file, as `sinks`; `names`: the name of a source, view or sink in it, and the
    key that the error is about. Without a key, it is guessed from the error.
    """
    try:
        yield
    except (PySparkException, Py4JError, JetsparkError) as error:
        explained = explain(error)
        key_path = (section, *names)
        if len(names) == 1 and section != "views":  # no key is given
            sink = pipeline.sinks[names[0]] if section == "sinks" else None
            key_path += _blamed_path(sink, explained)
        subject = " ".join([section.removesuffix("s"), *names[:1]])
        sentence = f"{subject}: {explained.sentence(describe_switch=_describe_switch)}"
        raise PipelineError(pipeline.key_lines.located(key_path, sentence)) from error


def _describe_switch(option: str, on: bool) -> str:
    """How to switch an option on or off in a pipeline file; `adopt` is a flag of its command."""
    return "give --adopt" if option == "adopt" else f"set {option} to {str(on).lower()}"


def _blamed_path(sink: PipelineSink | None, error: JetsparkError) -> tuple[str, ...]:
    """Guess from an error which key of a sink it is about, or of a source if `sink` is None.

    Returns the path of the key below the sink or the source, as ("tables", "0") for the first table
    of a list; empty if the error does not show it.
    """
    tables = () if sink is None or sink.table is None else sink.table.tables
    names = [str(table.options.name) for table in tables]
    if in_error := [name for name in names if name in str(error)]:
        # The longest, since an error about lake/orders_old has the text lake/orders, too.
        return TABLES, str(names.index(max(in_error, key=len)))
    if isinstance(error, ConfigError) and error.option is not None:
        return (error.option,)
    if isinstance(error, ConnectionFailure):
        return ("servers",)
    return ("stream",) if isinstance(error, StreamNotFoundError) else ()
