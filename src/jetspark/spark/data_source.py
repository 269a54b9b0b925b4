"""The data source "jetstream": its schema, its batch reader, and the factory of the others."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.links.link_pool import pool
from jetspark.ranges import arrow
from jetspark.spark.failures import without_traceback
from jetspark.spark.source.backup_reader import JetStreamBackupReader
from jetspark.spark.source.batch_reader import JetStreamBatchReader
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader
from jetspark.spark.source.table_and_tail_reader import TableAndTailReader, open_source_table
from jetspark.spark.stream_sink.options import SinkOptions, parse_sink_options
from jetspark.spark.stream_sink.target import SinkTarget, prepare
from jetspark.spark.stream_sink.writers import JetStreamBatchWriter, JetStreamStreamWriter
from jetspark.spark.stream_sink.written_columns import check_written_columns
from jetspark.spark.versions import in_arrow, of_arrow, stream_reader
from jetspark.tails.table_and_tail import table_columns

SCHEMA = of_arrow(arrow.SCHEMA)
"""The rows of a stream."""
BUCKET_SCHEMA = of_arrow(arrow.BUCKET_SCHEMA)
"""The rows of a Key-Value bucket."""


def source_schema(options: SourceOptions) -> StructType:
    """The columns of the rows that a source yields: those that its options select, in their order,
    then the decoded fields of payloads."""
    if options.table is not None:
        table = table_columns(open_source_table(options), options.columns)
        return from_arrow_schema(table, prefer_timestamp_ntz=True)  # the default since Spark 4.2
    columns = arrow.schema_of(options.columns)
    decoder = options.decoder
    return of_arrow(columns if decoder is None else decoder.decoded_schema(columns))


def check_schema(schema: StructType, expected: StructType) -> None:
    """Raise ConfigError if the user or a catalog gave a schema that the source does not yield."""

    def names_and_types(columns: StructType) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.typeName()) for field in columns]

    # Nullability is not compared, since a catalog table may have made columns nullable.
    if names_and_types(schema) != names_and_types(expected):
        raise ConfigError(
            f"format jetstream has a fixed schema ({', '.join(expected.names)}): leave .schema(…) "
            "out and use the options columns, or decode and schema for fields of payloads."
        )


class JetStreamDataSource(DataSource):
    """format("jetstream"): reads and writes streams and buckets, in batch and in streaming.

    Spark finds it once jetspark is installed. Where it does not, as under Spark Connect, register
    it: `spark.dataSource.register(JetStreamDataSource)`. Its methods raise ConfigError; those for
    writing also as `prepare`, before a row is written.
    """

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    @cached_property
    def _parsed(self) -> SourceOptions:
        """The user's options for reading, parsed and checked."""
        return parse_options(self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The columns of the rows. Spark asks for them on load, so bad options fail there."""
        return source_schema(self._parsed)

    @without_traceback
    def reader(
        self, schema: StructType
    ) -> JetStreamBatchReader | JetStreamBackupReader | TableAndTailReader:
        """The reader of `spark.read`: of a backup or a table if the options name one, else of the
        server."""
        check_schema(schema, self.schema())
        if self._parsed.backup is not None:
            return JetStreamBackupReader(self._parsed)
        if self._parsed.table is not None:
            return TableAndTailReader(self._parsed, in_arrow(schema))
        return JetStreamBatchReader(self._parsed)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of `spark.readStream`; for bad options one that raises their ConfigError."""
        try:
            check_schema(schema, self.schema())
            return stream_reader(JetStreamStreamReader(self._parsed))
        except ConfigError as error:
            return FailingStreamReader(error)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> JetStreamBatchWriter:
        """The writer of `df.write`, after the target stream was checked and prepared."""
        options = parse_sink_options(self.options).for_batch()
        return JetStreamBatchWriter(options, _prepare_target(options, schema, overwrite))

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """The writer of `df.writeStream`, after the target stream was checked and prepared."""
        options = parse_sink_options(self.options).for_streaming()
        # Spark asks for a writer again, in another process, for each batch and commit. A server
        # that such a process cannot reach is restarting: its address was right before.
        pool.reachable.add(options.connection)
        return JetStreamStreamWriter(options, _prepare_target(options, schema, overwrite))


class FailingStreamReader(DataSourceStreamReader):
    """Raises, when Spark calls it, the error that kept the real reader from being created.

    If creating the reader raised the error itself, PySpark would try to stop a reader that it does
    not have, and the user would see an UnboundLocalError.
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    @without_traceback
    def _refuse(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = read = _refuse  # type: ignore[assignment]


def _prepare_target(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkTarget:
    """Check that rows with these columns can be written, and prepare the target stream.

    Raises ConfigError, also for `overwrite`, and the errors of `prepare`.
    """
    if overwrite:
        raise ConfigError(
            "A stream can only be appended to: use mode('append') or outputMode('append'). Write "
            "rows that change later, such as totals, with foreachBatch and in it mode('append'). "
            "To replace the stream's content, purge it yourself."
        )
    check_written_columns(options, schema)
    return prepare(options)
