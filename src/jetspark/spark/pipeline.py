"""Running a pipeline file: sources and views in Spark SQL, one streaming query for each sink."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError, JetsparkError, PipelineError
from jetspark.spark.failures import explain
from jetspark.spark.json_payloads import with_json_fields
from jetspark.spark.options import parse_options
from jetspark.spark.pipeline_file import PipelineFile, SinkTable, SourceTable
from jetspark.spark.reading import streams_facts
from jetspark.spark.sink_options import parse_sink_options
from jetspark.spark.sink_target import look_at
from jetspark.spark.source import JetStreamDataSource

T = TypeVar("T")

_JETSTREAM = "jetstream"


def check_servers(pipeline: PipelineFile) -> None:
    """Ask every stream that is named, before Spark is started. Raises what is wrong with it."""
    for source in pipeline.sources.values():
        if source.format == _JETSTREAM:
            streams_facts(parse_options(source.options))
    for sink in pipeline.sinks.values():
        if sink.format == _JETSTREAM:
            look_at(parse_sink_options(sink.options))


def start(pipeline: PipelineFile, spark: SparkSession) -> dict[str, StreamingQuery]:
    """Start the queries, by the names of their sinks; all or none.

    Raises ConfigError and PipelineError, which say whose mistake it is.
    """
    spark.dataSource.register(JetStreamDataSource)
    for name, source in pipeline.sources.items():
        _of(f"source {name}", partial(_load, source, spark)).createOrReplaceTempView(name)
    for name, sql in pipeline.views.items():
        _of(f"view {name}", partial(spark.sql, sql)).createOrReplaceTempView(name)
    queries: dict[str, StreamingQuery] = {}
    try:
        for name, sink in pipeline.sinks.items():
            queries[name] = _of(f"sink {name}", partial(_start, pipeline, name, sink, spark))
    except BaseException:
        for query in queries.values():
            query.stop()
        raise
    return queries


def _load(source: SourceTable, spark: SparkSession) -> DataFrame:
    reader = spark.read if source.static else spark.readStream
    rows = reader.format(source.format).options(**dict(source.options)).load()
    if source.json is not None:
        rows = with_json_fields(rows, source.json, "json")
    return rows if source.watermark is None else rows.withWatermark(*source.watermark)


def _start(
    pipeline: PipelineFile, name: str, sink: SinkTable, spark: SparkSession
) -> StreamingQuery:
    rows = spark.table(sink.rows)
    if not rows.isStreaming:
        raise ConfigError(
            f"{sink.rows!r} holds only static sources, so there is nothing to follow: use "
            "spark.read and df.write, or leave static out."
        )
    writer = (
        rows.writeStream.format(sink.format)
        .queryName(name)
        .outputMode(sink.mode)
        .options(**dict(sink.options))
        .option("checkpointLocation", f"{pipeline.checkpoint.rstrip('/')}/{name}")
    )
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if pipeline.follow:
        writer = writer.trigger(processingTime=f"{pipeline.interval} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def _of(whose: str, action: Callable[[], T]) -> T:
    """What the action gives; its error says whose it is."""
    try:
        return action()
    except (PySparkException, Py4JError, JetsparkError) as error:
        raise PipelineError(f"{whose}: {explain(error)}") from error
