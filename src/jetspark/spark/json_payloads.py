"""Payloads as columns of DataFrames, and what does not fit in `_corrupt_record`.

The columns are made in Python (`codecs`), by the source while it reads, or by `decode_json` of rows
that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetspark.bulk.arrow import COLUMNS, schema_of
from jetspark.codecs.ddl import arrow_fields, in_ddl
from jetspark.codecs.decoder import PAYLOAD, REASON, only_refused
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.field_names import FieldNames
from jetspark.codecs.framing import Framing
from jetspark.codecs.json_fields import JsonFields
from jetspark.codecs.json_schema import json_columns_of
from jetspark.codecs.tolerant import Bare, Decoder, TolerantDecoder
from jetspark.errors import ConfigError
from jetspark.lakehouse.routes import ValueOf
from jetspark.reserved_names import BARE_PAYLOAD, CORRUPT_RECORD
from jetspark.spark.options import SourceOptions
from jetspark.spark.versions import in_arrow, of_arrow

CORRUPT = CORRUPT_RECORD
KEPT = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a stream's rows that stay."""
_PAYLOADS = ("data", "value")
"""The payload's column in a stream's rows, and in a bucket's."""
_OF_SCHEMA = ("decode", "schema", "schemafile", "schemaname", "schemaversion", "fields")


def json_decoder(
    ddl: str,
    option: str,
    names: FieldNames | None = None,
    payload: str = "data",
    framing: Framing | None = None,
    bare: Bare = "",
) -> Decoder:
    """What makes columns of JSON payloads. `option`: the name of the schema's option, for messages;
    `framing`: what is around them. Raises ConfigError."""
    names = FieldNames() if names is None else names
    fields = arrow_fields(ddl, option)
    columns = names.schema(option, fields)
    in_payloads = dict(zip(columns.names, fields.names, strict=True))
    inner = None if framing is None else framing.without_compression
    fields_of = JsonFields(columns, in_payloads, inner, payload)
    return TolerantDecoder(fields_of, framing or Framing(compression="none"), bare=bare)


def json_columns(
    ddl: str, option: str, columns: Iterable[str], names: FieldNames | None = None
) -> list[str]:
    """The columns of rows with these fields, without the payload; `columns`: of the source. Raises
    ConfigError."""
    payload, kept = payload_of(columns, option)
    names = names_beside(payload, kept) if names is None else names
    return [*kept, *names.check(option, arrow_fields(ddl, option).names), CORRUPT]


def with_json_options(options: Mapping[str, str], ddl: str) -> dict[str, str]:
    """The options of a source, whose payloads are JSON of this schema."""
    left = {name: one for name, one in options.items() if name.casefold() not in _OF_SCHEMA}
    left = {name: one for name, one in left.items() if not name.casefold().startswith("registry")}
    return {**left, "decode": "json", "schema": ddl}


def check_only_schema(options: Iterable[str], option: str) -> None:
    """Raise ConfigError if options of a source say, too, what `option` says: its schema."""
    for name in options:
        if name.casefold() in _OF_SCHEMA or name.casefold().startswith("registry"):
            raise ConfigError(f"Give either {option} or {name!r}: both say what the payloads are.")


def payload_ddl(decoding: Decoding | None) -> str | None:
    """The schema of JSON payloads in DDL; None for other formats."""
    if decoding is None or not decoding.is_json:
        return None
    fields = json_columns_of(decoding.schema.text)
    return in_ddl(pa.schema([fields.field(one) for one in decoding.check_fields(fields.names)]))


def decoded_columns(options: SourceOptions) -> list[str]:
    """The columns of `with_refused`, without Spark, the payload and the reason."""
    _, kept = payload_of(options.columns, "decode")
    return [*kept, *_fields(options).names, CORRUPT]


def times_of(options: SourceOptions) -> list[str]:
    """The fields that are timestamps."""
    return [one.name for one in _fields(options) if pa.types.is_timestamp(one.type)]


