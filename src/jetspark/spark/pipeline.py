"""Runs a pipeline file: sources and views in Spark SQL, one streaming query for each sink."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, JetsparkError, PipelineError
from jetspark.spark.checkpoints import (
    check_way,
    local_path,
    read_checkpoint,
)
from jetspark.spark.failures import explain
from jetspark.spark.json_payloads import parsing, with_json_fields
from jetspark.spark.lakehouse.options import (
    LakehouseOptions,
    lakehouse_format,
    parse_lakehouse_options,
)
from jetspark.spark.lakehouse.start import check_start
from jetspark.spark.lakehouse.target import check_fit
from jetspark.spark.option_values import with_names_of_spark
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.pipeline_file import PipelineFile, SinkTable, SourceTable, meant_by
from jetspark.spark.queries import (
    query_of,
    start_query,
    streaming_sources,
    with_quick_checkpoint,
)
from jetspark.spark.reading import created, streams_facts
from jetspark.spark.sink_options import (
    Guarantee,
    SinkOptions,
    check_new_writer,
    look_at,
    parse_sink_options,
    register_name,
)
from jetspark.spark.source import check_written, register_formats
from jetspark.subjects import subjects_overlap

# -------------------------------------------------------------------------------------------------
# Finds sinks whose rows would come back to them: they would be read and written without an end.


Created: TypeAlias = Callable[[ConnectOptions, str], str]
"""When a stream was created, to the nanosecond, which identifies it; "" where there is none."""


def check_no_loop(
    name: str,
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Sequence[SourceOptions]],
    created: Created,
) -> None:
    """Raises ConfigError if the sink `name` reads what it writes, also by way of other sinks.

    `writes` and `reads`: what each sink of the pipeline writes, and the sources of its rows.
    """
    way = _way_back(name, [name], writes, reads, created)
    if way is None:
        return
    others = "".join(
        f", from which the sink {one} writes into {writes[one].stream!r}" for one in way[1:]
    )
    fed = next(one for one in reads[name] if _feeds(writes[way[-1]], one, created))
    what, chosen = ("stream", "subjects") if fed.bucket is None else ("bucket", "keys")
    raise ConfigError(
        f"it writes into the stream {writes[name].stream!r}{others}, which is read for it again: "
        f"its rows would come back without an end. Write into another {what}, or give the source "
        f"{chosen!r} to which it does not write."
    )


def _way_back(
    first: str,
    way: list[str],
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Sequence[SourceOptions]],
    created: Created,
) -> list[str] | None:
    """The sinks on the way from the first one's rows back to it."""
    for name, sources in reads.items():
        if name in way and name != first:
            continue
        if any(_feeds(writes[way[-1]], one, created) for one in sources):
            if name == first:
                return way
            if name in writes:
                found = _way_back(first, [*way, name], writes, reads, created)
                if found is not None:
                    return found
    return None


def _feeds(sink: SinkOptions, source: SourceOptions, created: Created) -> bool:
    """Whether a source reads what a sink writes, as far as the options and servers tell."""
    pattern = source.stream_pattern
    if sink.stream not in source.streams and not (
        pattern is not None and re.fullmatch(pattern, sink.stream)
    ):
        return False
    # A column of subjects is not known before the rows are.
    if source.subjects and not (
        sink.subject is not None
        and any(subjects_overlap(sink.subject, one) for one in source.subjects)
    ):
        return False
    there, here = sink.connection, source.connection
    if set(there.urls()) & set(here.urls()) and replace(there, servers=here.servers) == here:
        return True
    # Another name of the server or another server of the cluster, another user of the account.
    when = created(there, sink.stream)
    return bool(when) and when == created(here, sink.stream)


T = TypeVar("T")

_JETSTREAM = "jetstream"


@dataclass(frozen=True)
class ServerFacts:
    """The servers' answers before Spark was started."""

    messages: int
    """In the streams that are followed, those of a stream once for each source."""
    missing: tuple[str, ...] = ()
    """What a run first changes on the servers, as sentences."""


