"""JSON payloads as columns; text that is not an object goes to a separate column.

Spark's parser decides what a payload means. Clear cases are parsed by the source while it reads,
for a tenth of the CPU (`bulk.arrow`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from jetspark.bulk.arrow import TYPES, schema_of
from jetspark.codecs.ddl import ambiguous, check_fields
from jetspark.codecs.decoder import REASON
from jetspark.codecs.decoding import read_schema
from jetspark.codecs.json_schema import columns_of
from jetspark.codecs.schema import from_file
from jetspark.errors import ConfigError
from jetspark.spark.failures import explain
from jetspark.spark.options import SourceOptions

CORRUPT = "_corrupt_record"
KEPT = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a stream's rows that stay."""
_OPTION = "jsonSchema"
_PAYLOADS = ("data", "value")
"""The payload's column in a stream's rows, and in a bucket's."""
_WHOLE = "_parsed"
_IN_DDL = {"timestamp": "timestamp_ltz"}  # "timestamp" depends on a setting
_TIMES = {"date", "timestamp"}
_POLICY = "spark.sql.legacy.timeParserPolicy"


def json_columns(
    ddl: str, option: str, columns: Iterable[str], *, keep_payload: bool = False
) -> list[str]:
    """The columns of `with_json_fields`, without Spark and without the payload.

    `option`: the name of the schema's option, for messages; `columns`: of the source. Raises
    ConfigError.
    """
    fields = check_fields(ddl, option)
    _, kept = _divided(columns, option)
    others = (*kept, *(("data",) if keep_payload else ()), CORRUPT)
    if name := ambiguous(others, fields):
        raise ConfigError(
            f"{option}: column {name} has a name that another field has, or the message itself "
            f"({', '.join(others)}), and Spark ignores case: leave it out."
        )
    return [*kept, *fields, CORRUPT]


def taken_ddl(options: dict[str, str]) -> str | None:
    """Of the options of a source with `decode` json: the schema in Spark's DDL, in place of which
    these options are taken out. It is given so, or as a JSON Schema. Raises ConfigError."""
    names = {name.casefold(): name for name in options}
    if options.get(names.get("decode", "")) != "json":
        return None
    found = {
        name: options.pop(names[name])
        for name in ("decode", "schema", "schemafile")
        if name in names
    }
    if len(found) != 2:
        raise ConfigError("Payloads in JSON need one of schema and schemaFile: DDL or JSON Schema.")
    schema = found.get("schema") or read_schema(found["schemafile"]).decode()
    if not schema.lstrip().startswith("{"):
        return schema
    with from_file(found.get("schemafile")):
        columns = columns_of(schema)
    kinds = {one.name: from_arrow_type(one.type) for one in columns}
    quoted = {name.replace("`", "``"): kind.simpleString() for name, kind in kinds.items()}
    return ", ".join(f"`{name}` {kind}" for name, kind in quoted.items())


def parsing(
    spark: SparkSession, options: Mapping[str, str], ddl: str, option: str
) -> dict[str, str]:
    """Options with which format jetstream itself parses what it can of `with_json_fields`.

    Empty for types that it does not parse, and for names that Spark could not distinguish from
    those of other columns. Raises ConfigError.
    """
    names = {name.casefold() for name in options}
    if {"bucket", "columns", _OPTION.casefold()} & names:
        return {}
    fields = {field.name: field.dataType.simpleString() for field in _schema(ddl, option)}
    if ambiguous((*KEPT, "data", _WHOLE), fields) or not set(fields.values()) <= set(TYPES):
        return {}
    if _TIMES & set(fields.values()) and spark.conf.get(_POLICY) == "LEGACY":
        return {}
    quoted = {name.replace("`", "``"): _IN_DDL.get(kind, kind) for name, kind in fields.items()}
    return {_OPTION: ", ".join(f"`{name}` {kind}" for name, kind in quoted.items())}


def with_json_fields(
    source: DataFrame, ddl: str, option: str, *, parsed: bool = False, keep_payload: bool = False
) -> DataFrame:
    """The source's rows with the fields of a schema (Spark DDL) instead of the payload.

    Bytes that are not UTF-8 become U+FFFD: in the fields as Spark's parser replaces them, in kept
    text as in headers, since no reader of a table accepts them in text.

    `option`: the name of the schema's option, for messages. `parsed`: the source was loaded with
    the options of `parsing`, which were not empty. `keep_payload`: it is there, too. Raises
    ConfigError.
    """
    schema = _schema(ddl, option)
    fields = schema.names if parsed else []
    columns = [name for name in source.columns if name not in fields]
    payload, kept = _divided(columns, option)
    json_columns(ddl, option, columns, keep_payload=keep_payload)
    text = F.col(payload).cast("string")
    # Spark's own parsing comes first, since an expression that is always needed is evaluated once
    # for all columns. It is null where the source left no payload.
    found = [
        F.coalesce(F.col(_WHOLE).getField(name), *([_named(name)] if parsed else [])).alias(name)
        for name in schema.names
    ]
    kept += [payload] if keep_payload else []
    rows = _with_whole(source, text, schema, f"{option} {ddl!r}")
    return rows.select(*kept, *found, _corrupt(text).alias(CORRUPT))


