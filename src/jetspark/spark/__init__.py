"""The PySpark data source, format("jetstream")."""
