"""Delta and Iceberg tables in PySpark without a JAR."""
