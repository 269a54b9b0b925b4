"""Iceberg tables, through the library pyiceberg. Source: the Iceberg table specification."""
