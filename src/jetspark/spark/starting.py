"""Starts a streaming query, with retries for a busy machine.

For the offsets of each streaming query Spark starts a Python process, and allows it ten seconds to
import Spark and Arrow and to connect; no setting changes that (`PythonWorkerFactory`'s simple
workers; spark.python.authenticate.socketTimeout is for other sockets). A timeout occurs before
anything is read or written, so the query can be started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.spark.failures import NO_WORKER

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