def _fields(options: SourceOptions) -> pa.Schema:
    """What is decoded of payloads."""
    if options.decoding is None:
        return pa.schema([])
    found = options.decoding.decoder().schema(schema_of(("data",)))
    return pa.schema([one for one in found if one.name not in ("data", REASON)])


def bare_payload(decoding: Decoding | None, made: Iterable[ValueOf]) -> Bare:
    """Which rows of a table need their payload without compression and frame; `made`: the columns
    that are made of others."""
    if any(value.known is not None for value in made):
        return "all"
    return "refused" if decoding is not None and decoding.is_json else ""


def with_refused(source: DataFrame, *, keep_payload: bool = False) -> DataFrame:
    """The source's rows with fields that it has decoded, `CORRUPT` and the reason. Where there is
    `BARE_PAYLOAD`, that of JSON, `CORRUPT` is it as a STRING, in which bytes that are not UTF-8 are
    U+FFFD; else it is the payload as it came, a BINARY."""
    payload, others = payload_of(source.columns, "decode")
    kept = [name for name in others if name in KEPT] + [payload] * keep_payload
    fields = [_named(name) for name in others if name not in (*KEPT, BARE_PAYLOAD)]
    is_bad = F.col(REASON).isNotNull()
    refused = F.when(is_bad, F.col(payload))
    if BARE_PAYLOAD in others:
        refused = F.make_valid_utf8(F.when(is_bad, F.col(BARE_PAYLOAD)).cast("string"))
    return source.select(*kept, *fields, refused.alias(CORRUPT))


def refused_payloads(decoded: pa.RecordBatch, text: str = BARE_PAYLOAD) -> pa.Array:
    """The column `CORRUPT` of decoded rows, as `with_refused` makes it. `text`: the column with the
    payload of JSON, if there is one."""
    if text not in decoded.schema.names:
        return only_refused(decoded).column(PAYLOAD)
    refused = only_refused(decoded, text).column(text)
    try:
        return refused.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [one and one.decode("utf-8", "replace") for one in refused.to_pylist()]
        return pa.array(texts, pa.string())


def decode_json(
    source: DataFrame, ddl: str, option: str, *, keep_payload: bool = False
) -> DataFrame:
    """The source's rows, of any format, with the fields of a schema in place of the payload.

    `option`: the name of the schema's option, for messages. Raises ConfigError.
    """
    payload, others = payload_of(source.columns, option)
    names = names_beside(payload, others)
    kept = [*others, *([payload] if keep_payload else [])]
    decoder = json_decoder(ddl, option, names, payload)
    columns = in_arrow(source.schema)
    fields = list(decoder.schema(columns))[len(columns) :]
    schema = StructType(
        [
            *(source.schema[name] for name in kept),
            *of_arrow(pa.schema([*fields, pa.field(CORRUPT, pa.string())])),
        ]
    )
    make = partial(_decode_batches, ddl, option, names, payload, schema.names)
    return source.mapInArrow(make, schema)


def names_beside(payload: str, others: Iterable[str]) -> FieldNames:
    """The names of fields beside the columns of a stream, or of a bucket."""
    return FieldNames(taken=COLUMNS if payload == "data" else (*others, payload))


def _decode_batches(
    ddl: str,
    option: str,
    names: FieldNames,
    payload: str,
    columns: list[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    decoder = json_decoder(ddl, option, names, payload)
    for batch in batches:
        decoded = decoder.of(batch)
        corrupt = refused_payloads(decoded, payload)
        yield decoded.append_column(CORRUPT, corrupt).select(columns)


def _named(name: str) -> Column:
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def payload_of(columns: Iterable[str], option: str) -> tuple[str, list[str]]:
    """The payload's column, and the other columns. Raises ConfigError."""
    names = list(columns)
    payload = next((one for one in _PAYLOADS if one in names), None)
    if payload is None:
        raise ConfigError(
            f"{option}: the rows have no payload (a column data, or value of a bucket); there are "
            f"{', '.join(names)}."
        )
    return payload, [one for one in names if one != payload]
