"""`df.write` and `df.writeStream` into Delta and Iceberg tables, without a JAR."""
