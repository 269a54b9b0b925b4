"""Streaming queries in the JVM: their start, their ids and their sources."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from jetspark.errors import ConfigError
from jetspark.options.names import spark_name
from jetspark.options.scopes import ENDINGS
from jetspark.spark.checkpoints import parse_query_id, remove_incomplete_start
from jetspark.spark.failures import NO_WORKER, explain
from jetspark.spark.local_folders import local_path
from jetspark.spark.queries.rows_in_progress import iterate_scala
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.versions import CHECKPOINTS, HAS_LIMITS, end_when_idle

logger = logging.getLogger("jetspark.spark")

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
_POLL_INTERVAL = 0.1
_MAX_STARTS = 4

# -- starting ----------------------------------------------------------------------------------


def source_options(options: Mapping[str, str], *, follow: bool) -> dict[str, str]:
    """The user's options of a source, adapted for a query that `start_writing` starts.

    `follow`: whether the query goes on until it is stopped; then options for its end raise
    ConfigError. Otherwise Spark before 4.2 needs the option `availableNow`.
    """
    names = set(map(str.casefold, options))
    for ending in ENDINGS if follow else ():
        if spark_name(ending).casefold() in names:
            raise ConfigError(
                "is for a run that ends: leave it out, or do not follow the stream.", option=ending
            )
    return dict(options) if follow or HAS_LIMITS else {**options, "availableNow": "true"}


def start_writing(
    spark: SparkSession, writer: DataStreamWriter, checkpoint: str, interval: float | None
) -> StreamingQuery:
    """Start a streaming query that reads every `interval` seconds, or with None ends when it has
    read what is there now.

    `checkpoint`: the query's, which `writer` also has as an option. Raises Spark's errors.
    """
    if interval is not None:
        writer = writer.trigger(processingTime=f"{interval} seconds")
    elif HAS_LIMITS:
        writer = writer.trigger(availableNow=True)
    else:
        # Each batch begins when the one before has ended; `end_when_idle` stops the query.
        writer = writer.trigger(processingTime="0 seconds")
    query = start_query(with_quick_checkpoint(spark, checkpoint, writer.start))
    if interval is None and not HAS_LIMITS:
        end_when_idle(query)
    return query


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a streaming query, and start it again when Spark's Python was too slow.

    `start`: begins the query, such as the `start` of a `DataStreamWriter`. Returns the query when
    its sources have started, or it has failed for another reason.

    Spark allows the Python process for a query's offsets ten seconds to import Spark and Arrow, and
    no setting changes that. On a busy machine that is too short. Nothing was read or written then,
    so the query is started again, three times at most. Raises PipelineError after that.
    """
    starts = 0
    while True:
        query = start()
        starts += 1
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_POLL_INTERVAL)
        failure = query.exception()
        if failure is None or NO_WORKER not in str(failure):
            return query
        with suppress(StreamingQueryException):
            query.awaitTermination()  # Spark forgets it a moment after it has failed
        if starts == _MAX_STARTS:
            raise explain(failure)
        logger.warning(
            "The query is started again: its Python did not start in Spark's ten seconds."
        )


def with_quick_checkpoint(
    spark: SparkSession, checkpoint: str, start: Callable[[], StreamingQuery]
) -> Callable[[], StreamingQuery]:
    """Return a function that starts the same query as `start`, but writes its checkpoint faster.

    It is `start` itself where that is not possible. Also removes at once what a start that was
    killed has left in the checkpoint, if it is on this machine.

    On a local disk Hadoop's FileSystem does the same as its FileContext, Spark's default, which
    starts twenty processes for each micro-batch. Elsewhere FileContext may be the only one that
    renames without replacing what another driver has written, so it stays; as does a setting of
    the session's own.
    """
    if (folder := local_path(checkpoint)) is None:
        return start
    remove_incomplete_start(folder)
    if spark.conf.get(SETTING, None) is not None:
        return start
    try:
        # Spark has moved the class before, and through Spark Connect there is no JVM to ask.
        spark._jvm.java.lang.Class.forName(BY_FILE_SYSTEM)  # type: ignore[union-attr]
    except (AttributeError, Py4JError):
        return start

    def start_quickly() -> StreamingQuery:
        """Start the query while the session has the setting for the faster checkpoint."""
        spark.conf.set(SETTING, BY_FILE_SYSTEM)
        try:
            return start()  # the query has its own copy of the session's settings
        finally:
            spark.conf.unset(SETTING)

    return start_quickly


# -- queries and their sources in the JVM -------------------------------------------------------


def query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """Read the id of a checkpoint's query, from any file system that Spark reaches.

    None for a new checkpoint.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/metadata")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return parse_query_id(bytes(stream.readAllBytes()))
    finally:
        stream.close()


def streaming_sources(rows: DataFrame) -> Iterator[SourceOptions]:
    """The options of each jetstream source in Spark's plan, in Spark's order.

    A source that is used twice is one (UNION), but two in a join with itself: equal leaves are read
    once.
    """
    return sources_in(rows._jdf.queryExecution().analyzed())


def sources_in(plan: Any) -> Iterator[SourceOptions]:
    """Yield the options of each jetstream source in a query's plan, an object of the JVM.

    In `ingest` the source is called `jetspark-direct`, and has options `into.…` of its target,
    which are left out.
    """
    for leaf in iterate_scala(plan.collectLeaves().distinct()):
        with suppress(Py4JError):  # a leaf of another kind has no such name
            if leaf.isStreaming() and leaf.sourceName() in ("jetstream", "jetspark-direct"):
                options = dict(leaf.extraOptions().asCaseSensitiveMap())
                yield parse_options(
                    {name: value for name, value in options.items() if not name.startswith("into.")}
                )
