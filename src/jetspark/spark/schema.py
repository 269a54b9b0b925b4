"""The one schema of the source in Spark's types; a test holds it equal to `bulk.arrow.SCHEMA`."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetspark.errors import ConfigError

SCHEMA = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        StructField("subject", StringType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("data", BinaryType(), nullable=False),
        StructField(
            "headers",
            ArrayType(
                StructType(
                    [
                        StructField("key", StringType(), nullable=False),
                        StructField("value", StringType(), nullable=False),
                    ]
                ),
                containsNull=False,
            ),
            nullable=True,
        ),
    ]
)
"""stream, subject, seq, timestamp, data, headers: what they hold stands in `bulk.arrow`."""


def check_schema(asked: StructType) -> None:
    """Raise ConfigError for a schema of the user's own: rows have one shape."""
    # Nullability may come back loosened through a catalog table.
    if [(f.name, f.dataType.typeName()) for f in asked] != [
        (f.name, f.dataType.typeName()) for f in SCHEMA
    ]:
        raise ConfigError(
            "format jetstream has a fixed schema (stream, subject, seq, timestamp, data, headers): "
            "leave .schema(…) out and use select(…), for example from_json on data."
        )
