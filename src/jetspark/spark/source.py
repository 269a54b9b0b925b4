"""The data source "jetstream"."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from jetspark.bulk.leaders import expect
from jetspark.errors import ConfigError
from jetspark.spark.backup import JetStreamBackupReader
from jetspark.spark.batch import JetStreamBatchReader
from jetspark.spark.bucket_rows import check_bucket_columns
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.rows import check_columns
from jetspark.spark.schema import check_schema, schema_of
from jetspark.spark.short_errors import without_traceback
from jetspark.spark.sink_options import Guarantee, SinkOptions, parse_sink_options
from jetspark.spark.sink_target import SinkTarget, prepare
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.spark.writer import JetStreamBatchWriter, JetStreamStreamWriter


class JetStreamDataSource(DataSource):
    """format("jetstream"): reads and writes streams and buckets, in batch and in streaming.

    Spark finds it once jetspark is installed. Where it does not, as under Spark Connect, register
    it: `spark.dataSource.register(JetStreamDataSource)`.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "jetstream"

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The columns of the options `columns` and `jsonSchema`. Spark asks on load, so options are
        checked then.

        Raises ConfigError.
        """
        return schema_of(self._parsed.columns, self._parsed.json_fields)

    @without_traceback
    def reader(self, schema: StructType) -> JetStreamBatchReader | JetStreamBackupReader:
        """The batch reader. Raises ConfigError."""
        check_schema(schema, self.schema())
        if self._parsed.backup is not None:
            return JetStreamBackupReader(self._parsed)
        return JetStreamBatchReader(self._parsed)

    @without_traceback
    def streamReader(self, schema: StructType) -> JetStreamStreamReader | Refusal:
        """The streaming reader. Raises ConfigError when it is first asked."""
        try:
            check_schema(schema, self.schema())
            return JetStreamStreamReader(self._parsed)
        except ConfigError as error:
            return Refusal(error)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> JetStreamBatchWriter:
        """The batch writer. Raises ConfigError and as `prepare`, before a row is written."""
        options = parse_sink_options(self.options).for_batch()
        return JetStreamBatchWriter(options, _checked(options, schema, overwrite))

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """The streaming writer. Raises ConfigError and as `prepare`, before a row is written."""
        options = parse_sink_options(self.options).for_streaming()
        expect(options.connection)  # Spark asks anew, in another process, for each batch and commit
        return JetStreamStreamWriter(options, _checked(options, schema, overwrite))


class Refusal(DataSourceStreamReader):
    """In place of a reader. An error while the reader is made would end as an UnboundLocalError, in
    PySpark's attempt to stop it."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:
        """Raises the error."""
        raise self._error

    @without_traceback
    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Raises the error."""
        raise self._error

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises the error."""
        raise self._error


def _checked(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkTarget:
    if overwrite:
        raise ConfigError(
            "A stream can only be appended to: use mode('append') or outputMode('append'). Write "
            "rows that change later, such as totals, with foreachBatch and in it mode('append'). "
            "To replace the stream's content, purge it yourself."
        )
    check_written(options, schema)
    return prepare(options)


def check_written(options: SinkOptions, schema: StructType) -> None:
    """Raises ConfigError for columns that are not those of messages, or of a bucket's entries."""
    if options.bucket is not None:
        check_bucket_columns(schema)
    else:
        check_columns(
            schema,
            subject=options.subject,
            msg_id=options.guarantee is Guarantee.EFFECTIVELY_ONCE,
        )