def decoded_columns(options: SourceOptions) -> list[str]:
    """The columns of `with_refused`, without Spark, the payload and the reason."""
    _, kept = _divided(options.columns, "decode")
    return [*kept, *_fields(options).names, CORRUPT]


def times_of(options: SourceOptions) -> list[str]:
    """The fields that are timestamps."""
    return [one.name for one in _fields(options) if pa.types.is_timestamp(one.type)]


def _fields(options: SourceOptions) -> pa.Schema:
    """What is decoded of payloads that are not JSON."""
    if options.decoding is None:
        return pa.schema([])
    found = options.decoding.decoder().schema(schema_of(("data",)))
    return pa.schema([one for one in found if one.name not in ("data", REASON)])


def with_refused(source: DataFrame, *, keep_payload: bool = False) -> DataFrame:
    """The source's rows with fields that it has decoded of other formats, `CORRUPT`, which is
    BINARY here, and the reason."""
    payload, others = _divided(source.columns, "decode")
    kept = [name for name in others if name in KEPT] + [payload] * keep_payload
    fields = [_named(name) for name in others if name not in KEPT]
    refused = F.when(F.col(REASON).isNotNull(), F.col(payload))
    return source.select(*kept, *fields, refused.alias(CORRUPT))


def with_json_struct(
    source: DataFrame, name: str, payload: Column, ddl: str, option: str
) -> DataFrame:
    """The source's rows with the same fields, and `CORRUPT`, in one column more; it is null where
    the payload is."""
    schema = _schema(ddl, option)
    text = payload.cast("string")
    fields = [F.col(_WHOLE).getField(one).alias(one) for one in schema.names]
    whole = F.struct(*fields, _corrupt(text).alias(CORRUPT))
    rows = _with_whole(source, text, schema, f"{option} {ddl!r}")
    return rows.withColumn(name, F.when(payload.isNotNull(), whole)).drop(_WHOLE)


def _with_whole(source: DataFrame, text: Column, schema: StructType, said: str) -> DataFrame:
    whole = F.from_json(
        text,
        StructType([*schema, StructField(CORRUPT, StringType())]),
        {"columnNameOfCorruptRecord": CORRUPT},
    )
    try:
        return source.withColumn(_WHOLE, whole)
    except PySparkException as error:  # a type that is not in JSON
        raise ConfigError(f"{said}: {explain(error)}") from error


def _corrupt(text: Column) -> Column:
    """The text, if it does not fit as a whole; else null."""
    return F.coalesce(
        F.make_valid_utf8(F.col(_WHOLE).getField(CORRUPT)),
        _more_than_an_object(F.make_valid_utf8(text)),
    )


def _more_than_an_object(text: Column) -> Column:
    """The text if it is blank, or continues after its first object; else null.

    Spark's parser reads the first object and stops. With brackets around it the text must be a list
    of one.
    """
    listed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "ARRAY<STRUCT<`_`: STRING>>")
    # Most objects have their first brace at the end, and need no second look.
    suspect = F.instr(text, "}") != F.greatest(F.length(text), F.lit(1))
    return F.when(suspect & (F.coalesce(F.size(listed), F.lit(-1)) != 1), text)


def _schema(ddl: str, option: str) -> StructType:
    check_fields(ddl, option)
    try:
        schema = StructType.fromDDL(ddl)
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"{option} {ddl!r} is not a schema: {explain(error)}") from error
    assert isinstance(schema, StructType)  # noqa: S101  it has fields with names
    return schema


def _named(name: str) -> Column:
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def _divided(columns: Iterable[str], option: str) -> tuple[str, list[str]]:
    """The payload's column, and the other columns. Raises ConfigError."""
    names = list(columns)
    payload = next((one for one in _PAYLOADS if one in names), None)
    if payload is None:
        raise ConfigError(
            f"{option}: the rows have no payload (a column data, or value of a bucket); there are "
            f"{', '.join(names)}."
        )
    return payload, [one for one in names if one != payload]
