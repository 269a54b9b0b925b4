"""Found by Spark: any top-level module named pyspark_* may offer one DefaultSource."""

from jetspark.spark.lakehouse.source import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]
