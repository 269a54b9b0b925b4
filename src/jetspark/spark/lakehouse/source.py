"""The data sources "jetspark-delta" and "jetspark-iceberg"."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import Format
from jetspark.spark.lakehouse.options import (
    PREFIX,
    LakehouseOptions,
    parse_lakehouse_options,
)
from jetspark.spark.lakehouse.reader import LakehouseReader, read_schema
from jetspark.spark.lakehouse.target import prepare, prepare_for_query
from jetspark.spark.lakehouse.writer import LakehouseBatchWriter, LakehouseStreamWriter
from jetspark.spark.short_errors import without_traceback


class _LakehouseDataSource(DataSource):
    format_: ClassVar[Format]

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return PREFIX + cls.format_

    @cached_property
    def _parsed(self) -> LakehouseOptions:
        return parse_lakehouse_options(self.format_, self.options)

    @without_traceback
    def schema(self) -> StructType:
        """The table's columns. Raises ConfigError."""
        return read_schema(self._parsed.for_reading())

    @without_traceback
    def reader(self, schema: StructType) -> LakehouseReader:
        """The batch reader; columns that the user's schema leaves out are not read.

        Raises ConfigError.
        """
        return LakehouseReader(self._parsed.for_reading(), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LakehouseBatchWriter:
        """The batch writer. Raises ConfigError, before a row is written."""
        options = self._parsed.for_batch()
        if overwrite and options.upsert is not None:
            raise ConfigError(
                "Option 'keys' merges rows into those that are there: write with mode('append')."
            )
        return LakehouseBatchWriter(options, prepare(options, schema), replace=overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> LakehouseStreamWriter:
        """The streaming writer. Raises ConfigError and TableError, before a row is written."""
        options = self._parsed.for_streaming()
        if overwrite:
            raise ConfigError(
                "outputMode 'complete' would replace the table with every batch; use 'append', or "
                "foreachBatch and in it mode('overwrite') or the option 'keys'."
            )
        return LakehouseStreamWriter(options, prepare_for_query(options, schema), replace=False)


class DeltaDataSource(_LakehouseDataSource):
    """format("jetspark-delta"): Delta tables, without a JAR."""

    format_ = Format.DELTA


class IcebergDataSource(_LakehouseDataSource):
    """format("jetspark-iceberg"): Iceberg tables, without a JAR."""

    format_ = Format.ICEBERG
