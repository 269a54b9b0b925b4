"""Starts a streaming query, with retries for a busy machine.

For the offsets of each streaming query Spark starts a Python process, and allows it ten seconds to
import Spark and Arrow and to connect; no setting changes that (`PythonWorkerFactory`'s simple
workers; spark.python.authenticate.socketTimeout is for other sockets). A timeout occurs before
anything is read or written, so the query can be started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.spark.failures import NO_WORKER
from jetspark.spark.options import SourceOptions, parse_options

# -------------------------------------------------------------------------------------------------
# The streaming sources of a DataFrame, from Spark's plan.


def streaming_sources(rows: DataFrame) -> Iterator[SourceOptions | str]:
    """Each source in Spark's order: our options, or the name of a source of another format.

    A source that is used twice is one (UNION), but two in a join with itself: equal leaves are read
    once.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves().distinct()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.isStreaming():
            continue
        try:
            name = str(leaf.sourceName())
        except Py4JError:
            name = str(leaf.getClass().getSimpleName())
        if name == "jetstream":
            yield parse_options(dict(leaf.extraOptions().asCaseSensitiveMap()))
        else:
            yield name


logger = logging.getLogger("jetspark.spark")

_TRIES = 4
_LOOK_SECONDS = 0.1


def begun(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query of `start`, when its sources have started, or it has failed for another reason."""
    for _ in range(_TRIES - 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_LOOK_SECONDS)
        failure = query.exception()
        if failure is None or NO_WORKER not in str(failure):
            return query
        with suppress(StreamingQueryException):
            query.awaitTermination()  # Spark forgets it a moment after it has failed
        logger.warning(
            "The query is started again: its Python did not start in Spark's ten seconds."
        )
    return start()
