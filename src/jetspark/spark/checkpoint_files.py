"""How Spark writes a query's checkpoint on this machine: without starting processes.

By default Spark uses Hadoop's FileContext, which without Hadoop's native library runs `readlink`
and `chmod` for each file: twenty processes and 80 ms for each micro-batch. Its other way is
Hadoop's FileSystem. On a local disk both do the same: a temporary file, a look whether there is a
file of the name, a rename, and a checksum in a second file. Elsewhere FileContext may be the only
one that renames without replacing what another driver has written, so it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.spark.table_files import local_path

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def with_quick_checkpoint(
    spark: SparkSession, checkpoint: str, start: Callable[[], StreamingQuery]
) -> Callable[[], StreamingQuery]:
    """`start`, or what starts the same query with a checkpoint that is written faster.

    `start` itself for a checkpoint that is not on a local disk, and in a session that has the
    setting already.
    """
    if (
        local_path(checkpoint) is None
        or spark.conf.get(SETTING, None) is not None
        or not _has_class(spark._jvm)
    ):
        return start

    def quicker() -> StreamingQuery:
        spark.conf.set(SETTING, BY_FILE_SYSTEM)
        try:
            return start()  # the query has its own copy of the session's settings
        finally:
            spark.conf.unset(SETTING)

    return quicker


def _has_class(jvm: Any) -> bool:
    """Spark has moved it before."""
    try:
        jvm.java.lang.Class.forName(BY_FILE_SYSTEM)
    except Py4JError:
        return False
    return True