def check_servers(pipeline: PipelineFile) -> ServerFacts:
    """Check every stream of the file, without a change. Raises the error of the first one."""
    messages = 0
    missing: list[str] = []
    for name, source in pipeline.sources.items():
        if source.format == _JETSTREAM:
            options = parse_options(source.options)
            facts = _of(pipeline, ("sources", name), partial(streams_facts, options))
            if not source.static:
                messages += sum(one.messages for one in facts.values())
    for name, sink in pipeline.sinks.items():
        if sink.format == _JETSTREAM:
            wanted = parse_sink_options(sink.options)
            found = _of(pipeline, ("sinks", name), partial(look_at, wanted))
            missing += found.missing
    return ServerFacts(messages, tuple(dict.fromkeys(missing)))


def check_writers(pipeline: PipelineFile) -> None:
    """Check that no sink would write its rows again because its checkpoint was lost.

    Checks local checkpoints only, others are checked at the first batch; changes nothing. Raises
    PipelineError.
    """
    for name, sink in pipeline.sinks.items():
        if sink.format == _JETSTREAM:
            options = parse_sink_options(_options(pipeline, name, sink))
            checkpoint = local_path(_checkpoint(pipeline, name))
            if checkpoint is not None:
                action = partial(check_new_writer, options, checkpoint)
                _of(pipeline, ("sinks", name), action)


def check_queries(pipeline: PipelineFile, spark: SparkSession) -> None:
    """Let Spark read the schemas and the SQL as far as it can without reading rows.

    Starts no query. Raises ConfigError and PipelineError, which name the part of the file.
    """
    _define(pipeline, spark)
    for name, sink in pipeline.sinks.items():
        _check_sink(pipeline, name, sink, spark)
    writes = {
        name: parse_sink_options(sink.options)
        for name, sink in pipeline.sinks.items()
        if sink.format == _JETSTREAM
    }
    reads = {
        name: [
            one
            for one in streaming_sources(spark.table(sink.rows))
            if isinstance(one, SourceOptions)
        ]
        for name, sink in pipeline.sinks.items()
    }
    taken: dict[tuple[str, ...], str] = {}
    for name, sources in reads.items():
        _of(pipeline, ("sinks", name, "from"), partial(_check_taken, name, sources, taken))
    for name in writes:
        _of(pipeline, ("sinks", name), partial(check_no_loop, name, writes, reads, created))


def _check_taken(
    name: str, sources: Iterable[SourceOptions], taken: dict[tuple[str, ...], str]
) -> None:
    """Raise ConfigError if another source, of this sink or of one before it, reads the same stream,
    from which is removed what was read. `taken`: the sinks by their streams."""
    for source in sources:
        consumer = source.interest_consumer or ""
        for one in streams_facts(source).values() if source.removes else ():
            key = (one.name, one.created, consumer)
            if (other := taken.get(key)) is not None:
                twice = (
                    "twice for this sink (a join of a source with itself reads it twice), and what "
                    "is read once is gone for the other: use one source, without such a join,"
                    if other == name
                    else f"for the sink {other}, too, with a query of its own, and what one query "
                    "has read is gone for the other: leave out one of the sinks and read the "
                    "other's table,"
                )
                instead = "a stream with retention 'limits' that has this one as a source"
                if consumer:
                    instead = f"a source with another 'interestConsumer' than {consumer!r}"
                raise ConfigError(f"the stream {one.name!r} is read {twice} or read {instead}.")
            taken[key] = name


def check_tables(pipeline: PipelineFile, *, adopt: bool = False) -> None:
    """Check the tables and the checkpoints before Spark is started; changes nothing.

    Raises PipelineError that names the part of the file.
    """
    _of(pipeline, ("checkpoint",), partial(check_way, "checkpoint", pipeline.checkpoint))
    for name, sink in pipeline.sinks.items():
        checkpoint = _checkpoint(pipeline, name)
        options = _table(pipeline, name, sink, adopt)
        if options is not None:
            _of(pipeline, ("sinks", name), partial(check_start, options, checkpoint))
        elif (here := local_path(checkpoint)) is not None:
            whole = read_checkpoint(here).check_whole
            action = partial(whole, checkpoint, "and what the query has written")
            _of(pipeline, ("sinks", name), action)


def checkpoints(pipeline: PipelineFile) -> list[str]:
    """The folders of the sinks' checkpoints."""
    return [_checkpoint(pipeline, name) for name in pipeline.sinks]


