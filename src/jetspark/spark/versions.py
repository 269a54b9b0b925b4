"""Data source APIs that PySpark 4.0 and 4.1 lack. Nothing else asks for Spark's version.

Before 4.2 Spark tells a source neither where the query is nor how much a batch may have, and its
`Trigger.AvailableNow` is one batch for a source in Python. `StreamReader` gives such a Spark the
same batches: it remembers the query's position. In place of the trigger a query has the option
`availableNow`, and is stopped when nothing is left (`end_when_idle`).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, DataType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming import datasource as limits

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming import datasource as limits

        HAS_LIMITS = True
    except ImportError:  # before 4.2
        HAS_LIMITS = False

        class _Unknown:
            """Stands for a class that this Spark does not look for."""

            def __init__(self, *_: object) -> None: ...

        _names = ("ReadLimit", "ReadAllAvailable", "ReadMaxBytes", "ReadMaxRows", "ReadMinRows")
        limits = SimpleNamespace(
            **{name: type(name, (_Unknown,), {}) for name in _names},
            SupportsTriggerAvailableNow=_Unknown,
        )

    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # before 4.1, where Spark looks only whether a writer takes Arrow

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            pass


CHECKPOINTS = "org.apache.spark.sql.execution.streaming"
if DataSourceStreamArrowWriter.__module__ != __name__:  # from 4.1 on
    CHECKPOINTS += ".checkpointing"
__all__ = [
    "CHECKPOINTS",
    "HAS_LIMITS",
    "DataSourceStreamArrowWriter",
    "end_when_idle",
    "in_arrow",
    "limits",
    "register",
    "stream_reader",
]


class StreamReader(DataSourceStreamReader):
    """Lets Sparks before 4.2 use a stream reader that is written for Spark 4.2.

    Spark 4.2 passes the query's position to `latestOffset`; earlier ones do not, so it is
    remembered here. A resumed query asks for the partitions of its last batch (or of an empty one
    after it) before it asks for an offset; from that its position is known. A new query begins at
    the initial offset.
    """

    def __init__(self, reader: Any) -> None:
        """Adapt a stream reader that is written for Spark 4.2 to earlier Sparks."""
        self._reader = reader
        self._position: dict[str, Any] | None = None
        """The offset up to which Spark has planned; None for a new query before its first batch."""

    def initialOffset(self) -> Any:
        return self._reader.initialOffset()

    def latestOffset(self) -> Any:  # type: ignore[override]
        """The end of the next batch, from the remembered position on."""
        start = self.initialOffset() if self._position is None else self._position
        self._position = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return self._position

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self._position = end
        return self._reader.partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def read(self, partition: InputPartition) -> Any:
        return self._reader.read(partition)

    def stop(self) -> None:
        """Nothing to do: the reader keeps nothing open."""


def stream_reader(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """The reader itself if this Spark is 4.2 or newer, else an adapter for older Sparks."""
    return reader if HAS_LIMITS else StreamReader(reader)


def end_when_idle(query: StreamingQuery) -> None:
    """Stop a query, in the background, once it has read all that its sources have.

    It replaces `Trigger.AvailableNow`, which Spark before 4.2 lacks for sources in Python. The
    sources have the option `availableNow`, so they end.
    """

    def wait() -> None:
        """Wait until the query has read everything, then stop it."""
        # An error of the query is raised to whoever waits for it, not here.
        with suppress(PySparkException, StreamingQueryException):
            query.processAllAvailable()
            query.stop()

    threading.Thread(target=wait, name="jetspark-available-now", daemon=True).start()


def in_arrow(schema: StructType) -> pa.Schema:
    """Convert a schema of Spark to one of Arrow, with timestamps in UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.2 it is always UTC
        return to_arrow_schema(schema)


_PAIR = StructType().add("key", StringType(), False).add("value", StringType(), False)
_HEADERS = ArrayType(_PAIR, containsNull=False)
"""The type of headers, of which PySpark before 4.2 would say that elements may be null."""


def of_arrow(schema: pa.Schema) -> StructType:
    """Convert a schema of Arrow to one of Spark, with columns and nullability the same."""
    columns = StructType()
    for field in schema:
        # PySpark before 4.2 would say that elements of `headers` may be null.
        type_: DataType = _HEADERS
        if field.name != "headers":
            type_ = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        columns.add(field.name, type_, field.nullable)
    return columns


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a format with Spark, which may already have found it by itself.

    Spark 4.0 raises an error for a format that it knows; that error is ignored.
    """
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
