"""Tables in open formats, Delta and Iceberg: files are committed with the number of their batch."""
