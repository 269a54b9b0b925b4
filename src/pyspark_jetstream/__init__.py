"""Found by Spark: any top-level module named pyspark_* may offer one DefaultSource."""
