"""The data sources of this package."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jetspark.spark.lakehouse.source import DeltaDataSource, IcebergDataSource
from jetspark.spark.source import JetStreamDataSource


def register_formats(spark: SparkSession) -> None:
    """Also for a Spark whose executors find the package but whose driver does not search for it."""
    for one in (JetStreamDataSource, DeltaDataSource, IcebergDataSource):
        spark.dataSource.register(one)
