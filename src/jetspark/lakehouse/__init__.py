"""Tables in open formats, Delta and Iceberg: new files are committed with the number of their batch."""
