"""The columns of a DataFrame as Arrow types, for the table that it is written to."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types

from jetspark.errors import ConfigError
from jetspark.payloads.tolerant import CORRUPT
from jetspark.reserved_names import check_names
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.versions import in_arrow
from jetspark.tables import quarantine

_NEWER_TYPES = ("time(", "geometry", "geography")
"""Beginnings of the names of types that older versions of Spark lack."""


def written_schemas(options: LakehouseOptions, schema: types.StructType) -> list[pa.Schema]:
    """The schemas of the rows that are written, for `prepare_for_query`.

    They are the columns of the DataFrame, unless the query's own tasks write the rows: then the
    DataFrame only has their reports. Raises ConfigError for a column that no table can have, and
    for a reserved name.
    """
    if options.task_rows:
        return list(options.task_rows)
    allowed = (CORRUPT, quarantine.REASON)  # these come with the rows of format jetstream
    check_names(f"The rows for {options.name}", schema.names, allowed=allowed)
    return [arrow_schema(schema)]


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """The columns as Arrow types. Raises ConfigError for types that no table can have."""
    if not schema.fields:
        raise ConfigError("The rows have no columns.")
    for column in schema:
        if name := _unsupported_type(column.dataType):
            raise ConfigError(
                f"A table cannot have the column {column.name!r} of type {name}: cast it, or leave "
                "it out."
            )
    return in_arrow(schema)


def _unsupported_type(kind: types.DataType) -> str | None:
    """A type, at any depth, that Delta and Iceberg lack or that their libraries do not write."""
    inner: list[types.DataType] = []
    match kind:
        case types.StructType() if not kind.fields:
            return kind.simpleString()
        case types.StructType():
            inner = [field.dataType for field in kind]
        case types.ArrayType():
            inner = [kind.elementType]
        case types.MapType():
            inner = [kind.keyType, kind.valueType]
        case (
            types.NullType()
            | types.VariantType()
            | types.AnsiIntervalType()
            | types.CalendarIntervalType()
        ):
            return kind.simpleString()
        case _ if kind.simpleString().startswith(_NEWER_TYPES):
            return kind.simpleString()
    return next(filter(None, map(_unsupported_type, inner)), None)
