"""JSON payloads as columns, and what does not parse kept beside them."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError

CORRUPT = "_corrupt_record"
KEPT = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of the source that stay."""


def with_json_fields(source: DataFrame, ddl: str, said: str) -> DataFrame:
    """The source's rows with the fields of a schema (Spark DDL) in place of `data`.

    `said`: how the user gave the schema, for messages. Raises ConfigError.
    """
    advice = "write for example 'carrier STRING, delay DOUBLE, tags ARRAY<STRING>'."
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{said} {ddl!r} is no schema; {advice}") from error
    if not isinstance(schema, StructType):
        raise ConfigError(f"{said} {ddl!r} has no named fields; {advice}")
    taken = sorted({*KEPT, CORRUPT} & set(schema.fieldNames()))
    if taken:
        raise ConfigError(f"{said}: the names {', '.join(taken)} are taken by the message itself.")
    parsed = F.from_json(
        F.col("data").cast("string"),
        schema.add(CORRUPT, "string"),
        {"columnNameOfCorruptRecord": CORRUPT},
    )
    return source.withColumn("_parsed", parsed).select(*KEPT, "_parsed.*")
