"""The data source that Spark finds under the name "jetstream"."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.spark.batch import JetStreamBatchReader
from jetspark.spark.bucket_rows import check_bucket_columns
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.rows import check_columns
from jetspark.spark.schema import check_schema, schema_of
from jetspark.spark.sink_options import Guarantee, SinkOptions, parse_sink_options
from jetspark.spark.sink_target import SinkTarget, prepare
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.spark.telling import told_shortly
from jetspark.spark.writer import JetStreamBatchWriter, JetStreamStreamWriter


class JetStreamDataSource(DataSource):
    """format("jetstream"): reads and writes streams and buckets, in batch and in streaming.

    Found by itself once jetspark is installed; `spark.dataSource.register(JetStreamDataSource)`
    does it by hand, for example under Spark Connect.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "jetstream"

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)

    @told_shortly
    def schema(self) -> StructType:
        """What the option columns says. Spark asks at load, so options are checked already then."""
        return schema_of(self._parsed.columns)

    @told_shortly
    def reader(self, schema: StructType) -> JetStreamBatchReader:
        """The batch reader."""
        check_schema(schema, self._parsed.columns)
        return JetStreamBatchReader(self._parsed)

    @told_shortly
    def streamReader(self, schema: StructType) -> JetStreamStreamReader:
        """The streaming reader."""
        check_schema(schema, self._parsed.columns)
        return JetStreamStreamReader(self._parsed)

    @told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> JetStreamBatchWriter:
        """The batch writer. Raises ConfigError before a row is written."""
        options = parse_sink_options(self.options).for_batch()
        return JetStreamBatchWriter(options, _checked(options, schema, overwrite))

    @told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """The streaming writer. Raises ConfigError before a row is written."""
        options = parse_sink_options(self.options).for_streaming()
        return JetStreamStreamWriter(options, _checked(options, schema, overwrite))


def _checked(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkTarget:
    if overwrite:
        raise ConfigError(
            "A stream can only be appended to: use mode('append') or outputMode 'append' or "
            "'update'. (Purge the stream yourself if it shall be replaced.)"
        )
    check_written(options, schema)
    return prepare(options)


def check_written(options: SinkOptions, schema: StructType) -> None:
    """Raises ConfigError for rows that are no messages, or no entries of a bucket."""
    if options.bucket is not None:
        check_bucket_columns(schema)
    else:
        check_columns(
            schema,
            subject=options.subject,
            msg_id=options.guarantee is Guarantee.EFFECTIVELY_ONCE,
        )
