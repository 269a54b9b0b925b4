"""Found by Spark: any top-level module named pyspark_* may offer one DefaultSource."""

from jetspark.spark.data_source import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
