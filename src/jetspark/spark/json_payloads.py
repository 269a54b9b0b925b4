"""JSON payloads as columns; text that cannot be parsed is kept in a separate column."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetspark.errors import ConfigError
from jetspark.spark.ddl import check_fields
from jetspark.spark.failures import explain

CORRUPT = "_corrupt_record"
KEPT = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a stream's rows that are kept."""
_PAYLOADS = ("data", "value")
"""Of a stream's rows, and of a bucket's."""


def json_columns(ddl: str, said: str, columns: Iterable[str]) -> dict[str, str]:
    """The columns of `with_json_fields` and their types, as far as known without Spark.

    `said`: the name of the schema's option, for messages; `columns`: of the source. Raises
    ConfigError.
    """
    fields = check_fields(ddl, said)
    _, kept = _divided(columns, said)
    taken = sorted({*kept, CORRUPT} & set(fields))
    if taken:
        raise ConfigError(f"{said}: the names {', '.join(taken)} are taken by the message itself.")
    return dict.fromkeys(kept, "") | fields | {CORRUPT: "string"}


def with_json_fields(source: DataFrame, ddl: str, said: str) -> DataFrame:
    """The source's rows with the fields of a schema (Spark DDL) instead of the payload.

    Bytes that are not UTF-8 become U+FFFD, as in headers: no reader of a table takes them as text.

    `said`: the name of the schema's option, for messages. Raises ConfigError.
    """
    payload, kept = _divided(source.columns, said)
    json_columns(ddl, said, source.columns)
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{said} {ddl!r} is no schema: {explain(error)}") from error
    assert isinstance(schema, StructType)  # noqa: S101  it has fields with names
    parsed = F.from_json(
        F.make_valid_utf8(F.col(payload).cast("string")),
        schema.add(CORRUPT, "string"),
        {"columnNameOfCorruptRecord": CORRUPT},
    )
    return source.withColumn("_parsed", parsed).select(*kept, "_parsed.*")


def _divided(columns: Iterable[str], said: str) -> tuple[str, list[str]]:
    """The payload's column, and the others. Raises ConfigError."""
    names = list(columns)
    payload = next((one for one in _PAYLOADS if one in names), None)
    if payload is None:
        raise ConfigError(
            f"{said}: the rows have no payload (a column data, or value of a bucket); there are "
            f"{', '.join(names)}."
        )
    return payload, [one for one in names if one != payload]
