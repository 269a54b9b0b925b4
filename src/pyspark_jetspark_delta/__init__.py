"""Found by Spark: any top-level module named pyspark_* may offer one DefaultSource."""

from jetspark.spark.table_sink.data_sources import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]
