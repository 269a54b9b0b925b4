"""The schemas of the source as Spark types; tests compare them with those of `bulk.arrow`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetspark.bulk.arrow import TYPES
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
"""The rows of a stream; `bulk.arrow` describes the columns."""

BUCKET_SCHEMA = StructType(
    [
        StructField("bucket", StringType(), nullable=False),
        StructField("key", StringType(), nullable=False),
        StructField("value", BinaryType(), nullable=True),
        StructField("revision", LongType(), nullable=False),
        StructField("created", TimestampType(), nullable=False),
        StructField("operation", StringType(), nullable=False),
    ]
)
"""The rows of a Key-Value bucket."""

_FIELDS = {field.name: field for field in (*SCHEMA, *BUCKET_SCHEMA)}


_JSON = {name: from_arrow_type(arrow) for name, (_, arrow) in TYPES.items()}


def schema_of(columns: Sequence[str], json_fields: Sequence[tuple[str, str]] = ()) -> StructType:
    """These columns, in this order, and the fields of JSON payloads behind them."""
    found = [_FIELDS[name] for name in columns]
    if json_fields:
        found = [
            StructField("data", BinaryType()) if field.name == "data" else field for field in found
        ]
    return StructType([*found, *(StructField(name, _JSON[kind]) for name, kind in json_fields)])


def check_schema(asked: StructType, fixed: StructType) -> None:
    """Raise ConfigError for a schema other than the fixed one."""
    # A catalog table may have made columns nullable.
    if _shape(asked) != _shape(fixed):
        raise ConfigError(
            f"format jetstream has a fixed schema ({', '.join(fixed.names)}): leave .schema(…) out "
            "and use the option columns, or select(…), for example from_json on data."
        )


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.typeName()) for field in schema]
