"""A job that does nothing, beside the preparation of one that does something.

Planning hardly uses a second processor. Meanwhile the JVM loads what jobs need, and starts the
Python workers that later tasks take. They import this module, so it imports little.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def warm_up(session: SparkSession) -> None:
    """Begin; does not wait for its end."""
    threading.Thread(target=_do_nothing, args=(session,), name="warm-up", daemon=True).start()


def _do_nothing(session: SparkSession) -> None:
    with suppress(Exception):  # the session has ended already
        rows = session.range(0, 2, 1, 2).selectExpr("from_json(concat('{}', id), 'id INT') AS one")
        rows = rows.mapInArrow(_the_same, rows.schema)
        rows.write.format("noop").mode("overwrite").save()


def _the_same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
