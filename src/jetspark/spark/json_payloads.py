"""Payloads as columns of DataFrames, and what does not fit in `_corrupt_record`.

The columns are made in Python (`codecs`), by the source while it reads, or by `decode_json` of rows
that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from jetspark.bulk.arrow import COLUMNS, schema_of
from jetspark.codecs.ddl import arrow_fields, in_ddl
from jetspark.codecs.decoder import REASON
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.field_names import FieldNames
from jetspark.codecs.framing import Framing
from jetspark.codecs.json_fields import JsonFields
from jetspark.codecs.json_schema import json_columns_of
from jetspark.codecs.tolerant import CORRUPT, Decoder, TolerantDecoder, decode_in_parts
from jetspark.errors import ConfigError, named
from jetspark.spark.options import SourceOptions
from jetspark.spark.versions import in_arrow, of_arrow

METADATA_COLUMNS = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a message that are not its payload."""
_PAYLOADS = ("data", "value")
"""The payload's column in a stream's rows, and in a bucket's."""
_OF_SCHEMA = ("decode", "schema", "schemafile", "schemaname", "schemaversion", "fields")


def json_decoder(
    ddl: str,
    option: str,
    names: FieldNames | None = None,
    payload: str = "data",
    framing: Framing | None = None,
    *,
    keep_payload: bool = False,
    keep_bare: bool = False,
) -> Decoder:
    """What makes columns of JSON payloads. `option`: the name of the schema's option, for messages;
    `framing`: what is around them; the others are those of `TolerantDecoder`. Raises
    ConfigError."""
    names = FieldNames() if names is None else names
    fields = arrow_fields(ddl, option)
    columns = names.schema(option, fields)
    in_payloads = dict(zip(columns.names, fields.names, strict=True))
    inner = None if framing is None else framing.without_compression
    return TolerantDecoder(
        JsonFields(columns, in_payloads, inner, payload),
        framing or Framing(compression="none"),
        payload,
        keep_payload=keep_payload,
        keep_bare=keep_bare,
        is_text=True,
    )


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


def check_only_schema(options: Iterable[str]) -> None:
    """Raise ConfigError if options of a source say, beside `json_schema`, what payloads are."""
    for name in options:
        if name.casefold() in _OF_SCHEMA or name.casefold().startswith("registry"):
            raise ConfigError(
                f"Give either {named('json_schema')} or {name}: both say what the payloads are."
            )


def payload_ddl(decoding: Decoding | None) -> str | None:
    """The schema of JSON payloads in DDL; None for other formats."""
    if decoding is None or not decoding.is_json:
        return None
    fields = json_columns_of(decoding.schema.text)
    return in_ddl(pa.schema([fields.field(one) for one in decoding.check_fields(fields.names)]))


def decoded_columns(options: SourceOptions) -> list[str]:
    """The columns of decoded rows, without the reason."""
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
    return pa.schema([one for one in found if one.name not in ("data", CORRUPT, REASON)])


def decode_json(source: DataFrame, ddl: str, option: str) -> DataFrame:
    """The source's rows, of any format, with the fields of a schema in place of the payload.

    `option`: the name of the schema's option, for messages. Raises ConfigError.
    """
    payload, others = payload_of(source.columns, option)
    make = partial(json_decoder, ddl, option, names_beside(payload, others), payload)
    schema = of_arrow(make().schema(in_arrow(source.schema)))
    return source.mapInArrow(partial(_decode_batches, make), schema)


def names_beside(payload: str, others: Iterable[str]) -> FieldNames:
    """The names of fields beside the columns of a stream, or of a bucket."""
    return FieldNames(taken=COLUMNS if payload == "data" else (*others, payload))


def _decode_batches(
    make: Callable[[], Decoder], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from decode_in_parts(make(), batches)


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