def start(
    pipeline: PipelineFile, spark: SparkSession, *, adopt: bool = False
) -> dict[str, StreamingQuery]:
    """Start the queries, by the names of their sinks; all or none.

    `adopt`: add rows to tables that these queries have not written. Raises ConfigError and
    PipelineError, which name the part of the file.
    """
    check_queries(pipeline, spark)
    queries: dict[str, StreamingQuery] = {}
    try:
        for name, sink in pipeline.sinks.items():
            action = partial(_start, pipeline, name, sink, spark, adopt)
            queries[name] = _of(pipeline, ("sinks", name), action)
    except BaseException:
        for query in queries.values():
            query.stop()
        raise
    return queries


def _define(pipeline: PipelineFile, spark: SparkSession) -> None:
    """The sources and views, under their names in SQL."""
    register_formats(spark)
    for name, source in pipeline.sources.items():
        _load(pipeline, name, source, spark).createOrReplaceTempView(name)
    for name in pipeline.views:
        spark.catalog.dropTempView(name)  # of an earlier run in this session
    for name, sql in pipeline.views.items():
        action = partial(_view, name, sql, [*pipeline.views], spark)
        _of(pipeline, ("views", name, "sql"), action).createOrReplaceTempView(name)


def _load(pipeline: PipelineFile, name: str, source: SourceTable, spark: SparkSession) -> DataFrame:
    where = ("sources", name)
    reader = spark.read if source.static else spark.readStream
    parsed: dict[str, str] = {}
    if source.json is not None and source.format == "jetstream":
        ask = partial(parsing, spark, source.options, source.json, "json")
        parsed = _of(pipeline, (*where, "json"), ask)
    options = dict(source.options) | parsed
    rows = _of(pipeline, where, reader.format(source.format).options(**options).load)
    if source.json is not None:
        action = partial(with_json_fields, rows, source.json, "json", parsed=bool(parsed))
        rows = _of(pipeline, (*where, "json"), action)
    if source.watermark is not None:
        action = partial(rows.withWatermark, *source.watermark)
        rows = _of(pipeline, (*where, "watermark"), action)
    return rows


def _view(name: str, sql: str, views: list[str], spark: SparkSession) -> DataFrame:
    """Raises ConfigError for SQL that is not a query: Spark would execute a command at once; and
    for a view that uses itself, or one below it."""
    jvm_session: Any = spark._jsparkSession
    parser = jvm_session.sessionState().sqlParser()
    plan = parser.parsePlan(sql)
    if not _is_query(parser, plan, sql):
        raise ConfigError(
            "sql is a command, which Spark would execute at once; a view is a query: SELECT, "
            "WITH, VALUES, TABLE or FROM. Nothing was executed."
        )
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        unknown = (
            str((error.getMessageParameters() or {}).get("relationName")).strip("`").casefold()
        )
        used = next((one for one in views if one.casefold() == unknown), None)
        if used is None:
            raise
        what = "itself" if used == name else f"the view {used}, which is below it"
        raise ConfigError(
            f"sql uses {what}: a view uses the sources, and the views above it in the file."
        ) from error


def _is_query(parser: Any, plan: Any, sql: str) -> bool:
    """The statement without semicolons at its end."""
    while not _parses_as_query(parser, sql):
        sql, semicolon, _ = sql.rpartition(";")
        if not semicolon:
            return False
    nodes = [plan]
    while nodes:  # FROM t INSERT INTO … begins as a query
        node = nodes.pop()
        if str(node.nodeName()).startswith("Insert"):
            return False
        children = node.children()
        nodes += [children.apply(index) for index in range(children.size())]
    return True


def _parses_as_query(parser: Any, sql: str) -> bool:
    try:
        parser.parseQuery(sql)
    except PySparkException:
        return False
    return True


