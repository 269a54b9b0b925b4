"""JSON payloads as columns; text that cannot be parsed is kept in a separate column."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.spark.ddl import check_fields
from jetspark.spark.failures import explain

CORRUPT = "_corrupt_record"
KEPT = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of the source that are kept."""


def json_columns(ddl: str, said: str) -> dict[str, str]:
    """The columns of `with_json_fields` and their types, as far as known without Spark.

    `said`: the name of the schema's option, for messages. Raises ConfigError.
    """
    fields = check_fields(ddl, said)
    taken = sorted({*KEPT, CORRUPT} & set(fields))
    if taken:
        raise ConfigError(f"{said}: the names {', '.join(taken)} are taken by the message itself.")
    return dict.fromkeys(KEPT, "") | fields | {CORRUPT: "string"}


def with_json_fields(source: DataFrame, ddl: str, said: str) -> DataFrame:
    """The source's rows with the fields of a schema (Spark DDL) instead of `data`.

    `said`: the name of the schema's option, for messages. Raises ConfigError.
    """
    json_columns(ddl, said)
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{said} {ddl!r} is no schema: {explain(error)}") from error
    assert isinstance(schema, StructType)  # noqa: S101  it has fields with names
    parsed = F.from_json(
        F.col("data").cast("string"),
        schema.add(CORRUPT, "string"),
        {"columnNameOfCorruptRecord": CORRUPT},
    )
    return source.withColumn("_parsed", parsed).select(*KEPT, "_parsed.*")
