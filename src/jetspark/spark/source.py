"""The data source that Spark finds under the name "jetstream"."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from jetspark.spark.batch import JetStreamBatchReader
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.schema import check_schema, schema_of
from jetspark.spark.stream import JetStreamStreamReader


class JetStreamDataSource(DataSource):
    """format("jetstream"): reads JetStream streams, in batch and in Structured Streaming.

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

    def schema(self) -> StructType:
        """What the option columns says. Spark asks at load, so options are checked already then."""
        return schema_of(self._parsed.columns)

    def reader(self, schema: StructType) -> JetStreamBatchReader:
        """The batch reader."""
        check_schema(schema, self._parsed.columns)
        return JetStreamBatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:
        """The streaming reader."""
        check_schema(schema, self._parsed.columns)
        return JetStreamStreamReader(self._parsed)
