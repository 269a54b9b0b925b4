"""Delta and Iceberg tables in PySpark without a JAR: any DataFrame in, rows out."""
