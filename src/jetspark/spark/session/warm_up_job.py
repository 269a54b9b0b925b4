"""A Spark job that does nothing, run during the preparation of a real one.

Planning hardly uses a second processor. Meanwhile this job makes the JVM load its classes, and
start the Python workers of later tasks. They import this module, so it imports little.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def warm_up(session: SparkSession) -> None:
    """Start a job that does nothing but make the JVM load classes and start Python workers.

    It runs in a thread, while the caller prepares the real job.
    """
    threading.Thread(target=_run_empty_job, args=(session,), name="warm-up", daemon=True).start()


def _run_empty_job(session: SparkSession) -> None:
    """Run the smallest job that warms Spark up: parse JSON, pass two rows through Python workers,
    and write them nowhere."""
    with suppress(Exception):  # the session has already ended
        rows = session.range(0, 2, 1, 2).selectExpr("from_json(concat('{}', id), 'id INT') AS one")
        rows = rows.mapInArrow(_pass_on, rows.schema)
        rows.write.format("noop").mode("overwrite").save()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