def _start(
    pipeline: PipelineFile, name: str, sink: SinkTable, spark: SparkSession, adopt: bool
) -> StreamingQuery:
    rows = spark.table(sink.rows)
    writer = (
        rows.writeStream.format(sink.format)
        .queryName(name)
        .outputMode(sink.mode)
        .options(**_options(pipeline, name, sink))
        .option("checkpointLocation", _checkpoint(pipeline, name))
    )
    if lakehouse_format(sink.format) is not None:
        writer = writer.option("adoptTable", str(adopt).lower())
    elif sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if pipeline.follow:
        writer = writer.trigger(processingTime=f"{pipeline.interval} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    if sink.format == _JETSTREAM:
        query = query_of(spark, _checkpoint(pipeline, name))
        register_name(parse_sink_options(_options(pipeline, name, sink)), query)
    if (options := _table(pipeline, name, sink, adopt)) is not None:
        check_start(options, _checkpoint(pipeline, name))
    return start_query(with_quick_checkpoint(spark, _checkpoint(pipeline, name), writer.start))


def _options(pipeline: PipelineFile, name: str, sink: SinkTable) -> dict[str, str]:
    """The sink's options; the name of a pipeline's sink does not depend on its checkpoint."""
    options = dict(sink.options)
    if sink.format == _JETSTREAM:
        named = parse_sink_options(options).guarantee is Guarantee.EXACTLY_ONCE
    else:
        named = lakehouse_format(sink.format) is not None
    if named and not any(one.casefold() == "writername" for one in options):
        options["writerName"] = f"{pipeline.name}/{name}"
    return options


def _checkpoint(pipeline: PipelineFile, name: str) -> str:
    return f"{pipeline.checkpoint.rstrip('/')}/{name}"


def _table(
    pipeline: PipelineFile, name: str, sink: SinkTable, adopt: bool
) -> LakehouseOptions | None:
    """The options of the table that a sink writes, if it does."""
    format_ = lakehouse_format(sink.format)
    if format_ is None:
        return None
    options = _options(pipeline, name, sink) | {"adoptTable": str(adopt)}
    return parse_lakehouse_options(format_, options)


def _streaming(sink: SinkTable, spark: SparkSession) -> DataFrame:
    rows = spark.table(sink.rows)
    if not rows.isStreaming:
        raise ConfigError(
            f"{sink.rows!r} holds only static sources, so there is nothing to follow: use "
            "spark.read and df.write, or leave static out."
        )
    return rows


def _check_sink(pipeline: PipelineFile, name: str, sink: SinkTable, spark: SparkSession) -> None:
    """Raise the errors that Spark would raise at the query's start."""
    where = ("sinks", name)
    rows = _of(pipeline, (*where, "from"), partial(_streaming, sink, spark))
    _of(pipeline, (*where, "partition_by"), partial(_check_partitions, sink, rows))
    if sink.format == _JETSTREAM:
        options = parse_sink_options(sink.options)
        _of(pipeline, where, partial(check_written, options, rows.schema))
    if (format_ := lakehouse_format(sink.format)) is not None:
        wanted = parse_lakehouse_options(format_, sink.options)
        _of(pipeline, where, partial(check_fit, wanted, rows.schema))
    _of(pipeline, (*where, "mode"), partial(_check_mode, sink, rows, spark))
    if sink.format != _JETSTREAM:
        _of(pipeline, (*where, "format"), partial(_check_format, sink, spark))


def _check_partitions(sink: SinkTable, rows: DataFrame) -> None:
    folded = {column.casefold() for column in rows.columns}
    for column in sink.partition_by:
        if column.casefold() not in folded:
            raise ConfigError(
                f"partition_by: there is no column {column!r}; there are {', '.join(rows.columns)}."
            )


def _check_mode(sink: SinkTable, rows: DataFrame, spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    plan = rows._jdf.queryExecution().analyzed()
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan, mode)


def _check_format(sink: SinkTable, spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(sink.format, spark._jsparkSession.sessionState().conf())
    except (PySparkException, Py4JError) as error:
        raise ConfigError(str(explain(error))) from error


def _of(pipeline: PipelineFile, where: tuple[str, ...], action: Callable[[], T]) -> T:
    """The result of the action; its error names the part of the file, and the line.

    `where`: a part and a name, and the key if it is known; else it is found from the error.
    """
    try:
        return action()
    except (PySparkException, Py4JError, JetsparkError) as error:
        explained = explain(error)
        if isinstance(explained, ConfigError):
            explained = with_names_of_spark(explained)
        part, *names = where
        key = None
        if len(names) == 1:
            key = meant_by(str(explained), _options_of(pipeline, part, names[0]))
        whose = " ".join([part.removesuffix("s"), *names[:1]])
        place = where if key is None else (*where, key)
        raise PipelineError(pipeline.places.located(place, f"{whose}: {explained}")) from error


def _options_of(pipeline: PipelineFile, part: str, name: str) -> Mapping[str, str]:
    if part == "sources":
        return pipeline.sources[name].options
    return pipeline.sinks[name].options if part == "sinks" else {}
