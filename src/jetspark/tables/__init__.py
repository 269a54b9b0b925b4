"""Delta and Iceberg tables without Spark: files are committed with the number of their batch."""
